// Buffers, pipelines and work of the native seam.
#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "base/text.h"
#include "host/host.h"
#include "host/native/webgpu_native.h"

namespace rullama::host {
namespace {

constexpr std::size_t kKeptReadbacks = 4;
constexpr std::chrono::microseconds kPollResults(4000);  // of a token, mostly; on a CPU driver it would be in the way
constexpr std::uint32_t kMostTimed = 2048;               // dispatches: WebGPU allows 4096 stamps in a set

WGPUBuffer buffer_of(Handle h) { return reinterpret_cast<WGPUBuffer>(h); }

void end_pass(NativeDevice& d) {
  if (!d.pass) return;
  wgpuComputePassEncoderEnd(d.pass);
  wgpuComputePassEncoderRelease(d.pass);
  d.pass = nullptr;
}

WGPUBuffer make_buffer(NativeDevice& d, std::uint64_t bytes, WGPUBufferUsage usage) {
  WGPUBufferDescriptor descriptor = WGPU_BUFFER_DESCRIPTOR_INIT;
  descriptor.size = bytes;
  descriptor.usage = usage;
  return wgpuDeviceCreateBuffer(d.device, &descriptor);
}

WGPUCommandBuffer finish(WGPUCommandEncoder encoder) {
  WGPUCommandBuffer commands = wgpuCommandEncoderFinish(encoder, nullptr);
  wgpuCommandEncoderRelease(encoder);
  return commands;
}

void submit(NativeDevice& d, WGPUCommandBuffer commands) {
  if (!commands) return;
  if (!d.lost.empty()) return wgpuCommandBufferRelease(commands);  // wgpu-native would abort
  wgpuQueueSubmit(d.queue, 1, &commands);
  wgpuCommandBufferRelease(commands);
}

struct Read {
  NativeDevice::Readback memory;
  std::uint64_t bytes = 0;
  WGPUFuture future{};
  bool done = false, ok = false;
  std::string message;
};

// Memory that the device keeps, or new one.
NativeDevice::Readback take_readback(NativeDevice& d, std::uint64_t bytes) {
  const auto kept = std::ranges::find_if(d.readbacks, [&](const auto& r) { return r.bytes >= bytes; });
  if (kept != d.readbacks.end()) {
    const NativeDevice::Readback memory = *kept;
    d.readbacks.erase(kept);
    return memory;
  }
  const std::uint64_t room = std::max<std::uint64_t>(bytes, 1u << 16);
  return {make_buffer(d, room, WGPUBufferUsage_MapRead | WGPUBufferUsage_CopyDst), room};
}

void keep_readback(NativeDevice& d, const NativeDevice::Readback& memory) {
  d.readbacks.push_back(memory);
  if (d.readbacks.size() <= kKeptReadbacks) return;
  const auto smallest = std::ranges::min_element(d.readbacks, {}, &NativeDevice::Readback::bytes);
  wgpuBufferRelease(smallest->buffer);
  d.readbacks.erase(smallest);
}

std::unique_ptr<Read> start_read(NativeDevice& d, WGPUBuffer from, std::uint64_t at, std::uint64_t bytes) {
  if (!d.lost.empty()) return nullptr;
  auto read = std::make_unique<Read>();
  read->memory = take_readback(d, bytes);
  read->bytes = bytes;
  if (!read->memory.buffer) return nullptr;
  WGPUCommandEncoder encoder = wgpuDeviceCreateCommandEncoder(d.device, nullptr);
  wgpuCommandEncoderCopyBufferToBuffer(encoder, from, at, read->memory.buffer, 0, bytes);
  submit(d, finish(encoder));
  WGPUBufferMapCallbackInfo info = WGPU_BUFFER_MAP_CALLBACK_INFO_INIT;
  info.mode = callback_mode();
  info.userdata1 = read.get();
  info.callback = [](WGPUMapAsyncStatus status, WGPUStringView message, void* user, void*) {
    auto& r = *static_cast<Read*>(user);
    r.done = true;
    r.ok = status == WGPUMapAsyncStatus_Success;
    r.message = text(message);
  };
  read->future = wgpuBufferMapAsync(read->memory.buffer, WGPUMapMode_Read, 0, bytes, info);
  return read;
}

bool finish_read(NativeDevice& d, const Read& read, void* dst) {
  const auto poll = d.kind == "cpu" ? std::chrono::microseconds(0) : kPollResults;
  wait_until(d.instance, read.future, read.done, poll);
  const void* mapped = read.ok ? wgpuBufferGetConstMappedRange(read.memory.buffer, 0, read.bytes) : nullptr;
  if (mapped && dst) std::memcpy(dst, mapped, read.bytes);
  if (read.ok) wgpuBufferUnmap(read.memory.buffer);
  if (mapped) {
    keep_readback(d, read.memory);
    return true;
  }
  wgpuBufferRelease(read.memory.buffer);
  d.note(cat("results could not be read: ", read.message));
  return false;
}

}  // namespace

extern "C" {

Handle rullama_host_buffer_create(Handle device, double bytes, std::uint32_t usage) {
  NativeDevice& d = native(device);
  ErrorScope validation(d, WGPUErrorFilter_Validation), memory(d, WGPUErrorFilter_OutOfMemory);
  WGPUBuffer buffer = make_buffer(d, static_cast<std::uint64_t>(bytes), usage);
  const std::string out_of_memory = memory.pop(), invalid = validation.pop();
  if (buffer && out_of_memory.empty() && invalid.empty() && d.lost.empty()) return reinterpret_cast<Handle>(buffer);
  if (buffer) wgpuBufferRelease(buffer);
  return d.fail(!out_of_memory.empty() ? out_of_memory : !invalid.empty() ? invalid : "the allocation failed");
}

void rullama_host_buffer_release(Handle, Handle buffer) {
  wgpuBufferDestroy(buffer_of(buffer));  // the memory goes as soon as the GPU is done with it
  wgpuBufferRelease(buffer_of(buffer));
}

void rullama_host_buffer_write(Handle device, Handle buffer, double at, const void* src, std::size_t bytes) {
  wgpuQueueWriteBuffer(native(device).queue, buffer_of(buffer), static_cast<std::uint64_t>(at), src, bytes);
}

Handle rullama_host_read_start(Handle device, Handle buffer, double at, std::size_t bytes) {
  return reinterpret_cast<Handle>(
      start_read(native(device), buffer_of(buffer), static_cast<std::uint64_t>(at), bytes).release());
}

int rullama_host_read_finish(Handle device, Handle read, void* dst) {
  const std::unique_ptr<Read> owned(reinterpret_cast<Read*>(read));
  return owned && finish_read(native(device), *owned, dst) ? 1 : 0;
}

Handle rullama_host_pipeline_create(Handle device, const char* wgsl, std::size_t length, const char* label,
                                    std::size_t label_length) {
  NativeDevice& d = native(device);
  ErrorScope scope(d, WGPUErrorFilter_Validation);
  WGPUShaderSourceWGSL source = WGPU_SHADER_SOURCE_WGSL_INIT;
  source.code = {wgsl, length};
  WGPUShaderModuleDescriptor module_descriptor = WGPU_SHADER_MODULE_DESCRIPTOR_INIT;
  module_descriptor.nextInChain = &source.chain;
  module_descriptor.label = {label, label_length};
  WGPUShaderModule module = wgpuDeviceCreateShaderModule(d.device, &module_descriptor);
  WGPUComputePipelineDescriptor descriptor = WGPU_COMPUTE_PIPELINE_DESCRIPTOR_INIT;
  descriptor.label = {label, label_length};
  descriptor.compute.module = module;
  descriptor.compute.entryPoint = view("main");
  WGPUComputePipeline pipeline = module ? wgpuDeviceCreateComputePipeline(d.device, &descriptor) : nullptr;
  const std::string error = scope.pop();
  if (module) wgpuShaderModuleRelease(module);
  if (pipeline && error.empty() && d.lost.empty()) return reinterpret_cast<Handle>(pipeline);
  if (pipeline) wgpuComputePipelineRelease(pipeline);
  return d.fail(error.empty() ? "no pipeline was made" : error);
}

void rullama_host_pipeline_release(Handle, Handle pipeline) {
  wgpuComputePipelineRelease(reinterpret_cast<WGPUComputePipeline>(pipeline));
}

Handle rullama_host_bind_group_create(Handle device, Handle pipeline, const BindEntry* entries, std::size_t count) {
  NativeDevice& d = native(device);
  std::vector<WGPUBindGroupEntry> bound(count, WGPU_BIND_GROUP_ENTRY_INIT);
  for (std::size_t i = 0; i < count; i++) {
    bound[i].binding = entries[i].binding;
    bound[i].buffer = buffer_of(entries[i].buffer);
    bound[i].offset = static_cast<std::uint64_t>(entries[i].offset);
    bound[i].size = static_cast<std::uint64_t>(entries[i].size);
  }
  WGPUBindGroupLayout layout =
      wgpuComputePipelineGetBindGroupLayout(reinterpret_cast<WGPUComputePipeline>(pipeline), 0);
  WGPUBindGroupDescriptor descriptor = WGPU_BIND_GROUP_DESCRIPTOR_INIT;
  descriptor.layout = layout;
  descriptor.entryCount = count;
  descriptor.entries = bound.data();
  // No error scope: waiting for its answer would cost more than all else here. Both libraries report at once.
  std::string earlier = std::exchange(d.error, {});
  WGPUBindGroup group = wgpuDeviceCreateBindGroup(d.device, &descriptor);
  wgpuBindGroupLayoutRelease(layout);
  if (d.error.empty()) {
    d.error = std::move(earlier);
    return reinterpret_cast<Handle>(group);
  }
  if (group) wgpuBindGroupRelease(group);
  return 0;
}

void rullama_host_bind_group_release(Handle, Handle group) {
  wgpuBindGroupRelease(reinterpret_cast<WGPUBindGroup>(group));
}

void rullama_host_begin(Handle device) {
  NativeDevice& d = native(device);
  d.encoder = wgpuDeviceCreateCommandEncoder(d.device, nullptr);
  d.current = nullptr;
}

void rullama_host_dispatch(Handle device, Handle pipeline, Handle group, std::uint32_t x, std::uint32_t y,
                           std::uint32_t z) {
  NativeDevice& d = native(device);
  auto* const wanted = reinterpret_cast<WGPUComputePipeline>(pipeline);
  const bool timed = d.timed_next < d.timed;
  if (timed || !d.pass) {
    end_pass(d);
    WGPUComputePassDescriptor descriptor = WGPU_COMPUTE_PASS_DESCRIPTOR_INIT;
    WGPUPassTimestampWrites stamps = WGPU_PASS_TIMESTAMP_WRITES_INIT;
    if (timed) {
      stamps.querySet = d.queries;
      stamps.beginningOfPassWriteIndex = 2 * d.timed_next;
      stamps.endOfPassWriteIndex = 2 * d.timed_next + 1;
      descriptor.timestampWrites = &stamps;
      d.timed_next++;
    }
    d.pass = wgpuCommandEncoderBeginComputePass(d.encoder, &descriptor);
    d.current = nullptr;
  }
  if (d.current != wanted) {
    wgpuComputePassEncoderSetPipeline(d.pass, wanted);
    d.current = wanted;
  }
  wgpuComputePassEncoderSetBindGroup(d.pass, 0, reinterpret_cast<WGPUBindGroup>(group), 0, nullptr);
  wgpuComputePassEncoderDispatchWorkgroups(d.pass, x, y, z);
  if (timed) end_pass(d);
}

Handle rullama_host_finish(Handle device) {
  NativeDevice& d = native(device);
  end_pass(d);
  if (d.timed_next > d.timed_resolved) {
    const std::uint32_t first = 2 * d.timed_resolved, count = 2 * (d.timed_next - d.timed_resolved);
    // resolved values must start at a multiple of 256 bytes: each submission resolves from the first stamp on
    wgpuCommandEncoderResolveQuerySet(d.encoder, d.queries, 0, first + count, d.resolved, 0);
    d.timed_resolved = d.timed_next;
  }
  return reinterpret_cast<Handle>(finish(std::exchange(d.encoder, nullptr)));
}

void rullama_host_submit(Handle device, Handle commands) {
  submit(native(device), reinterpret_cast<WGPUCommandBuffer>(commands));
}

void rullama_host_commands_release(Handle, Handle commands) {
  if (commands) wgpuCommandBufferRelease(reinterpret_cast<WGPUCommandBuffer>(commands));
}

void rullama_host_idle(Handle device) {
  NativeDevice& d = native(device);
  bool done = false;
  WGPUQueueWorkDoneCallbackInfo info = WGPU_QUEUE_WORK_DONE_CALLBACK_INFO_INIT;
  info.mode = callback_mode();
  info.userdata1 = &done;
  info.callback = [](WGPUQueueWorkDoneStatus, WGPUStringView, void* user, void*) { *static_cast<bool*>(user) = true; };
  wait_until(d.instance, wgpuQueueOnSubmittedWorkDone(d.queue, info), done);
}

int rullama_host_timing_start(Handle device, std::uint32_t dispatches) {
  NativeDevice& d = native(device);
  if (!wgpuDeviceHasFeature(d.device, WGPUFeatureName_TimestampQuery) || dispatches > kMostTimed) return 0;
  if (!d.queries) {
    WGPUQuerySetDescriptor descriptor = WGPU_QUERY_SET_DESCRIPTOR_INIT;
    descriptor.type = WGPUQueryType_Timestamp;
    descriptor.count = 2 * kMostTimed;
    d.queries = wgpuDeviceCreateQuerySet(d.device, &descriptor);
    d.resolved = make_buffer(d, 2 * kMostTimed * 8, WGPUBufferUsage_QueryResolve | WGPUBufferUsage_CopySrc);
  }
  d.timed = dispatches;
  d.timed_next = d.timed_resolved = 0;
  return 1;
}

std::size_t rullama_host_timing_read(Handle device, double* nanoseconds, std::size_t cap) {
  NativeDevice& d = native(device);
  const std::size_t n = std::min<std::size_t>(d.timed_next, cap);
  std::vector<std::uint64_t> stamps(2 * n);
  d.timed = 0;
  if (n == 0) return 0;
  const auto read = start_read(d, d.resolved, 0, stamps.size() * 8);
  if (!read || !finish_read(d, *read, stamps.data())) return 0;
  double tick = 1;
  if constexpr (!kDawn) tick = wgpuQueueGetTimestampPeriod(d.queue);
  for (std::size_t i = 0; i < n; i++) {
    const std::uint64_t start = stamps[2 * i], end = stamps[2 * i + 1];
    nanoseconds[i] = end > start ? tick * static_cast<double>(end - start) : 0;
  }
  return n;
}

}  // extern "C"

}  // namespace rullama::host
