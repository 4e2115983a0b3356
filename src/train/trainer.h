// One step of LoRA training: the model's forward pass on packed rows, the loss, and back through the graph to the
// adapter's gradients; AdamW on them. The base model's weights stay as they are, in whatever format.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "formats/safetensors.h"
#include "lora/adapter.h"
#include "runtime/runner.h"

namespace rullama {

// Rows of one or more samples, one after the other. A row sees its own sample only.
struct TrainBatch {
  static constexpr Token kNoTarget = UINT32_MAX;
  std::vector<Token> tokens;
  std::vector<Token> targets;        // what should follow each row; kNoTarget: nothing is learnt from it
  std::vector<std::uint32_t> first;  // the row where its sample begins

  // Appends a sample. labels: as many as tokens, the token itself where it counts as a target, else kNoTarget.
  void add(std::span<const Token> sample, std::span<const Token> labels);
  [[nodiscard]] std::size_t rows() const { return tokens.size(); }
  [[nodiscard]] std::size_t target_count() const;
};

struct TrainOptions {
  std::uint32_t rows = 2048;      // of a batch, at most
  bool checkpointing = true;      // compute each layer twice instead of keeping what it computed
  bool evaluates = false;         // evaluate() is made ready at once, so that it cannot lack memory later
  std::uint32_t kept_layers = 0;  // of checkpointing: the last so many layers are kept all the same
  Precision precision = Precision::exact;
  float dropout = 0;
  float max_grad_norm = 1;  // of all gradients together; 0: no limit
  float beta1 = 0.9f, beta2 = 0.999f, eps = 1e-8f, weight_decay = 0;
  std::uint64_t seed = 0;
};

class Trainer {
 public:
  // Trains `adapter` in place. Out of memory: the error says what was needed and which setting helps.
  [[nodiscard]] static Result<std::unique_ptr<Trainer>> make(std::shared_ptr<const TextModel> model,
                                                             std::shared_ptr<const Adapter> adapter,
                                                             const TrainOptions& options);
  ~Trainer();

  // Adds the gradients of weight * (sum of the batch's losses) to those of this step, for example with weight 1 /
  // (targets of all batches of the step). Returns the sum of the losses.
  [[nodiscard]] Result<double> accumulate(const TrainBatch& batch, float weight);
  // Takes the step and returns the norm of the gradients before they were clipped. The next accumulate starts anew.
  [[nodiscard]] Result<double> update(double learning_rate);
  // The sum of a batch's losses without training (and without dropout).
  [[nodiscard]] Result<double> evaluate(const TrainBatch& batch);
  // accumulate with the time of each kernel, for profiles.
  [[nodiscard]] Result<std::vector<NodeTime>> profile(const TrainBatch& batch, float weight);
  // The losses of the rows of the last accumulate or evaluate; 0 without a target.
  [[nodiscard]] std::span<const float> row_losses() const;

  [[nodiscard]] std::uint64_t steps() const;  // taken
  // The gradients of a pair of the adapter, for tests: A's, then B's.
  [[nodiscard]] Result<std::vector<float>> gradient(std::size_t pair, bool of_b) const;
  // Bytes of intermediate results of a batch.
  [[nodiscard]] std::uint64_t activation_bytes() const;

  // Adapter, moments and step count, as a safetensors file; `note` is the caller's, metadata "note". A trainer made
  // with the same options goes on from it as if it had never stopped. `restore` refuses a file of another adapter and
  // then changes nothing.
  [[nodiscard]] Result<> save(ByteSink& sink, std::string_view note = {}) const;
  [[nodiscard]] Result<> restore(const Safetensors& file);

 private:
  struct Impl;
  explicit Trainer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace rullama
