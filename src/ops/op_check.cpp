#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "base/hash.h"
#include "base/text.h"
#include "ops/op_ready.h"

namespace rullama {
namespace {

std::uint64_t seed_of(std::string_view text) {  // FNV-1a
  std::uint64_t h = kFnvBasis;
  for (const char c : text) h = fnv1a(h, static_cast<unsigned char>(c));
  return h;
}

std::vector<double> decode(const TensorDesc& desc, const std::vector<std::byte>& bytes) {
  const std::size_t n = desc.shape.elements();
  std::vector<double> out(n);
  for (std::size_t i = 0; i < n; i++) {
    if (desc.dtype == DType::U32) {
      std::uint32_t v;
      std::memcpy(&v, bytes.data() + 4 * i, 4);
      out[i] = v;
    } else if (desc.dtype == DType::F16) {
      std::uint16_t v;
      std::memcpy(&v, bytes.data() + 2 * i, 2);
      out[i] = f16_to_f32(v);
    } else {
      float v;
      std::memcpy(&v, bytes.data() + 4 * i, 4);
      out[i] = v;
    }
  }
  return out;
}

Result<std::vector<double>> fetch(Program& program, Var v) {
  std::vector<std::byte> bytes(v.desc().bytes());
  if (!bytes.empty())
    if (auto ok = program.read(v, bytes); !ok) return failed(ok);
  return decode(v.desc(), bytes);
}

std::string label(const OpCase& c) { return cat(c.op, " ", c.format, " ", c.shape); }

}  // namespace

Result<std::vector<CaseOutput>> run_case(const OpCase& c, Backend& backend, Precision precision, bool derivative) {
  Random random(seed_of(label(c)));
  auto ready = build_case(c, backend, precision, Filling::full, random, derivative);
  if (!ready) return failed(ready);
  ReadyCase& r = **ready;
  if (auto ok = r.program->run(); !ok) return failed(ok);
  std::vector<CaseOutput> outputs;
  for (std::size_t i = 0; i < r.out.size(); i++) {
    auto values = fetch(*r.program, r.out[i]);
    if (!values) return failed(values);
    outputs.push_back({cat("output ", i), std::move(*values)});
  }
  for (const auto& state : r.states) {
    std::vector<std::byte> data(state->desc().bytes());
    if (auto ok = backend.read(*state, 0, data); !ok) return failed(ok);
    outputs.push_back({"state", decode(state->desc(), data)});
  }
  std::size_t g = 0;
  for (std::size_t i = 0; derivative && i < c.inputs.size(); i++) {
    if (!has_gradient(c.inputs[i])) continue;
    const Var gradient = r.gradients[g++];
    if (!gradient) continue;
    auto values = fetch(*r.program, gradient);
    if (!values) return failed(values);
    outputs.push_back({cat("gradient of ", c.inputs[i].name), std::move(*values)});
  }
  return outputs;
}

std::string compare_case(const OpCase& c, std::span<const CaseOutput> expected, std::span<const CaseOutput> found,
                         Precision precision) {
  if (expected.size() != found.size()) return cat(label(c), ": ", found.size(), " outputs, expected ", expected.size());
  for (std::size_t o = 0; o < expected.size(); o++) {
    const auto &e = expected[o].values, &f = found[o].values;
    if (e.size() != f.size()) return cat(label(c), ": ", e.size(), " values expected, found ", f.size());
    double largest = 0, worst = 0;
    std::size_t at = e.size();
    for (const double v : e) largest = std::max(largest, std::abs(v));
    for (std::size_t i = 0; i < e.size(); i++) {
      const double allowed =
          precision == Precision::fast && c.fast > 0 ? c.fast * largest : c.absolute + c.relative * std::abs(e[i]);
      const double excess = std::abs(e[i] - f[i]) - allowed;
      if (at == e.size() ? !(excess <= 0) : excess > worst || (std::isnan(excess) && !std::isnan(worst)))
        worst = excess, at = i;
    }
    if (at < e.size())
      return cat(label(c), ": ", expected[o].name, " element ", at, " of ", e.size(), " is ", f[at], ", expected ",
                 e[at], " (largest magnitude ", largest, ")");
  }
  return {};
}

std::string check_finite_differences(const OpCase& c, Backend& cpu, std::size_t samples) {
  Random random(seed_of(label(c)));
  auto ready = build_case(c, cpu, Precision::reference, Filling::full, random, true);
  if (!ready) return cat(label(c), ": ", ready.error().message);
  ReadyCase& r = **ready;
  if (auto ok = r.program->run(); !ok) return ok.error().message;
  std::vector<std::vector<double>> dout;
  for (const Var v : r.dout) {
    auto values = fetch(*r.program, v);
    if (!values) return values.error().message;
    dout.push_back(std::move(*values));
  }
  const auto loss = [&]() -> double {
    double sum = 0;
    if (!r.program->run()) return std::nan("");
    for (std::size_t o = 0; o < r.out.size(); o++) {
      auto values = fetch(*r.program, r.out[o]);
      if (!values) return std::nan("");
      for (std::size_t i = 0; i < values->size(); i++) sum += (*values)[i] * dout[o][i];
    }
    return sum;
  };
  std::size_t g = 0;
  for (std::size_t i = 0; i < c.inputs.size(); i++) {
    if (!has_gradient(c.inputs[i])) continue;
    const Var gradient = r.gradients[g++];
    if (auto ok = r.program->run(); !ok) return ok.error().message;
    std::vector<double> values(c.inputs[i].desc.shape.elements(), 0.0);
    if (gradient) {
      auto got = fetch(*r.program, gradient);
      if (!got) return got.error().message;
      values = std::move(*got);
    }
    double largest = 0;
    for (const double v : values) largest = std::max(largest, std::abs(v));
    std::vector<float> x(values.size());
    std::memcpy(x.data(), r.bytes[i].data(), r.bytes[i].size());
    for (std::size_t s = 0; s < std::min(samples, x.size()); s++) {
      const std::size_t at =
          x.size() <= samples ? s : static_cast<std::size_t>(random.uniform() * static_cast<double>(x.size()));
      const float keep = x[at], h = 1e-2f * std::max(1.0f, std::abs(keep));
      // fourth-order central difference: the outputs are f32, so the step cannot be small
      const auto shifted = [&](float by) {
        x[at] = keep + by;
        (void)r.program->write(r.in[i], std::as_bytes(std::span(x)));
        return loss();
      };
      const double slope = (8 * (shifted(h) - shifted(-h)) - (shifted(2 * h) - shifted(-2 * h))) / (12.0 * h);
      x[at] = keep;
      (void)r.program->write(r.in[i], std::as_bytes(std::span(x)));
      if (!(std::abs(slope - values[at]) <= 2e-2 * std::max(largest, 1e-3)))
        return cat(label(c), ": gradient of ", c.inputs[i].name, " element ", at, " is ", values[at],
                   ", finite differences give ", slope);
    }
  }
  return {};
}

}  // namespace rullama
