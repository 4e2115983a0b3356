#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "api/impl.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/output.h"
#include "ops/op_bench.h"

namespace rullama::cli {

namespace {

struct BenchOpsOptions {
  std::vector<std::string> words;
  std::string device;
  std::uint32_t threads = 0;
  bool exact = false, list = false, json = false;
};

// All words, in any place and case, of "matmul Q4_K k=640 n=2048 rows=1".
bool matches(const OpCase& c, const std::vector<std::string>& words) {
  const auto lower = [](std::string text) {
    for (char& ch : text)
      if (ch >= 'A' && ch <= 'Z') ch = static_cast<char>(ch - 'A' + 'a');
    return text;
  };
  const std::string text = lower(cat(c.op, " ", c.format, " ", c.shape));
  return std::all_of(words.begin(), words.end(),
                     [&](const std::string& word) { return text.find(lower(word)) != std::string::npos; });
}

std::string time_text(double seconds) {
  return seconds < 1e-3 ? cat(fixed(seconds * 1e6, 1), " us")
         : seconds < 1  ? cat(fixed(seconds * 1e3, 2), " ms")
                        : cat(fixed(seconds, 2), " s");
}

// A table that is printed while it is made: the names' widths are known before.
class Table {
 public:
  explicit Table(const std::vector<OpCase>& cases) {
    for (const OpCase& c : cases) {
      const std::array<std::size_t, 3> sizes{c.op.size(), c.format.size(), c.shape.size()};
      for (std::size_t i = 0; i < sizes.size(); i++) widths_[i] = std::max(widths_[i], sizes[i]);
    }
  }
  void names(const OpCase& c) const {
    put(cat(left(c.op, widths_[0]), "  ", left(c.format, widths_[1]), "  ", left(c.shape, widths_[2])));
  }
  void figures(const OpSpeed& s) const {
    put(cat(right(time_text(s.seconds)), right(cat(fixed(s.gbps, 1), " GB/s")),
            right(s.gflops > 0 ? cat(fixed(s.gflops, 1), " GFLOP/s") : ""), right(cat(fixed(100 * s.share, 0), " %"))));
  }

 private:
  static std::string left(std::string text, std::size_t width) {
    text.resize(std::max(text.size(), width), ' ');
    return text;
  }
  static std::string right(const std::string& text) {
    constexpr std::size_t width = 18;
    return std::string(text.size() < width ? width - text.size() : 1, ' ') + text;
  }
  std::array<std::size_t, 3> widths_{};
};

Json case_json(const OpCase& c) { return {{"op", c.op}, {"format", c.format}, {"shape", c.shape}}; }

Result<> measure_all(const BenchOpsOptions& o, const std::vector<OpCase>& cases) {
  auto backend = open_backend({.device = o.device, .threads = o.threads});
  if (!backend) return failed(backend);
  auto peak = measure_peak(**backend);
  if (!peak) return failed(peak);
  if (!o.json)
    put_now(cat((*backend)->device_name(), ": reads ", fixed(peak->read_gbps, 1), " GB/s, f32 ", fixed(peak->gflops, 1),
                " GFLOP/s\n"));
  const Precision precision = o.exact ? Precision::exact : Precision::fast;
  const Table table(cases);
  ProgressBar bar("Measuring");
  Json results = Json::array();
  for (std::size_t i = 0; i < cases.size(); i++) {
    if (o.json) bar.show(i, cases.size());
    const auto speed = bench_case(cases[i], **backend, precision, *peak);
    if (o.json) {
      Json result = case_json(cases[i]);
      if (speed) {
        result.update({{"seconds", speed->seconds},
                       {"gbps", speed->gbps},
                       {"gflops", speed->gflops},
                       {"share", speed->share},
                       {"device", (*backend)->device_name()},
                       {"peak_gbps", peak->read_gbps},
                       {"peak_gflops", peak->gflops}});
      } else {
        result["error"] = speed.error().message;
      }
      results.push_back(std::move(result));
      continue;
    }
    table.names(cases[i]);
    if (speed)
      table.figures(*speed);
    else
      put(cat("  ", speed.error().message));
    put_now("\n");
  }
  if (o.json) put_json(results);
  return {};
}

Result<> bench_ops(const BenchOpsOptions& o) {
  std::vector<OpCase> cases = bench_cases();
  std::erase_if(cases, [&](const OpCase& c) { return !matches(c, o.words); });
  if (cases.empty()) return fail("no operation has all of these words in its name, format and shape; see --list");
  if (!o.list) return measure_all(o, cases);
  if (o.json) {
    Json list = Json::array();
    for (const OpCase& c : cases) list.push_back(case_json(c));
    put_json(list);
    return {};
  }
  const Table table(cases);
  for (const OpCase& c : cases) {
    table.names(c);
    put("\n");
  }
  return {};
}

}  // namespace

CLI::App* add_bench_ops(CLI::App* bench, Task& task) {
  auto options = std::make_shared<BenchOpsOptions>();
  CLI::App* command = bench->add_subcommand("ops", "How fast each operation runs here, in each format");
  command->add_option("WORDS", options->words, "Only operations with all of these in their name, format or shape");
  command->add_option("--device", options->device,
                      "cpu, gpu, an index or a part of a name of `rullama devices`; default: the best");
  command->add_option("--threads", options->threads, "Threads of the CPU device; 0: all cores")
      ->check(CLI::Range(0, 1024));
  command->add_flag("--exact", options->exact, "f32 all the way, instead of the device's fast kernels");
  command->add_flag("--list", options->list, "Only list them");
  command->add_flag("--json", options->json,
                    "An array of objects: op, format, shape, seconds (median), gbps, gflops, share; error where one\n"
                    "cannot run");
  command->footer(
      "GB/s counts each tensor once. The share is of what the same device reaches when it only reads or only\n"
      "multiplies, whichever is larger; what fits the device's caches may pass 100 %.\n\n"
      "Examples:\n  rullama bench ops\n  rullama bench ops matmul q4_k --device cpu\n  rullama bench ops --list "
      "--json");
  run_with(command, task, options, bench_ops);
  return command;
}

}  // namespace rullama::cli
