// The kernels of products and how they are chosen; matmul and experts record them.
#pragma once

#include <cstdint>

#include "ops/gpu_call.h"
#include "ops/weight_kernel.h"

namespace rullama {

// `Params` of product.wgsl.
struct ProductParams {
  WeightParams w{};
  std::uint32_t m = 0, n = 0, row0 = 0, rows = 0, first = 0, x_stride = 0;
  float scale = 1;
  std::uint32_t plus = 0, tiles = 1;
  std::uint32_t experts = 0, share = 1, part = 0, splits = 1;
  float eps = 0;
  std::uint32_t column = 0;
};

// A step of the residual stream that makes x, in the kernel itself (x_residual.wgsl).
struct ResidualBuffers {
  const GpuView &residual, &block, &w;
  const GpuView *w_next, *scale;  // or null
  const GpuView& sum;
};

struct ProductBuffers {
  const GpuView &x, &w, &y;
  const GpuView *plus = nullptr, *ids = nullptr;
  bool gated = false;  // w holds the rows of a gate and as many of its factor
  const ResidualBuffers* step = nullptr;
  const GpuView* factor = nullptr;  // y = gelu(product) * factor; only with `step`
  bool alone = false;               // no other product of this node uses scratch memory
};

// How x w^T is done for `m` rows of x.
enum class ForwardKernel : std::uint8_t { rows, tiles, broadcast };
[[nodiscard]] ForwardKernel forward_kernel(const gpu::Capabilities& caps, std::uint64_t m);

// How many threads do what in rows.wgsl.
struct RowsShape {
  std::uint32_t lanes, teams, parts, rows, batch;
  std::uint32_t subgroup;  // the size of a subgroup, if teams are subgroups or equal parts of them, else 0
  [[nodiscard]] std::uint32_t group_rows() const { return teams / parts * rows; }
  // Of workgroup memory, for codes made of x in `blocks` blocks of 32.
  [[nodiscard]] std::uint64_t workgroup_bytes(std::uint64_t blocks) const {
    return blocks * batch * (subgroup ? 40 : 168) + std::uint64_t{4} * teams * (3 + (subgroup ? 0 : lanes));
  }
  // Vectors of 4 of x that a thread makes codes of, at most.
  [[nodiscard]] std::uint32_t vectors(std::uint32_t blocks) const {
    return (8 * blocks * batch + lanes * teams - 1) / (lanes * teams);
  }
  [[nodiscard]] bool operator==(const RowsShape&) const = default;
};
// For `n` rows of w, of `k` elements, and `m` rows of x.
[[nodiscard]] RowsShape rows_shape(const gpu::Capabilities& caps, std::uint64_t n, std::uint64_t k, std::uint64_t m);

// The activations of a product by rows of w: as they are, as 8-bit codes in two scratch buffers of the call, or as
// codes that every workgroup makes for itself, perhaps of a step of the residual stream, or of what attention left in
// parts (then these and their statistics are the buffers); of a product by tiles also as 16-bit floats.
struct RowInputs {
  enum class Form : std::uint8_t { floats, codes, rounded, residual, parts, halves } form = Form::floats;
  const gpu::Buffer *codes = nullptr, *scales = nullptr;
  std::uint32_t splits = 0, head_width = 0;  // of parts
  [[nodiscard]] bool rounds() const { return form == Form::rounded || form == Form::residual || form == Form::parts; }
};
// True if such products take 8-bit activations.
[[nodiscard]] bool takes_int8(const gpu::Capabilities& caps, Precision precision, DType w);
// Chooses the form for workgroups of that shape, and makes the codes if they are needed.
[[nodiscard]] Result<RowInputs> record_inputs(GpuCall& call, const GpuView& x, DType w, const RowsShape& shape);

// The same for products by tiles: 16-bit floats where the device has matrix units for them and may round. `transposed`:
// of x w instead of x w^T, over rows [row0, row1) of w.
[[nodiscard]] Result<RowInputs> record_tile_inputs(GpuCall& call, const GpuView& x, const GpuView& w, bool transposed,
                                                   std::uint64_t row0, std::uint64_t row1);

// One part of w, `params` complete but for `tiles`.
[[nodiscard]] Result<> record_rows(GpuCall& call, const ProductBuffers& b, const GpuPart& part, ProductParams params,
                                   const RowInputs& inputs);
// By broadcast.wgsl.
[[nodiscard]] Result<> record_broadcast(GpuCall& call, const ProductBuffers& b, const GpuPart& part,
                                        ProductParams params);
[[nodiscard]] Result<> record_columns(GpuCall& call, const ProductBuffers& b, const GpuPart& part, ProductParams params,
                                      bool x_transposed);
// Of experts (`ids`: what group.wgsl makes of them) params.tiles is given: tiles of kExpertTile pairs.
constexpr std::uint32_t kExpertTile = 64;
[[nodiscard]] Result<> record_tiles(GpuCall& call, const ProductBuffers& b, const GpuPart& part, ProductParams params,
                                    const RowInputs& inputs, bool transposed, bool x_transposed);

}  // namespace rullama
