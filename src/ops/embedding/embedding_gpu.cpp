#include "ops/embedding/embedding_gpu.h"

#include "base/text.h"
#include "ops/weight_kernel.h"

namespace rullama {
namespace {

enum Step : std::uint32_t { kRead, kClear, kScatter };

Result<> record_step(GpuCall& call, Step step, const GpuView& from, const GpuView& ids, std::uint64_t rank,
                     std::uint64_t columns, std::uint64_t threads) {
  if (threads == 0) return {};
  const auto source = [&] {
    return gpu::Wgsl("ops/embedding/columns.wgsl").constant("STEP", static_cast<std::uint32_t>(step));
  };
  const struct {
    std::uint32_t ids, rank, columns, pad = 0;
  } params{static_cast<std::uint32_t>(ids.shape().elements()), static_cast<std::uint32_t>(rank),
           static_cast<std::uint32_t>(columns)};
  return call.dispatch(cat("columns_", static_cast<std::uint32_t>(step)), source,
                       {read(ids), read(from), write(call.out[0])}, params, gpu::Grid::wrap((threads + 63) / 64));
}

}  // namespace

Result<> record_embedding(GpuCall& call, float scale) {
  const GpuView &table = call.in[0], &ids = call.in[1];
  struct {
    WeightParams w;
    std::uint32_t ids, first, rows;
    float scale;
  } params{
      {}, static_cast<std::uint32_t>(ids.shape().elements()), 0, static_cast<std::uint32_t>(table.shape()[0]), scale};
  for (const GpuPart& part : table.parts) {
    params.w = weight_params(table, part);
    params.first = static_cast<std::uint32_t>(part.row0);
    const std::uint64_t threads = std::uint64_t{params.ids} * params.w.blocks;
    if (threads == 0) return {};
    const auto source = [&] { return weight_kernel("ops/embedding/embedding.wgsl", table.desc); };
    if (auto ok = call.dispatch(cat("embedding_", weight_key(table.desc)), source,
                                {gpu::read(*part.buffer), gpu::read(*part.buffer), read(ids), write(call.out[0])},
                                params, gpu::Grid::wrap((threads + 63) / 64));
        !ok)
      return ok;
  }
  return {};
}

Result<> record_embedding_columns(GpuCall& call) {
  const GpuView &a = call.in[0], &z = call.out[0];
  return record_step(call, kRead, a, call.in[1], a.shape()[0], a.shape()[1], z.shape().elements());
}

Result<> record_scatter_add_columns(GpuCall& call) {
  const GpuView &u = call.in[0], &ids = call.in[1], &o = call.out[0];
  const std::uint64_t rank = o.shape()[0], columns = o.shape()[1];
  if (auto ok = record_step(call, kClear, u, ids, rank, columns, o.shape().elements()); !ok) return ok;
  return record_step(call, kScatter, u, ids, rank, columns, u.shape().elements());
}

}  // namespace rullama
