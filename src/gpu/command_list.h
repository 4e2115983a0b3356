// A list of dispatches that is recorded once and replayed many times.
//
// Parameters belong to the dispatch: each command owns a slot of the list's uniform buffer, bound as the binding
// after its storage buffers, so any number of commands may use the same kernel and buffers with other parameters in
// one submission. Bind groups are made when a command is recorded and kept.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "gpu/device.h"

namespace rullama::gpu {

// What a kernel does with a buffer is declared where it is bound; one dispatch may not write a buffer that it also
// binds a second time, which `add` refuses.
enum class Access : std::uint8_t { read, write };

struct Binding {
  const Buffer* buffer = nullptr;
  std::uint64_t offset = 0;  // bytes, a multiple of 256
  std::uint64_t bytes = 0;   // 0: to the end
  Access access = Access::read;
};
[[nodiscard]] inline Binding read(const Buffer& b, std::uint64_t offset = 0, std::uint64_t bytes = 0) {
  return {&b, offset, bytes, Access::read};
}
[[nodiscard]] inline Binding write(const Buffer& b, std::uint64_t offset = 0, std::uint64_t bytes = 0) {
  return {&b, offset, bytes, Access::write};
}

// Workgroups of a dispatch. Those of `wrap` are counted through: beyond a device's limit of a dimension the list
// spreads them over x and y. Their kernels compute the index as `group.x + group.y * groups.x` and skip what lies past
// the end.
struct Grid {
  std::uint32_t x = 1, y = 1, z = 1;
  bool wraps = false;
  [[nodiscard]] static Grid wrap(std::uint64_t groups);
  // The same workgroups with at most `most` a dimension, where that is possible.
  [[nodiscard]] Grid within(std::uint32_t most) const;
  [[nodiscard]] bool empty() const { return x == 0 || y == 0 || z == 0; }
};

struct KernelTime {
  std::string name;
  double nanoseconds = 0;
  std::size_t command = 0;  // its index in the list
};

class CommandList {
 public:
  static constexpr std::size_t kParamBytes = 256;  // a slot: the alignment of uniform offsets

  explicit CommandList(std::shared_ptr<Device> device);
  ~CommandList();
  CommandList(const CommandList&) = delete;
  CommandList& operator=(const CommandList&) = delete;

  // Appends a dispatch and returns its index. Bindings become @group(0) @binding(0..n-1) in order; `params`
  // (at most 256 bytes, a multiple of 4; may be empty) become the uniform at @binding(n). An empty grid is kept but not
  // run. The buffers and the kernel must outlive the list.
  [[nodiscard]] Result<std::size_t> add(const Kernel& kernel, std::span<const Binding> bindings,
                                        std::span<const std::byte> params, Grid grid);

  // Uploads new parameters, encodes all commands and submits them in order. From the second time on the commands
  // are then encoded again, ahead of the next call, while the GPU works. Does not wait: what goes wrong on the GPU is
  // reported by Device::wait or read. `queued`: the GPU has other work until then, so nothing is gained by an early
  // start.
  [[nodiscard]] Result<> submit(bool queued = false);
  // Submits with time stamps and gives the time of each kernel that ran, in order. Waits.
  [[nodiscard]] Result<std::vector<KernelTime>> submit_timed();

  [[nodiscard]] std::size_t size() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rullama::gpu
