// The native side of the seam: what a device handle stands for. Private to host/native/webgpu_*.cpp.
#pragma once

#include <webgpu/webgpu.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rullama::host {

inline constexpr bool kDawn = RULLAMA_DAWN;

// Dawn's own extensions, which the standard header does not have. Layouts as in Dawn's webgpu.h of 2026.
struct DawnToggles {
  WGPUChainedStruct chain;
  std::size_t enabled_count;
  const char* const* enabled;
  std::size_t disabled_count;
  const char* const* disabled;
};
inline constexpr auto kDawnTogglesType = static_cast<WGPUSType>(0x0005000A);
struct DawnCacheLoad {
  WGPUChainedStruct* next;
  std::size_t (*callback)(std::size_t key_size, const void* key, std::size_t value_size, void* value, void* u1,
                          void* u2);
  void* userdata1;
  void* userdata2;
};
struct DawnCacheStore {
  WGPUChainedStruct* next;
  void (*callback)(std::size_t key_size, const void* key, std::size_t value_size, const void* value, void* u1,
                   void* u2);
  void* userdata1;
  void* userdata2;
};
struct DawnCache {
  WGPUChainedStruct chain;
  WGPUStringView isolation_key;
  DawnCacheLoad load;
  DawnCacheStore store;
};
inline constexpr auto kDawnCacheType = static_cast<WGPUSType>(0x00050007);
struct DawnSubgroupMatrixConfig {
  std::uint32_t component, result, m, n, k;
};
struct DawnSubgroupMatrixConfigs {
  WGPUChainedStruct chain;
  std::size_t count;
  const DawnSubgroupMatrixConfig* configs;
};
inline constexpr auto kDawnSubgroupMatrixConfigsType = static_cast<WGPUSType>(0x0005003B);
inline constexpr auto kDawnSubgroupMatrixFeature = static_cast<WGPUFeatureName>(0x00050034);

// wgpu-native's: nanoseconds of one tick of a time stamp. Dawn's stamps are nanoseconds already.
extern "C" float wgpuQueueGetTimestampPeriod(WGPUQueue queue);

[[nodiscard]] inline WGPUStringView view(std::string_view s) { return {s.data(), s.size()}; }
[[nodiscard]] inline std::string text(WGPUStringView v) {
  if (!v.data) return {};
  return v.length == WGPU_STRLEN ? std::string(v.data) : std::string(v.data, v.length);
}

// Blocks until `done`, or until waiting itself fails. Dawn sleeps in the driver; wgpu-native can only be asked again
// and again. `poll`: so long Dawn is asked again and again too, which wakes some 30 us earlier than sleeping.
void wait_until(WGPUInstance instance, WGPUFuture future, const bool& done, std::chrono::microseconds poll = {});
[[nodiscard]] inline WGPUCallbackMode callback_mode() {
  return kDawn ? WGPUCallbackMode_WaitAnyOnly : WGPUCallbackMode_AllowProcessEvents;
}

// Compiled pipelines kept on disk between runs, behind Dawn's cache callbacks (any thread may call them). A file that
// is damaged or cannot be read or written counts as missing: the worst that happens is that a pipeline is compiled
// again.
class PipelineCache {
 public:
  // In $RULLAMA_CACHE, $XDG_CACHE_HOME/rullama or ~/.cache/rullama, whichever is set first.
  PipelineCache();
  [[nodiscard]] bool usable() const { return !folder_.empty(); }
  // Gives the size of the value of a key, 0 if there is none, and copies it where `value` has room for it.
  std::size_t load(std::string_view key, void* value, std::size_t room);
  void store(std::string_view key, std::string_view value) const;

 private:
  std::string folder_;  // empty: nothing is kept
  std::mutex mutex_;
  std::string key_, value_;  // loaded last: the size and the bytes, asked for one after the other, are of one file
};

struct NativeDevice {
  WGPUInstance instance = nullptr;
  WGPUAdapter adapter = nullptr;
  WGPUDevice device = nullptr;
  WGPUQueue queue = nullptr;
  WGPULimits limits = WGPU_LIMITS_INIT;
  std::string name, backend, kind, driver, vendor, matrices;
  std::uint32_t subgroup_min = 0, subgroup_max = 0;
  bool packed_dot = false;

  std::string error;     // the first since it was last taken
  std::string lost;      // why the device is gone; empty while it lives
  bool closing = false;  // it goes because nobody wants it any more
  PipelineCache cache;
  void note(std::string message) {
    if (message.find("device is lost") != std::string::npos)  // wgpu-native says it only so
      lost = std::move(message);
    else if (error.empty())
      error = std::move(message);
  }
  // For calls that report at once: their error goes before earlier ones. Returns the handle of a failure.
  [[nodiscard]] std::uintptr_t fail(std::string message) {
    error.clear();
    note(std::move(message));
    return 0;
  }

  // work being recorded
  WGPUCommandEncoder encoder = nullptr;
  WGPUComputePassEncoder pass = nullptr;
  WGPUComputePipeline current = nullptr;
  struct Readback {
    WGPUBuffer buffer = nullptr;
    std::uint64_t bytes = 0;
  };
  std::vector<Readback> readbacks;  // not in use

  // time stamps: two for each dispatch of the next submissions
  WGPUQuerySet queries = nullptr;
  std::uint32_t timed = 0, timed_next = 0, timed_resolved = 0;
  WGPUBuffer resolved = nullptr;
};

[[nodiscard]] inline NativeDevice& native(std::uintptr_t handle) { return *reinterpret_cast<NativeDevice*>(handle); }

// Validation messages within this scope, as text; empty if all is well.
class ErrorScope {
 public:
  ErrorScope(NativeDevice& d, WGPUErrorFilter filter) : d_(d) { wgpuDevicePushErrorScope(d.device, filter); }
  [[nodiscard]] std::string pop();

 private:
  NativeDevice& d_;
};

}  // namespace rullama::host
