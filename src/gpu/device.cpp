#include "gpu/device.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/text.h"
#include "gpu/command_list.h"

namespace rullama::gpu {

using namespace host;

namespace {

constexpr std::uint64_t kPadding = 16;  // a vec4<f32>: the last one of a buffer can be read whole

// Calls a seam function that fills a text, growing the room until the whole text fits.
template <class Fill>
std::string host_text(Fill fill) {
  std::string text(256, '\0');
  for (;;) {
    const std::size_t length = fill(text.data(), text.size());
    if (length <= text.size()) {
      text.resize(length);
      return text;
    }
    text.resize(length);
  }
}

// An error text is forgotten when it is read: it needs room at once.
std::string take_error(Handle device) {
  std::string text(4096, '\0');
  text.resize(std::min(rullama_host_error(device, text.data(), text.size()), text.size()));
  return text;
}

std::vector<std::string_view> split(std::string_view text, char by) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(by), text.size());
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return pieces;
}

std::uint32_t to_u32(std::string_view digits) {
  std::uint32_t n = 0;
  for (const char c : digits) n = n * 10 + static_cast<std::uint32_t>(c - '0');
  return n;
}

std::vector<SubgroupMatrix> subgroup_matrices(std::string_view lines) {
  std::vector<SubgroupMatrix> all;
  for (const std::string_view line : split(lines, '\n')) {
    const auto words = split(line, ' ');
    if (words.size() == 5)
      all.push_back(
          {std::string(words[0]), std::string(words[1]), to_u32(words[2]), to_u32(words[3]), to_u32(words[4])});
  }
  return all;
}

Capabilities ask_capabilities(Handle device) {
  const auto text = [&](std::string_view what) {
    return host_text([&](char* out, std::size_t cap) {
      return rullama_host_device_text(device, what.data(), what.size(), out, cap);
    });
  };
  const auto limit = [&](std::string_view name) { return rullama_host_device_limit(device, name.data(), name.size()); };
  const auto has = [&](std::string_view name) {
    return rullama_host_device_feature(device, name.data(), name.size()) != 0;
  };
  Capabilities c;
  c.name = text("name");
  c.backend = text("backend");
  c.driver = text("driver");
  c.vendor = text("vendor");
  c.kind = text("kind");
  c.f16 = has("shader-f16");
  c.subgroups = has("subgroups");
  c.subgroup_min = static_cast<std::uint32_t>(limit("subgroupMinSize"));
  c.subgroup_max = static_cast<std::uint32_t>(limit("subgroupMaxSize"));
  c.timestamps = has("timestamp-query");
  c.packed_dot = has("packed_4x8_integer_dot_product");
  if (has("subgroup-matrix")) c.subgroup_matrices = subgroup_matrices(text("subgroup-matrices"));
  c.max_binding_bytes = static_cast<std::uint64_t>(limit("maxStorageBufferBindingSize"));
  c.max_buffer_bytes = static_cast<std::uint64_t>(limit("maxBufferSize"));
  c.workgroup_memory = static_cast<std::uint32_t>(limit("maxComputeWorkgroupStorageSize"));
  c.max_invocations = static_cast<std::uint32_t>(
      std::min(limit("maxComputeInvocationsPerWorkgroup"), limit("maxComputeWorkgroupSizeX")));
  c.max_workgroups = static_cast<std::uint32_t>(limit("maxComputeWorkgroupsPerDimension"));
  c.storage_buffers = static_cast<std::uint32_t>(limit("maxStorageBuffersPerShaderStage"));
  return c;
}

// The line that a compiler's message names as "3:16" or "line 3"; 0 if it names none.
std::uint32_t named_line(std::string_view message) {
  for (std::size_t at = 0; at < message.size(); at++) {
    const std::size_t end = std::min(message.find_first_not_of("0123456789", at), message.size());
    if (end == at) continue;
    const std::string_view before = message.substr(0, at), digits = message.substr(at, end - at);
    const bool with_column = before.ends_with(':') && message.substr(end).starts_with(':');
    if ((with_column || before.ends_with("line ")) && digits.size() < 7) return to_u32(digits);
    at = end;
  }
  return 0;
}

