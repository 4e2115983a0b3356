#include "ops/graph.h"

#include <algorithm>

#include "base/text.h"
#include "ops/op.h"

namespace rullama {

std::string Shape::str() const { return list(std::span(dims_.data(), rank_)); }

std::string TensorDesc::str() const { return cat(name(dtype), " ", shape.str()); }

const TensorDesc& Var::desc() const {
  static const TensorDesc none{};
  return id_ == kNoTensor ? none : graph_->info(*this).desc;
}

Graph::Graph() = default;
Graph::~Graph() = default;

TensorId Graph::make(TensorInfo info) {
  const auto id = static_cast<TensorId>(tensors_.size());
  if (info.root == kNoTensor) info.root = id;
  tensors_.push_back(std::move(info));
  return id;
}

Var Graph::input(std::string name, TensorDesc desc) {
  TensorInfo info;
  info.name = std::move(name);
  info.desc = desc;
  info.role = TensorRole::input;
  return {this, make(std::move(info))};
}

Var Graph::tensor(std::string_view name, const std::shared_ptr<Tensor>& tensor) {
  if (const auto known = outside_.find(tensor.get()); known != outside_.end()) return {this, known->second};
  TensorInfo info;
  info.name = name;
  info.desc = tensor->desc();
  info.role = TensorRole::tensor;
  info.tensor = tensor;
  const TensorId id = make(std::move(info));
  outside_.emplace(tensor.get(), id);
  return {this, id};
}

Var Graph::reshape(Var x, Shape shape) {
  if (!x) return {};
  const TensorInfo& from = info(x);
  if (shape.elements() != from.desc.shape.elements() || rullama::info(from.desc.dtype).quantised) {
    set_error({cat("reshape: ", from.name, " is ", from.desc.str(), ", which cannot become ", shape.str())});
    return {};
  }
  TensorInfo to;
  to.name = from.name;
  to.desc = {from.desc.dtype, shape};
  to.role = from.role;
  to.root = from.root;
  to.tensor = from.tensor;
  return {this, make(std::move(to))};
}

Var Graph::keep(Var x) {
  if (x) tensors_[tensors_[x.id()].root].kept = true;
  return x;
}

std::vector<Var> Graph::add(std::unique_ptr<Op> op, std::span<const Var> in) {
  Node node;
  std::vector<TensorDesc> descs;
  for (std::size_t i = 0; i < in.size(); i++) {
    if (!in[i]) {
      set_error({cat(op->name(), ": argument ", i, " is missing")});
      return std::vector<Var>(4);
    }
    node.in.push_back(in[i].id());
    descs.push_back(in[i].desc());
  }
  auto outputs = op->infer(descs);
  if (!outputs) {
    set_error(std::move(outputs.error()));
    return std::vector<Var>(4);
  }
  std::vector<Var> vars;
  for (const TensorDesc& desc : *outputs) {
    TensorInfo info;
    info.name = op->name();
    info.desc = desc;
    node.out.push_back(make(std::move(info)));
    vars.emplace_back(this, node.out.back());
  }
  node.op = std::move(op);
  nodes_.push_back(std::move(node));
  return vars;
}

Var Graph::add1(std::unique_ptr<Op> op, std::initializer_list<Var> in) {
  return add(std::move(op), std::span(in.begin(), in.size()))[0];
}

void Graph::set_error(Error error) {
  if (!error_) error_ = std::make_unique<Error>(std::move(error));
}

Result<> Graph::status() const {
  if (error_) return std::unexpected(*error_);
  return {};
}

MemoryPlan plan_memory(const Graph& graph) {
  constexpr std::uint32_t kNone = UINT32_MAX;
  const auto& tensors = graph.tensors();
  const auto& nodes = graph.nodes();
  std::vector<std::size_t> last_use(tensors.size(), 0);
  for (std::size_t n = 0; n < nodes.size(); n++) {
    for (const TensorId id : nodes[n].in) last_use[tensors[id].root] = n;
    for (const TensorId id : nodes[n].out) last_use[id] = std::max(last_use[id], n);
  }
  MemoryPlan plan;
  plan.slot.assign(tensors.size(), kNone);
  std::vector<std::vector<TensorId>> ends(nodes.size());  // tensors whose last use a node is
  std::vector<std::uint32_t> free_slots;
  for (std::size_t n = 0; n < nodes.size(); n++) {
    for (const TensorId id : nodes[n].out) {
      const std::uint64_t bytes = std::max<std::uint64_t>(tensors[id].desc.bytes(), 4);
      // the smallest free slot that is large enough, else the largest one, grown
      std::size_t best = free_slots.size();
      for (std::size_t i = 0; i < free_slots.size(); i++) {
        if (best == free_slots.size()) {
          best = i;
          continue;
        }
        const std::uint64_t a = plan.slot_bytes[free_slots[i]], b = plan.slot_bytes[free_slots[best]];
        const bool better = (a >= bytes) != (b >= bytes) ? a >= bytes : (a >= bytes ? a < b : a > b);
        if (better) best = i;
      }
      if (best == free_slots.size()) {
        plan.slot[id] = static_cast<std::uint32_t>(plan.slot_bytes.size());
        plan.slot_bytes.push_back(bytes);
      } else {
        plan.slot[id] = free_slots[best];
        plan.slot_bytes[free_slots[best]] = std::max(plan.slot_bytes[free_slots[best]], bytes);
        free_slots.erase(free_slots.begin() + static_cast<std::ptrdiff_t>(best));
      }
      if (!tensors[id].kept) ends[last_use[id]].push_back(id);
    }
    for (const TensorId id : ends[n]) free_slots.push_back(plan.slot[id]);
  }
  for (TensorId id = 0; id < tensors.size(); id++) plan.slot[id] = plan.slot[tensors[id].root];
  return plan;
}

}  // namespace rullama
