// A graph is a list of op invocations over tensors, built by model code that reads like the formulas:
//
//   Graph g;
//   Var x = g.input("x", {DType::F32, {rows, hidden}});
//   Var y = matmul(rms_norm(x, g.tensor("norm", norm), eps), g.tensor("w", w));
//   g.keep(y);
//   if (auto ok = g.status(); !ok) return failed(ok);
//
// Ops check their shapes when they are added. The first error stays in `status()` and makes every later Var
// invalid, so that model code needs no check per line. Nodes run in the order in which they were added.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ops/tensor.h"
#include "rullama/result.h"

namespace rullama {

class Graph;
class Op;

using TensorId = std::uint32_t;
inline constexpr TensorId kNoTensor = UINT32_MAX;

// A tensor of a graph. Cheap to copy; valid while the graph lives.
class Var {
 public:
  Var() = default;
  Var(Graph* graph, TensorId id) : graph_(graph), id_(id) {}
  [[nodiscard]] explicit operator bool() const { return id_ != kNoTensor; }
  [[nodiscard]] Graph* graph() const { return graph_; }
  [[nodiscard]] TensorId id() const { return id_; }
  [[nodiscard]] const TensorDesc& desc() const;
  [[nodiscard]] const Shape& shape() const { return desc().shape; }

 private:
  Graph* graph_ = nullptr;
  TensorId id_ = kNoTensor;
};

enum class TensorRole : std::uint8_t {
  activation,  // made by an op, its memory is reused after its last use
  input,       // written by the host before a run
  tensor,      // lives outside the graph: a weight or a state such as a cache
};

struct TensorInfo {
  std::string name;
  TensorDesc desc;
  TensorRole role = TensorRole::activation;
  TensorId root = kNoTensor;       // the tensor whose memory this one is (itself, unless it is a reshape)
  std::shared_ptr<Tensor> tensor;  // TensorRole::tensor
  bool kept = false;               // readable after a run
};

struct Node {
  std::shared_ptr<const Op> op;  // shared with the nodes that compute the same once more
  std::vector<TensorId> in, out;
};

class Graph {
 public:
  Graph();
  ~Graph();
  Graph(Graph&&) = delete;  // Vars point here

  [[nodiscard]] Var input(std::string name, TensorDesc desc);
  // The same tensor given twice is one Var.
  [[nodiscard]] Var tensor(std::string_view name, const std::shared_ptr<Tensor>& tensor);
  // Other dimensions over the same memory.
  [[nodiscard]] Var reshape(Var x, Shape shape);
  // Lets the host read `x` after a run. Returns x.
  Var keep(Var x);

  // Appends an op; its outputs, or invalid Vars after an error. An invalid Var among `in` is passed over in silence
  // when an error is already noted.
  std::vector<Var> add(std::shared_ptr<const Op> op, std::span<const Var> in);
  // The single output of an op.
  Var add1(std::unique_ptr<Op> op, std::initializer_list<Var> in);

  void set_error(Error error);  // keeps the first
  [[nodiscard]] Result<> status() const;

  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const { return tensors_; }
  [[nodiscard]] const TensorInfo& info(Var x) const { return tensors_[x.id()]; }

 private:
  TensorId make(TensorInfo info);
  std::unordered_map<const Tensor*, TensorId> outside_;
  std::vector<Node> nodes_;
  std::vector<TensorInfo> tensors_;
  std::unique_ptr<Error> error_;
};

// --- memory of activations

// From the node that makes a tensor to the last one that uses it.
struct Lifetime {
  std::size_t begin, end;
  [[nodiscard]] bool contains(std::size_t node) const { return begin <= node && node <= end; }
};

// Which memory slot each activation lives in: slots are reused once no later node needs their content.
struct MemoryPlan {
  std::vector<std::uint32_t> slot;        // of each tensor (by root); UINT32_MAX for inputs and outside tensors
  std::vector<Lifetime> life;             // of each tensor (by root)
  std::vector<std::uint64_t> slot_bytes;  // size of each slot
};
[[nodiscard]] MemoryPlan plan_memory(const Graph& graph);

}  // namespace rullama
