#include "ops/experts/experts_gpu.h"

#include "base/text.h"
#include "ops/geglu/geglu_forms.h"
#include "ops/matmul/product_kernels.h"

namespace rullama {
namespace {

gpu::Grid by_thread(std::uint64_t threads) { return gpu::Grid::wrap((threads + 63) / 64); }

struct ChooseParams {
  std::uint32_t tokens, experts, k, pad = 0;
};

enum Step : std::uint32_t { kForward, kSlots, kWeights };

}  // namespace

Result<> record_choose_experts(GpuCall& call, std::uint32_t k) {
  const GpuView& scores = call.in[0];
  const ChooseParams params{static_cast<std::uint32_t>(scores.shape()[0]),
                            static_cast<std::uint32_t>(scores.shape()[1]), k};
  if (params.tokens == 0) return {};
  const auto source = [] { return gpu::Wgsl("ops/experts/choose.wgsl"); };
  return call.dispatch("choose_experts", source, {read(scores), write(call.out[0]), write(call.out[1])}, params,
                       gpu::Grid::wrap(params.tokens));
}

Result<> record_choose_experts_backward(GpuCall& call) {
  const GpuView &ids = call.in[0], &y = call.out[0];
  const ChooseParams params{static_cast<std::uint32_t>(y.shape()[0]), static_cast<std::uint32_t>(y.shape()[1]),
                            static_cast<std::uint32_t>(ids.shape()[1])};
  if (params.tokens == 0) return {};
  const auto source = [] { return gpu::Wgsl("ops/experts/choose_backward.wgsl"); };
  return call.dispatch("choose_experts_backward", source, {read(ids), read(call.in[1]), read(call.in[2]), write(y)},
                       params, by_thread(params.tokens));
}

namespace {

// Tiles of the pairs that chose the same expert, in scratch memory that the product does not use.
struct Groups {
  std::uint32_t tiles;
  GpuView view;
};
Result<Groups> record_groups(GpuCall& call, const GpuView& ids, std::uint32_t experts) {
  const auto pairs = static_cast<std::uint32_t>(ids.shape().elements());
  // each expert may leave one of its tiles unfilled
  const std::uint32_t tiles = pairs / kExpertTile + std::min(experts + 1, pairs);
  auto groups = call.scratch(2, TensorDesc{DType::U32, {3 * std::uint64_t{tiles} + pairs}});
  if (!groups) return failed(groups);
  const struct {
    std::uint32_t pairs, experts, tiles, pad = 0;
  } params{pairs, experts, tiles};
  const auto source = [] { return gpu::Wgsl("ops/experts/group.wgsl").constant("SIZE", kExpertTile); };
  auto ok = call.dispatch("group_experts", source, {read(ids), write(*groups)}, params, {});
  if (!ok) return failed(ok);
  return Groups{tiles, *groups};
}

// y = w[id] x of each pair, by tiles. False, and nothing recorded, if tiles of that kind have no gated form.
Result<bool> record_pairs_by_tiles(GpuCall& call, const GpuView& y, ProductParams params, bool gated) {
  const GpuView &x = call.in[0], &w = call.in[1], &ids = call.in[2];
  auto inputs = record_tile_inputs(call, x, w, false, 0, params.n);
  if (!inputs) return failed(inputs);
  if (gated && inputs->form != RowInputs::Form::halves) return false;
  auto groups = record_groups(call, ids, params.experts);
  if (!groups) return failed(groups);
  params.w = weight_params(w, w.parts[0]);
  params.tiles = groups->tiles;
  const ProductBuffers buffers{.x = x, .w = w, .y = y, .ids = &groups->view, .gated = gated};
  if (auto ok = record_tiles(call, buffers, w.parts[0], params, *inputs, false, false); !ok) return failed(ok);
  return true;
}

// The same by the kernels that suit. False if that cannot be gated.
Result<bool> record_pairs(GpuCall& call, const GpuView& y, ProductParams params, bool gated) {
  const GpuView &x = call.in[0], &w = call.in[1], &ids = call.in[2];
  if (gated && w.parts.size() > 1) return false;  // gate and factor may lie in different ones
  if (w.parts.size() == 1 && params.experts > 0 && params.experts <= kMaxExperts &&
      forward_kernel(call.caps, params.m / params.experts) == ForwardKernel::tiles)
    return record_pairs_by_tiles(call, y, params, gated);
  auto inputs = record_inputs(call, x, w.desc.dtype, rows_shape(call.caps, params.n, w.shape().back(), 1));
  if (!inputs) return failed(inputs);
  for (const GpuPart& part : w.parts) {
    params.w = weight_params(w, part);
    params.part = static_cast<std::uint32_t>(part.row0);
    const ProductBuffers buffers{.x = x, .w = w, .y = y, .ids = &ids, .gated = gated};
    if (auto ok = record_rows(call, buffers, part, params, *inputs); !ok) return failed(ok);
  }
  return true;
}

}  // namespace

Result<> record_expert_product(GpuCall& call, ExpertForm form) {
  const GpuView &x = call.in[0], &w = call.in[1], &ids = call.in[2], &y = call.out[0];
  if (y.shape().elements() == 0) return {};
  const auto slots = static_cast<std::uint32_t>(ids.shape()[1]);
  const bool transposed = form == ExpertForm::transposed, gated = form == ExpertForm::gated,
             shared = (transposed ? y : x).shape().rank() == 2;
  ProductParams params;
  params.m = static_cast<std::uint32_t>(y.shape().rows());
  params.n = static_cast<std::uint32_t>(y.shape().back());
  params.rows = static_cast<std::uint32_t>(w.shape()[1]);
  params.x_stride = static_cast<std::uint32_t>(x.shape().back());
  params.experts = static_cast<std::uint32_t>(w.shape()[0]);
  params.share = shared ? slots : 1;
  if (transposed) {
    const ProductBuffers buffers{.x = x, .w = w, .y = y, .ids = &ids};
    for (const GpuPart& part : w.parts) {
      params.w = weight_params(w, part);
      params.part = static_cast<std::uint32_t>(part.row0);
      params.plus = part.row0 > 0 ? 2 : 0;
      if (auto ok = record_columns(call, buffers, part, params, false); !ok) return ok;
    }
    return {};
  }
  auto done = record_pairs(call, y, params, gated);
  if (!done) return failed(done);
  if (*done) return {};
  auto halves = call.scratch(3, TensorDesc{DType::F32, {params.m, params.rows}});
  if (!halves) return failed(halves);
  params.n = params.rows;
  if (auto made = record_pairs(call, *halves, params, false); !made) return failed(made);
  return record_geglu_halves(call, *halves, y);
}

Result<> record_expert_combine(GpuCall& call, bool scaled, bool backward) {
  const GpuView &slots = call.in[0], &ids = call.in[1], &weights = call.in[2];
  const struct {
    std::uint32_t tokens, slots, n, experts;
  } params{static_cast<std::uint32_t>(slots.shape()[0]), static_cast<std::uint32_t>(slots.shape()[1]),
           static_cast<std::uint32_t>(slots.shape()[2]),
           scaled ? static_cast<std::uint32_t>(call.in[3].shape()[0]) : 0};
  const auto step = [&](Step which, const GpuView& to) -> Result<> {
    const std::uint64_t threads = to.shape().elements();
    if (threads == 0) return {};
    const auto source = [&] {
      return gpu::Wgsl("ops/experts/combine.wgsl")
          .constant("STEP", static_cast<std::uint32_t>(which))
          .constant("SCALED", scaled);
    };
    return call.dispatch(cat("expert_combine_", static_cast<std::uint32_t>(which), scaled ? "_scaled" : ""), source,
                         {read(slots), read(ids), read(weights), read(scaled ? call.in[3] : weights),
                          read(backward ? call.in.back() : weights), write(to)},
                         params, by_thread(threads));
  };
  if (!backward) return step(kForward, call.out[0]);
  if (auto ok = step(kSlots, call.out[0]); !ok) return ok;
  return step(kWeights, call.out[1]);
}

}  // namespace rullama
