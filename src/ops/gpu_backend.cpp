#include "ops/gpu_backend.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "ops/gpu_call.h"
#include "ops/weight_layout.h"

namespace rullama {

using gpu::Buffer;

// Buffers for intermediate results, shared by the programs of a backend, of which one runs at a time.
class ScratchPool {
 public:
  // One buffer of at least `bytes` that is not in `taken`.
  Result<std::shared_ptr<Buffer>> take(gpu::Device& device, std::uint64_t bytes,
                                       const std::vector<std::shared_ptr<Buffer>>& taken) {
    std::shared_ptr<Buffer> best;
    for (const auto& b : buffers_) {
      if (b->bytes() < bytes || (best && best->bytes() <= b->bytes())) continue;
      if (std::find(taken.begin(), taken.end(), b) == taken.end()) best = b;
    }
    if (best) return best;
    auto made = device.buffer(bytes, "intermediate results");
    if (!made) return failed(made);
    buffers_.push_back(std::make_shared<Buffer>(std::move(*made)));
    return buffers_.back();
  }

 private:
  std::vector<std::shared_ptr<Buffer>> buffers_;
};

GpuCall::GpuCall(gpu::Device& device, gpu::CommandList& list, std::vector<std::size_t>& commands,
                 std::deque<GpuPart>& scratch, ScratchPool& pool,
                 const std::vector<std::shared_ptr<gpu::Buffer>>& taken, Precision precision_)
    : caps(device.capabilities()),
      precision(precision_),
      device_(device),
      list_(list),
      commands_(commands),
      scratch_(scratch),
      pool_(pool),
      taken_(taken) {}

Result<> GpuCall::record(const gpu::Kernel& kernel, std::span<const gpu::Binding> bindings,
                         std::span<const std::byte> params, gpu::Grid grid) {
  auto command = list_.add(kernel, bindings, params, grid);
  if (!command) return failed(command);
  commands_.push_back(*command);
  return {};
}

Result<const Buffer*> GpuCall::scratch(std::size_t index, std::uint64_t bytes) {
  index += first_scratch_;
  if (index >= scratch_.size()) scratch_.resize(index + 1);
  std::shared_ptr<Buffer>& kept = scratch_[index].buffer;
  if (!kept || kept->bytes() < bytes) {
    std::vector<std::shared_ptr<Buffer>> taken = taken_;
    for (const GpuPart& part : scratch_)
      if (part.buffer) taken.push_back(part.buffer);
    auto buffer = pool_.take(device_, std::max<std::uint64_t>(bytes, 4), taken);
    if (!buffer) return failed(buffer);
    kept = std::move(*buffer);
  }
  return kept.get();
}

Result<GpuView> GpuCall::scratch(std::size_t index, const TensorDesc& desc) {
  if (auto buffer = scratch(index, desc.bytes()); !buffer) return failed(buffer);
  GpuPart& part = scratch_[first_scratch_ + index];
  part.rows = part.buffer_rows = desc.shape.rows();
  return GpuView{desc, {&part, 1}};
}

namespace {

constexpr std::size_t kStagingBytes = 4u << 20;  // file bytes laid out at a time

class GpuTensor final : public Tensor {
 public:
  GpuTensor(TensorDesc desc, std::vector<GpuPart> parts) : Tensor(desc), parts_(std::move(parts)) {}
  [[nodiscard]] std::span<const GpuPart> parts() const { return parts_; }

 private:
  std::vector<GpuPart> parts_;
};

}  // namespace

class GpuProgram final : public Program {
 public:
  GpuProgram(std::shared_ptr<gpu::Device> device, const Graph& graph, Precision precision)
      : graph_(graph), device_(std::move(device)), precision_(precision), list_(device_) {}

