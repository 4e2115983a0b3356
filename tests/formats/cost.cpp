#include "formats/cost.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::size_t> live{0}, peak{0};

void* allocate(std::size_t bytes) {
  void* p = std::malloc(std::max<std::size_t>(bytes, 1));
  if (!p) std::abort();
  const std::size_t now = live += malloc_usable_size(p);
  for (std::size_t seen = peak; seen < now && !peak.compare_exchange_weak(seen, now);) {
  }
  return p;
}

void release(void* p) {
  if (p) live -= malloc_usable_size(p);
  std::free(p);
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, std::size_t) noexcept { release(p); }
void operator delete[](void* p, std::size_t) noexcept { release(p); }

namespace rullama::test {

std::size_t heap_peak() { return peak; }
void reset_peak() { peak = live.load(); }

}  // namespace rullama::test
