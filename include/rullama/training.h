// LoRA training of a loaded model, whatever the format of its weights.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rullama/adapter.h"
#include "rullama/model.h"
#include "rullama/result.h"
#include "rullama/sampling.h"

namespace rullama {

struct FinetuneOptions {
  // JSON lines: "messages", "prompt" and "completion", "text", or "input_ids" and "labels"; `eval_data` may be empty.
  std::string data, eval_data;
  // FILE.safetensors, with adapter_config.json beside it; or a folder, laid out as PEFT does.
  std::string output;
  bool overwrite = false;  // what is there; else that is an error
  bool resume = false;     // go on from the checkpoint of a training that was stopped, if there is one

  std::uint32_t lora_r = 0;  // 0: 16, or init_adapter's
  float lora_alpha = 0;      // 0: twice the rank, or init_adapter's
  float lora_dropout = 0;
  bool rslora = false;                      // scale alpha / sqrt(rank)
  std::vector<std::string> target_modules;  // PEFT's names; empty: the seven projections of a layer, or init_adapter's
  std::string init_adapter;                 // to train on from; empty: PEFT's start

  double learning_rate = 2e-4;
  std::string lr_scheduler = "linear";  // constant, linear, cosine, cosine_with_restarts
  std::uint32_t num_cycles = 1;         // of cosine_with_restarts
  std::uint64_t warmup_steps = 0;
  std::uint64_t max_steps = 0;  // 0: as many as num_epochs have
  double num_epochs = 3;
  std::uint32_t batch_size = 4, grad_accum = 1;
  std::uint32_t max_length = 1024;  // tokens of an example
  bool packing = false;             // a batch holds as many examples as batch_size * max_length tokens take
  bool shuffle = true;
  bool train_on_prompts = false;  // learn prompts as well as answers
  bool add_eos = false;           // completions and texts end with the end-of-text token
  double weight_decay = 0;
  double max_grad_norm = 1;  // 0: none
  bool gradient_checkpointing = true;
  std::uint32_t kept_layers = 0;  // of the last layers what they computed is kept all the same
  bool exact = true;              // f32 all the way; else the device's fast kernels
  std::uint64_t seed = 0;

  std::uint64_t save_steps = 50;     // between checkpoints; 0: at the end and when cancelled only
  std::uint64_t eval_steps = 0;      // between evaluations; 0: at the end of each epoch
  std::uint32_t early_stopping = 0;  // evaluations without a better loss after which training ends; 0: never
};

// What is known before the first step.
struct FinetunePlan {
  std::size_t rows = 0, examples = 0, eval_examples = 0;
  std::size_t tokens = 0, targets = 0;  // of all examples; those to be predicted
  std::size_t truncated = 0,
              without_target = 0;  // examples cut to max_length; left out, for nothing to predict is left
  std::vector<std::pair<std::size_t, std::size_t>> lengths;  // histogram: at most .first tokens, .second examples
  std::uint64_t parameters = 0;                              // that are trained
  std::uint64_t steps = 0, done = 0;                         // of the training; taken before, if it goes on
  std::uint32_t batch_rows = 0;                              // tokens of the largest batch
  std::uint64_t activation_bytes = 0;                        // of intermediate results on the device
  std::vector<std::vector<Token>> prompts;                   // of the first examples, of eval_data if there are
};

struct FinetuneStep {
  std::uint64_t step = 0, steps = 0;
  double epoch = 0, loss = 0, learning_rate = 0, grad_norm = 0;
  std::uint64_t tokens = 0;
  double seconds = 0;
  std::optional<double> eval_loss = {};
  [[nodiscard]] double tokens_per_second() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};
// One line of training.jsonl, without its end.
[[nodiscard]] std::string to_json(const FinetuneStep& step);

struct FinetuneObserver {
  std::function<Result<>(const FinetunePlan&)> on_plan = {};  // an error ends it before the first step
  std::function<void(const FinetuneStep&)> on_step = {};
  std::function<bool()> cancelled = {};  // asked before each step
};

enum class FinetuneEnd : std::uint8_t { complete, early, cancelled };

struct FinetuneResult {
  FinetuneEnd end = FinetuneEnd::complete;
  LoadedAdapter adapter;              // as it was written; with early_stopping the best one
  std::vector<std::string> files;     // the adapter's
  std::string log, checkpoint;        // JSON lines; the training's state, to go on from
  std::uint64_t steps = 0;            // taken, with those of before a resume
  std::vector<FinetuneStep> history;  // of each that the log knows, likewise
};

// Trains, writes the adapter when done (also when cancelled, as far as it has come), keeps checkpoints on the way. An
// error leaves the last checkpoint.
[[nodiscard]] Result<FinetuneResult> finetune(const Model& model, const FinetuneOptions& options,
                                              const FinetuneObserver& observer = {});

}  // namespace rullama
