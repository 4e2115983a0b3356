#include "ops/op_ready.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "ops/differentiate.h"

namespace rullama {
namespace {

std::vector<double> draw(const Fill& fill, std::uint64_t count, Random& random) {
  std::vector<double> values(count);
  for (std::uint64_t i = 0; i < count; i++) {
    switch (fill.kind) {
      case Fill::Kind::normal: values[i] = fill.a + fill.b * random.normal(); break;
      case Fill::Kind::uniform: values[i] = fill.a + (fill.b - fill.a) * random.uniform(); break;
      case Fill::Kind::ids: values[i] = std::floor(fill.a + (fill.b - fill.a) * random.uniform()); break;
      case Fill::Kind::function: values[i] = fill.at(i); break;
    }
  }
  return values;
}

std::vector<std::byte> encode(DType dtype, std::uint64_t columns, const std::vector<double>& values) {
  const std::size_t rows = columns ? values.size() / columns : 0;
  std::vector<std::byte> bytes(rows * row_bytes(dtype, columns));
  if (dtype == DType::U32) {
    for (std::size_t i = 0; i < values.size(); i++) {
      const auto v = static_cast<std::uint32_t>(values[i]);
      std::memcpy(bytes.data() + 4 * i, &v, 4);
    }
    return bytes;
  }
  const std::vector<float> floats(values.begin(), values.end());
  const DTypeInfo& type = info(dtype);
  if (!floats.empty()) type.encode(floats.data(), floats.size() / type.block_elements, bytes.data());
  return bytes;
}

// The values of an input as bytes of its type.
std::vector<std::byte> fill(const CaseInput& input, Filling filling, Random& random) {
  constexpr std::uint64_t kDrawn = 1u << 16;  // values, when they are repeated
  const Shape& shape = input.desc.shape;
  const std::uint64_t columns = shape.back(), rows = shape.rows();
  const std::uint64_t drawn =
      filling == Filling::full ? rows : std::min(rows, kDrawn / std::max<std::uint64_t>(columns, 1) + 1);
  auto bytes = encode(input.desc.dtype, columns, draw(input.fill, drawn * columns, random));
  const std::size_t period = bytes.size();
  bytes.resize(input.desc.bytes());
  for (std::size_t at = period; period != 0 && at < bytes.size(); at += period)
    std::memcpy(bytes.data() + at, bytes.data(), std::min(period, bytes.size() - at));
  return bytes;
}

// The weights of a case, from a file that holds one after the other; empty places for other inputs.
Result<std::vector<std::shared_ptr<Tensor>>> load_weights(const OpCase& c, Backend& backend,
                                                          const std::vector<std::vector<std::byte>>& bytes) {
  std::vector<std::byte> file;
  std::vector<FileTensor> wanted;
  std::vector<std::size_t> place;
  for (std::size_t i = 0; i < c.inputs.size(); i++) {
    if (!is_outside(c.inputs[i]) || c.inputs[i].state) continue;
    wanted.push_back({c.inputs[i].desc, c.inputs[i].name, file.size()});
    place.push_back(i);
    file.insert(file.end(), bytes[i].begin(), bytes[i].end());
    file.resize((file.size() + 31) / 32 * 32);
  }
  const auto source = std::make_shared<MemorySource>("weights", std::move(file));
  std::vector<std::shared_ptr<Tensor>> all(c.inputs.size());
  const std::span<const FileTensor> tensors = wanted;
  const std::size_t step = c.joined ? std::max<std::size_t>(tensors.size(), 1) : 1;
  for (std::size_t at = 0; at < tensors.size(); at += step) {
    auto loaded = backend.load_tensors(tensors.subspan(at, step), source);
    if (!loaded) return failed(loaded);
    for (std::size_t i = 0; i < step; i++) all[place[at + i]] = std::move((*loaded)[i]);
  }
  return all;
}

}  // namespace

bool is_outside(const CaseInput& input) {
  return input.outside || input.state || (input.desc.dtype != DType::F32 && input.desc.dtype != DType::U32);
}

bool has_gradient(const CaseInput& input) { return input.desc.dtype == DType::F32 && !is_outside(input); }

Result<std::unique_ptr<ReadyCase>> build_case(const OpCase& c, Backend& backend, Precision precision, Filling filling,
                                              Random& random, bool derivative) {
  auto ready = std::make_unique<ReadyCase>();
  Graph& graph = ready->graph;
  for (const CaseInput& input : c.inputs) {
    const DTypeInfo& type = info(input.desc.dtype);
    if (input.desc.shape.back() % type.block_elements != 0)
      return fail(
          cat(input.name, " is ", input.desc.str(), ", whose rows are no whole blocks of ", type.block_elements));
    ready->bytes.push_back(fill(input, filling, random));
  }
  auto weights = load_weights(c, backend, ready->bytes);
  if (!weights) return failed(weights);
  for (std::size_t i = 0; i < c.inputs.size(); i++) {
    const CaseInput& input = c.inputs[i];
    if (!is_outside(input)) {
      ready->in.push_back(graph.input(input.name, input.desc));
      continue;
    }
    std::shared_ptr<Tensor> tensor = (*weights)[i];
    if (input.state) {
      auto made = backend.make_tensor(input.desc, input.name);
      if (!made) return failed(made);
      tensor = *made;
      if (auto ok = backend.write(*tensor, 0, ready->bytes[i]); !ok) return failed(ok);
      ready->states.push_back(tensor);
    }
    ready->in.push_back(graph.tensor(input.name, tensor));
  }
  ready->out = c.build(graph, ready->in);
  if (auto ok = graph.status(); !ok) return failed(ok);
  for (Var& v : ready->out) graph.keep(v);
  std::vector<std::vector<std::byte>> dout_bytes;
  if (derivative) {
    std::vector<Var> wrt;
    for (std::size_t i = 0; i < c.inputs.size(); i++)
      if (has_gradient(c.inputs[i])) wrt.push_back(ready->in[i]);
    for (const Var v : ready->out) {
      ready->dout.push_back(graph.input("dout", v.desc()));
      dout_bytes.push_back(encode(DType::F32, v.shape().back(), draw(Fill::normal(), v.shape().elements(), random)));
    }
    auto gradients = differentiate(graph, ready->out, ready->dout, wrt);
    if (!gradients) return failed(gradients);
    ready->gradients = *gradients;
    for (const Var g : ready->gradients) graph.keep(g);
  }
  auto program = backend.compile(graph, precision);
  if (!program) return failed(program);
  ready->program = std::move(*program);
  for (std::size_t i = 0; i < c.inputs.size(); i++)
    if (!is_outside(c.inputs[i]))
      if (auto ok = ready->program->write(ready->in[i], ready->bytes[i]); !ok) return failed(ok);
  for (std::size_t i = 0; i < ready->dout.size(); i++)
    if (auto ok = ready->program->write(ready->dout[i], dout_bytes[i]); !ok) return failed(ok);
  return ready;
}

}  // namespace rullama
