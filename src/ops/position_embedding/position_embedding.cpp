#include "ops/position_embedding/position_embedding.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/weight_kernel.h"

namespace rullama {
namespace {

class AddPositionEmbedding final : public Op {
 public:
  std::string_view name() const override { return "add_position_embedding_2d"; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc &h = in[0], &table = in[1];
    if (h.dtype != DType::F32 || h.shape.rank() != 2) return bad_argument(name(), "h", h, "F32 [N, D]");
    const std::uint64_t d = h.shape[1], block = info(table.dtype).block_elements;
    if (table.dtype == DType::U32 || table.shape.rank() != 3 || table.shape[0] != 2 || table.shape[2] != d || d % block)
      return bad_argument(name(), "table", table, cat("[2, positions, ", d, "] of a type of weights"));
    const TensorDesc positions{DType::U32, {h.shape[0]}};
    if (in[2] != positions) return bad_argument(name(), "pos_x", in[2], positions.str());
    if (in[3] != positions) return bad_argument(name(), "pos_y", in[3], positions.str());
    return std::vector{h};
  }

  void eval(const CpuCall& call) const override {
    const CpuView &h = call.in[0], &table = call.in[1], &y = call.out[0];
    const std::uint64_t positions = table.shape()[1], d = h.shape()[1];
    call.crew.run(h.shape()[0], 16, [&](std::size_t begin, std::size_t end) {
      std::vector<float> at_x(d), at_y(d);
      const auto look_up = [&](std::uint64_t first, std::uint32_t position, std::vector<float>& row) {
        if (position < positions) return table.decode_row(first + position, row);
        std::fill(row.begin(), row.end(), 0.0f);
      };
      for (std::size_t n = begin; n < end; n++) {
        look_up(0, call.in[2].u32()[n], at_x);
        look_up(positions, call.in[3].u32()[n], at_y);
        for (std::size_t i = 0; i < d; i++) y.row(n)[i] = h.row(n)[i] + (at_x[i] + at_y[i]);
      }
    });
  }

  Result<> record(GpuCall& call) const override {
    const GpuView &h = call.in[0], &table = call.in[1];
    if (h.shape().elements() == 0) return {};
    if (table.parts.size() != 1)
      return fail(cat(name(), ": a table of ", table.desc.str(), " is larger than the ",
                      bytes_text(static_cast<double>(call.caps.max_binding_bytes)), " that this device binds at once"));
    const GpuPart& part = table.parts[0];
    const struct {
      WeightParams w;
      std::uint32_t rows, positions, pad[2] = {};
    } params{weight_params(table, part), static_cast<std::uint32_t>(h.shape()[0]),
             static_cast<std::uint32_t>(table.shape()[1])};
    const std::uint64_t threads = h.shape()[0] * params.w.blocks;
    const auto source = [&] { return weight_kernel("ops/position_embedding/position_embedding.wgsl", table.desc); };
    return call.dispatch(cat("position_embedding_", weight_key(table.desc)), source,
                         {gpu::read(*part.buffer), gpu::read(*part.buffer), read(h), read(call.in[2]), read(call.in[3]),
                          write(call.out[0])},
                         params, gpu::Grid::wrap((threads + 63) / 64));
  }

  Result<std::vector<Var>> derivative(Graph&, std::span<const Var>, std::span<const Var>, std::span<const Var> dout,
                                      const std::vector<bool>& wanted) const override {
    if (wanted[1]) return fail(ErrorCode::unsupported, cat(name(), ": no gradient for the table, which is frozen"));
    std::vector<Var> din(4);
    din[0] = dout[0];
    return din;
  }
};

}  // namespace

Var add_position_embedding_2d(Var h, Var table, Var pos_x, Var pos_y) {
  return h ? h.graph()->add1(std::make_unique<AddPositionEmbedding>(), {h, table, pos_x, pos_y}) : Var{};
}

}  // namespace rullama
