// A backend keeps tensors and runs graphs: the CPU (ops/cpu_backend.h) or a GPU (ops/gpu_backend.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "formats/file.h"
#include "ops/graph.h"
#include "ops/op.h"

namespace rullama {

struct NodeTime {
  std::string name;  // of the kernel or op
  double nanoseconds = 0;
  Cost cost;
};

// A weight in a file.
struct FileTensor {
  TensorDesc desc;
  std::string_view name;
  std::uint64_t offset = 0;
};

// A graph made ready for one backend. The graph must outlive it. One program of a backend runs at a time.
class Program {
 public:
  virtual ~Program() = default;
  // Fills an input from `data`, which has the input's size.
  [[nodiscard]] virtual Result<> write(Var input, std::span<const std::byte> data) = 0;
  // Runs all nodes. The GPU may still work when this returns. `queued`: it is known to have other work until then.
  [[nodiscard]] virtual Result<> run(bool queued = false) = 0;
  // The first out.size() bytes of a kept tensor. Waits.
  [[nodiscard]] virtual Result<> read(Var kept, std::span<std::byte> out) = 0;
  // The same in two steps: the bytes are those that the last run leaves, whatever runs before they are finished. Reads
  // are finished in the order in which they were started.
  [[nodiscard]] virtual Result<> start_read(Var kept, std::uint64_t bytes) = 0;
  [[nodiscard]] virtual Result<> finish_read(std::span<std::byte> out) = 0;
  // Runs and gives the time of each node that did something. Waits.
  [[nodiscard]] virtual Result<std::vector<NodeTime>> run_timed() = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  [[nodiscard]] virtual std::string device_name() const = 0;
  [[nodiscard]] virtual bool is_gpu() const = 0;
  // Results cross a bus: what can be chosen from them where they are should be.
  [[nodiscard]] virtual bool is_remote() const { return false; }
  // Rows that keep the device busy: more of them at a time take more memory and bring little.
  [[nodiscard]] virtual std::uint32_t good_rows() const { return 512; }

  // A zeroed tensor of F32, F16 or U32 (caches, optimiser states, adapters). `what` names it in errors.
  [[nodiscard]] virtual Result<std::shared_ptr<Tensor>> make_tensor(const TensorDesc& desc, std::string_view what) = 0;
  // A weight whose blocks lie at `offset` of `source`. The CPU uses a mapped source in place (and keeps it alive);
  // a GPU streams it through a bounded staging buffer.
  [[nodiscard]] virtual Result<std::shared_ptr<Tensor>> load_tensor(const TensorDesc& desc, std::string_view name,
                                                                    std::shared_ptr<const ByteSource> source,
                                                                    std::uint64_t offset) = 0;
  // The same for weights that are multiplied with one input, whole or part by part. A GPU lays neighbours of one
  // quantised type side by side in one buffer, so that a product with all of them is one dispatch (matmul_concat,
  // gated_matmul).
  [[nodiscard]] virtual Result<std::vector<std::shared_ptr<Tensor>>> load_tensors(
      std::span<const FileTensor> tensors, std::shared_ptr<const ByteSource> source);
  // Whole or part of an F32, F16 or U32 tensor; offsets and sizes in bytes, multiples of 4.
  [[nodiscard]] virtual Result<> write(Tensor& tensor, std::uint64_t at, std::span<const std::byte> data) = 0;
  [[nodiscard]] virtual Result<> read(const Tensor& tensor, std::uint64_t at, std::span<std::byte> out) = 0;

  [[nodiscard]] virtual Result<std::unique_ptr<Program>> compile(const Graph& graph, Precision precision) = 0;

  // Bytes of tensors and scratch memory held, and what the device offers at most for one tensor.
  [[nodiscard]] virtual std::uint64_t allocated_bytes() const = 0;
  [[nodiscard]] virtual std::uint64_t max_activation_bytes() const = 0;
};

}  // namespace rullama
