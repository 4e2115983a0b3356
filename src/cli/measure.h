// What a benchmark measures besides time.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cli/output.h"
#include "ops/backend.h"
#include "rullama/result.h"
#include "rullama/rullama.h"

namespace rullama::cli {

// Resident memory of this process in bytes, as Linux counts it: `own` was allocated, `file` are pages of mapped files
// (the model's, which the system takes back when it needs the room). A CPU driver's "GPU" memory counts as own.
struct ResidentMemory {
  std::uint64_t total = 0, own = 0, file = 0;
};
[[nodiscard]] ResidentMemory resident_memory();

// Bytes of device memory that the model and its sessions hold.
[[nodiscard]] std::uint64_t device_bytes(const Model& model);

// Best rate at which the model's device reads memory, in GB/s.
[[nodiscard]] Result<double> peak_bandwidth(const Model& model, std::uint32_t threads);

[[nodiscard]] double median(std::vector<double> values);

// Ordinary tokens: which ones makes no difference to the speed of a dense model.
[[nodiscard]] std::vector<Token> some_tokens(const Tokenizer& tokenizer, std::size_t count);

// Kernels of a name taken together, longest first: kernel, runs, us, gbps, gflops.
[[nodiscard]] Json kernel_times(std::span<const NodeTime> times);
void print_kernels(std::string_view what, const Json& rows);

}  // namespace rullama::cli
