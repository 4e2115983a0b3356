#include "runtime/runner.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/hash.h"
#include "base/text.h"
#include "ops/draw/draw.h"
#include "ops/top_k/top_k.h"

namespace rullama {
namespace {

bool all_finite(std::span<const float> values) {
  std::uint32_t largest = 0;  // in bits: the order of absolute values, with what is no number above all
  for (const float v : values) largest = std::max(largest, std::bit_cast<std::uint32_t>(v) & 0x7fffffffu);
  return largest < 0x7f800000u;
}

std::unexpected<Error> no_numbers(std::size_t tokens) {
  return fail(cat("the model's logits are no numbers after ", tokens,
                  " tokens: the file's weights are damaged, or too large for fast kernels, which --exact avoids"));
}

}  // namespace

Result<> HostTable::rows(std::span<const Token> ids, std::span<float> out) const {
  const std::uint64_t columns = desc.shape.back(), bytes = row_bytes(desc.dtype, columns);
  const DTypeInfo& type = info(desc.dtype);
  std::vector<std::byte> raw(bytes);
  for (std::size_t i = 0; i < ids.size(); i++) {
    float* row = out.data() + i * columns;
    if (ids[i] >= desc.shape[0]) {
      std::fill(row, row + columns, 0.0f);
      continue;
    }
    if (auto ok = source->read(offset + ids[i] * bytes, raw); !ok) return ok;
    type.decode(raw.data(), columns / type.block_elements, row);
  }
  return {};
}

Result<> Runner::make_cache(std::uint32_t context, std::uint32_t batch, DType dtype) {
  forget_plans();  // they refer to the old cache
  cache_ = {};
  auto made = make_kv_cache(model_->config, *model_->backend, context, batch, dtype);
  if (!made) return failed(made);
  cache_ = std::move(*made);
  return {};
}

std::uint64_t fingerprint(const TextModel& model) {
  std::uint64_t h = kFnvBasis;
  const auto mix = [&](std::uint64_t v) { h = fnv1a(h, v); };
  const GemmaConfig& c = model.config;
  for (const char ch : c.name) mix(static_cast<unsigned char>(ch));
  for (const std::uint64_t v : {std::uint64_t{c.hidden}, std::uint64_t{c.vocab}, std::uint64_t{c.window},
                                std::uint64_t{c.per_layer}, model.weights.bytes, model.content})
    mix(v);
  for (const LayerConfig& l : c.layers) mix(l.head_dim), mix(l.n_kv_heads), mix(l.kv_layer), mix(l.sliding);
  return h;
}

void Runner::set_adapters(std::vector<ActiveAdapter> adapters) {
  std::erase_if(adapters, [](const ActiveAdapter& a) { return a.strength == 0; });
  adapters_ = std::move(adapters);
  forget_plans();
}

std::uint32_t Runner::max_logit_rows() const {
  const std::uint64_t row = 4ull * model_->config.vocab;
  const std::uint64_t fits = model_->backend->max_activation_bytes() / row;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(fits, 1, 64));
}

Result<Runner::Plan*> Runner::plan(std::uint32_t rows, std::uint32_t logit_rows, std::uint32_t best_count) {
  for (auto it = plans_.begin(); it != plans_.end(); ++it) {
    if ((*it)->rows != rows || (*it)->logit_rows != logit_rows || (*it)->best_count != best_count) continue;
    plans_.splice(plans_.begin(), plans_, it);
    return plans_.front().get();
  }
  auto plan = std::make_unique<Plan>();
  const GemmaConfig& config = model_->config;
  plan->rows = rows;
  plan->logit_rows = logit_rows;
  plan->best_count = best_count;
  plan->in.tokens = plan->graph.input("tokens", {DType::U32, {rows}});
  plan->in.positions = plan->graph.input("positions", {DType::U32, {rows}});
  if (model_->weights.per_layer_on_host)
    plan->in.per_layer = plan->graph.input(
        "per_layer_rows", {DType::F32, {rows, static_cast<std::uint64_t>(config.n_layers()) * config.per_layer}});
  ForwardOptions options;
  options.cache = &cache_;
  options.logit_rows = logit_rows;
  options.adapt = adapt_with(adapters_, config);
  plan->out = gemma_forward(plan->graph, config, model_->weights, plan->in, options);
  if (best_count) {
    plan->barred = plan->graph.input("suppressed", {DType::U32, {config.suppressed.size()}});
    plan->rules = plan->graph.input("draw", {DType::F32, {1, kDrawRuleNumbers}});
    // a row leaves what it draws where the next one reads its token: what programs give lies in memory that they share
    plan->best =
        draw(top_k(plan->out.logits, best_count), plan->barred, plan->rules, rows == 1 ? plan->in.tokens : Var{});
  }
  plan->graph.keep(best_count ? plan->best : plan->out.logits);
  auto program = model_->backend->compile(plan->graph, precision_);
  if (!program) return failed(program);
  plan->program = std::move(*program);
  if (best_count)
    if (auto ok = plan->program->write(plan->barred, std::as_bytes(std::span(config.suppressed))); !ok)
      return failed(ok);
  plans_.push_front(std::move(plan));
  if (plans_.size() > kMaxPlans) plans_.pop_back();
  return plans_.front().get();
}

