// What a device can do, asked once when it is opened. Kernels are chosen by pure functions of this value.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rullama::gpu {

struct SubgroupMatrix {
  std::string component, result;  // "f16", "f32", "i8", "i32", ...
  std::uint32_t m = 0, n = 0, k = 0;
};

struct Capabilities {
  std::string name, backend, driver, vendor;
  std::string kind;  // "discrete", "integrated", "cpu" or "unknown"
  bool f16 = false;
  bool subgroups = false;
  std::uint32_t subgroup_min = 0, subgroup_max = 0;  // lanes; 0 where unknown
  bool timestamps = false;
  bool packed_dot = false;  // dot4I8Packed, unpack4xI8
  std::vector<SubgroupMatrix> subgroup_matrices;
  // WebGPU's guaranteed floor until the device says more.
  std::uint64_t max_binding_bytes = 128u << 20;
  std::uint64_t max_buffer_bytes = 256u << 20;
  std::uint32_t workgroup_memory = 16384;
  std::uint32_t max_invocations = 256;   // of a workgroup
  std::uint32_t max_workgroups = 65535;  // a dimension of a dispatch
  std::uint32_t storage_buffers = 8;     // of a kernel

  [[nodiscard]] bool is_cpu() const { return kind == "cpu"; }
};

}  // namespace rullama::gpu
