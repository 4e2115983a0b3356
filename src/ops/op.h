// An op: one operation on tensors, everything about it in one folder ops/<name>/.
//
//   <name>.h          the function that model code calls, with shapes, formula and source
//   <name>.cpp        the class below: shape rules, plain C++ form, choice and dispatch of the kernel, derivative
//   <name>.wgsl       the kernel (more than one file where variants are really different)
//   <name>_cases.cpp  its rows of the op table: tests and benchmarks (ops/op_table.h)
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/graph.h"

namespace rullama {

struct CpuCall;  // ops/cpu_call.h
class GpuCall;   // ops/gpu_call.h

enum class Precision : std::uint8_t {
  reference,  // the plain form: no tricks, sums in double. CPU only; the tests' truth
  exact,      // f32 activations, weights decoded exactly: training and parity
  fast,       // int8 activations and f16 tiles where the device gains by it
};

struct Cost {
  double bytes = 0;  // read and written, each tensor once
  double flops = 0;
};

class Op {
 public:
  virtual ~Op() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;

  // The outputs' descriptions, or an error that starts with the op's name and says which argument has which shape
  // and what was expected. All checks stand here: eval and record may rely on them.
  [[nodiscard]] virtual Result<std::vector<TensorDesc>> infer(std::span<const TensorDesc> in) const = 0;

  // Runs on the CPU.
  virtual void eval(const CpuCall& call) const = 0;

  // Chooses kernels and records their dispatches. Nothing is recorded for empty outputs.
  [[nodiscard]] virtual Result<> record(GpuCall& call) const = 0;

  // Bit i set: input i is modified in place (a cache, an optimiser state). Outputs never alias inputs.
  [[nodiscard]] virtual std::uint32_t writes() const { return 0; }

  // Adds nodes to `graph` that compute the gradients of the inputs from `dout`, the gradients of the outputs (invalid
  // Var: zero). Returns one Var per input; invalid where no gradient flows (ids, frozen weights, positions).
  // `wanted[i]` false: nobody needs that gradient.
  [[nodiscard]] virtual Result<std::vector<Var>> derivative(Graph& graph, std::span<const Var> in,
                                                            std::span<const Var> out, std::span<const Var> dout,
                                                            const std::vector<bool>& wanted) const;

  // Work of one run, for profiles and benchmarks. Default: every tensor moved once, no arithmetic counted.
  [[nodiscard]] virtual Cost cost(std::span<const TensorDesc> in, std::span<const TensorDesc> out) const;
};

// --- helpers for `infer`

// "rms_norm: weight is F32 [4], expected F32 [8]"
[[nodiscard]] std::unexpected<Error> bad_argument(std::string_view op, std::string_view argument,
                                                  const TensorDesc& found, std::string_view expected);

}  // namespace rullama