Result<Runner::Plan*> Runner::prepared(std::span<const Token> ids, std::uint32_t position, std::uint32_t logit_rows,
                                       std::uint32_t best_count) {
  if (auto ok = drop_guess(); !ok) return failed(ok);
  const auto rows = static_cast<std::uint32_t>(ids.size());
  auto found = plan(rows, logit_rows, best_count);
  if (!found) return failed(found);
  Plan& p = **found;
  positions_.resize(rows);
  for (std::uint32_t i = 0; i < rows; i++) positions_[i] = position + i;
  if (auto ok = p.program->write(p.in.tokens, std::as_bytes(ids)); !ok) return failed(ok);
  if (auto ok = p.program->write(p.in.positions, std::as_bytes(std::span(positions_))); !ok) return failed(ok);
  if (p.in.per_layer) {
    table_rows_.resize(p.in.per_layer.shape().elements());
    if (auto ok = model_->per_layer_table.rows(ids, table_rows_); !ok) return failed(ok);
    if (auto ok = p.program->write(p.in.per_layer, std::as_bytes(std::span(table_rows_))); !ok) return failed(ok);
  }
  return &p;
}

Result<> Runner::run(std::span<const Token> ids, std::uint32_t position, std::uint32_t logit_rows,
                     std::vector<float>& logits) {
  auto found = prepared(ids, position, logit_rows);
  if (!found) return failed(found);
  Plan& p = **found;
  if (auto ok = p.program->run(); !ok) return ok;
  if (!p.out.logits) return {};
  logits.resize(p.out.logits.shape().elements());
  if (auto ok = p.program->read(p.out.logits, std::as_writable_bytes(std::span(logits))); !ok) return ok;
  if (!all_finite(logits)) return no_numbers(position + ids.size());
  const std::uint32_t vocab = model_->config.vocab;
  for (const std::uint32_t id : model_->config.suppressed)
    for (std::size_t row = 0; row < logits.size(); row += vocab) logits[row + id] = -3.0e38f;
  return {};
}

std::uint32_t Runner::with_suppressed(std::uint32_t count) const {
  return std::min(count + static_cast<std::uint32_t>(model_->config.suppressed.size()), model_->config.vocab);
}

bool Runner::ranks(std::uint32_t count) const {
  return model_->backend->is_remote() && with_suppressed(count) <= kMostBest;
}

Result<> Runner::run_best(std::span<const Token> ids, std::uint32_t position, std::uint32_t count,
                          std::vector<RankedLogit>& best, const std::optional<Draws>& draws) {
  static_assert(sizeof(RankedLogit) == 8);  // what draw gives
  const std::uint32_t ranked = with_suppressed(count);
  const bool guessed = guess_ && ids.size() == 1 && guess_->token == ids[0] && guess_->position == position &&
                       guess_->plan->best_count == ranked;
  const auto broken = [&](const Result<>& why) {
    forget_plans();  // with the reads that they have started
    return why;
  };
  Plan* p = guessed ? guess_->plan : nullptr;
  if (guessed) {
    guess_.reset();
  } else {
    auto found = prepared(ids, position, 1, ranked);
    if (!found) return failed(found);
    p = *found;
    if (auto ok = start_best(*p, draws ? draws->now : DrawRule{}, false); !ok) return broken(ok);
  }
  const bool goes_on = draws && p->rows == 1 && !p->in.per_layer && position + 1 < cache_.context;
  if (goes_on)
    if (auto ok = start_guess(*p, position, draws->next); !ok) return broken(ok);
  best.resize(ranked + 1);
  if (auto ok = p->program->finish_read(std::as_writable_bytes(std::span(best))); !ok) return broken(ok);
  if (goes_on) guess_ = {p, position + 1, best.back().id};
  best.pop_back();
  if (!std::isfinite(best[0].logit)) return no_numbers(position + ids.size());
  const auto& suppressed = model_->config.suppressed;
  std::erase_if(best, [&](const RankedLogit& r) { return std::ranges::count(suppressed, r.id) > 0; });
  best.resize(std::min<std::size_t>(best.size(), count));
  return {};
}

// Runs a plan whose tokens and positions are there, and starts to read what it gives.
Result<> Runner::start_best(Plan& p, const DrawRule& rule, bool queued) {
  Program& program = *p.program;
  if (auto ok = program.write(p.rules, std::as_bytes(std::span(&rule, 1))); !ok) return ok;
  if (auto ok = program.run(queued); !ok) return ok;
  return program.start_read(p.best, p.best.desc().bytes());
}

Result<> Runner::start_guess(Plan& p, std::uint32_t position, const DrawRule& rule) {
  const std::uint32_t next = position + 1;
  if (auto ok = p.program->write(p.in.positions, std::as_bytes(std::span(&next, 1))); !ok) return ok;
  return start_best(p, rule, true);
}

Result<> Runner::drop_guess() {
  if (!guess_) return {};
  std::vector<RankedLogit> unwanted(guess_->plan->best_count + 1);
  auto done = guess_->plan->program->finish_read(std::as_writable_bytes(std::span(unwanted)));
  guess_.reset();
  return done;
}

void Runner::forget_plans() {
  guess_.reset();
  plans_.clear();
}

Result<std::vector<NodeTime>> Runner::profile(std::span<const Token> ids, std::uint32_t position) {
  auto found = prepared(ids, position, 1);
  if (!found) return failed(found);
  return (*found)->program->run_timed();
}

}  // namespace rullama
