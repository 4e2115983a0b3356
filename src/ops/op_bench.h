// Speed of ops: runs the op table's benchmark cases on a backend and sets the figures against what the device can do.
#pragma once

#include <string>
#include <vector>

#include "ops/op_table.h"

namespace rullama {

// What simple kernels reach on this device.
struct DevicePeak {
  double read_gbps = 0;  // reading memory, 10^9 bytes a second
  double gflops = 0;     // f32 fused multiply-adds, two operations each
};
[[nodiscard]] Result<DevicePeak> measure_peak(Backend& backend);

struct OpSpeed {
  std::string op, format, shape;
  double seconds = 0;  // median of the runs
  double gbps = 0;     // each tensor counted once
  double gflops = 0;   // 0 where the op counts no arithmetic
  // Of the peak of what bounds the op: the larger of the shares of bandwidth and arithmetic. Integer and f16 units are
  // faster than the f32 peak, and a case that fits the device's caches reads faster than memory: it may exceed 1.
  double share = 0;
};

// At least one case of every op and format: those of the op table that are for benchmarks, where one of them has a
// derivative also that (its op is called "<op>_backward"), and the largest test of what has none.
[[nodiscard]] std::vector<OpCase> bench_cases();

// A case with `derivative`: its time beyond the same case's without.
[[nodiscard]] Result<OpSpeed> bench_case(const OpCase& c, Backend& backend, Precision precision,
                                         const DevicePeak& peak);

}  // namespace rullama