  Result<> prepare(ScratchPool& pool) {
    pool_ = &pool;
    const MemoryPlan plan = plan_memory(graph_);
    const auto& tensors = graph_.tensors();
    std::vector<std::size_t> order(plan.slot_bytes.size());
    for (std::size_t i = 0; i < order.size(); i++) order[i] = i;
    // large slots choose first, so that a small one does not take the only buffer that fits
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return plan.slot_bytes[a] > plan.slot_bytes[b]; });
    std::vector<std::shared_ptr<Buffer>> slots(order.size());
    for (const std::size_t i : order) {
      auto buffer = pool.take(*device_, plan.slot_bytes[i], slots);
      if (!buffer) return failed(buffer);
      slots[i] = *buffer;
    }
    own_.resize(tensors.size());
    for (TensorId id = 0; id < tensors.size(); id++) {
      const TensorInfo& t = tensors[id];
      if (t.role == TensorRole::tensor) continue;
      std::shared_ptr<Buffer> buffer;
      if (t.role == TensorRole::activation) {
        buffer = slots[plan.slot[id]];
      } else if (t.root != id) {
        buffer = own_[t.root].buffer;
      } else {
        auto made = device_->buffer(std::max<std::uint64_t>(t.desc.bytes(), 4), t.name);
        if (!made) return failed(made);
        buffer = std::make_shared<Buffer>(std::move(*made));
      }
      own_[id] = {std::move(buffer), 0, t.desc.shape.rows(), 0, t.desc.shape.rows()};
    }
    const auto& nodes = graph_.nodes();
    state_.resize(nodes.size());
    std::vector<std::shared_ptr<Buffer>> taken;
    for (std::size_t n = 0; n < nodes.size(); n++) {
      taken.clear();
      for (TensorId id = 0; id < tensors.size(); id++)
        if (tensors[id].role == TensorRole::activation && plan.life[id].contains(n)) taken.push_back(own_[id].buffer);
      if (auto ok = record(n, taken); !ok) return ok;
    }
    return {};
  }

  Result<> write(Var input, std::span<const std::byte> data) override {
    const std::size_t n = std::min<std::size_t>(data.size(), input.desc().bytes());
    return device_->write(*own_[input.id()].buffer, 0, data.first(n));
  }
  Result<> run(bool queued) override { return list_.submit(queued); }
  Result<> read(Var kept, std::span<std::byte> out) override {
    return device_->read(*own_[kept.id()].buffer, 0, out.first(std::min<std::size_t>(out.size(), kept.desc().bytes())));
  }
  Result<> start_read(Var kept, std::uint64_t bytes) override {
    auto reading = device_->start_read(*own_[kept.id()].buffer, 0, std::min(bytes, kept.desc().bytes()));
    if (!reading) return failed(reading);
    readings_.push_back(std::move(*reading));
    return {};
  }
  Result<> finish_read(std::span<std::byte> out) override {
    if (readings_.empty()) return fail("no read was started");
    gpu::Reading reading = std::move(readings_.front());
    readings_.pop_front();
    return reading.finish(out);
  }
  Result<std::vector<NodeTime>> run_timed() override {
    auto times = list_.submit_timed();
    if (!times) return failed(times);
    // A node's kernels are summed up: only the node's cost is known.
    std::vector<NodeTime> out;
    auto time = times->begin();
    for (std::size_t n = 0; n < state_.size(); n++) {
      if (state_[n].commands.empty()) continue;
      NodeTime node;
      std::size_t kernels = 0;
      for (; time != times->end() && time->command <= state_[n].commands.back(); ++time, kernels++) {
        node.name = std::move(time->name);
        node.nanoseconds += time->nanoseconds;
      }
      if (kernels == 0) continue;
      if (kernels > 1) node.name = graph_.nodes()[n].op->name();
      node.cost = cost(n);
      out.push_back(std::move(node));
    }
    return out;
  }

 private:
  struct State {  // of a node
    std::vector<std::size_t> commands;
    std::deque<GpuPart> scratch;
  };

  // `taken`: buffers of the pool that hold what this node or later ones need.
  Result<> record(std::size_t n, const std::vector<std::shared_ptr<Buffer>>& taken) {
    const Node& node = graph_.nodes()[n];
    std::vector<GpuView> in, out;
    for (const TensorId id : node.in) in.push_back(view(id));
    for (const TensorId id : node.out) out.push_back(view(id));
    GpuCall call(*device_, list_, state_[n].commands, state_[n].scratch, *pool_, taken, precision_);
    call.in = in;
    call.out = out;
    return node.op->record(call);
  }

  [[nodiscard]] Cost cost(std::size_t n) const {
    const Node& node = graph_.nodes()[n];
    std::vector<TensorDesc> in, out;
    for (const TensorId id : node.in) in.push_back(graph_.tensors()[id].desc);
    for (const TensorId id : node.out) out.push_back(graph_.tensors()[id].desc);
    return node.op->cost(in, out);
  }

  GpuView view(TensorId id) const {
    const TensorInfo& t = graph_.tensors()[id];
    if (t.role == TensorRole::tensor) return {t.desc, static_cast<const GpuTensor&>(*t.tensor).parts()};
    return {t.desc, {&own_[id], 1}};
  }

  const Graph& graph_;
  std::shared_ptr<gpu::Device> device_;
  Precision precision_;
  gpu::CommandList list_;
  ScratchPool* pool_ = nullptr;
  std::vector<GpuPart> own_;  // of activations and inputs
  std::vector<State> state_;
  std::deque<gpu::Reading> readings_;
};

