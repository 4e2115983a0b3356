#include "ops/cpu_backend.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <new>

#include "base/text.h"
#include "host/host.h"
#include "ops/cpu_call.h"

namespace rullama {

void CpuView::decode_row(std::uint64_t r, std::span<float> out) const {
  const DTypeInfo& type = info(desc.dtype);
  type.decode(data + r * row_bytes(desc.dtype, desc.shape.back()), desc.shape.back() / type.block_elements, out.data());
}

namespace {

constexpr std::size_t kAlign = 64;

struct AlignedDelete {
  void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{kAlign}); }
};
using Memory = std::unique_ptr<std::byte[], AlignedDelete>;

// Zeroed memory, or null when there is none.
Memory allocate(std::uint64_t bytes) {
  if (bytes > std::numeric_limits<std::size_t>::max() / 2) return {};
  const std::size_t size = std::max<std::size_t>(bytes, kAlign);
  Memory memory(static_cast<std::byte*>(::operator new[](size, std::align_val_t{kAlign}, std::nothrow)));
  if (memory) std::memset(memory.get(), 0, size);
  return memory;
}

class CpuTensor final : public Tensor {
 public:
  CpuTensor(TensorDesc desc, Memory memory) : Tensor(desc), memory_(std::move(memory)), data_(memory_.get()) {}
  CpuTensor(TensorDesc desc, std::shared_ptr<const ByteSource> source, const std::byte* data)
      : Tensor(desc), source_(std::move(source)), data_(const_cast<std::byte*>(data)) {}
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] bool writable() const { return memory_ != nullptr; }

 private:
  std::shared_ptr<const ByteSource> source_;
  Memory memory_;
  std::byte* data_;
};

Error no_memory(std::string_view what, std::uint64_t bytes) {
  return {cat("not enough memory for ", what, ": ", bytes_text(static_cast<double>(bytes)), " could not be had"),
          ErrorCode::out_of_memory};
}

class CpuProgram final : public Program {
 public:
  CpuProgram(const Graph& graph, Crew& crew, Precision precision) : graph_(graph), crew_(crew), precision_(precision) {}

  // `room`: bytes that can be had.
  Result<> prepare(std::uint64_t room) {
    const MemoryPlan plan = plan_memory(graph_);
    const auto& tensors = graph_.tensors();
    std::uint64_t all = 0;
    for (const std::uint64_t bytes : plan.slot_bytes) all += bytes;
    if (all > room) return std::unexpected(no_memory("intermediate results", all));
    std::vector<std::byte*> slots;
    for (const std::uint64_t bytes : plan.slot_bytes) {
      memory_.push_back(allocate(bytes));
      if (!memory_.back()) return std::unexpected(no_memory("intermediate results", bytes));
      slots.push_back(memory_.back().get());
    }
    data_.resize(tensors.size());
    for (TensorId id = 0; id < tensors.size(); id++) {
      const TensorInfo& t = tensors[id];
      if (t.role == TensorRole::activation) {
        data_[id] = slots[plan.slot[id]];
      } else if (t.role == TensorRole::tensor) {
        data_[id] = static_cast<const CpuTensor&>(*t.tensor).data();
      } else if (t.root != id) {
        data_[id] = data_[t.root];
      } else {
        memory_.push_back(allocate(t.desc.bytes()));
        if (!memory_.back()) return std::unexpected(no_memory(t.name, t.desc.bytes()));
        data_[id] = memory_.back().get();
      }
    }
    for (const Node& node : graph_.nodes()) {
      Views views;
      for (const TensorId id : node.in) views.in.push_back({tensors[id].desc, data_[id]});
      for (const TensorId id : node.out) views.out.push_back({tensors[id].desc, data_[id]});
      views_.push_back(std::move(views));
    }
    return {};
  }

