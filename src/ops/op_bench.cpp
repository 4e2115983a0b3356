#include "ops/op_bench.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

#include "base/random.h"
#include "host/host.h"
#include "ops/op_ready.h"
#include "ops/probe/probe.h"

namespace rullama {
namespace {

constexpr double kSeconds = 0.15;  // of measuring, for each case
constexpr std::size_t kLeast = 3, kMost = 50;
constexpr double kLong = 2;  // a run that takes longer is not repeated

// Seconds of one run, by the device's clock where it has one. Without, reading `kept` waits for the end.
Result<double> time_once(Program& program, Var kept) {
  if (auto times = program.run_timed()) {
    double sum = 0;
    for (const NodeTime& t : *times) sum += t.nanoseconds;
    return sum * 1e-9;
  } else if (times.error().code != ErrorCode::unsupported) {
    return failed(times);
  }
  // No time stamps: several runs between two waits.
  constexpr int kRuns = 8;
  std::array<std::byte, 4> some;
  const double start = host::rullama_host_now();
  for (int i = 0; i < kRuns; i++)
    if (auto ok = program.run(); !ok) return failed(ok);
  if (kept)
    if (auto ok = program.read(kept, some); !ok) return failed(ok);
  return (host::rullama_host_now() - start) / kRuns;
}

Result<double> median_time(Program& program, Var kept) {
  auto warm = time_once(program, kept);
  if (!warm || *warm > kLong) return warm;
  std::vector<double> times;
  const double start = host::rullama_host_now();
  while (times.size() < kLeast || (times.size() < kMost && host::rullama_host_now() - start < kSeconds)) {
    auto t = time_once(program, kept);
    if (!t) return t;
    times.push_back(*t);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

Cost total_cost(const Graph& graph) {
  Cost total;
  for (const Node& node : graph.nodes()) {
    std::vector<TensorDesc> in, out;
    for (const TensorId id : node.in) in.push_back(graph.tensors()[id].desc);
    for (const TensorId id : node.out) out.push_back(graph.tensors()[id].desc);
    const Cost cost = node.op->cost(in, out);
    total.bytes += cost.bytes;
    total.flops += cost.flops;
  }
  return total;
}

std::uint64_t input_bytes(const OpCase& c) {
  std::uint64_t bytes = 0;
  for (const CaseInput& input : c.inputs) bytes += input.desc.bytes();
  return bytes;
}

struct Work {
  double seconds;
  Cost cost;
};

Result<Work> time_case(const OpCase& c, Backend& backend, Precision precision, bool derivative) {
  Random random(1);
  auto ready = build_case(c, backend, precision, Filling::repeated, random, derivative);
  if (!ready) return failed(ready);
  ReadyCase& r = **ready;
  // what to wait for: an output, or an input where all outputs are states
  Var kept = r.out.empty() ? Var{} : r.out[0];
  for (std::size_t i = 0; i < c.inputs.size() && !kept; i++)
    if (!is_outside(c.inputs[i])) kept = r.in[i];
  auto seconds = median_time(*r.program, kept);
  if (!seconds) return failed(seconds);
  return Work{*seconds, total_cost(r.graph)};
}

OpCase probe_case(std::string name, std::uint64_t n, std::function<Var(Var)> f) {
  OpCase c;
  c.op = std::move(name);
  c.inputs = {{"x", {DType::F32, {n / 256, 256}}, Fill::uniform(0.5, 1)}};
  c.build = [f = std::move(f)](Graph&, std::span<const Var> in) { return std::vector{f(in[0])}; };
  return c;
}

}  // namespace

Result<DevicePeak> measure_peak(Backend& backend) {
  // larger than caches, and within one binding
  const std::uint64_t bytes = std::min<std::uint64_t>(backend.max_activation_bytes(), 512u << 20) / 1024 * 1024;
  auto reading = bench_case(probe_case("read_probe", bytes / 4, read_probe), backend, Precision::exact, {});
  if (!reading) return failed(reading);
  DevicePeak peak{reading->gbps, 0};
  // more work for devices that turn out fast
  std::uint64_t lanes = 1u << 14;
  for (std::uint32_t steps = 64; steps <= 1024; steps *= 4, lanes *= 4) {
    const auto f = [steps](Var x) { return fma_probe(x, steps); };
    auto multiplying = bench_case(probe_case("fma_probe", lanes, f), backend, Precision::exact, {});
    if (!multiplying) return failed(multiplying);
    peak.gflops = std::max(peak.gflops, multiplying->gflops);
    if (multiplying->seconds > 1e-3) break;
  }
  return peak;
}

std::vector<OpCase> bench_cases() {
  std::vector<OpCase> all = op_cases(), cases;
  std::map<std::pair<std::string, std::string>, const OpCase*> largest;  // null: has a case of its own
  for (OpCase& c : all) {
    const OpCase*& other = largest.try_emplace({c.op, c.format}, &c).first->second;
    if (c.use != CaseUse::test) {
      other = nullptr;
      cases.push_back(c);
      cases.back().derivative = false;
      if (!c.derivative) continue;
      cases.push_back(c);
      cases.back().op += "_backward";
    } else if (other && input_bytes(c) > input_bytes(*other)) {
      other = &c;
    }
  }
  for (const auto& [key, c] : largest) {
    if (!c) continue;
    cases.push_back(*c);
    cases.back().derivative = false;
  }
  std::stable_sort(cases.begin(), cases.end(), [](const OpCase& a, const OpCase& b) { return a.op < b.op; });
  return cases;
}

Result<OpSpeed> bench_case(const OpCase& c, Backend& backend, Precision precision, const DevicePeak& peak) {
  auto work = time_case(c, backend, precision, c.derivative);
  if (!work) return failed(work);
  if (c.derivative) {
    auto forward = time_case(c, backend, precision, false);
    if (!forward) return failed(forward);
    work->seconds = std::max(work->seconds - forward->seconds, 0.0);
    work->cost.bytes -= forward->cost.bytes;
    work->cost.flops -= forward->cost.flops;
  }
  OpSpeed speed{c.op, c.format, c.shape, work->seconds, 0, 0, 0};
  if (work->seconds > 0) {
    speed.gbps = work->cost.bytes / work->seconds * 1e-9;
    speed.gflops = work->cost.flops / work->seconds * 1e-9;
  }
  if (peak.read_gbps > 0) speed.share = speed.gbps / peak.read_gbps;
  if (peak.gflops > 0) speed.share = std::max(speed.share, speed.gflops / peak.gflops);
  return speed;
}

}  // namespace rullama
