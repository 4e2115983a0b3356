// The device that tests of the GPU use.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "gpu/device.h"

namespace rullama::test {

// Null where the machine has no GPU driver at all; RULLAMA_TEST_NO_GPU then says that this is accepted.
// RULLAMA_TEST_KIND=discrete: with the kernels that such devices get.
inline std::shared_ptr<gpu::Device> open_gpu_device() {
  auto device = gpu::Device::open("");
  if (device) {
    (*device)->check_keys();
    if (const char* kind = std::getenv("RULLAMA_TEST_KIND")) {
      gpu::Capabilities as = (*device)->capabilities();
      as.kind = kind;
      (*device)->assume(as);
    }
    return *device;
  }
  EXPECT_TRUE(std::getenv("RULLAMA_TEST_NO_GPU")) << device.error().message;
  return nullptr;
}

}  // namespace rullama::test
