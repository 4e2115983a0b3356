// How much memory this machine has left.
#pragma once

#include <cstdint>

namespace rullama {

// Bytes that can be filled before the system begins to end programs; UINT64_MAX where that is not known. Systems
// promise memory that they do not have, so an allocation that succeeds says little.
[[nodiscard]] std::uint64_t available_memory();

}  // namespace rullama