// What a compiler said, without its notes on the call and with the line of the source if it does not quote that.
std::string explain(std::string message, std::string_view wgsl) {
  message.resize(std::min(message.find("\n - While"), message.size()));
  while (!message.empty() && (message.back() == '\n' || message.back() == ' ')) message.pop_back();
  const auto lines = split(wgsl, '\n');
  const std::uint32_t number = named_line(message);
  if (number == 0 || number > lines.size()) return message;
  std::string_view line = lines[number - 1];
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  return message.find(line) == std::string::npos ? cat(message, "\n", number, ": ", line) : message;
}

}  // namespace

// --- Buffer

Buffer::Buffer(std::shared_ptr<Device> device, Handle handle, std::uint64_t bytes)
    : device_(std::move(device)), handle_(handle), bytes_(bytes) {}
Buffer::Buffer(Buffer&& other) noexcept
    : device_(std::move(other.device_)),
      handle_(std::exchange(other.handle_, 0)),
      bytes_(std::exchange(other.bytes_, 0)) {}
Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
Buffer::~Buffer() {
  if (!handle_) return;
  device_->allocated_ -= bytes_;
  rullama_host_buffer_release(device_->handle_, handle_);
}

// --- Kernel

Kernel::~Kernel() { rullama_host_pipeline_release(device_->handle_, handle_); }

// --- Reading

Reading::Reading(Reading&& other) noexcept
    : device_(std::move(other.device_)), handle_(std::exchange(other.handle_, 0)), bytes_(other.bytes_) {}
