#include "gpu/command_list.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"

namespace rullama::gpu {

using namespace host;

namespace {

constexpr std::size_t kSlotsPerBlock = 256;     // parameter slots of one uniform buffer
constexpr std::size_t kDispatchesPerSubmit = 1024;  // keeps command buffers small

}  // namespace

Grid Grid::wrap(std::uint64_t groups) {
  constexpr std::uint64_t most = 65535;
  if (groups <= most) return {static_cast<std::uint32_t>(groups), 1, 1};
  const std::uint64_t y = (groups + most - 1) / most;
  return {static_cast<std::uint32_t>((groups + y - 1) / y), static_cast<std::uint32_t>(y), 1};
}

struct CommandList::Impl {
  struct Command {
    const Kernel* kernel = nullptr;  // null: a copy
    Handle group = 0;
    Grid grid;
    Handle src = 0, dst = 0;
    std::uint64_t src_at = 0, dst_at = 0, bytes = 0;
  };
  // Parameters of 256 commands. A block never moves, so bind groups stay good.
  struct Block {
    Buffer buffer;
    std::vector<std::byte> content;
    std::size_t dirty_begin = SIZE_MAX, dirty_end = 0;
  };

  std::shared_ptr<Device> device;
  std::vector<Command> commands;
  std::vector<Block> blocks;
  std::vector<std::size_t> slot;  // of each command

