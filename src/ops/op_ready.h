// A case of the op table made ready to run on one backend: shared by the checks and the benchmarks.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/random.h"
#include "ops/op_table.h"

namespace rullama {

enum class Filling : std::uint8_t {
  full,
  repeated,  // a few rows over and over: drawing and encoding all of a large weight takes long
};

struct ReadyCase {
  Graph graph;
  std::vector<Var> in, out;
  std::vector<std::vector<std::byte>> bytes;    // of the inputs, the same on every backend
  std::vector<std::shared_ptr<Tensor>> states;  // inputs that are modified in place
  std::vector<Var> dout, gradients;             // with derivatives: of the outputs, of the F32 inputs
  std::unique_ptr<Program> program;             // its inputs written
};

// All draws come from `random`.
[[nodiscard]] Result<std::unique_ptr<ReadyCase>> build_case(const OpCase& c, Backend& backend, Precision precision,
                                                            Filling filling, Random& random, bool derivative = false);

// Does it live outside the graph (weights of any type, states), or is it an input of the program?
[[nodiscard]] bool is_outside(const CaseInput& input);
// Is its gradient checked?
[[nodiscard]] bool has_gradient(const CaseInput& input);

}  // namespace rullama
