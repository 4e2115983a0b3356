// Adapters and devices of the native seam.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <thread>
#include <utility>

#include "base/text.h"
#include "host/host.h"
#include "host/native/webgpu_native.h"

namespace rullama::host {

void wait_until(WGPUInstance instance, WGPUFuture future, const bool& done, std::chrono::microseconds poll) {
  const auto sleep_from = std::chrono::steady_clock::now() + poll;
  while (!done) {
    if constexpr (kDawn) {
      WGPUFutureWaitInfo info = WGPU_FUTURE_WAIT_INFO_INIT;
      info.future = future;
      const std::uint64_t nanoseconds = std::chrono::steady_clock::now() < sleep_from ? 0 : 1'000'000'000;
      if (wgpuInstanceWaitAny(instance, 1, &info, nanoseconds) == WGPUWaitStatus_Error) return;
    } else {
      wgpuInstanceProcessEvents(instance);
      if (!done) std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
  }
}

std::string ErrorScope::pop() {
  struct Got {
    bool done = false;
    std::string message;
  } got;
  WGPUPopErrorScopeCallbackInfo info = WGPU_POP_ERROR_SCOPE_CALLBACK_INFO_INIT;
  info.mode = callback_mode();
  info.userdata1 = &got;
  info.callback = [](WGPUPopErrorScopeStatus, WGPUErrorType type, WGPUStringView message, void* user, void*) {
    auto& g = *static_cast<Got*>(user);
    if (type != WGPUErrorType_NoError) {
      g.message = text(message);
      if (g.message.empty()) g.message = "unknown error";
    }
    g.done = true;
  };
  wait_until(d_.instance, wgpuDevicePopErrorScope(d_.device, info), got.done);
  return std::move(got.message);
}

namespace {

// Why the last adapters or device_open call failed: there is no device yet that could keep it.
thread_local std::string open_error;

// allow_unsafe_apis: subgroup matrices. vulkan_enable_f16_on_nvidia: 16-bit floats there; read with the adapter.
constexpr const char* kOn[] = {"allow_unsafe_apis", "vulkan_enable_f16_on_nvidia"};
constexpr const char* kOff[] = {"timestamp_quantization"};

DawnToggles toggles() { return {{nullptr, kDawnTogglesType}, std::size(kOn), kOn, std::size(kOff), kOff}; }

// Drivers and Dawn write remarks to stderr while devices are looked for (a missing display, limits that they reduce).
// They are of no use to the person who waits for an answer, so they are dropped unless RULLAMA_GPU_LOG is set.
class QuietStderr {
 public:
  QuietStderr() {
    if (std::getenv("RULLAMA_GPU_LOG")) return;
    std::fflush(stderr);
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere < 0) return;
    kept_ = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    if (kept_ >= 0) ::dup2(nowhere, STDERR_FILENO);
    ::close(nowhere);
  }
  ~QuietStderr() {
    if (kept_ < 0) return;
    std::fflush(stderr);
    ::dup2(kept_, STDERR_FILENO);
    ::close(kept_);
  }
  QuietStderr(const QuietStderr&) = delete;
  QuietStderr& operator=(const QuietStderr&) = delete;

 private:
  int kept_ = -1;
};

constexpr std::string_view kNoDriver =
    "no GPU was found: install the Vulkan loader (libvulkan1) and the GPU's Vulkan driver, or use --device cpu "
    "(with RULLAMA_GPU_LOG=1 the drivers say what they miss)";

WGPUInstance make_instance() {
  WGPUInstanceDescriptor descriptor = WGPU_INSTANCE_DESCRIPTOR_INIT;
  const WGPUInstanceFeatureName timed = WGPUInstanceFeatureName_TimedWaitAny;
  DawnToggles chained = toggles();
  if (kDawn) {
    descriptor.requiredFeatureCount = 1;
    descriptor.requiredFeatures = &timed;
    descriptor.nextInChain = &chained.chain;
  }
  return wgpuCreateInstance(&descriptor);
}

WGPUAdapter request_adapter(WGPUInstance instance, WGPUPowerPreference power, bool fallback) {
  struct Got {
    bool done = false;
    WGPUAdapter adapter = nullptr;
  } got;
  WGPURequestAdapterOptions options = WGPU_REQUEST_ADAPTER_OPTIONS_INIT;
  options.powerPreference = power;
  options.forceFallbackAdapter = fallback;
  DawnToggles chained = toggles();
  if (kDawn) options.nextInChain = &chained.chain;
  WGPURequestAdapterCallbackInfo info = WGPU_REQUEST_ADAPTER_CALLBACK_INFO_INIT;
  info.mode = callback_mode();
  info.userdata1 = &got;
  info.callback = [](WGPURequestAdapterStatus, WGPUAdapter adapter, WGPUStringView, void* user, void*) {
    *static_cast<Got*>(user) = {true, adapter};
  };
  wait_until(instance, wgpuInstanceRequestAdapter(instance, &options, info), got.done);
  return got.adapter;
}

struct Adapter {
  WGPUAdapter handle = nullptr;
  std::string name, backend, kind, driver, vendor;
  std::uint32_t subgroup_min = 0, subgroup_max = 0;
};

Adapter describe(WGPUAdapter handle) {
  WGPUAdapterInfo info = WGPU_ADAPTER_INFO_INIT;
  wgpuAdapterGetInfo(handle, &info);
  Adapter t;
  t.handle = handle;
  t.name = text(info.device);
  t.vendor = text(info.vendor);
  t.driver = text(info.description);
  if (t.name.empty()) t.name = t.driver;
  t.subgroup_min = info.subgroupMinSize;
  t.subgroup_max = info.subgroupMaxSize;
  t.backend = info.backendType == WGPUBackendType_Vulkan  ? "Vulkan"
              : info.backendType == WGPUBackendType_Metal ? "Metal"
              : info.backendType == WGPUBackendType_D3D12 ? "D3D12"
                                                          : "other";
  t.kind = info.adapterType == WGPUAdapterType_DiscreteGPU     ? "discrete"
           : info.adapterType == WGPUAdapterType_IntegratedGPU ? "integrated"
           : info.adapterType == WGPUAdapterType_CPU           ? "cpu"
                                                               : "unknown";
  wgpuAdapterInfoFreeMembers(info);
  return t;
}

// The best ones first. The standard API names no adapters one by one: these requests between them reach those that a
// machine usually has.
std::vector<Adapter> find_adapters(WGPUInstance instance) {
  std::vector<Adapter> found;
  for (const auto& [power, fallback] : {std::pair{WGPUPowerPreference_HighPerformance, false},
                                        {WGPUPowerPreference_LowPower, false},
                                        {WGPUPowerPreference_Undefined, true}}) {
    WGPUAdapter handle = request_adapter(instance, power, fallback);
    if (!handle) continue;
    Adapter adapter = describe(handle);
    const auto is_this = [&](const Adapter& other) { return other.name == adapter.name; };
    if (std::none_of(found.begin(), found.end(), is_this))
      found.push_back(std::move(adapter));
    else
      wgpuAdapterRelease(handle);
  }
  std::vector<Adapter> sorted;
  for (const std::string_view kind : {"discrete", "integrated", "unknown", "cpu"})
    std::copy_if(found.begin(), found.end(), std::back_inserter(sorted),
                 [&](const Adapter& a) { return a.kind == kind; });
  return sorted;
}

std::size_t put(const std::string& from, char* out, std::size_t cap) {
  std::memcpy(out, from.data(), std::min(from.size(), cap));
  return from.size();
}

std::string lower(std::string_view s) {
  std::string out(s);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 'a' - 'A');
  return out;
}

// The index of the adapter that is wanted, or their number if there is none such.
std::size_t choose(const std::vector<Adapter>& all, std::string_view selector) {
  for (std::size_t i = 0; i < all.size(); i++)
    if (selector.empty() || selector == std::to_string(i)) return i;
  for (std::size_t i = 0; i < all.size(); i++)
    if (lower(all[i].name).find(lower(selector)) != std::string::npos) return i;
  std::string names;
  for (std::size_t i = 0; i < all.size(); i++) names += cat(i ? ", " : "", i, ": ", quote(all[i].name));
  open_error = all.empty() && selector.empty() ? std::string(kNoDriver)
               : all.empty()                   ? cat("there is no device ", quote(selector), ", only cpu: ", kNoDriver)
                                               : cat("no GPU matches ", quote(selector), "; the GPUs here are ", names,
                                                     "; --device cpu needs none");
  return all.size();
}

std::string matrix_configs(WGPUAdapter adapter) {
  if (!kDawn || !wgpuAdapterHasFeature(adapter, kDawnSubgroupMatrixFeature)) return {};
  DawnSubgroupMatrixConfigs configs{{nullptr, kDawnSubgroupMatrixConfigsType}, 0, nullptr};
  WGPUAdapterInfo info = WGPU_ADAPTER_INFO_INIT;
  info.nextInChain = &configs.chain;
  wgpuAdapterGetInfo(adapter, &info);
  static constexpr std::string_view types[] = {"", "f32", "f16", "u32", "i32", "u8", "i8"};
  std::string lines;
  for (std::size_t i = 0; i < configs.count; i++) {
    const auto& c = configs.configs[i];
    if (c.component < std::size(types) && c.result < std::size(types))
      lines += cat(types[c.component], " ", types[c.result], " ", c.m, " ", c.n, " ", c.k, "\n");
  }
  wgpuAdapterInfoFreeMembers(info);
  return lines;
}

DawnCache dawn_cache(PipelineCache& cache) {
  DawnCache c{{nullptr, kDawnCacheType}, view("rullama"), {}, {}};
  c.load.userdata1 = c.store.userdata1 = &cache;
  c.load.callback = [](std::size_t key_size, const void* key, std::size_t room, void* value, void* user, void*) {
    return static_cast<PipelineCache*>(user)->load({static_cast<const char*>(key), key_size}, value, room);
  };
  c.store.callback = [](std::size_t key_size, const void* key, std::size_t size, const void* value, void* user, void*) {
    static_cast<PipelineCache*>(user)->store({static_cast<const char*>(key), key_size},
                                             {static_cast<const char*>(value), size});
  };
  return c;
}

bool open_device(NativeDevice& d) {
  std::vector<WGPUFeatureName> features;
  for (const auto f : {WGPUFeatureName_ShaderF16, WGPUFeatureName_Subgroups, WGPUFeatureName_TimestampQuery})
    if (wgpuAdapterHasFeature(d.adapter, f)) features.push_back(f);
  if (!d.matrices.empty()) features.push_back(kDawnSubgroupMatrixFeature);
  wgpuAdapterGetLimits(d.adapter, &d.limits);

  WGPUDeviceDescriptor descriptor = WGPU_DEVICE_DESCRIPTOR_INIT;
  descriptor.requiredFeatureCount = features.size();
  descriptor.requiredFeatures = features.data();
  descriptor.requiredLimits = &d.limits;
  DawnToggles chained = toggles();
  const DawnCache cache = dawn_cache(d.cache);
  if (kDawn) {
    descriptor.nextInChain = &chained.chain;
    if (d.cache.usable()) chained.chain.next = const_cast<WGPUChainedStruct*>(&cache.chain);
  }
  descriptor.deviceLostCallbackInfo.mode = WGPUCallbackMode_AllowSpontaneous;
  descriptor.deviceLostCallbackInfo.userdata1 = &d;
  descriptor.deviceLostCallbackInfo.callback = [](WGPUDevice const*, WGPUDeviceLostReason, WGPUStringView message,
                                                  void* user, void*) {
    auto& device = *static_cast<NativeDevice*>(user);
    if (!device.closing) device.lost = cat("the GPU was lost: ", text(message));
  };
  descriptor.uncapturedErrorCallbackInfo.userdata1 = &d;
  descriptor.uncapturedErrorCallbackInfo.callback = [](WGPUDevice const*, WGPUErrorType, WGPUStringView message,
                                                       void* user, void*) {
    static_cast<NativeDevice*>(user)->note(text(message));
  };
  struct Got {
    bool done = false;
    WGPUDevice device = nullptr;
    std::string message;
  } got;
  WGPURequestDeviceCallbackInfo info = WGPU_REQUEST_DEVICE_CALLBACK_INFO_INIT;
  info.mode = callback_mode();
  info.userdata1 = &got;
  info.callback = [](WGPURequestDeviceStatus, WGPUDevice device, WGPUStringView message, void* user, void*) {
    *static_cast<Got*>(user) = {true, device, text(message)};
  };
  wait_until(d.instance, wgpuAdapterRequestDevice(d.adapter, &descriptor, info), got.done);
  if (!got.device) {
    open_error = cat("opening ", d.name, " failed: ", got.message);
    return false;
  }
  d.device = got.device;
  d.queue = wgpuDeviceGetQueue(d.device);
  wgpuDeviceGetLimits(d.device, &d.limits);
  return true;
}

bool has_packed_dot(WGPUInstance instance) {
  if constexpr (kDawn)
    return wgpuInstanceHasWGSLLanguageFeature(instance, WGPUWGSLLanguageFeatureName_Packed4x8IntegerDotProduct);
  (void)instance;
  return true;  // wgpu-native has it but cannot be asked
}

}  // namespace

