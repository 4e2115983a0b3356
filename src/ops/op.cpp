#include "ops/op.h"

#include "base/text.h"
#include "ops/backend.h"

namespace rullama {

Result<std::vector<std::shared_ptr<Tensor>>> Backend::load_tensors(std::span<const FileTensor> tensors,
                                                                   std::shared_ptr<const ByteSource> source) {
  std::vector<std::shared_ptr<Tensor>> loaded;
  for (const FileTensor& t : tensors) {
    auto tensor = load_tensor(t.desc, t.name, source, t.offset);
    if (!tensor) return failed(tensor);
    loaded.push_back(std::move(*tensor));
  }
  return loaded;
}

Result<std::vector<Var>> Op::derivative(Graph&, std::span<const Var>, std::span<const Var>, std::span<const Var>,
                                        const std::vector<bool>&) const {
  return fail(ErrorCode::unsupported, cat(name(), ": this operation has no derivative"));
}

Cost Op::cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const {
  Cost cost;
  for (const TensorDesc& d : in) cost.bytes += static_cast<double>(d.bytes());
  for (const TensorDesc& d : out) cost.bytes += static_cast<double>(d.bytes());
  return cost;
}

std::unexpected<Error> bad_argument(std::string_view op, std::string_view argument, const TensorDesc& found,
                                    std::string_view expected) {
  return fail(cat(op, ": ", argument, " is ", found.str(), ", expected ", expected));
}

}  // namespace rullama
