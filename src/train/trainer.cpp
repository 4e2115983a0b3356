#include "train/trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/text.h"
#include "ops/accumulate/accumulate.h"
#include "ops/adamw/adamw.h"
#include "ops/differentiate.h"
#include "ops/dropout/dropout.h"
#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "train/lora_setup.h"
#include "train/tiled_loss.h"

namespace rullama {
namespace {

constexpr std::uint64_t kTileBytes = 64u << 20;  // of the logits of a vocabulary tile

// One matrix of the adapter and what the optimiser keeps of it.
struct Parameter {
  std::string name;
  TensorPtr value, gradient, mean, square;
};

std::string_view state_name(std::size_t which) {
  static constexpr std::array<std::string_view, 3> names = {"value", "mean", "square"};
  return names[which];
}
const TensorPtr& state(const Parameter& p, std::size_t which) {
  return which == 0 ? p.value : which == 1 ? p.mean : p.square;
}

std::uint64_t parameter_count(const Adapter& adapter) {
  std::uint64_t count = 0;
  for (const AdapterPair& pair : adapter.pairs)
    count += pair.a->desc().shape.elements() + pair.b->desc().shape.elements();
  return count;
}

Result<std::vector<Parameter>> make_parameters(const Adapter& adapter, Backend& backend) {
  std::vector<Parameter> all;
  for (const AdapterPair& pair : adapter.pairs) {
    for (const bool b : {false, true}) {
      Parameter p;
      p.name = cat("layer", pair.layer, ".", module_name(pair.target), b ? ".B" : ".A");
      p.value = b ? pair.b : pair.a;
      for (TensorPtr* made : {&p.gradient, &p.mean, &p.square}) {
        auto tensor = backend.make_tensor(p.value->desc(), "the optimiser's state");
        if (!tensor && tensor.error().code == ErrorCode::out_of_memory)
          return std::unexpected(too_many_parameters(parameter_count(adapter), tensor.error()));
        if (!tensor) return failed(tensor);
        *made = std::move(*tensor);
      }
      all.push_back(std::move(p));
    }
  }
  return all;
}

std::uint64_t planned_bytes(const Graph& graph) {
  std::uint64_t bytes = 0;
  for (const std::uint64_t slot : plan_memory(graph).slot_bytes) bytes += slot;
  return bytes;
}

// The forward pass over a batch with its losses; for training also the way back.
struct Pass {
  Graph graph;
  ForwardInput in;
  Var targets, weights, keep, seed, loss;
  std::unique_ptr<Program> program;
  std::uint64_t bytes = 0;
};

}  // namespace

void TrainBatch::add(std::span<const Token> sample, std::span<const Token> labels) {
  const auto begin = static_cast<std::uint32_t>(tokens.size());
  tokens.insert(tokens.end(), sample.begin(), sample.end());
  for (std::size_t i = 0; i < sample.size(); i++) {
    targets.push_back(i + 1 < sample.size() ? labels[i + 1] : kNoTarget);
    first.push_back(begin);
  }
}

std::size_t TrainBatch::target_count() const {
  return static_cast<std::size_t>(std::ranges::count_if(targets, [](Token t) { return t != kNoTarget; }));
}

struct Trainer::Impl {
  std::shared_ptr<const TextModel> model;
  std::shared_ptr<const Adapter> adapter;
  TrainOptions o;
  std::vector<Parameter> parameters;  // A and B of each pair
  std::unique_ptr<Pass> training, evaluation;
  struct Update {
    Graph graph;
    Var hyper, squares;
    std::unique_ptr<Program> program;
  } update;
  std::vector<float> losses, table_rows;
  std::uint64_t steps = 0;
  std::uint32_t batches = 0;  // of this step so far

  Backend& backend() const { return *model->backend; }
  const GemmaConfig& config() const { return model->config; }

