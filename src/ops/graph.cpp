#include "ops/graph.h"

#include <algorithm>
#include <iterator>

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

std::vector<Var> Graph::add(std::shared_ptr<const Op> op, std::span<const Var> in) {
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

namespace {

// A slot and when it is taken, in order.
class Slot {
 public:
  // Takes the slot for `life` unless it is taken at any time of it.
  bool take(Lifetime life) {
    const auto next = std::ranges::lower_bound(taken_, life.begin, {}, &Lifetime::begin);
    if (next != taken_.end() && next->begin <= life.end) return false;
    if (next != taken_.begin() && std::prev(next)->end >= life.begin) return false;
    taken_.insert(next, life);
    return true;
  }

 private:
  std::vector<Lifetime> taken_;
};

}  // namespace

// Large tensors choose first, so each slot is as large as its first tensor and later ones find the smallest that is
// free in time. Source: Pisarchyk and Lee 2020, "Efficient Memory Management for Deep Neural Net Inference", greedy by
// size.
MemoryPlan plan_memory(const Graph& graph) {
  constexpr std::uint32_t kNone = UINT32_MAX;
  const auto& tensors = graph.tensors();
  const auto& nodes = graph.nodes();
  MemoryPlan plan;
  auto& life = plan.life;
  life.assign(tensors.size(), {SIZE_MAX, 0});
  std::vector<TensorId> order;
  for (std::size_t n = 0; n < nodes.size(); n++) {
    for (const TensorId id : nodes[n].in) life[tensors[id].root].end = n;
    for (const TensorId id : nodes[n].out) {
      life[id] = {n, std::max(life[id].end, n)};
      order.push_back(id);
    }
  }
  for (const TensorId id : order)
    if (tensors[id].kept) life[id].end = SIZE_MAX;
  const auto bytes = [&](TensorId id) { return std::max<std::uint64_t>(tensors[id].desc.bytes(), 4); };
  std::ranges::stable_sort(order, [&](TensorId a, TensorId b) { return bytes(a) > bytes(b); });
  plan.slot.assign(tensors.size(), kNone);
  std::vector<Slot> slots;
  for (const TensorId id : order) {
    std::size_t at = slots.size();  // slots grow smaller: the last that is free fits best
    while (at > 0 && !slots[at - 1].take(life[id])) at--;
    if (at == 0) {
      slots.emplace_back().take(life[id]);
      plan.slot_bytes.push_back(bytes(id));
      at = slots.size();
    }
    plan.slot[id] = static_cast<std::uint32_t>(at - 1);
  }
  for (TensorId id = 0; id < tensors.size(); id++) {
    plan.slot[id] = plan.slot[tensors[id].root];
    life[id] = life[tensors[id].root];
  }
  return plan;
}

}  // namespace rullama
