#include "ops/embedding/embedding.h"

#include <algorithm>

#include "base/text.h"
#include "ops/cpu_call.h"
#include "ops/embedding/embedding_gpu.h"

namespace rullama {
namespace {

Result<> check_ids(std::string_view op, const TensorDesc& ids, std::uint64_t rows) {
  if (ids.dtype == DType::U32 && ids.shape.elements() == rows) return {};
  return bad_argument(op, "ids", ids, cat("U32 [", rows, "]"));
}

class Embedding final : public Op {
 public:
  explicit Embedding(float scale) : scale_(scale) {}
  std::string_view name() const override { return "embedding"; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc &table = in[0], &ids = in[1];
    if (table.dtype == DType::U32)
      return bad_argument(name(), "table", table, "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K or Q6_K");
    const std::uint32_t block = info(table.dtype).block_elements;
    if (table.shape.rank() != 2 || table.shape[1] % block != 0)
      return bad_argument(name(), "table", table, cat("two dimensions, rows of a multiple of ", block, " elements"));
    if (auto ok = check_ids(name(), ids, ids.shape.elements()); !ok) return failed(ok);
    return std::vector{TensorDesc{DType::F32, {ids.shape.elements(), table.shape[1]}}};
  }

  void eval(const CpuCall& call) const override {
    const CpuView &table = call.in[0], &y = call.out[0];
    const auto ids = call.in[1].u32();
    call.crew.run(ids.size(), 16, [&](std::size_t begin, std::size_t end) {
      for (std::size_t t = begin; t < end; t++) {
        const auto row = y.row(t);
        if (ids[t] >= table.shape()[0]) {
          std::fill(row.begin(), row.end(), 0.0f);
          continue;
        }
        table.decode_row(ids[t], row);
        if (scale_ != 1)
          for (float& v : row) v *= scale_;
      }
    });
  }

  Result<> record(GpuCall& call) const override { return record_embedding(call, scale_); }

  // The table is frozen and ids have no gradient.
  Result<std::vector<Var>> derivative(Graph&, std::span<const Var>, std::span<const Var>, std::span<const Var>,
                                      const std::vector<bool>& wanted) const override {
    if (wanted[0]) return fail(ErrorCode::unsupported, "embedding: no gradient for the table, which is frozen");
    return std::vector<Var>(2);
  }

  Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const override {
    const auto rows = static_cast<double>(in[1].shape.elements());
    return {rows * static_cast<double>(row_bytes(in[0].dtype, in[0].shape[1])) + static_cast<double>(out[0].bytes()),
            0};
  }

 private:
  float scale_;
};

class EmbeddingColumns final : public Op {
 public:
  std::string_view name() const override { return "embedding_columns"; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc &a = in[0], &ids = in[1];
    if (a.dtype != DType::F32 || a.shape.rank() != 2) return bad_argument(name(), "a", a, "F32 [R, V]");
    if (auto ok = check_ids(name(), ids, ids.shape.elements()); !ok) return failed(ok);
    return std::vector{TensorDesc{DType::F32, {ids.shape.elements(), a.shape[0]}}};
  }

  void eval(const CpuCall& call) const override {
    const CpuView &a = call.in[0], &z = call.out[0];
    const auto ids = call.in[1].u32();
    for (std::size_t t = 0; t < ids.size(); t++)
      for (std::size_t r = 0; r < a.shape()[0]; r++) z.row(t)[r] = ids[t] < a.shape()[1] ? a.row(r)[ids[t]] : 0.0f;
  }

  Result<> record(GpuCall& call) const override { return record_embedding_columns(call); }

  Result<std::vector<Var>> derivative(Graph&, std::span<const Var> in, std::span<const Var>, std::span<const Var> dout,
                                      const std::vector<bool>&) const override {
    return std::vector{scatter_add_columns(dout[0], in[1], in[0].shape()[1]), Var{}};
  }
};

class ScatterAddColumns final : public Op {
 public:
  explicit ScatterAddColumns(std::uint64_t columns) : columns_(columns) {}
  std::string_view name() const override { return "scatter_add_columns"; }

  Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const override {
    const TensorDesc &u = in[0], &ids = in[1];
    if (u.dtype != DType::F32 || u.shape.rank() != 2) return bad_argument(name(), "u", u, "F32 [T, R]");
    if (auto ok = check_ids(name(), ids, u.shape[0]); !ok) return failed(ok);
    return std::vector{TensorDesc{DType::F32, {u.shape[1], columns_}}};
  }

  void eval(const CpuCall& call) const override {
    const CpuView &u = call.in[0], &o = call.out[0];
    const auto ids = call.in[1].u32();
    std::fill(o.f32().begin(), o.f32().end(), 0.0f);
    for (std::size_t r = 0; r < u.shape()[1]; r++)
      for (std::size_t t = 0; t < ids.size(); t++)
        if (ids[t] < columns_) o.row(r)[ids[t]] += u.row(t)[r];
  }

  Result<> record(GpuCall& call) const override { return record_scatter_add_columns(call); }

  Result<std::vector<Var>> derivative(Graph&, std::span<const Var> in, std::span<const Var>, std::span<const Var> dout,
                                      const std::vector<bool>&) const override {
    return std::vector{embedding_columns(dout[0], in[1]), Var{}};
  }

 private:
  std::uint64_t columns_;
};

}  // namespace

Var embedding(Var table, Var ids, float scale) {
  return table ? table.graph()->add1(std::make_unique<Embedding>(scale), {table, ids}) : Var{};
}
Var embedding_columns(Var a, Var ids) {
  return a ? a.graph()->add1(std::make_unique<EmbeddingColumns>(), {a, ids}) : Var{};
}
Var scatter_add_columns(Var u, Var ids, std::uint64_t columns) {
  return u ? u.graph()->add1(std::make_unique<ScatterAddColumns>(columns), {u, ids}) : Var{};
}

}  // namespace rullama
