#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"
#include "cli/distribution.h"
#include "cli/output.h"
#include "host/native/mapped_file.h"

namespace rullama::cli {

namespace {

constexpr std::size_t kChunk = 32;  // rows of logits that are kept at a time to be compared

struct PerplexityOptions {
  ModelOptions model;
  std::string file;
  std::uint32_t stride = 0;
  bool special = false, json = false;
};

// Sums over the tokens of a text, each scored once.
struct Scores {
  std::size_t tokens = 0;
  double exact = 0, fast = 0;       // negative log-likelihoods
  std::vector<double> divergences;  // of fast from exact, one a token
  std::size_t same_best = 0;

  [[nodiscard]] double mean(double sum) const { return sum / static_cast<double>(tokens); }
};

class Evaluation {
 public:
  Evaluation(Session exact, std::optional<Session> fast) : exact_(std::move(exact)), fast_(std::move(fast)) {}

  // Evaluates BOS and `window` anew, and scores its tokens from `first_scored` on.
  Result<> window(Token bos, std::span<const Token> window, std::size_t first_scored) {
    std::vector<Token> ids = {bos};
    ids.insert(ids.end(), window.begin(), window.end());
    for (Session* session : {&exact_, fast_ ? &*fast_ : nullptr})
      if (session)
        if (auto ok = session->truncate(0); !ok) return ok;
    // ids[i] is predicted by the row after ids[i - 1]; the row after the last is of no use
    for (std::size_t at = 0; at + 1 < ids.size(); at += kChunk) {
      const std::size_t end = std::min(at + kChunk, ids.size() - 1);
      const auto chunk = std::span<const Token>(ids).subspan(at, end - at);
      const auto next = std::span<const Token>(ids).subspan(at + 1, end - at);
      const std::size_t skip = first_scored > at ? std::min(first_scored - at, chunk.size()) : 0;
      if (auto ok = score(chunk, next, skip); !ok) return ok;
    }
    return {};
  }

  [[nodiscard]] const Scores& scores() const { return scores_; }
  [[nodiscard]] bool compares() const { return fast_.has_value(); }

 private:
  Result<> score(std::span<const Token> chunk, std::span<const Token> next, std::size_t skip) {
    if (skip == chunk.size()) {
      if (auto ok = exact_.append(chunk); !ok || !fast_) return ok;
      return fast_->append(chunk);
    }
    std::size_t row = 0;
    rows_.clear();
    auto done = exact_.append(chunk, [&](std::uint32_t, std::span<const float> logits) {
      if (row >= skip) {
        scores_.exact += log_sum_exp(logits) - logits[next[row]];
        scores_.tokens++;
      }
      if (fast_) rows_.emplace_back(logits.begin(), logits.end());
      return ++row, true;
    });
    if (!done || !fast_) return done;
    row = 0;
    return fast_->append(chunk, [&](std::uint32_t, std::span<const float> logits) {
      if (row >= skip) compare(rows_[row], logits, next[row]);
      return ++row, true;
    });
  }

  void compare(std::span<const float> exact, std::span<const float> fast, Token next) {
    scores_.fast += log_sum_exp(fast) - fast[next];
    scores_.divergences.push_back(divergence(exact, fast));
    const auto top = [](std::span<const float> x) { return std::max_element(x.begin(), x.end()) - x.begin(); };
    scores_.same_best += top(exact) == top(fast);
  }