namespace {

class GpuBackend final : public Backend {
 public:
  explicit GpuBackend(std::shared_ptr<gpu::Device> device) : device_(std::move(device)) {}
  std::string device_name() const override { return device_->capabilities().name; }
  bool is_gpu() const override { return true; }
  bool is_remote() const override { return !device_->capabilities().is_cpu(); }
  std::uint32_t good_rows() const override { return device_->capabilities().kind == "discrete" ? 1024 : 512; }

  Result<std::shared_ptr<Tensor>> make_tensor(const TensorDesc& desc, std::string_view what) override {
    return allocate(desc, what);
  }

  Result<std::shared_ptr<Tensor>> load_tensor(const TensorDesc& desc, std::string_view name,
                                              std::shared_ptr<const ByteSource> source, std::uint64_t offset) override {
    auto tensor = allocate(desc, name);
    if (!tensor) return failed(tensor);
    if (auto ok = fill(static_cast<const GpuTensor&>(**tensor), *source, offset); !ok) return failed(ok);
    return tensor;
  }

  Result<std::vector<std::shared_ptr<Tensor>>> load_tensors(std::span<const FileTensor> tensors,
                                                            std::shared_ptr<const ByteSource> source) override {
    std::vector<std::shared_ptr<Tensor>> loaded;
    while (!tensors.empty()) {
      const std::size_t count = side_by_side(tensors);
      auto made = allocate_joined(tensors.first(count));
      if (!made) return failed(made);
      for (std::size_t i = 0; i < count; i++)
        if (auto ok = fill(static_cast<const GpuTensor&>(*(*made)[i]), *source, tensors[i].offset); !ok)
          return failed(ok);
      loaded.insert(loaded.end(), made->begin(), made->end());
      tensors = tensors.subspan(count);
    }
    return loaded;
  }

  Result<> write(Tensor& tensor, std::uint64_t at, std::span<const std::byte> data) override {
    auto part = plain(tensor);
    if (!part) return failed(part);
    return device_->write(*(*part)->buffer, at, data);
  }
  Result<> read(const Tensor& tensor, std::uint64_t at, std::span<std::byte> out) override {
    auto part = plain(tensor);
    if (!part) return failed(part);
    return device_->read(*(*part)->buffer, at, out);
  }

  Result<std::unique_ptr<Program>> compile(const Graph& graph, Precision precision) override {
    if (auto ok = graph.status(); !ok) return failed(ok);
    auto program = std::make_unique<GpuProgram>(device_, graph, precision);
    if (auto ok = program->prepare(pool_); !ok) return failed(ok);
    return program;
  }

  std::uint64_t allocated_bytes() const override { return device_->allocated_bytes(); }
  std::uint64_t max_activation_bytes() const override { return device_->capabilities().max_binding_bytes; }

 private:
  // Uploads a weight's rows from `offset` of the file on.
  Result<> fill(const GpuTensor& tensor, const ByteSource& source, std::uint64_t offset) {
    const TensorDesc& desc = tensor.desc();
    const std::uint64_t columns = desc.shape.back(), per_row = row_bytes(desc.dtype, columns);
    // whole pairs of rows, so that every piece of a 2-byte plane is a whole word
    const std::uint64_t step = std::max<std::uint64_t>(kStagingBytes / std::max<std::uint64_t>(per_row, 1) / 2 * 2, 2);
    std::vector<std::byte> staging;
    for (const GpuPart& part : tensor.parts()) {
      for (std::uint64_t row = 0; row < part.rows; row += step) {
        const std::uint64_t rows = std::min(step, part.rows - row);
        const std::uint64_t at = offset + (part.row0 + row) * per_row;
        const auto mapped = source.mapped();
        std::span<const std::byte> src;
        if (!mapped.empty() && at <= mapped.size() && rows * per_row <= mapped.size() - at) {
          src = mapped.subspan(at, rows * per_row);
        } else {
          staging.resize(rows * per_row);
          if (auto ok = source.read(at, staging); !ok) return ok;
          src = staging;
        }
        for (const LayoutPiece& piece : lay_out(desc.dtype, part.buffer_rows, columns, part.first + row, rows, src))
          if (auto ok = device_->write(*part.buffer, piece.at, piece.data); !ok) return ok;
        source.release(at, rows * per_row);
        if (auto ok = bound_staging(rows * per_row); !ok) return ok;
      }
    }
    return {};
  }

