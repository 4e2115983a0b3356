// Runs graphs on the CPU: each node's plain or vectorised form, one after the other, over all threads of the crew.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "base/crew.h"
#include "ops/backend.h"

namespace rullama {

// `room` tells how many bytes can still be had; without it, allocations are tried.
[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend(std::shared_ptr<Crew> crew,
                                                        std::function<std::uint64_t()> room = {});

}  // namespace rullama
