#include "ops/slice/slice.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/gpu_call.h"

namespace rullama {
namespace {

// A block of a matrix, or (`spread`) a matrix that is zero but for a block.
class Slice final : public Op {
 public:
  struct Block {
    std::uint64_t row, rows, column, columns;
  };
  // `whole`: the matrix that the block lies in.
  Slice(std::string_view name, Shape whole, Block block, bool spread)
      : name_(name), whole_(whole), block_(block), spread_(spread) {}
  std::string_view name() const override { return name_; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    if (in[0].dtype != DType::F32) return bad_argument(name(), "x", in[0], "F32");
    if (block_.row + block_.rows > whole_.rows() || block_.column + block_.columns > whole_.back())
      return bad_argument(
          name(), "x", in[0],
          cat("at least ", block_.row + block_.rows, " rows of ", block_.column + block_.columns, " elements"));
    return std::vector{TensorDesc{DType::F32, spread_ ? whole_ : Shape{block_.rows, block_.columns}}};
  }

  void eval(const CpuCall& call) const override {
    const auto x = call.in[0].f32(), y = call.out[0].f32();
    const std::uint64_t n = whole_.back();
    if (spread_) std::fill(y.begin(), y.end(), 0.0f);
    for (std::uint64_t r = 0; r < block_.rows; r++) {
      const std::uint64_t at = (block_.row + r) * n + block_.column, packed = r * block_.columns;
      std::memcpy(y.data() + (spread_ ? at : packed), x.data() + (spread_ ? packed : at),
                  block_.columns * sizeof(float));
    }
  }

  Result<> record(GpuCall& call) const override {
    const std::uint64_t total = call.out[0].shape().elements();
    if (total == 0) return {};
    const auto u = [](std::uint64_t v) { return static_cast<std::uint32_t>(v); };
    const struct {
      std::uint32_t total, n, row, rows, column, columns;
    } params{u(total), u(whole_.back()), u(block_.row), u(block_.rows), u(block_.column), u(block_.columns)};
    const auto source = [&] { return gpu::Wgsl("ops/slice/slice.wgsl").constant("SPREAD", spread_); };
    return call.dispatch(spread_ ? "slice_spread" : "slice", source, {read(call.in[0]), write(call.out[0])}, params,
                         gpu::Grid::wrap((total + 255) / 256));
  }

  Result<std::vector<Var>> derivative(Graph& graph, std::span<const Var>, std::span<const Var>,
                                      std::span<const Var> dout, const std::vector<bool>&) const override {
    return std::vector{graph.add1(std::make_unique<Slice>(name_, whole_, block_, !spread_), {dout[0]})};
  }

 private:
  std::string_view name_;
  Shape whole_;
  Block block_;
  bool spread_;
};

}  // namespace

Var rows(Var x, std::uint64_t first, std::uint64_t count) {
  if (!x) return {};
  return x.graph()->add1(
      std::make_unique<Slice>("rows", x.shape(), Slice::Block{first, count, 0, x.shape().back()}, false), {x});
}

Var columns(Var x, std::uint64_t first, std::uint64_t count) {
  if (!x) return {};
  return x.graph()->add1(
      std::make_unique<Slice>("columns", x.shape(), Slice::Block{0, x.shape().rows(), first, count}, false), {x});
}

Var spread_columns(Var x, const Shape& shape, std::uint64_t first) {
  if (!x) return {};
  const Slice::Block block{0, shape.rows(), first, x.shape().back()};
  return x.graph()->add1(std::make_unique<Slice>("spread_columns", shape, block, true), {x});
}

}  // namespace rullama
