#include "cli/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "api/impl.h"
#include "base/random.h"
#include "base/text.h"
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

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  return n == 0 ? 0 : n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

// Ordinary tokens: which ones makes no difference to the speed of a dense model.
std::vector<Token> some_tokens(const Tokenizer& tokenizer, std::size_t count) {
  std::vector<Token> ids;
  if (tokenizer.bos()) ids.push_back(*tokenizer.bos());
  Random random(1);
  while (ids.size() < count) {
    const Token id = random.next() % static_cast<Token>(tokenizer.size());
    if (tokenizer.type(id) == TokenType::normal) ids.push_back(id);
  }
  ids.resize(count);
  return ids;
}

Json kernel_times(std::span<const NodeTime> times) {
  struct Sum {
    int runs = 0;
    double ns = 0;
    Cost cost;
  };
  std::map<std::string, Sum> sums;
  for (const NodeTime& t : times) {
    Sum& sum = sums[t.name];
    sum.runs++;
    sum.ns += t.nanoseconds;
    sum.cost.bytes += t.cost.bytes;
    sum.cost.flops += t.cost.flops;
  }
  Json rows = Json::array();
  for (const auto& [name, sum] : sums)
    rows.push_back({{"kernel", name},
                    {"runs", sum.runs},
                    {"us", sum.ns / 1e3},
                    {"gbps", sum.ns > 0 ? sum.cost.bytes / sum.ns : 0},
                    {"gflops", sum.ns > 0 ? sum.cost.flops / sum.ns : 0}});
  std::sort(rows.begin(), rows.end(), [](const Json& a, const Json& b) { return a["us"] > b["us"]; });
  return rows;
}

void print_kernels(std::string_view what, const Json& rows) {
  double total = 0;
  for (const Json& r : rows) total += r["us"].get<double>();
  put(cat("\n", what, ": ", fixed(total / 1e3, 3), " ms in kernels\n"));
  std::vector<std::vector<std::string>> table;
  table.push_back({"kernel", "runs", "us", "share", "GB/s", "GFLOP/s"});
  for (const Json& r : rows) {
    const auto number = [&](const char* key, int digits) { return fixed(r[key].get<double>(), digits); };
    table.push_back({r["kernel"].get<std::string>(), cat(r["runs"].get<int>()), number("us", 1),
                     fixed(100 * r["us"].get<double>() / total, 1) + " %", number("gbps", 1), number("gflops", 1)});
  }
  put_table(table, {false, true, true, true, true, true});
}

}  // namespace rullama::cli