  Result<> make_pass(std::unique_ptr<Pass>& made, bool train);
  Result<> add_backward(Pass& p, const TiledLoss& loss, Var hidden, std::span<const std::size_t> checkpoints);
  Result<> make_update();
  // `times`: where those of the kernels go, if they are wanted.
  Result<double> run(Pass& p, const TrainBatch& batch, float weight, std::vector<NodeTime>* times = nullptr);
};

Result<> Trainer::Impl::make_pass(std::unique_ptr<Pass>& made, bool train) {
  auto pass = std::make_unique<Pass>();
  Pass& p = *pass;
  Graph& g = p.graph;
  const std::uint64_t rows = o.rows;
  const auto ids = [&](std::string name) { return g.input(std::move(name), {DType::U32, {rows}}); };
  p.in.tokens = ids("tokens");
  p.in.positions = ids("positions");
  p.in.first = ids("first");
  p.targets = ids("targets");
  if (model->weights.per_layer_on_host)
    p.in.per_layer = g.input(
        "per_layer_rows", {DType::F32, {rows, static_cast<std::uint64_t>(config().n_layers()) * config().per_layer}});
  const bool drops = train && o.dropout > 0;
  if (train) {
    p.weights = g.input("weights", {DType::F32, {rows}});
    p.keep = g.input("keep", {DType::F32, {1}});
  }
  if (drops) p.seed = g.input("seed", {DType::U32, {1}});
  const AdapterInput dropped = [&](Target target, std::uint32_t layer, Var x) {
    const auto stream = layer * 16 + static_cast<std::uint32_t>(target);
    return drops && target != Target::embed_tokens ? dropout(x, p.seed, stream, o.dropout) : x;
  };

  std::vector<std::size_t> checkpoints;
  ForwardOptions options;
  options.logit_rows = UINT32_MAX;
  options.head = false;
  options.adapt = adapt_with({{adapter, 1}}, config(), dropped);
  if (train && o.checkpointing)
    options.observe = [&](std::string_view name, Var) {
      if (name.starts_with("layer") && name.ends_with(".out")) checkpoints.push_back(g.nodes().size());
    };
  const ForwardOutput out = gemma_forward(g, config(), model->weights, p.in, options);
  if (auto ok = g.status(); !ok) return ok;
  // the last layer's results are needed at once, others as the options say
  checkpoints.resize(checkpoints.size() - std::min<std::size_t>(checkpoints.size(), 1 + std::size_t{o.kept_layers}));

  LossInputs head{.hidden = out.hidden,
                  .head = g.tensor("output", model->weights.output),
                  .softcap = config().softcap,
                  .targets = p.targets,
                  .weights = p.weights};
  for (const AdapterPair& pair : adapter->pairs) {
    if (pair.target != Target::lm_head) continue;
    head.low = dropped(pair.target, pair.layer, out.hidden);
    head.a = g.tensor("lora_a", pair.a);
    head.b = g.tensor("lora_b", pair.b);
    head.scale = pair.scale;
  }
  const std::uint64_t tile = std::min(kTileBytes, backend().max_activation_bytes()) / (4 * rows);
  const TiledLoss loss(head, std::max<std::uint64_t>(tile / 64 * 64, 64));
  p.loss = g.keep(loss.loss());
  if (train)
    if (auto ok = add_backward(p, loss, out.hidden, checkpoints); !ok) return ok;
  if (auto ok = g.status(); !ok) return ok;
  p.bytes = planned_bytes(g);
  auto program = backend().compile(g, o.precision);
  if (!program && program.error().code == ErrorCode::out_of_memory)
    return fail(ErrorCode::out_of_memory,
                cat(train ? "training" : "evaluating", " on ", rows, " tokens at a time needs ",
                    bytes_text(static_cast<double>(p.bytes)),
                    " for intermediate results, which the device does not have; use a smaller --batch-size or "
                    "--max-length",
                    !train              ? ""
                    : !o.checkpointing  ? ", or --gradient-checkpointing"
                    : o.kept_layers > 0 ? ", or fewer --keep-layers"
                                        : "",
                    " (", program.error().message, ")"));
  if (!program) return failed(program);
  p.program = std::move(*program);
  std::vector<std::uint32_t> positions(rows);
  for (std::uint32_t i = 0; i < rows; i++) positions[i] = i;
  if (auto ok = p.program->write(p.in.positions, std::as_bytes(std::span(positions))); !ok) return ok;
  made = std::move(pass);
  return {};
}

Result<> Trainer::Impl::add_backward(Pass& p, const TiledLoss& loss, Var hidden,
                                     std::span<const std::size_t> checkpoints) {
  Graph& g = p.graph;
  const auto gradient_of = [&](std::size_t parameter) { return g.tensor("gradient", parameters[parameter].gradient); };
  std::vector<Var> outputs{hidden}, douts, wrt;
  std::vector<std::size_t> wrt_index;
  std::size_t head = SIZE_MAX;
  for (std::size_t i = 0; i < adapter->pairs.size(); i++) {
    if (adapter->pairs[i].target == Target::lm_head) {
      head = i;
      continue;
    }
    for (std::size_t j = 2 * i; j < 2 * i + 2; j++) {
      wrt.push_back(g.tensor("lora", parameters[j].value));
      wrt_index.push_back(j);
    }
  }
  const auto d = loss.gradient([&](std::uint64_t row0, Var rows) {
    const std::uint64_t rank = adapter->pairs[head].b->desc().shape[1];
    rullama::accumulate(gradient_of(2 * head + 1), rows, p.keep, row0 * rank);
  });
  douts.push_back(d.hidden);
  if (head != SIZE_MAX) {
    rullama::accumulate(gradient_of(2 * head), d.a, p.keep);
    outputs.push_back(loss.low());
    douts.push_back(d.low);
  }
  if (!wrt.empty()) {
    auto gradients = differentiate(g, outputs, douts, wrt, checkpoints);
    if (!gradients) return failed(gradients);
    for (std::size_t i = 0; i < wrt.size(); i++)
      if ((*gradients)[i]) rullama::accumulate(gradient_of(wrt_index[i]), (*gradients)[i], p.keep);
  }
  return g.status();
}

Result<> Trainer::Impl::make_update() {
  Graph& g = update.graph;
  update.hyper = g.input("hyper", {DType::F32, {sizeof(AdamHyper) / sizeof(float)}});
  Var squares;
  for (const Parameter& p : parameters) {
    const Var one = sum_squares(g.tensor("gradient", p.gradient));
    squares = squares ? add(squares, one) : one;
  }
  update.squares = g.keep(squares);
  const Var clip = clip_factor(squares, o.max_grad_norm);
  for (const Parameter& p : parameters)
    adamw(g.tensor("value", p.value), g.tensor("mean", p.mean), g.tensor("square", p.square),
          g.tensor("gradient", p.gradient), update.hyper, clip);
  auto program = backend().compile(g, o.precision);
  if (!program) return failed(program);
  update.program = std::move(*program);
  return {};
}

Result<double> Trainer::Impl::run(Pass& p, const TrainBatch& batch, float weight, std::vector<NodeTime>* times) {
  const std::size_t rows = o.rows, used = batch.rows();
  if (used > rows) return fail(cat("a batch of ", used, " rows, but training was set up for ", rows));
  std::vector<std::uint32_t> tokens = batch.tokens, targets = batch.targets, first = batch.first;
  tokens.resize(rows, 0);
  targets.resize(rows, TrainBatch::kNoTarget);
  for (auto row = static_cast<std::uint32_t>(used); row < rows; row++) first.push_back(row);
  const auto put = [&](Var input, const auto& values) {
    return p.program->write(input, std::as_bytes(std::span(values)));
  };
  if (auto ok = put(p.in.tokens, tokens); !ok) return failed(ok);
  if (auto ok = put(p.targets, targets); !ok) return failed(ok);
  if (auto ok = put(p.in.first, first); !ok) return failed(ok);
  if (p.in.per_layer) {
    table_rows.resize(p.in.per_layer.shape().elements());
    if (auto ok = model->per_layer_table.rows(tokens, table_rows); !ok) return failed(ok);
    if (auto ok = put(p.in.per_layer, table_rows); !ok) return failed(ok);
  }
  if (p.weights)
    if (auto ok = put(p.weights, std::vector<float>(rows, weight)); !ok) return failed(ok);
  if (p.keep)
    if (auto ok = put(p.keep, std::array{batches == 0 ? 0.0f : 1.0f}); !ok) return failed(ok);
  if (p.seed) {
    const auto seed = static_cast<std::uint32_t>(o.seed * 0x9e3779b9u + steps * 0x85ebca6bu + batches);
    if (auto ok = put(p.seed, std::array{seed}); !ok) return failed(ok);
  }
  if (times) {
    auto timed = p.program->run_timed();
    if (!timed) return failed(timed);
    *times = std::move(*timed);
  } else if (auto ok = p.program->run(); !ok) {
    return failed(ok);
  }
  losses.resize(rows);
  if (auto ok = p.program->read(p.loss, std::as_writable_bytes(std::span(losses))); !ok) return failed(ok);
  losses.resize(used);
  double sum = 0;
  for (const float loss : losses) sum += static_cast<double>(loss);
  return sum;
}

Trainer::Trainer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Trainer::~Trainer() = default;

Result<std::unique_ptr<Trainer>> Trainer::make(std::shared_ptr<const TextModel> model,
                                               std::shared_ptr<const Adapter> adapter, const TrainOptions& options) {
  if (options.rows == 0) return fail("training needs at least one row at a time");
  if (adapter->pairs.empty()) return fail("the adapter to be trained has no matrices");
  if (!(options.dropout >= 0 && options.dropout < 1))
    return fail(cat("--lora-dropout is ", options.dropout, "; it must be at least 0 and below 1"));
  auto impl = std::make_unique<Impl>();
  impl->model = std::move(model);
  impl->adapter = std::move(adapter);
  impl->o = options;
  auto parameters = make_parameters(*impl->adapter, impl->backend());
  if (!parameters) return failed(parameters);
  impl->parameters = std::move(*parameters);
  if (auto ok = impl->make_pass(impl->training, true); !ok) return failed(ok);
  if (options.evaluates)
    if (auto ok = impl->make_pass(impl->evaluation, false); !ok) return failed(ok);
  if (auto ok = impl->make_update(); !ok) return failed(ok);
  return std::unique_ptr<Trainer>(new Trainer(std::move(impl)));
}

Result<double> Trainer::accumulate(const TrainBatch& batch, float weight) {
  auto sum = impl_->run(*impl_->training, batch, weight);
  if (sum) impl_->batches++;
  return sum;
}

Result<std::vector<NodeTime>> Trainer::profile(const TrainBatch& batch, float weight) {
  std::vector<NodeTime> times;
  auto sum = impl_->run(*impl_->training, batch, weight, &times);
  if (!sum) return failed(sum);
  impl_->batches++;
  return times;
}

Result<double> Trainer::evaluate(const TrainBatch& batch) {
  if (!impl_->evaluation)
    if (auto ok = impl_->make_pass(impl_->evaluation, false); !ok) return failed(ok);
  return impl_->run(*impl_->evaluation, batch, 1);
}

Result<double> Trainer::update(double learning_rate) {
  Impl& impl = *impl_;
  const TrainOptions& o = impl.o;
  const AdamHyper hyper =
      adam_hyper(learning_rate, impl.steps + 1, static_cast<double>(o.beta1), static_cast<double>(o.beta2),
                 static_cast<double>(o.eps), static_cast<double>(o.weight_decay));
  Program& program = *impl.update.program;
  if (auto ok = program.write(impl.update.hyper, std::as_bytes(std::span(&hyper, 1))); !ok) return failed(ok);
  if (auto ok = program.run(); !ok) return failed(ok);
  float squares = 0;
  if (auto ok = program.read(impl.update.squares, std::as_writable_bytes(std::span(&squares, 1))); !ok)
    return failed(ok);
  impl.steps++;
  impl.batches = 0;
  return std::sqrt(static_cast<double>(squares));
}

std::span<const float> Trainer::row_losses() const { return impl_->losses; }
std::uint64_t Trainer::steps() const { return impl_->steps; }
std::uint64_t Trainer::activation_bytes() const {
  return std::max(impl_->training->bytes, impl_->evaluation ? impl_->evaluation->bytes : 0);
}

Result<std::vector<float>> Trainer::gradient(std::size_t pair, bool of_b) const {
  const Tensor& tensor = *impl_->parameters[2 * pair + of_b].gradient;
  std::vector<float> values(tensor.desc().shape.elements());
  if (auto ok = impl_->backend().read(tensor, 0, std::as_writable_bytes(std::span(values))); !ok) return failed(ok);
  return values;
}

Result<> Trainer::save(ByteSink& sink, std::string_view note) const {
  SafetensorsWriter writer;
  writer.set_metadata("steps", cat(impl_->steps));
  if (!note.empty()) writer.set_metadata("note", note);
  std::vector<const Tensor*> order;
  for (const Parameter& p : impl_->parameters) {
    for (std::size_t which = 0; which < 3; which++) {
      const Tensor& tensor = *state(p, which);
      const std::array<std::uint64_t, 2> shape{tensor.desc().shape[0], tensor.desc().shape[1]};
      if (auto ok = writer.add_tensor(cat(p.name, ".", state_name(which)), DType::F32, shape); !ok) return ok;
      order.push_back(&tensor);
    }
  }
  return writer.write(sink, [&](std::size_t index, ByteSink& out) -> Result<> {
    std::vector<std::byte> bytes(order[index]->desc().bytes());
    if (auto ok = impl_->backend().read(*order[index], 0, bytes); !ok) return ok;
    return out.write(bytes);
  });
}

Result<> Trainer::restore(const Safetensors& file) {
  const std::string& name = file.source()->name();
  const std::string* text = file.metadata("steps");
  std::uint64_t steps = 0;
  if (!text || text->empty() || text->size() > 18 || text->find_first_not_of("0123456789") != std::string::npos)
    return fail(cat(name, ": no checkpoint of a training: it does not say how many steps were taken"));
  for (const char c : *text) steps = steps * 10 + static_cast<std::uint64_t>(c - '0');
  struct Found {
    const SafetensorsTensor* from;
    Tensor* to;
  };
  std::vector<Found> found;
  for (const Parameter& p : impl_->parameters) {
    for (std::size_t which = 0; which < 3; which++) {
      Tensor& to = *state(p, which);
      const std::string wanted = cat(p.name, ".", state_name(which));
      const SafetensorsTensor* from = file.tensor(wanted);
      if (!from) return fail(cat(name, ": tensor ", quote(wanted), " is missing; it is a checkpoint of other targets"));
      const Shape& shape = to.desc().shape;
      if (from->dtype != DType::F32 || from->rank != 2 || from->dims[0] != shape[0] || from->dims[1] != shape[1])
        return fail(cat(name, ": tensor ", quote(wanted), " is ", from->type, " ", list(from->shape()),
                        ", expected F32 ", shape.str(), "; go on with the rank and the model of before"));
      found.push_back({from, &to});
    }
  }
  if (file.tensors().size() != found.size())
    return fail(cat(name, ": has ", file.tensors().size(), " tensors, expected ", found.size(),
                    "; it is a checkpoint of other targets"));
  std::vector<std::vector<std::byte>> contents;
  for (const Found& f : found) {
    contents.emplace_back(f.from->bytes);
    if (auto ok = file.source()->read(f.from->offset, contents.back()); !ok) return ok;
  }
  for (std::size_t i = 0; i < found.size(); i++)
    if (auto ok = impl_->backend().write(*found[i].to, 0, contents[i]); !ok) return ok;
  impl_->steps = steps;
  impl_->batches = 0;
  return {};
}

}  // namespace rullama
