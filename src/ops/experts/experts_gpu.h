#pragma once

#include "ops/gpu_call.h"

namespace rullama {

constexpr std::uint64_t kMaxExperts = 256, kMaxChosen = 16;  // of choose.wgsl and group.wgsl

enum class ExpertForm : std::uint8_t { product, gated, transposed };

[[nodiscard]] Result<> record_choose_experts(GpuCall& call, std::uint32_t k);
[[nodiscard]] Result<> record_choose_experts_backward(GpuCall& call);
[[nodiscard]] Result<> record_expert_product(GpuCall& call, ExpertForm form);
[[nodiscard]] Result<> record_expert_combine(GpuCall& call, bool scaled, bool backward);

}  // namespace rullama