  // How many of the first tensors can share a buffer: of one quantised type, together within the limits, and each
  // starting where every plane is aligned.
  [[nodiscard]] std::size_t side_by_side(std::span<const FileTensor> tensors) const {
    const TensorDesc& head = tensors[0].desc;
    const DTypeInfo& type = info(head.dtype);
    const auto& caps = device_->capabilities();
    const std::uint64_t columns = head.shape.back(), limit = std::min(caps.max_binding_bytes, caps.max_buffer_bytes);
    const auto aligned = [&](std::uint64_t rows) {
      return std::ranges::all_of(
          type.fields, [&](std::uint16_t bytes) { return rows * (columns / type.block_elements) * bytes % 16 == 0; });
    };
    std::uint64_t rows = head.shape.rows();
    std::size_t count = 1;
    for (; type.quantised && count < tensors.size(); count++) {
      const TensorDesc& next = tensors[count].desc;
      if (next.dtype != head.dtype || next.shape.back() != columns || !aligned(rows)) break;
      if (weight_layout(head.dtype, rows + next.shape.rows(), columns).bytes > limit) break;
      rows += next.shape.rows();
    }
    return count;
  }

  Result<std::vector<std::shared_ptr<Tensor>>> allocate_joined(std::span<const FileTensor> tensors) {
    if (tensors.size() == 1) {
      auto one = allocate(tensors[0].desc, tensors[0].name);
      if (!one) return failed(one);
      return std::vector{*one};
    }
    std::uint64_t rows = 0;
    for (const FileTensor& t : tensors) rows += t.desc.shape.rows();
    const WeightLayout layout = weight_layout(tensors[0].desc.dtype, rows, tensors[0].desc.shape.back());
    auto made = device_->buffer(std::max<std::uint64_t>(layout.bytes, 16), tensors[0].name);
    if (!made) return failed(made);
    const auto buffer = std::make_shared<Buffer>(std::move(*made));
    std::vector<std::shared_ptr<Tensor>> all;
    std::uint64_t first = 0;
    for (const FileTensor& t : tensors) {
      const std::uint64_t n = t.desc.shape.rows();
      all.push_back(std::make_shared<GpuTensor>(t.desc, std::vector{GpuPart{buffer, 0, n, first, rows}}));
      first += n;
    }
    return all;
  }

  Result<std::shared_ptr<Tensor>> allocate(const TensorDesc& desc, std::string_view what) {
    const std::uint64_t rows = desc.shape.rows(), columns = desc.shape.back();
    const auto& caps = device_->capabilities();
    const std::uint64_t limit = std::min(caps.max_binding_bytes, caps.max_buffer_bytes);
    std::vector<GpuPart> parts;
    const std::uint64_t step = weight_layout(desc.dtype, rows, columns).bytes <= limit
                                   ? std::max<std::uint64_t>(rows, 1)
                                   : rows_that_fit(desc.dtype, columns, limit, 64);
    for (std::uint64_t row = 0; row < rows || parts.empty(); row += step) {
      const std::uint64_t n = std::min(step, rows - row);
      auto buffer = device_->buffer(std::max<std::uint64_t>(weight_layout(desc.dtype, n, columns).bytes, 16), what);
      if (!buffer) return failed(buffer);
      parts.push_back({std::make_shared<Buffer>(std::move(*buffer)), row, n, 0, n});
    }
    return std::make_shared<GpuTensor>(desc, std::move(parts));
  }

  // Uploads wait in driver memory until the GPU has taken them: never more than a few pieces at a time.
  Result<> bound_staging(std::uint64_t bytes) {
    staged_ += bytes;
    if (staged_ < 8 * kStagingBytes) return {};
    staged_ = 0;
    return device_->wait();
  }

  // The one part of a tensor that lies as on the CPU.
  static Result<const GpuPart*> plain(const Tensor& tensor) {
    const auto& t = static_cast<const GpuTensor&>(tensor);
    const bool dense = !info(t.desc().dtype).quantised;
    const bool halves = dense && row_bytes(t.desc().dtype, 2) == 4;
    if (!dense || (halves && t.desc().shape.back() % 2) || t.parts().size() != 1)
      return fail(cat("a tensor of ", t.desc().str(), " cannot be read or written in place on the GPU"));
    return &t.parts()[0];
  }

  std::shared_ptr<gpu::Device> device_;
  ScratchPool pool_;
  std::uint64_t staged_ = 0;
};

}  // namespace

std::unique_ptr<Backend> make_gpu_backend(std::shared_ptr<gpu::Device> device) {
  return std::make_unique<GpuBackend>(std::move(device));
}

}  // namespace rullama
