#include "ops/experts/experts_gpu.h"

#include "base/text.h"
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

}  // namespace

Result<> record_expert_product(GpuCall& call, bool backward) {
  const GpuView &x = call.in[0], &w = call.in[1], &ids = call.in[2], &y = call.out[0];
  if (y.shape().elements() == 0) return {};
  const auto slots = static_cast<std::uint32_t>(ids.shape()[1]), n = static_cast<std::uint32_t>(w.shape()[1]);
  const bool shared = (backward ? y : x).shape().rank() == 2;
  ProductParams params;
  params.m = static_cast<std::uint32_t>(y.shape().rows());
  params.n = static_cast<std::uint32_t>(y.shape().back());
  params.rows = n;
  params.x_stride = static_cast<std::uint32_t>(x.shape().back());
  params.experts = static_cast<std::uint32_t>(w.shape()[0]);
  params.share = shared ? slots : 1;
  const bool tiles = !backward && w.parts.size() == 1 && params.experts > 0 && params.experts <= kMaxExperts &&
                     forward_kernel(call.caps, params.m / params.experts) == ForwardKernel::tiles;
  if (tiles) {
    auto inputs = record_tile_inputs(call, x, w, false, 0, n);
    if (!inputs) return failed(inputs);
    auto groups = record_groups(call, ids, params.experts);
    if (!groups) return failed(groups);
    params.w = weight_params(w, w.parts[0]);
    params.tiles = groups->tiles;
    return record_tiles(call, {.x = x, .w = w, .y = y, .ids = &groups->view}, w.parts[0], params, *inputs, false,
                        false);
  }
  RowInputs inputs;
  if (!backward) {
    auto made = record_inputs(call, x, w.desc.dtype, rows_shape(call.caps, params.n, w.shape().back(), 1));
    if (!made) return failed(made);
    inputs = *made;
  }
  const ProductBuffers buffers{x, w, y, nullptr, &ids};
  for (const GpuPart& part : w.parts) {
    params.w = weight_params(w, part);
    params.part = static_cast<std::uint32_t>(part.row0);
    params.plus = backward && part.row0 > 0 ? 2 : 0;
    auto ok = backward ? record_columns(call, buffers, part, params, false)
                       : record_rows(call, buffers, part, params, inputs);
    if (!ok) return ok;
  }
  return {};
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
