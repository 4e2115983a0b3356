#include "ops/weight_kernel.h"

#include "base/text.h"
#include "ops/weight_layout.h"

namespace rullama {
namespace {

// Rows of whole 16-byte words in all dense types.
bool aligned(const TensorDesc& w) { return w.shape.back() % 8 == 0; }

}  // namespace

WeightParams weight_params(const GpuView& w, const GpuPart& part) {
  const std::uint64_t columns = w.shape().back();
  const WeightLayout layout = weight_layout(w.desc.dtype, part.buffer_rows, columns);
  WeightParams params{{},
                      static_cast<std::uint32_t>(layout.row_words),
                      static_cast<std::uint32_t>(columns),
                      static_cast<std::uint32_t>((columns + 31) / 32),
                      static_cast<std::uint32_t>(part.rows)};
  const DTypeInfo& type = info(w.desc.dtype);
  const std::uint64_t blocks = part.first * (columns / type.block_elements);  // before this part's rows
  for (std::size_t i = 0; i < layout.planes.size(); i++) {
    const std::uint64_t skipped = i < type.fields.size() ? blocks * type.fields[i] / 4 : 0;
    params.planes[i] = layout.planes[i] + static_cast<std::uint32_t>(skipped);
  }
  return params;
}

gpu::Wgsl weight_kernel(std::string_view path, const TensorDesc& w) {
  std::string type(name(w.dtype));
  for (char& c : type)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  gpu::Wgsl source(path);
  source.file("formats/dtype/weight.wgsl").file(cat("formats/dtype/", type, ".wgsl"));
  source.file(info(w.dtype).quantised ? "formats/dtype/quantised.wgsl" : "formats/dtype/dense.wgsl");
  return source.constant("ALIGNED", aligned(w)).constant("DENSE", !info(w.dtype).quantised);
}

std::string weight_key(const TensorDesc& w) { return cat(name(w.dtype), aligned(w) ? "" : "_odd"); }

}  // namespace rullama
