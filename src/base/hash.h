// FNV-1a, for fingerprints: no protection against whoever wants two things to look alike.
#pragma once

#include <cstdint>

namespace rullama {

inline constexpr std::uint64_t kFnvBasis = 1469598103934665603ull;

// `hash` and then `value`, a byte or any number.
[[nodiscard]] constexpr std::uint64_t fnv1a(std::uint64_t hash, std::uint64_t value) {
  return (hash ^ value) * 1099511628211ull;
}

}  // namespace rullama
