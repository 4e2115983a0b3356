// Runs a model's forward pass over the rows of one sequence: plans by row count, the cache, logits.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "lora/adapter.h"
#include "models/gemma/forward.h"
#include "ops/backend.h"
#include "rullama/sampling.h"
#include "runtime/sampler.h"

namespace rullama {

// A table whose rows are fetched on the host, decoded to f32.
struct HostTable {
  std::shared_ptr<const ByteSource> source;
  std::uint64_t offset = 0;
  TensorDesc desc;
  [[nodiscard]] Result<> rows(std::span<const Token> ids, std::span<float> out) const;
};

// A loaded text model: what sessions share.
struct TextModel {
  GemmaConfig config;
  GemmaWeights weights;
  HostTable per_layer_table;  // used if weights.per_layer_on_host
  std::shared_ptr<Backend> backend;
  std::uint64_t content = 0;  // a hash of what the weights are
};
// Tells models apart, also those of one shape: a file that was made with one does not go with another.
[[nodiscard]] std::uint64_t fingerprint(const TextModel& model);

struct Draws {
  DrawRule now, next;
};

class Runner {
 public:
  Runner(std::shared_ptr<const TextModel> model, Precision precision)
      : model_(std::move(model)), precision_(precision) {}

  [[nodiscard]] Result<> make_cache(std::uint32_t context, std::uint32_t batch, DType dtype);
  [[nodiscard]] Precision precision() const { return precision_; }
  [[nodiscard]] const KvCache& cache() const { return cache_; }
  [[nodiscard]] KvCache& cache() { return cache_; }

  // What is added to the model from now on. Keys and values in the cache are those of before.
  void set_adapters(std::vector<ActiveAdapter> adapters);
  [[nodiscard]] std::span<const ActiveAdapter> adapters() const { return adapters_; }

  // Evaluates `ids` at positions position.. with keys and values in the cache. At most cache().batch of them.
  // `logits` gets the logits of the last logit_rows rows.
  [[nodiscard]] Result<> run(std::span<const Token> ids, std::uint32_t position, std::uint32_t logit_rows,
                             std::vector<float>& logits);
  // The same with the `count` best logits after the last row of what is not suppressed, best first and equals by id.
  // They are ranked on the device. `draws`: how the next token is going to be drawn, and the one after it. The device
  // then draws for itself, and after a single row goes on with what it drew before anybody asks: a call with that token
  // has its result earlier, any other is as good as if nothing had been. Keys and values of the position behind the
  // last are written then.
  [[nodiscard]] Result<> run_best(std::span<const Token> ids, std::uint32_t position, std::uint32_t count,
                                  std::vector<RankedLogit>& best, const std::optional<Draws>& draws = {});
  // The token that it goes on with.
  [[nodiscard]] std::optional<Token> guess() const { return guess_ ? std::optional(guess_->token) : std::nullopt; }
  // For whoever changes the cache himself. The error is that row's, or one that its results bring to light.
  [[nodiscard]] Result<> drop_guess();
  // True if that is possible, and faster than to fetch all.
  [[nodiscard]] bool ranks(std::uint32_t count) const;
  // Most rows whose logits fit into one tensor of the device.
  [[nodiscard]] std::uint32_t max_logit_rows() const;
  // The times of each kernel of one run, for profiles.
  [[nodiscard]] Result<std::vector<NodeTime>> profile(std::span<const Token> ids, std::uint32_t position);

 private:
  struct Plan {
    std::uint32_t rows = 0, logit_rows = 0, best_count = 0;
    Graph graph;
    ForwardInput in;
    ForwardOutput out;
    Var barred, rules, best;  // what draws from the logits (ops/draw); if best_count
    std::unique_ptr<Program> program;
  };
  static constexpr std::size_t kMaxPlans = 6;

  [[nodiscard]] Result<Plan*> plan(std::uint32_t rows, std::uint32_t logit_rows, std::uint32_t best_count);
  // The plan with its inputs written.
  [[nodiscard]] Result<Plan*> prepared(std::span<const Token> ids, std::uint32_t position, std::uint32_t logit_rows,
                                       std::uint32_t best_count = 0);
  [[nodiscard]] std::uint32_t with_suppressed(std::uint32_t count) const;

  // Starts the row after `position` with the token that the device draws there.
  [[nodiscard]] Result<> start_guess(Plan& plan, std::uint32_t position, const DrawRule& rule);
  [[nodiscard]] Result<> start_best(Plan& plan, const DrawRule& rule, bool queued);
  void forget_plans();

  // A row that was started before it was asked for.
  struct Guess {
    Plan* plan;
    std::uint32_t position;
    Token token;
  };

  std::shared_ptr<const TextModel> model_;
  Precision precision_;
  KvCache cache_;
  std::vector<ActiveAdapter> adapters_;
  std::list<std::unique_ptr<Plan>> plans_;  // latest used first
  std::optional<Guess> guess_;
  std::vector<float> table_rows_;
  std::vector<std::uint32_t> positions_;
};

}  // namespace rullama