  Session exact_;
  std::optional<Session> fast_;
  std::vector<std::vector<float>> rows_;
  Scores scores_;
};

Json to_json(const Scores& s, bool compares) {
  Json out = {{"perplexity", std::exp(s.mean(s.exact))}, {"nll", s.mean(s.exact)}, {"tokens", s.tokens}};
  if (compares)
    out["fast"] = {
        {"perplexity", std::exp(s.mean(s.fast))},
        {"nll", s.mean(s.fast)},
        {"kl_mean", std::accumulate(s.divergences.begin(), s.divergences.end(), 0.0) / static_cast<double>(s.tokens)},
        {"kl_p99", quantile(s.divergences, 0.99)},
        {"top1_agreement", static_cast<double>(s.same_best) / static_cast<double>(s.tokens)}};
  return out;
}

void print(const Json& r, std::size_t context, std::size_t stride) {
  put(cat("exact  perplexity ", fixed(r["perplexity"], 4), "  (", fixed(r["nll"], 5), " nats a token)\n"));
  if (r.contains("fast")) {
    const Json& f = r["fast"];
    put(cat("fast   perplexity ", fixed(f["perplexity"], 4), "  (", fixed(f["nll"], 5), " nats a token)\n"));
    put(cat("KL divergence of fast from exact: mean ", fixed(f["kl_mean"], 6), ", 99th percentile ",
            fixed(f["kl_p99"], 6), " nats; same best token ", fixed(100 * f["top1_agreement"].get<double>(), 2),
            " %\n"));
  }
  put(cat(r["tokens"].get<std::size_t>(), " tokens scored, windows of ", context, ", stride ", stride, "\n"));
}

Result<Evaluation> make_evaluation(const LoadedModel& model, SessionOptions how, bool compare) {
  how.exact = true;
  auto exact = model.session(how);
  if (!exact) return failed(exact);
  if (!compare) return Evaluation(std::move(*exact), std::nullopt);
  how.exact = false;
  auto fast = model.session(how);
  if (!fast) return failed(fast);
  return Evaluation(std::move(*exact), std::move(*fast));
}

Result<> perplexity(const PerplexityOptions& o) {
  const auto text = read_text_file(o.file);
  if (!text) return std::unexpected(text.error());
  const auto loaded = load(o.model);
  if (!loaded) return std::unexpected(loaded.error());
  const Tokenizer& tokenizer = loaded->model.tokenizer();
  const auto ids = tokenizer.encode(*text, {.markup = o.special ? Markup::all : Markup::visible, .add_bos = true});
  if (ids.size() < 2) return fail(cat(o.file, " has no text to score"));
  const auto body = std::span<const Token>(ids).subspan(1);

  auto evaluation = make_evaluation(*loaded, o.model.session(), !o.model.exact);
  if (!evaluation) return failed(evaluation);
  const std::size_t context =
      o.model.context ? o.model.context : std::min<std::size_t>(loaded->model.info().context_length, 4096);
  const std::size_t room = context - 1;  // beside BOS
  const std::size_t stride = o.stride ? o.stride : std::max<std::size_t>(context / 2, 1);
  if (context < 2 || stride > room)
    return fail(cat("a stride of ", stride, " does not go with windows of ", context, " positions"));
  ProgressBar bar("Scoring tokens");
  for (std::size_t start = 0, scored = 0; scored < body.size(); start += stride) {
    const auto window = body.subspan(start, std::min(room, body.size() - start));
    if (auto ok = evaluation->window(ids[0], window, scored - start); !ok) return ok;
    scored = start + window.size();
    bar.show(scored, body.size());
  }
  Json result = to_json(evaluation->scores(), evaluation->compares());
  if (!o.json) return print(result, context, stride), Result<>();
  result["context"] = context;
  result["stride"] = stride;
  put_json(result);
  return {};
}

}  // namespace

void add_perplexity(CLI::App& app, Task& task) {
  auto options = std::make_shared<PerplexityOptions>();
  CLI::App* command = app.add_subcommand("perplexity", "How well a model predicts a text, exactly and in fast mode");
  add_model_options(command, options->model);
  command->add_option("FILE", options->file, "The text; -: standard input")->required();
  command->add_option("--stride", options->stride, "Tokens between the beginnings of two windows; 0: half the context");
  command->add_flag("--special", options->special, "Control tokens in the text count as such");
  command->add_flag("--json", options->json,
                    "One JSON object: perplexity, nll, tokens, fast (perplexity, kl_mean, kl_p99, top1_agreement)");
  command->footer(
      "A text that fits the context is scored in one pass, each token given all before it. A longer one is cut into "
      "windows of\n"
      "--ctx-size positions, each beginning with BOS, --stride tokens apart; each token is scored once, in the first "
      "window that\n"
      "holds it, so from the second window on with at least (context - stride - 1) tokens before it.\n"
      "--exact leaves the fast mode out.\n\n"
      "Examples:\n  rullama perplexity model.gguf book.txt\n  rullama perplexity model.gguf book.txt -c 1024 --stride "
      "512 --json");
  run_with(command, task, options, perplexity);
}

}  // namespace rullama::cli
