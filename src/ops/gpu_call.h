// What an op sees when it is recorded for the GPU.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "gpu/command_list.h"
#include "gpu/wgsl.h"
#include "ops/op.h"

namespace rullama {

// Rows [row0, row0 + rows) of a tensor in one buffer, whose rows from `first` on they are. Only weights beyond the
// device's binding limit have several parts; only weights loaded side by side share a buffer.
struct GpuPart {
  std::shared_ptr<gpu::Buffer> buffer;
  std::uint64_t row0 = 0, rows = 0;
  std::uint64_t first = 0, buffer_rows = 0;

  [[nodiscard]] std::uint64_t end() const { return row0 + rows; }
  // Of rows [from, to) of the tensor those that lie here; the first is not below the second where none do.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> within(std::uint64_t from, std::uint64_t to) const {
    return {std::max(from, row0), std::min(to, end())};
  }
};

// A tensor on the GPU. F32 and U32 tensors lie as on the CPU. Weights of the other types are laid out in planes
// (ops/weight_layout.h); each part has planes of its own.
struct GpuView {
  TensorDesc desc;
  std::span<const GpuPart> parts;

  [[nodiscard]] const Shape& shape() const { return desc.shape; }
  [[nodiscard]] const gpu::Buffer& buffer() const { return *parts[0].buffer; }
};

class ScratchPool;

class GpuCall {
 public:
  std::span<const GpuView> in, out;
  const gpu::Capabilities& caps;
  Precision precision;

  // Records one dispatch. `key` names the kernel and all constants that went into its source; `source` (returning
  // gpu::Wgsl) is called only if that key is new. `params` is a trivially copyable struct laid out as in WGSL.
  template <class Source, class Params>
  [[nodiscard]] Result<> dispatch(std::string_view key, Source&& source, std::initializer_list<gpu::Binding> bindings,
                                  const Params& params, gpu::Grid grid) {
    static_assert(std::is_trivially_copyable_v<Params> && sizeof(Params) % 4 == 0);
    auto kernel = device_.kernel(key, [&] { return source().str(); });
    if (!kernel) return failed(kernel);
    return record(**kernel, {bindings.begin(), bindings.size()}, std::as_bytes(std::span(&params, 1)), grid);
  }

  // A call for one of the ops that this one is made of. Its scratch memory begins at `first_scratch` of this one's.
  [[nodiscard]] GpuCall part(std::span<const GpuView> inputs, std::span<const GpuView> outputs,
                             std::size_t first_scratch) const {
    GpuCall call = *this;
    call.in = inputs, call.out = outputs;
    call.first_scratch_ += first_scratch;
    return call;
  }

  // Memory for this node only; other nodes use it before and after. The same index gives the same buffer, unless
  // that is too small.
  [[nodiscard]] Result<const gpu::Buffer*> scratch(std::size_t index, std::uint64_t bytes);
  // The same as a tensor.
  [[nodiscard]] Result<GpuView> scratch(std::size_t index, const TensorDesc& desc);
  // From that index on it is not needed any more: what is asked for next may lie there.
  void free_scratch(std::size_t first) { scratch_.resize(std::min(scratch_.size(), first_scratch_ + first)); }

 private:
  friend class GpuProgram;
  GpuCall(gpu::Device& device, gpu::CommandList& list, std::vector<std::size_t>& commands, std::deque<GpuPart>& scratch,
          ScratchPool& pool, const std::vector<std::shared_ptr<gpu::Buffer>>& taken, Precision precision);
  [[nodiscard]] Result<> record(const gpu::Kernel& kernel, std::span<const gpu::Binding> bindings,
                                std::span<const std::byte> params, gpu::Grid grid);

  gpu::Device& device_;
  gpu::CommandList& list_;
  std::vector<std::size_t>& commands_;  // of this node, in order
  std::deque<GpuPart>& scratch_;
  std::size_t first_scratch_ = 0;
  ScratchPool& pool_;
  const std::vector<std::shared_ptr<gpu::Buffer>>& taken_;  // that scratch memory must not be
};

// Bindings of a whole single-part tensor.
[[nodiscard]] inline gpu::Binding read(const GpuView& v) { return gpu::read(v.buffer()); }
[[nodiscard]] inline gpu::Binding write(const GpuView& v) { return gpu::write(v.buffer()); }

}  // namespace rullama
