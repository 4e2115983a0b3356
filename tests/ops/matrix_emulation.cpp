#include "ops/matrix_emulation.h"

#include <map>
#include <regex>

#include "base/text.h"

namespace rullama {
namespace {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// Each match, with `with(match)` in its place.
template <class With>
void replace_each(std::string& text, const std::regex& pattern, With with) {
  std::string out;
  std::sregex_iterator it(text.begin(), text.end(), pattern), end;
  std::size_t at = 0;
  for (; it != end; ++it) {
    out.append(text, at, static_cast<std::size_t>(it->position()) - at);
    out += with(*it);
    at = static_cast<std::size_t>(it->position() + it->length());
  }
  out.append(text, at);
  text = std::move(out);
}

constexpr std::string_view kTypes = R"(
struct Factor { at: u32, stride: u32, by_column: bool, array: u32 }
alias EightSums = array<f32, 8>;
var<private> sums_lane: u32;  // thread % 32
fn matrix_at(array: u32, by_column: bool, at: u32, stride: u32) -> Factor {
  return Factor(at * 4u, stride * 4u, by_column, array);
}
fn place(f: Factor, row: u32, column: u32) -> u32 {
  return f.at + select(row * f.stride + column, column * f.stride + row, f.by_column);
}
fn multiply_add(left: Factor, right: Factor, sums: EightSums) -> EightSums {
  var result = sums;
  let zero = sums_lane / 32u;  // which compilers do not know: they would write all loops out
  for (var i = zero; i < 8u; i++) {
    let e = i * 32u + sums_lane;
    for (var k = zero; k < 16u; k++) {
      result[i] += element_of(left, e / 16u, k) * element_of(right, k, e % 16u);
    }
  }
  return result;
}
)";

}  // namespace

gpu::Capabilities with_matrix_units(gpu::Capabilities caps) {
  caps.kind = "discrete";
  caps.subgroup_min = caps.subgroup_max = 32;
  caps.subgroup_matrices = {{"f16", "f32", 16, 16, 16}};
  return caps;
}

std::string without_matrix_units(std::string wgsl) {
  if (wgsl.find("subgroup_matrix_left") == std::string::npos) return wgsl;
  replace_all(wgsl, "enable chromium_experimental_subgroup_matrix;\n", "");
  replace_all(wgsl, "diagnostic(off, chromium.subgroup_matrix_uniformity);\n", "");
  replace_all(wgsl, "subgroup_matrix_left<f16, 16, 16>", "Factor");
  replace_all(wgsl, "subgroup_matrix_right<f16, 16, 16>", "Factor");
  replace_all(wgsl, "subgroup_matrix_result<f32, 16, 16>", "EightSums");
  replace_all(wgsl, "subgroupMatrixMultiplyAccumulate", "multiply_add");

  std::map<std::string, std::size_t> factors, sums;  // arrays in workgroup memory
  replace_each(wgsl, std::regex(R"(subgroupMatrixLoad<(Left|Right), (row|col)_major>\(&(\w+),)"), [&](const auto& m) {
    const std::size_t array = factors.emplace(m[3], factors.size()).first->second;
    return cat("matrix_at(", array, "u, ", m[2] == "col", ",");
  });
  replace_each(wgsl, std::regex(R"(subgroupMatrix(Load<Sums, row_major>|Store<row_major>)\(&(\w+),)"),
               [&](const auto& m) {
                 sums.emplace(m[2], 0);
                 return cat(m[1].str()[0] == 'L' ? "load_" : "store_", m[2].str(), "(");
               });
  replace_each(wgsl, std::regex(R"(fn main\([^{]*\{)"),
               [](const auto& m) { return cat(m.str(), "\n  sums_lane = thread % 32u;"); });
  wgsl += kTypes;
  wgsl += "fn element_of(f: Factor, row: u32, column: u32) -> f32 {\n  let at = place(f, row, column);\n";
  for (const auto& [name, array] : factors)
    wgsl += cat("  if (f.array == ", array, "u) { return f32(", name, "[at / 4u][at % 4u]); }\n");
  wgsl += "  return 0.0;\n}\n";
  for (const auto& [name, unused] : sums) {
    const std::string each =
                          cat("  for (var i = sums_lane / 32u; i < 8u; i++) {\n    let e = i * 32u + sums_lane;\n    "),
                      there = cat(name, "[at + e / 16u * stride + e % 16u]");
    wgsl += cat("fn store_", name, "(at: u32, sums: EightSums, stride: u32) {\n  var all = sums;\n", each, there,
                " = all[i];\n  }\n}\n");
    wgsl += cat("fn load_", name, "(at: u32, stride: u32) -> EightSums {\n  var sums: EightSums;\n", each,
                "sums[i] = ", there, ";\n  }\n  return sums;\n}\n");
  }
  return wgsl;
}

}  // namespace rullama
