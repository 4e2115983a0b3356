// Device, buffers and kernels as owning values over the host seam. No handle leaves gpu/.
//
// A failure carries the kernel's or buffer's name and the driver's words; a lost device or an allocation that
// fails is an error value, never an abort. Objects keep their device alive.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/capabilities.h"
#include "host/host.h"
#include "rullama/result.h"

namespace rullama::gpu {

class Device;

// A region of GPU memory, zero when made. Sizes are padded to 16 bytes, so that kernels may bind any buffer as
// array<vec4f>; the padding counts as nothing.
class Buffer {
 public:
  Buffer() = default;
  ~Buffer();
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  [[nodiscard]] explicit operator bool() const { return handle_ != 0; }

 private:
  friend class Device;
  friend class CommandList;
  Buffer(std::shared_ptr<Device> device, host::Handle handle, std::uint64_t bytes);
  std::shared_ptr<Device> device_;
  host::Handle handle_ = 0;
  std::uint64_t bytes_ = 0;
};

// Bytes that are on their way from a buffer.
class Reading {
 public:
  Reading(Reading&& other) noexcept;
  Reading& operator=(Reading&& other) noexcept;
  ~Reading();
  // Waits, and writes them to `out`, which has their number. Once.
  [[nodiscard]] Result<> finish(std::span<std::byte> out);

 private:
  friend class Device;
  Reading(std::shared_ptr<Device> device, host::Handle handle, std::uint64_t bytes)
      : device_(std::move(device)), handle_(handle), bytes_(bytes) {}
  std::shared_ptr<Device> device_;
  host::Handle handle_ = 0;
  std::uint64_t bytes_ = 0;
};

// A compiled WGSL program with entry point `main`.
class Kernel {
 public:
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  friend class Device;
  friend class CommandList;
  Kernel(Device* device, host::Handle handle, std::string name, std::size_t text)
      : device_(device), handle_(handle), name_(std::move(name)), text_(text) {}
  Device* device_;
  host::Handle handle_;
  std::string name_;
  std::size_t text_;  // a hash of it
};

class Device : public std::enable_shared_from_this<Device> {
 public:
  // `selector`: "" the best adapter, its index, or a part of its name.
  [[nodiscard]] static Result<std::shared_ptr<Device>> open(std::string_view selector);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  [[nodiscard]] const Capabilities& capabilities() const { return capabilities_; }
  // Kernels are chosen as for a device of these capabilities: for tests of what other devices get. What this one lacks,
  // `rewrite` takes out of a kernel's text.
  using Rewrite = std::function<std::string(std::string)>;
  void assume(Capabilities capabilities, Rewrite rewrite = {}) {
    capabilities_ = std::move(capabilities);
    rewrite_ = std::move(rewrite);
  }

  // Each use of a kernel is then checked to be of the text that its key stood for at first: for tests.
  void check_keys() { checks_keys_ = true; }

  // Usable as storage, and as source and target of copies.
  [[nodiscard]] Result<Buffer> buffer(std::uint64_t bytes, std::string_view what);
  [[nodiscard]] Result<Buffer> uniform_buffer(std::uint64_t bytes);
  // `at` and the length are multiples of 4. Ordered with submissions.
  [[nodiscard]] Result<> write(const Buffer& buffer, std::uint64_t at, std::span<const std::byte> data);
  // Waits for all submitted work first.
  [[nodiscard]] Result<> read(const Buffer& buffer, std::uint64_t at, std::span<std::byte> out);
  // Fetches as many bytes as the work submitted so far leaves them; more may be submitted meanwhile.
  [[nodiscard]] Result<Reading> start_read(const Buffer& buffer, std::uint64_t at, std::uint64_t bytes);
  // Waits for all submitted work and reports the first error since the last report.
  [[nodiscard]] Result<> wait();

  // The kernel of that key, compiled at first use. `name` names it in errors and profiles; `source` is called only
  // when the key is new.
  template <class Source>
  [[nodiscard]] Result<const Kernel*> kernel(std::string_view key, Source&& source) {
    const Kernel* known = find_kernel(key);
    if (known && !checks_keys_) return known;
    const std::string wgsl = rewrite_ ? rewrite_(source()) : source();
    return known ? same_text(*known, wgsl) : make_kernel(key, wgsl);
  }

  // Commands submitted since something was last waited for. Drivers keep memory for each, so a list that would make
  // them more than the most waits first.
  static constexpr std::size_t kMostUnfinished = 16384;
  [[nodiscard]] std::size_t unfinished() const { return unfinished_; }

  [[nodiscard]] std::uint64_t allocated_bytes() const { return allocated_; }  // of buffers alive
  [[nodiscard]] std::size_t kernel_count() const;

 private:
  friend class Buffer;
  friend class Kernel;
  friend class Reading;
  friend class CommandList;
  explicit Device(host::Handle handle);
  [[nodiscard]] const Kernel* find_kernel(std::string_view key) const;
  [[nodiscard]] Result<const Kernel*> make_kernel(std::string_view key, const std::string& wgsl);
  [[nodiscard]] static Result<const Kernel*> same_text(const Kernel& kernel, const std::string& wgsl);
  [[nodiscard]] Result<Buffer> make_buffer(std::uint64_t bytes, std::uint32_t usage, std::string_view what);
  [[nodiscard]] Result<> check(std::string_view doing);  // takes the pending error, if any

  struct Impl;
  host::Handle handle_;
  Capabilities capabilities_;
  Rewrite rewrite_;
  bool checks_keys_ = false;
  std::uint64_t allocated_ = 0;
  std::size_t unfinished_ = 0;
  std::unique_ptr<Impl> impl_;  // the kernels by key
};

[[nodiscard]] Result<std::vector<Capabilities>> list_adapters();  // name, backend, kind, driver only

}  // namespace rullama::gpu
