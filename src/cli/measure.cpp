#include "cli/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "api/impl.h"
#include "host/native/crew.h"
#include "ops/backend.h"
#include "ops/op_bench.h"

namespace rullama::cli {

namespace {

// Larger than the caches of any processor in use.
constexpr std::size_t kReadBytes = std::size_t{1} << 30;
constexpr int kReads = 4;

double cpu_bandwidth(std::uint32_t threads) {
  const std::vector<std::uint64_t> words(kReadBytes / sizeof(std::uint64_t), 1);
  const auto crew = make_crew(threads);
  std::atomic<std::uint64_t> seen = 0;  // makes the reads count
  double best = 0;
  for (int i = 0; i < kReads; i++) {
    const auto start = std::chrono::steady_clock::now();
    crew->run(words.size(), 1 << 16, [&](std::size_t begin, std::size_t end) {
      std::uint64_t sums[8] = {};
      for (std::size_t at = begin; at + 8 <= end; at += 8)
        for (std::size_t lane = 0; lane < 8; lane++) sums[lane] += words[at + lane];
      for (const std::uint64_t sum : sums) seen += sum;
    });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(kReadBytes) / took.count() / 1e9);
  }
  return best;
}

}  // namespace

ResidentMemory resident_memory() {
  ResidentMemory memory;
  std::FILE* status = std::fopen("/proc/self/status", "r");
  if (!status) return memory;
  char line[256];
  while (std::fgets(line, sizeof line, status)) {
    unsigned long long kilobytes = 0;
    if (std::sscanf(line, "VmRSS: %llu", &kilobytes) == 1) memory.total = kilobytes * 1024;
    if (std::sscanf(line, "RssAnon: %llu", &kilobytes) == 1) memory.own = kilobytes * 1024;
    if (std::sscanf(line, "RssFile: %llu", &kilobytes) == 1) memory.file = kilobytes * 1024;
  }
  std::fclose(status);
  return memory;
}

std::uint64_t device_bytes(const Model& model) { return model.impl().text->backend->allocated_bytes(); }

Result<double> peak_bandwidth(const Model& model, std::uint32_t threads) {
  Backend& backend = *model.impl().text->backend;
  if (!backend.is_gpu()) return cpu_bandwidth(threads);
  auto peak = measure_peak(backend);
  if (!peak) return failed(peak);
  return peak->read_gbps;
}

}  // namespace rullama::cli
