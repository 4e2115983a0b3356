// What a call takes of the host: memory on the heap and processor time.
#pragma once

#include <cstddef>
#include <ctime>

namespace rullama::test {

// Bytes that operator new has given out and not got back, and the most since `reset_peak`.
std::size_t heap_peak();
void reset_peak();

struct Cost {
  std::size_t heap = 0;  // most bytes at a time, beyond those held before
  double seconds = 0;    // of processor time
};

// What so many seconds of a plain build are in this one: sanitizers take their share.
[[nodiscard]] constexpr double seconds(double plain) {
#if defined(__SANITIZE_ADDRESS__)
  return 20 * plain;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
  return 20 * plain;
#else
  return plain;
#endif
#else
  return plain;
#endif
}

template <class Call>
Cost cost_of(Call call) {
  reset_peak();
  const std::size_t before = heap_peak();
  const std::clock_t start = std::clock();
  call();
  const std::clock_t end = std::clock();
  return {heap_peak() - before, static_cast<double>(end - start) / CLOCKS_PER_SEC};
}

}  // namespace rullama::test
