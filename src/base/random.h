// A small deterministic generator (PCG-XSH-RR 64/32, O'Neill 2014): the same numbers on every platform.
#pragma once

#include <cmath>
#include <cstdint>

namespace rullama {

class Random {
 public:
  explicit Random(std::uint64_t seed) {
    next();
    state_ += seed;
    next();
  }
  std::uint32_t next() {
    const std::uint64_t old = state_;
    state_ = old * 6364136223846793005ull + 1442695040888963407ull;
    const auto shifted = static_cast<std::uint32_t>((old >> 18 ^ old) >> 27);
    const auto turn = static_cast<std::uint32_t>(old >> 59);
    return shifted >> turn | shifted << (-turn & 31);
  }
  // [0, 1), 53 bits
  double uniform() {
    const std::uint64_t high = next() >> 5, low = next() >> 6;
    return static_cast<double>(high << 26 | low) * 0x1p-53;
  }
  double normal() {
    const double u = 1.0 - uniform(), v = uniform();
    return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
  }

 private:
  std::uint64_t state_ = 0;
};

}  // namespace rullama
