// A sequence of tokens and how much of it the cache holds.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "formats/file.h"
#include "runtime/runner.h"

namespace rullama {

// Receives the bytes of a file in order.
using Emit = std::function<Result<>(std::span<const std::byte>)>;
// Asked before each batch of tokens; returning true gives up with ErrorCode::cancelled.
using Cancelled = std::function<bool()>;
using RowSink = std::function<bool(std::uint32_t position, std::span<const float> logits)>;

class Sequence {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Sequence>> make(std::shared_ptr<const TextModel> model,
                                                              Precision precision, std::uint32_t context,
                                                              std::uint32_t batch, DType kv_type);

  [[nodiscard]] std::span<const Token> tokens() const { return tokens_; }
  [[nodiscard]] std::uint32_t context() const { return runner_.cache().context; }
  [[nodiscard]] const KvCache& cache() const { return runner_.cache(); }

  // Appends and evaluates. On an error (also a full context, refused before anything is done) the tokens stay as they
  // were. `best`: only so many of the best logits are fetched from the device; 0: all. `draws`: see Runner::run_best.
  [[nodiscard]] Result<> append(std::span<const Token> ids, std::uint32_t best = 0,
                                const std::optional<Draws>& draws = {}, const Cancelled& cancelled = {});
  // The same with the logits of every row; `row` returns false to stop early (what is evaluated then stays).
  [[nodiscard]] Result<> append(std::span<const Token> ids, const RowSink& row);
  // Logits after the last token.
  [[nodiscard]] Result<std::span<const float>> logits();
  // The `count` best of them, best first and equals by id; suppressed tokens are left out.
  [[nodiscard]] Result<std::span<const RankedLogit>> best_logits(std::uint32_t count);
  // All logits after the last token are here: asking for them costs nothing.
  [[nodiscard]] bool has_logits() const { return logits_valid_; }
  void truncate(std::uint32_t length);
  // How many leading tokens of `ids` the sequence already holds.
  [[nodiscard]] std::size_t common_prefix(std::span<const Token> ids) const;
  // Holds exactly `ids` afterwards, evaluating only what differs.
  [[nodiscard]] Result<> set(std::span<const Token> ids, std::uint32_t best = 0, const Cancelled& cancelled = {});

  // Adds these to the model. The tokens stay; what was computed of them is computed again.
  void set_adapters(std::vector<ActiveAdapter> adapters);

  // With the logits, where they are here: a device's kernels for a single row would give others in the last digits.
  [[nodiscard]] Result<> save(const Emit& emit) const;
  // Leaves the sequence as it was if the file does not fit.
  [[nodiscard]] Result<> restore(const ByteSource& file);
  // A smaller cache with the same content; at least `context` positions.
  [[nodiscard]] Result<> shrink(std::uint32_t context);

  [[nodiscard]] Runner& runner() { return runner_; }

 private:
  Sequence(std::shared_ptr<const TextModel> model, Precision precision, DType kv_type)
      : model_(model), kv_type_(kv_type), runner_(std::move(model), precision) {}
  [[nodiscard]] Result<> check_room(std::size_t more) const;
  [[nodiscard]] Result<> check_ids(std::span<const Token> ids) const;
  // Evaluates everything that the cache does not hold yet.
  [[nodiscard]] Result<> evaluate(std::uint32_t best, const std::optional<Draws>& draws = {},
                                  const Cancelled& cancelled = {});
  // Evaluates the last token again if all are evaluated: its logits were not kept.
  [[nodiscard]] Result<> evaluate_last(std::uint32_t best);
  [[nodiscard]] Result<> evaluate_rows(std::uint32_t from, const RowSink& row);
  void note_evaluated(std::uint32_t end);
  [[nodiscard]] std::uint32_t first_seen(std::uint32_t next) const;
  void note_written(std::uint32_t end);  // to the rings, positions below `end`
  [[nodiscard]] std::uint64_t fingerprint() const;
  struct LayerPart;
  [[nodiscard]] std::vector<LayerPart> parts(const KvCache& cache, std::uint32_t end) const;

  std::shared_ptr<const TextModel> model_;
  DType kv_type_;
  Runner runner_;
  std::vector<Token> tokens_;
  std::uint32_t evaluated_ = 0;  // tokens whose keys and values the cache holds
  std::uint32_t oldest_ = 0;     // earliest position that every sliding layer's ring still holds
  bool logits_valid_ = false;    // logits_ are those after tokens_.back()
  std::vector<float> logits_;
  std::uint32_t best_valid_ = 0;  // so many of the best logits after tokens_.back() are in best_
  std::vector<RankedLogit> best_;
};

}  // namespace rullama
