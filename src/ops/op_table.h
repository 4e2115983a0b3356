// The op table: one list of cases that serves as test, derivative check and benchmark.
//
// Each op folder has <name>_cases.cpp with `std::vector<OpCase> <name>_cases()`; op_table.cpp joins them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ops/backend.h"
#include "ops/graph.h"

namespace rullama {

// How an input is filled; all draws come from the case's own generator, so a case is the same everywhere.
struct Fill {
  enum class Kind : std::uint8_t { normal, uniform, ids, function } kind = Kind::normal;
  double a = 0, b = 1;                      // normal: mean and deviation; uniform: [a, b); ids: [a, b) whole
  std::function<double(std::uint64_t)> at;  // function: value of element i
  [[nodiscard]] static Fill normal(double deviation = 1, double mean = 0) {
    return {Kind::normal, mean, deviation, {}};
  }
  [[nodiscard]] static Fill uniform(double lo, double hi) { return {Kind::uniform, lo, hi, {}}; }
  [[nodiscard]] static Fill ids(double end) { return {Kind::ids, 0, end, {}}; }
  [[nodiscard]] static Fill function(std::function<double(std::uint64_t)> at) {
    return {Kind::function, 0, 0, std::move(at)};
  }
};

struct CaseInput {
  std::string name;
  TensorDesc desc;
  Fill fill;
  // A tensor outside the graph: always for types other than F32 and U32 (the values are encoded to the type);
  // a state is modified in place and compared after the run as well.
  bool outside = false;
  bool state = false;
};

enum class CaseUse : std::uint8_t { test, bench, both };

struct OpCase {
  std::string op;      // "matmul"
  std::string format;  // "Q4_K"; "F32" where no weight is involved
  std::string shape;   // "k=640 n=2048 rows=1", says everything that tells this case from the others
  std::vector<CaseInput> inputs;
  // Adds the op(s) to the graph; gives the outputs to compare.
  std::function<std::vector<Var>(Graph&, std::span<const Var>)> build;
  // Allowed |difference| from the reference: absolute + relative * |reference|, for Precision::exact.
  double absolute = 1e-5, relative = 0;
  // For Precision::fast, as a share of the largest |reference| of the output; 0: as for exact.
  double fast = 0;
  bool derivative = false;  // check gradients of all F32 inputs against the reference's and finite differences
  bool joined = false;      // the weights lie side by side, as those of one layer do
  bool split = false;  // also run with the weight in several bindings, as one that is too large for a device's limit
  CaseUse use = CaseUse::test;
};

// A shape, type or range that must be refused before anything reaches a device.
struct OpRefusal {
  std::string op, what;
  std::function<void(Graph&)> build;
  std::string message;  // must be part of the error
};

[[nodiscard]] std::vector<OpCase> op_cases();
[[nodiscard]] std::vector<OpRefusal> op_refusals();

// --- running cases

struct CaseOutput {
  std::string name;
  std::vector<double> values;  // U32 outputs as numbers
};

// Runs the case on a backend: outputs, then states, then (if `derivative`) gradients of the F32 inputs, for output
// gradients drawn from the case's generator.
[[nodiscard]] Result<std::vector<CaseOutput>> run_case(const OpCase& c, Backend& backend, Precision precision,
                                                       bool derivative);

// Empty if the outputs agree within the case's tolerance, else a sentence with the worst place and both values.
[[nodiscard]] std::string compare_case(const OpCase& c, std::span<const CaseOutput> expected,
                                       std::span<const CaseOutput> found, Precision precision);

// Finite differences of the reference form at up to `samples` elements of each F32 input, compared with the
// derivative's values on the reference form. Empty if they agree.
[[nodiscard]] std::string check_finite_differences(const OpCase& c, Backend& cpu, std::size_t samples);

}  // namespace rullama
