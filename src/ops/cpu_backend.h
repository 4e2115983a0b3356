// Runs graphs on the CPU: each node's plain or vectorised form, one after the other, over all threads of the crew.
#pragma once

#include <memory>

#include "base/crew.h"
#include "ops/backend.h"

namespace rullama {

[[nodiscard]] std::unique_ptr<Backend> make_cpu_backend(std::shared_ptr<Crew> crew);

}  // namespace rullama
