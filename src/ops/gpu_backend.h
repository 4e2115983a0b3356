// Runs graphs on a GPU: each program is one command list, recorded once and replayed.
#pragma once

#include <memory>

#include "gpu/device.h"
#include "ops/backend.h"

namespace rullama {

[[nodiscard]] std::unique_ptr<Backend> make_gpu_backend(std::shared_ptr<gpu::Device> device);

}  // namespace rullama
