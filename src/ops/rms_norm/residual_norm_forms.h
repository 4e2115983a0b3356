// The forms of residual_norm for ops that begin with it.
#pragma once

#include "ops/cpu_call.h"
#include "ops/gpu_call.h"

namespace rullama {

// sum = (residual + rms_norm(x, w)) * scale, normed = rms_norm(sum, w_next)
template <class View>
struct ResidualNormViews {
  const View &residual, &x, &w;
  const View* w_next;  // null: only the sum is made
  const View* scale;   // or null
  const View &sum, &normed;
};
void residual_norm_on_cpu(const CpuCall& call, const ResidualNormViews<CpuView>& v, float eps);
[[nodiscard]] Result<> record_residual_norm(GpuCall& call, const ResidualNormViews<GpuView>& v, float eps);

}  // namespace rullama
