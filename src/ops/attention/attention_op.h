// What the parts of this folder share: sizes, the visible range of a row, and the CPU and GPU forms of the ops.
#pragma once

#include <algorithm>
#include <memory>
#include <span>

#include "ops/attention/attention.h"
#include "ops/cpu_call.h"
#include "ops/gpu_call.h"

namespace rullama::attention_detail {

// Which keys a row sees. Each mask is one run of positions [begin, end) per row, so all forms are written over runs.
enum class Mask : std::uint8_t { causal, packed, all, region };

struct Setup {
  AttentionOptions options;
  Mask mask;
  // Inputs after the tensors of the op: positions unless `all`; then first (packed) or prompt (region).
  [[nodiscard]] std::size_t range_inputs() const { return mask == Mask::all ? 0 : mask == Mask::causal ? 1 : 2; }
};

struct Sizes {
  std::uint32_t rows, heads, kv_heads, group, d, slots;
  Sizes(const Shape& q, const Shape& k)
      : rows(static_cast<std::uint32_t>(q[0])),
        heads(static_cast<std::uint32_t>(q[1])),
        kv_heads(static_cast<std::uint32_t>(k[1])),
        group(kv_heads ? heads / kv_heads : 0),
        d(static_cast<std::uint32_t>(q[2])),
        slots(static_cast<std::uint32_t>(k[0])) {}
};

struct Range {
  std::uint32_t begin, end;
  [[nodiscard]] bool has(std::uint32_t t) const { return t >= begin && t < end; }
};

// The op of attention() without `first`: inputs q, k, v, positions; outputs out and lse.
[[nodiscard]] std::unique_ptr<Op> attention_op(const AttentionOptions& options);

// The forms of attention.cpp's ops. `ranges` are the range inputs.
void forward_cpu(const Setup& setup, const CpuCall& call);
void backward_q_cpu(const Setup& setup, const CpuCall& call);
void backward_kv_cpu(const Setup& setup, const CpuCall& call);
void probabilities_cpu(const Setup& setup, const CpuCall& call);

[[nodiscard]] Result<> forward_gpu(const Setup& setup, GpuCall& call);
[[nodiscard]] Result<> backward_q_gpu(const Setup& setup, GpuCall& call);
[[nodiscard]] Result<> backward_kv_gpu(const Setup& setup, GpuCall& call);
[[nodiscard]] Result<> probabilities_gpu(const Setup& setup, GpuCall& call);

}  // namespace rullama::attention_detail