extern "C" {

std::size_t rullama_host_adapters(char* out, std::size_t cap) {
  const QuietStderr quiet;
  WGPUInstance instance = make_instance();
  if (!instance) {
    open_error = "the WebGPU library could not be started";
    return 0;
  }
  std::string lines;
  std::size_t index = 0;
  for (const Adapter& a : find_adapters(instance)) {
    lines += cat(index++, "\t", a.name, "\t", a.backend, "\t", a.kind, "\t", a.driver, "\n");
    wgpuAdapterRelease(a.handle);
  }
  wgpuInstanceRelease(instance);
  if (lines.empty()) open_error = kNoDriver;
  return put(lines, out, cap);
}

Handle rullama_host_device_open(const char* selector, std::size_t length) {
  const QuietStderr quiet;
  auto d = std::make_unique<NativeDevice>();
  d->instance = make_instance();
  if (!d->instance) {
    open_error = "the WebGPU library could not be started";
    return 0;
  }
  auto adapters = find_adapters(d->instance);
  const std::size_t chosen = choose(adapters, {selector, length});
  for (std::size_t i = 0; i < adapters.size(); i++)
    if (i != chosen) wgpuAdapterRelease(adapters[i].handle);
  if (chosen < adapters.size()) {
    Adapter& a = adapters[chosen];
    d->adapter = a.handle;
    d->name = std::move(a.name);
    d->backend = std::move(a.backend);
    d->kind = std::move(a.kind);
    d->driver = std::move(a.driver);
    d->vendor = std::move(a.vendor);
    d->subgroup_min = a.subgroup_min;
    d->subgroup_max = a.subgroup_max;
    d->matrices = matrix_configs(d->adapter);
    d->packed_dot = has_packed_dot(d->instance);
    if (open_device(*d)) return reinterpret_cast<Handle>(d.release());
    wgpuAdapterRelease(d->adapter);
  }
  wgpuInstanceRelease(d->instance);
  return 0;
}

void rullama_host_device_close(Handle device) {
  std::unique_ptr<NativeDevice> d(&native(device));
  d->closing = true;
  for (const NativeDevice::Readback& r : d->readbacks) wgpuBufferRelease(r.buffer);
  if (d->resolved) wgpuBufferRelease(d->resolved);
  if (d->queries) wgpuQuerySetRelease(d->queries);
  wgpuQueueRelease(d->queue);
  wgpuDeviceDestroy(d->device);
  wgpuDeviceRelease(d->device);
  wgpuAdapterRelease(d->adapter);
  wgpuInstanceRelease(d->instance);
}

double rullama_host_device_limit(Handle device, const char* name, std::size_t length) {
  const NativeDevice& d = native(device);
  const std::string_view n(name, length);
  const WGPULimits& l = d.limits;
  if (n == "maxStorageBufferBindingSize") return static_cast<double>(l.maxStorageBufferBindingSize);
  if (n == "maxBufferSize") return static_cast<double>(l.maxBufferSize);
  if (n == "maxComputeWorkgroupStorageSize") return l.maxComputeWorkgroupStorageSize;
  if (n == "maxComputeInvocationsPerWorkgroup") return l.maxComputeInvocationsPerWorkgroup;
  if (n == "maxComputeWorkgroupSizeX") return l.maxComputeWorkgroupSizeX;
  if (n == "maxComputeWorkgroupsPerDimension") return l.maxComputeWorkgroupsPerDimension;
  if (n == "maxStorageBuffersPerShaderStage") return l.maxStorageBuffersPerShaderStage;
  if (n == "subgroupMinSize") return d.subgroup_min;
  if (n == "subgroupMaxSize") return d.subgroup_max;
  return 0;
}

int rullama_host_device_feature(Handle device, const char* name, std::size_t length) {
  const NativeDevice& d = native(device);
  const std::string_view n(name, length);
  if (n == "shader-f16") return wgpuDeviceHasFeature(d.device, WGPUFeatureName_ShaderF16);
  if (n == "subgroups") return kDawn && wgpuDeviceHasFeature(d.device, WGPUFeatureName_Subgroups);
  if (n == "timestamp-query") return wgpuDeviceHasFeature(d.device, WGPUFeatureName_TimestampQuery);
  if (n == "subgroup-matrix") return !d.matrices.empty();
  if (n == "packed_4x8_integer_dot_product") return d.packed_dot;
  return 0;
}

std::size_t rullama_host_device_text(Handle device, const char* what, std::size_t length, char* out, std::size_t cap) {
  const NativeDevice& d = native(device);
  const std::string_view w(what, length);
  const std::string& found = w == "name"      ? d.name
                             : w == "backend" ? d.backend
                             : w == "kind"    ? d.kind
                             : w == "driver"  ? d.driver
                             : w == "vendor"  ? d.vendor
                                              : d.matrices;
  return put(found, out, cap);
}

std::size_t rullama_host_error(Handle device, char* out, std::size_t cap) {
  if (device && !native(device).lost.empty()) return put(native(device).lost, out, cap);  // from now on for good
  return put(std::exchange(device ? native(device).error : open_error, {}), out, cap);
}

double rullama_host_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // extern "C"

}  // namespace rullama::host