  Result<> write(Var input, std::span<const std::byte> data) override {
    std::memcpy(data_[input.id()], data.data(), std::min<std::size_t>(data.size(), input.desc().bytes()));
    return {};
  }
  Result<> run(bool) override {
    for (std::size_t n = 0; n < views_.size(); n++) run_node(n);
    return {};
  }
  Result<> read(Var kept, std::span<std::byte> out) override {
    std::memcpy(out.data(), data_[kept.id()], std::min<std::size_t>(out.size(), kept.desc().bytes()));
    return {};
  }
  Result<> start_read(Var kept, std::uint64_t bytes) override {
    const std::byte* data = data_[kept.id()];
    reads_.emplace_back(data, data + std::min(bytes, kept.desc().bytes()));
    return {};
  }
  Result<> finish_read(std::span<std::byte> out) override {
    if (reads_.empty()) return fail("no read was started");
    std::memcpy(out.data(), reads_.front().data(), std::min(out.size(), reads_.front().size()));
    reads_.pop_front();
    return {};
  }
  Result<std::vector<NodeTime>> run_timed() override {
    std::vector<NodeTime> times;
    for (std::size_t n = 0; n < views_.size(); n++) {
      const double start = host::rullama_host_now();
      run_node(n);
      const double end = host::rullama_host_now();
      std::vector<TensorDesc> in, out;
      for (const CpuView& v : views_[n].in) in.push_back(v.desc);
      for (const CpuView& v : views_[n].out) out.push_back(v.desc);
      const Op& op = *graph_.nodes()[n].op;
      times.push_back({std::string(op.name()), (end - start) * 1e9, op.cost(in, out)});
    }
    return times;
  }

 private:
  struct Views {
    std::vector<CpuView> in, out;
  };
  void run_node(std::size_t n) { graph_.nodes()[n].op->eval({views_[n].in, views_[n].out, crew_, precision_}); }

  const Graph& graph_;
  Crew& crew_;
  Precision precision_;
  std::vector<Memory> memory_;
  std::vector<std::byte*> data_;
  std::vector<Views> views_;
  std::deque<std::vector<std::byte>> reads_;
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(std::shared_ptr<Crew> crew, std::function<std::uint64_t()> room)
      : crew_(std::move(crew)), room_(std::move(room)) {}
  std::string device_name() const override { return cat("CPU (", crew_->width(), " threads)"); }
  bool is_gpu() const override { return false; }

  Result<std::shared_ptr<Tensor>> make_tensor(const TensorDesc& desc, std::string_view what) override {
    Memory memory = desc.bytes() <= room() ? allocate(desc.bytes()) : Memory{};
    if (!memory) return std::unexpected(no_memory(what, desc.bytes()));
    allocated_ += desc.bytes();
    return std::make_shared<CpuTensor>(desc, std::move(memory));
  }

  Result<std::shared_ptr<Tensor>> load_tensor(const TensorDesc& desc, std::string_view name,
                                              std::shared_ptr<const ByteSource> source, std::uint64_t offset) override {
    const auto mapped = source->mapped();
    if (!mapped.empty() && offset <= mapped.size() && desc.bytes() <= mapped.size() - offset) {
      const std::byte* data = mapped.data() + offset;
      return std::make_shared<CpuTensor>(desc, std::move(source), data);
    }
    Memory memory = desc.bytes() <= room() ? allocate(desc.bytes()) : Memory{};
    if (!memory) return std::unexpected(no_memory(name, desc.bytes()));
    if (auto ok = source->read(offset, {memory.get(), desc.bytes()}); !ok) return failed(ok);
    allocated_ += desc.bytes();
    return std::make_shared<CpuTensor>(desc, std::move(memory));
  }

  Result<> write(Tensor& tensor, std::uint64_t at, std::span<const std::byte> data) override {
    auto& t = static_cast<CpuTensor&>(tensor);
    if (!t.writable()) return fail("a weight that lies in its file cannot be written");
    if (at > t.desc().bytes() || data.size() > t.desc().bytes() - at) return fail("write past the end of a tensor");
    std::memcpy(t.data() + at, data.data(), data.size());
    return {};
  }
  Result<> read(const Tensor& tensor, std::uint64_t at, std::span<std::byte> out) override {
    const auto& t = static_cast<const CpuTensor&>(tensor);
    if (at > t.desc().bytes() || out.size() > t.desc().bytes() - at) return fail("read past the end of a tensor");
    std::memcpy(out.data(), t.data() + at, out.size());
    return {};
  }

  Result<std::unique_ptr<Program>> compile(const Graph& graph, Precision precision) override {
    if (auto ok = graph.status(); !ok) return failed(ok);
    auto program = std::make_unique<CpuProgram>(graph, *crew_, precision);
    if (auto ok = program->prepare(room()); !ok) return failed(ok);
    return program;
  }

  std::uint64_t allocated_bytes() const override { return allocated_; }
  std::uint64_t max_activation_bytes() const override { return std::uint64_t{1} << 40; }

 private:
  [[nodiscard]] std::uint64_t room() const { return room_ ? room_() : UINT64_MAX; }

  std::shared_ptr<Crew> crew_;
  std::function<std::uint64_t()> room_;
  std::uint64_t allocated_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(std::shared_ptr<Crew> crew, std::function<std::uint64_t()> room) {
  return std::make_unique<CpuBackend>(std::move(crew), std::move(room));
}

}  // namespace rullama
