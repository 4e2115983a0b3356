#include "gpu/command_list.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/text.h"

namespace rullama::gpu {

using namespace host;

namespace {

constexpr std::size_t kSlotsPerBlock = 256;  // parameter slots of one uniform buffer
// Commands of a submission. The first ones are few, so that the GPU works while the rest is still being encoded, which
// costs about as much time; a time stamp set of the seam holds more than the most.
constexpr std::size_t kFirstCommands = 16, kMostCommands = 512;
constexpr std::uint64_t kOffsetAlignment = 256;  // of bindings: WebGPU's guaranteed value

}  // namespace

Grid Grid::wrap(std::uint64_t groups) {  // more than 32 bits hold are more than two dimensions hold: refused later
  return {static_cast<std::uint32_t>(std::min<std::uint64_t>(groups, UINT32_MAX)), 1, 1, true};
}

Grid Grid::within(std::uint32_t most) const {
  if (!wraps || x <= most) return *this;
  const std::uint32_t rows = x / most + (x % most != 0);
  return {x / rows + (x % rows != 0), rows, 1};
}

struct CommandList::Impl {
  struct Command {
    const Kernel* kernel = nullptr;
    Handle group = 0;
    Grid grid;
  };
  // Parameters of many commands. A block never moves, so bind groups stay good when another one is added.
  struct Block {
    Buffer buffer;
    std::vector<std::byte> content;
    std::size_t dirty_begin = SIZE_MAX, dirty_end = 0;
  };

  std::shared_ptr<Device> device;
  std::vector<Command> commands;
  std::vector<Block> blocks;
  std::size_t slots_used = 0;
  std::vector<Handle> encoded;  // ahead, for the next submission; empty: nothing is
  bool replayed = false;        // submitted before, so likely to be again

  Result<std::size_t> new_slot() {
    if (slots_used == blocks.size() * kSlotsPerBlock) {
      auto buffer = device->uniform_buffer(kSlotsPerBlock * kParamBytes);
      if (!buffer) return failed(buffer);
      blocks.push_back({std::move(*buffer), std::vector<std::byte>(kSlotsPerBlock * kParamBytes)});
    }
    return slots_used++;
  }
  void fill(std::size_t slot, std::span<const std::byte> params) {
    Block& block = blocks[slot / kSlotsPerBlock];
    const std::size_t at = slot % kSlotsPerBlock * kParamBytes;
    params = params.first(std::min(params.size(), kParamBytes));
    std::memcpy(block.content.data() + at, params.data(), params.size());
    block.dirty_begin = std::min(block.dirty_begin, at);
    block.dirty_end = std::max(block.dirty_end, at + kParamBytes);
  }
  Result<> upload() {
    for (Block& block : blocks) {
      if (block.dirty_begin >= block.dirty_end) continue;
      const std::span<const std::byte> content = block.content;
      const auto dirty = content.subspan(block.dirty_begin, block.dirty_end - block.dirty_begin);
      if (auto ok = device->write(block.buffer, block.dirty_begin, dirty); !ok) return ok;
      block.dirty_begin = SIZE_MAX;
      block.dirty_end = 0;
    }
    return {};
  }

  Result<> check_grid(const Kernel& kernel, const Grid& grid) const {
    const std::uint32_t most = device->capabilities().max_workgroups;
    if (std::max({grid.x, grid.y, grid.z}) <= most) return {};
    return fail(ErrorCode::unsupported, cat("kernel ", kernel.name(), ": a grid of ", grid.x, " x ", grid.y, " x ",
                                            grid.z, " workgroups, at most ", most, " a dimension are possible"));
  }

