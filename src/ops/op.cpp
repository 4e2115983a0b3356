#include "ops/op.h"

#include "base/text.h"

namespace rullama {

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