Reading& Reading::operator=(Reading&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(handle_, other.handle_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
Reading::~Reading() {
  if (handle_) (void)rullama_host_read_finish(device_->handle_, handle_, nullptr);
}

Result<> Reading::finish(std::span<std::byte> out) {
  if (bytes_ == 0) return {};
  if (out.size() != bytes_)
    return fail(ErrorCode::device, cat(bytes_, " bytes were read, ", out.size(), " are asked for"));
  const Handle handle = std::exchange(handle_, 0);
  device_->unfinished_ = 0;  // but for what was submitted since the read was started
  if (handle && rullama_host_read_finish(device_->handle_, handle, out.data())) return device_->check("earlier work");
  auto why = device_->check("reading results");
  if (why) return fail(ErrorCode::device, cat("reading results failed on ", device_->capabilities().name));
  return why;
}

// --- Device

struct Device::Impl {
  std::map<std::string, std::unique_ptr<Kernel>, std::less<>> kernels;
};

Device::Device(Handle handle) : handle_(handle), impl_(std::make_unique<Impl>()) {}

Device::~Device() {
  impl_->kernels.clear();
  rullama_host_device_close(handle_);
}

Result<std::shared_ptr<Device>> Device::open(std::string_view selector) {
  const Handle handle = rullama_host_device_open(selector.data(), selector.size());
  if (!handle) return fail(ErrorCode::device, take_error(0));
  std::shared_ptr<Device> device(new Device(handle));
  device->capabilities_ = ask_capabilities(handle);
  return device;
}

Result<> Device::check(std::string_view doing) {
  std::string error = take_error(handle_);
  if (error.empty()) return {};
  return fail(ErrorCode::device, cat(doing, " failed on ", capabilities_.name, ": ", error));
}

Result<Buffer> Device::make_buffer(std::uint64_t bytes, std::uint32_t usage, std::string_view what) {
  const std::uint64_t padded = (std::max<std::uint64_t>(bytes, 1) + kPadding - 1) / kPadding * kPadding;
  const auto no_room = [&](std::string_view why) {
    return fail(ErrorCode::out_of_memory, cat(bytes_text(static_cast<double>(bytes)), " for ", what,
                                              " could not be had on ", capabilities_.name, ": ", why));
  };
  if (bytes > capabilities_.max_buffer_bytes)
    return no_room(
        cat("one buffer may hold at most ", bytes_text(static_cast<double>(capabilities_.max_buffer_bytes))));
  const Handle handle = rullama_host_buffer_create(handle_, static_cast<double>(padded), usage);
  if (!handle) return no_room(take_error(handle_));
  allocated_ += padded;
  return Buffer(shared_from_this(), handle, padded);
}

Result<Buffer> Device::buffer(std::uint64_t bytes, std::string_view what) {
  return make_buffer(bytes, kStorage | kCopySrc | kCopyDst, what);
}
Result<Buffer> Device::uniform_buffer(std::uint64_t bytes) {
  return make_buffer(bytes, kUniform | kCopyDst, "parameters");
}

Result<> Device::write(const Buffer& buffer, std::uint64_t at, std::span<const std::byte> data) {
  if (at % 4 || data.size() % 4 || at > buffer.bytes_ || data.size() > buffer.bytes_ - at)
    return fail(ErrorCode::device,
                cat("a write of ", data.size(), " bytes at ", at, " does not fit a buffer of ", buffer.bytes_));
  if (!data.empty())
    rullama_host_buffer_write(handle_, buffer.handle_, static_cast<double>(at), data.data(), data.size());
  return {};
}

Result<> Device::read(const Buffer& buffer, std::uint64_t at, std::span<std::byte> out) {
  constexpr std::size_t kMost = 16u << 20;  // bytes on their way at a time
  do {
    const std::size_t n = std::min(out.size(), kMost);
    auto reading = start_read(buffer, at, n);
    if (!reading) return failed(reading);
    if (auto ok = reading->finish(out.first(n)); !ok) return ok;
    at += n;
    out = out.subspan(n);
  } while (!out.empty());
  return {};
}

Result<Reading> Device::start_read(const Buffer& buffer, std::uint64_t at, std::uint64_t bytes) {
  if (at % 4 || bytes % 4 || at > buffer.bytes_ || bytes > buffer.bytes_ - at)
    return fail(ErrorCode::device,
                cat("a read of ", bytes, " bytes at ", at, " does not fit a buffer of ", buffer.bytes_));
  const Handle handle =
      bytes ? rullama_host_read_start(handle_, buffer.handle_, static_cast<double>(at), bytes) : Handle{};
  return Reading(shared_from_this(), handle, bytes);
}

Result<> Device::wait() {
  rullama_host_idle(handle_);
  unfinished_ = 0;
  return check("work on the GPU");
}

const Kernel* Device::find_kernel(std::string_view key) const {
  const auto it = impl_->kernels.find(key);
  return it == impl_->kernels.end() ? nullptr : it->second.get();
}

Result<const Kernel*> Device::make_kernel(std::string_view key, const std::string& wgsl) {
  const Handle handle = rullama_host_pipeline_create(handle_, wgsl.data(), wgsl.size(), key.data(), key.size());
  if (!handle)
    return fail(ErrorCode::device,
                cat("kernel ", key, " was refused by ", capabilities_.name, ": ", explain(take_error(handle_), wgsl)));
  std::unique_ptr<Kernel> kernel(new Kernel(this, handle, std::string(key), std::hash<std::string>()(wgsl)));
  return impl_->kernels.emplace(std::string(key), std::move(kernel)).first->second.get();
}

Result<const Kernel*> Device::same_text(const Kernel& kernel, const std::string& wgsl) {
  if (std::hash<std::string>()(wgsl) == kernel.text_) return &kernel;
  return fail(cat("kernel ", kernel.name_, " is the key of two texts"));
}

std::size_t Device::kernel_count() const { return impl_->kernels.size(); }

Result<std::vector<Capabilities>> list_adapters() {
  const std::string lines = host_text([](char* out, std::size_t cap) { return rullama_host_adapters(out, cap); });
  if (lines.empty())
    if (std::string error = take_error(0); !error.empty()) return fail(ErrorCode::device, error);
  std::vector<Capabilities> all;
  for (const std::string_view line : split(lines, '\n')) {
    const auto fields = split(line, '\t');
    Capabilities c;
    if (fields.size() > 1) c.name = fields[1];
    if (fields.size() > 2) c.backend = fields[2];
    if (fields.size() > 3) c.kind = fields[3];
    if (fields.size() > 4) c.driver = fields[4];
    all.push_back(std::move(c));
  }
  return all;
}

}  // namespace rullama::gpu