  [[nodiscard]] Handle encode(std::span<const Command> some) const {
    const Handle handle = device->handle_;
    rullama_host_begin(handle);
    for (const Command& c : some)
      if (!c.grid.empty()) rullama_host_dispatch(handle, c.kernel->handle_, c.group, c.grid.x, c.grid.y, c.grid.z);
    return rullama_host_finish(handle);
  }
  // What was encoded ahead is no longer what the commands say.
  void drop_encoded() {
    for (const Handle made : encoded) rullama_host_commands_release(device->handle_, made);
    encoded.clear();
  }
  // The commands that are submitted together, from `begin` on: as many again as there were before them, or, where the
  // GPU has other work until then, as many as possible.
  [[nodiscard]] std::span<const Command> piece(std::size_t begin, bool queued) const {
    const std::size_t wanted = queued ? kMostCommands : std::clamp(begin, kFirstCommands, kMostCommands);
    return std::span(commands).subspan(begin, std::min(wanted, commands.size() - begin));
  }
};

namespace {

// The byte range that a binding stands for, or why the device cannot bind it.
Result<std::uint64_t> bound_bytes(const Binding& b, const Capabilities& caps) {
  const auto amount = [](std::uint64_t bytes) { return bytes_text(static_cast<double>(bytes)); };
  if (!b.buffer || !*b.buffer) return fail(ErrorCode::device, "has no buffer");
  const std::uint64_t all = b.buffer->bytes();
  if (b.offset % kOffsetAlignment)
    return fail(ErrorCode::device, cat("begins at byte ", b.offset, ", not a multiple of ", kOffsetAlignment));
  if (b.offset >= all || b.bytes > all - b.offset)
    return fail(ErrorCode::device, cat("covers ", b.bytes, " bytes from byte ", b.offset, " of a buffer of ", all));
  const std::uint64_t bytes = b.bytes ? std::min((b.bytes + 15) / 16 * 16, all - b.offset) : all - b.offset;
  if (bytes > caps.max_binding_bytes)
    return fail(ErrorCode::out_of_memory, cat("has ", amount(bytes), ", ", caps.name, " binds at most ",
                                              amount(caps.max_binding_bytes), "; use a smaller batch or context"));
  return bytes;
}

}  // namespace

CommandList::CommandList(std::shared_ptr<Device> device) : impl_(std::make_unique<Impl>()) {
  impl_->device = std::move(device);
}

CommandList::~CommandList() {
  impl_->drop_encoded();
  for (const Impl::Command& c : impl_->commands)
    if (c.group) rullama_host_bind_group_release(impl_->device->handle_, c.group);
}

std::size_t CommandList::size() const { return impl_->commands.size(); }

Result<std::size_t> CommandList::add(const Kernel& kernel, std::span<const Binding> bindings,
                                     std::span<const std::byte> params, Grid grid) {
  Impl& impl = *impl_;
  const Capabilities& caps = impl.device->capabilities();
  const auto refuse = [&](ErrorCode code, const std::string& why) {
    return fail(code, cat("kernel ", kernel.name(), ": ", why));
  };
  if (params.size() > kParamBytes || params.size() % 4)
    return refuse(ErrorCode::device,
                  cat(params.size(), " bytes of parameters, expected a multiple of 4 up to ", kParamBytes));
  if (bindings.size() > caps.storage_buffers)
    return refuse(ErrorCode::unsupported,
                  cat(bindings.size(), " buffers, ", caps.name, " binds at most ", caps.storage_buffers));
  grid = grid.within(caps.max_workgroups);
  if (auto ok = impl.check_grid(kernel, grid); !ok) return failed(ok);

  std::vector<BindEntry> entries;
  for (std::uint32_t i = 0; i < bindings.size(); i++) {
    const Binding& b = bindings[i];
    const auto bytes = bound_bytes(b, caps);
    if (!bytes) return refuse(bytes.error().code, cat("binding ", i, " ", bytes.error().message));
    for (std::uint32_t j = 0; j < i; j++)
      if (bindings[j].buffer->handle_ == b.buffer->handle_ &&
          (bindings[j].access == Access::write || b.access == Access::write))
        return refuse(ErrorCode::device, cat("bindings ", j, " and ", i, " are the same buffer and one is written"));
    entries.push_back({i, 0, static_cast<double>(b.offset), static_cast<double>(*bytes), b.buffer->handle_});
  }
  Impl::Command command;
  command.kernel = &kernel;
  command.grid = grid;
  if (!params.empty()) {
    auto slot = impl.new_slot();
    if (!slot) return failed(slot);
    impl.fill(*slot, params);
    const auto at = static_cast<double>(*slot % kSlotsPerBlock * kParamBytes);
    entries.push_back({static_cast<std::uint32_t>(bindings.size()), 0, at, static_cast<double>(kParamBytes),
                       impl.blocks[*slot / kSlotsPerBlock].buffer.handle_});
  }
  const Handle device = impl.device->handle_;
  command.group = rullama_host_bind_group_create(device, kernel.handle_, entries.data(), entries.size());
  if (!command.group) {
    auto why = impl.device->check(cat("binding the buffers of kernel ", kernel.name()));
    return why ? refuse(ErrorCode::device, "its buffers could not be bound") : failed(why);
  }
  impl.drop_encoded();
  impl.commands.push_back(command);
  return impl.commands.size() - 1;
}

Result<> CommandList::submit(bool queued) {
  Device& on = *impl_->device;
  if (on.unfinished_ > 0 && on.unfinished_ + size() > Device::kMostUnfinished)
    if (auto ok = on.wait(); !ok) return ok;
  on.unfinished_ += size();
  if (auto ok = impl_->upload(); !ok) return ok;
  const Handle device = impl_->device->handle_;
  const auto encode_all = [&](auto&& take) {
    for (std::size_t at = 0; at < size();) {
      const auto piece = impl_->piece(at, queued);
      take(impl_->encode(piece));
      at += piece.size();
    }
  };
  const auto run = [&](Handle commands) { rullama_host_submit(device, commands); };
  const std::vector<Handle> ready = std::exchange(impl_->encoded, {});
  ready.empty() ? encode_all(run) : void(std::ranges::for_each(ready, run));
  if (std::exchange(impl_->replayed, true)) encode_all([&](Handle commands) { impl_->encoded.push_back(commands); });
  return {};
}

Result<std::vector<KernelTime>> CommandList::submit_timed() {
  Impl& impl = *impl_;
  const Handle device = impl.device->handle_;
  if (!impl.device->capabilities().timestamps)
    return fail(ErrorCode::unsupported, cat(impl.device->capabilities().name, " cannot measure kernel times"));
  if (auto ok = impl.upload(); !ok) return failed(ok);
  std::vector<KernelTime> times;
  std::vector<double> nanoseconds;
  for (std::size_t at = 0; at < size();) {
    const auto piece = impl.piece(at, true);
    at += piece.size();
    const std::size_t first = times.size();
    for (const Impl::Command& c : piece)
      if (!c.grid.empty()) times.push_back({c.kernel->name(), 0, static_cast<std::size_t>(&c - impl.commands.data())});
    nanoseconds.assign(times.size() - first, 0);
    const bool timed =
        !nanoseconds.empty() && rullama_host_timing_start(device, static_cast<std::uint32_t>(nanoseconds.size()));
    rullama_host_submit(device, impl.encode(piece));
    if (timed) (void)rullama_host_timing_read(device, nanoseconds.data(), nanoseconds.size());
    for (std::size_t i = 0; i < nanoseconds.size(); i++) times[first + i].nanoseconds = nanoseconds[i];
  }
  if (auto ok = impl.device->check("measuring kernels"); !ok) return failed(ok);
  return times;
}

}  // namespace rullama::gpu