  Result<std::size_t> new_slot() {
    const std::size_t index = slots_used++;
    if (index / kSlotsPerBlock == blocks.size()) {
      auto buffer = device->uniform_buffer(kSlotsPerBlock * kParamBytes);
      if (!buffer) return failed(buffer);
      blocks.push_back({std::move(*buffer), std::vector<std::byte>(kSlotsPerBlock * kParamBytes)});
    }
    return index;
  }
  void fill(std::size_t index, std::span<const std::byte> params) {
    Block& block = blocks[index / kSlotsPerBlock];
    const std::size_t at = index % kSlotsPerBlock * kParamBytes;
    if (std::memcmp(block.content.data() + at, params.data(), params.size()) == 0) return;
    std::memcpy(block.content.data() + at, params.data(), params.size());
    block.dirty_begin = std::min(block.dirty_begin, at);
    block.dirty_end = std::max(block.dirty_end, at + kParamBytes);
  }
  Result<> upload() {
    for (Block& block : blocks) {
      if (block.dirty_begin >= block.dirty_end) continue;
      const auto piece = std::span<const std::byte>(block.content).subspan(block.dirty_begin, block.dirty_end - block.dirty_begin);
      if (auto ok = device->write(block.buffer, block.dirty_begin, piece); !ok) return ok;
      block.dirty_begin = SIZE_MAX;
      block.dirty_end = 0;
    }
    return {};
  }
  std::size_t slots_used = 0;
};

CommandList::CommandList(std::shared_ptr<Device> device) : impl_(std::make_unique<Impl>()) { impl_->device = std::move(device); }

CommandList::~CommandList() {
  for (const Impl::Command& c : impl_->commands)
    if (c.group) rullama_host_bind_group_release(impl_->device->handle_, c.group);
}

std::size_t CommandList::size() const { return impl_->commands.size(); }

Result<std::size_t> CommandList::add(const Kernel& kernel, std::span<const Binding> bindings, std::span<const std::byte> params, Grid grid) {
  Impl& impl = *impl_;
  const Capabilities& caps = impl.device->capabilities();
  const auto refuse = [&](const std::string& why) { return fail(ErrorCode::device, cat("kernel ", kernel.name(), ": ", why)); };
  if (params.size() > kParamBytes || params.size() % 4) return refuse(cat(params.size(), " bytes of parameters, expected at most ", kParamBytes));
  if (bindings.size() > caps.storage_buffers) return refuse(cat(bindings.size(), " buffers, this device binds at most ", caps.storage_buffers));
  if (std::max({grid.x, grid.y, grid.z}) > caps.max_workgroups)
    return refuse(cat("a grid of ", grid.x, " x ", grid.y, " x ", grid.z, " workgroups, at most ", caps.max_workgroups, " a dimension are possible"));
  std::vector<BindEntry> entries;
  for (std::uint32_t i = 0; i < bindings.size(); i++) {
    const Binding& b = bindings[i];
    const std::uint64_t bytes = b.bytes ? b.bytes : b.buffer->bytes() - b.offset;
    if (bytes > caps.max_binding_bytes)
      return refuse(cat("binding ", i, " has ", bytes_text(static_cast<double>(bytes)), ", this device binds at most ",
                        bytes_text(static_cast<double>(caps.max_binding_bytes)), "; use a smaller batch or context"));
    for (std::uint32_t j = 0; j < i; j++)
      if (bindings[j].buffer == b.buffer && (bindings[j].access == Access::write || b.access == Access::write))
        return refuse(cat("bindings ", j, " and ", i, " are the same buffer and one is written"));
    entries.push_back({i, 0, static_cast<double>(b.offset), static_cast<double>((bytes + 3) / 4 * 4), b.buffer->handle_});
  }
  std::size_t slot = SIZE_MAX;
  if (!params.empty()) {
    auto made = impl.new_slot();
    if (!made) return failed(made);
    slot = *made;
    impl.fill(slot, params);
    entries.push_back({static_cast<std::uint32_t>(bindings.size()), 0, static_cast<double>(slot % kSlotsPerBlock * kParamBytes),
                       static_cast<double>(kParamBytes), impl.blocks[slot / kSlotsPerBlock].buffer.handle_});
  }
  Impl::Command command;
  command.kernel = &kernel;
  command.grid = grid;
  command.group = rullama_host_bind_group_create(impl.device->handle_, kernel.handle_, entries.data(), entries.size());
  if (!command.group) {
    auto why = impl.device->check(cat("binding the buffers of kernel ", kernel.name()));
    return why ? refuse("its buffers could not be bound") : failed(why);
  }
  impl.commands.push_back(command);
  impl.slot.push_back(slot);
  return impl.commands.size() - 1;
}

void CommandList::add_copy(const Buffer& src, std::uint64_t src_at, const Buffer& dst, std::uint64_t dst_at, std::uint64_t bytes) {
  Impl::Command command;
  command.src = src.handle_;
  command.dst = dst.handle_;
  command.src_at = src_at;
  command.dst_at = dst_at;
  command.bytes = bytes;
  impl_->commands.push_back(command);
  impl_->slot.push_back(SIZE_MAX);
}

void CommandList::set_params(std::size_t command, std::span<const std::byte> params) {
  if (impl_->slot[command] != SIZE_MAX) impl_->fill(impl_->slot[command], params);
}
void CommandList::set_grid(std::size_t command, Grid grid) { impl_->commands[command].grid = grid; }

Result<> CommandList::submit() {
  Impl& impl = *impl_;
  if (auto ok = impl.upload(); !ok) return ok;
  const Handle device = impl.device->handle_;
  std::size_t open = 0;
  rullama_host_begin(device);
  for (const Impl::Command& c : impl.commands) {
    if (!c.kernel) {
      rullama_host_copy(device, c.src, static_cast<double>(c.src_at), c.dst, static_cast<double>(c.dst_at), static_cast<double>(c.bytes));
    } else if (!c.grid.empty()) {
      rullama_host_dispatch(device, c.kernel->handle_, c.group, c.grid.x, c.grid.y, c.grid.z);
    }
    if (++open == kDispatchesPerSubmit) {
      rullama_host_submit(device);
      rullama_host_begin(device);
      open = 0;
    }
  }
  rullama_host_submit(device);
  return {};
}

Result<std::vector<KernelTime>> CommandList::submit_timed() {
  Impl& impl = *impl_;
  std::vector<KernelTime> times;
  for (const Impl::Command& c : impl.commands)
    if (c.kernel && !c.grid.empty()) times.push_back({c.kernel->name(), 0});
  if (!rullama_host_timing_start(impl.device->handle_, static_cast<std::uint32_t>(times.size())))
    return fail(ErrorCode::unsupported, cat(impl.device->capabilities().name, " cannot measure kernel times"));
  if (auto ok = submit(); !ok) return failed(ok);
  std::vector<double> nanoseconds(times.size());
  const std::size_t n = rullama_host_timing_read(impl.device->handle_, nanoseconds.data(), nanoseconds.size());
  if (auto ok = impl.device->check("measuring kernels"); !ok) return failed(ok);
  for (std::size_t i = 0; i < std::min(n, times.size()); i++) times[i].nanoseconds = nanoseconds[i];
  return times;
}

}  // namespace rullama::gpu
