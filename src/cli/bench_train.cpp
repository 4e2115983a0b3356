#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "api/impl.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"
#include "cli/measure.h"
#include "cli/output.h"
#include "train/lora_setup.h"
#include "train/trainer.h"

namespace rullama::cli {

namespace {

struct BenchTrainOptions {
  ModelOptions model;
  std::uint32_t batch_size = 4, length = 512, rank = 16, repeats = 3, kept_layers = 0;
  bool checkpointing = true, mixed_precision = false, profile = false, json = false;
};

// A step over examples of `length` tokens, all of them to be predicted.
Result<double> step_seconds(Trainer& trainer, const TrainBatch& batch) {
  const auto start = std::chrono::steady_clock::now();
  if (auto loss = trainer.accumulate(batch, 1 / static_cast<float>(batch.target_count())); !loss) return failed(loss);
  if (auto norm = trainer.update(1e-4); !norm) return failed(norm);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void print(const Json& r) {
  const auto value = [&](const char* key, int digits) { return fixed(r[key].get<double>(), digits); };
  put_table({{"model", r["model"].get<std::string>()},
             {"device", r["device"].get<std::string>()},
             {"step", cat(value("step_s", 3), " s, ", r["tokens"].get<int>(), " tokens")},
             {"training", cat(value("train_tps", 1), " tok/s")},
             {"device memory", cat(value("device_mb", 0), " MB, of it the model ", value("model_mb", 0),
                                   " MB and intermediate results ", value("activation_mb", 0), " MB")}});
}

Result<> bench_train(const BenchTrainOptions& o) {
  const auto loaded = load(o.model);
  if (!loaded) return std::unexpected(loaded.error());
  const TextModel& text = *loaded->model.impl().text;
  const std::uint64_t model_bytes = device_bytes(loaded->model);
  LoraSetup setup;
  setup.rank = o.rank;
  auto adapter = make_adapter(text, setup);
  if (!adapter) return failed(adapter);
  TrainOptions how;
  how.rows = o.batch_size * o.length;
  how.checkpointing = o.checkpointing;
  how.kept_layers = o.kept_layers;
  how.precision = o.mixed_precision ? Precision::fast : Precision::exact;
  auto trainer = Trainer::make(loaded->model.impl().text, std::make_shared<Adapter>(std::move(*adapter)), how);
  if (!trainer) return failed(trainer);
  TrainBatch batch;
  const auto ids = some_tokens(loaded->model.tokenizer(), o.length);
  for (std::uint32_t i = 0; i < o.batch_size; i++) batch.add(ids, ids);

  if (auto warm = step_seconds(**trainer, batch); !warm) return failed(warm);
  std::vector<double> seconds;
  for (std::uint32_t i = 0; i < o.repeats; i++) {
    auto took = step_seconds(**trainer, batch);
    if (!took) return failed(took);
    seconds.push_back(*took);
  }
  const double mb = 1e6, step = median(seconds);
  Json result = {{"device", loaded->model.info().device},
                 {"model", loaded->stored.name},
                 {"batch_size", o.batch_size},
                 {"length", o.length},
                 {"lora_r", o.rank},
                 {"checkpointing", o.checkpointing},
                 {"kept_layers", o.kept_layers},
                 {"mixed_precision", o.mixed_precision},
                 {"tokens", batch.rows()},
                 {"step_s", step},
                 {"train_tps", static_cast<double>(batch.rows()) / step},
                 {"device_mb", static_cast<double>(device_bytes(loaded->model)) / mb},
                 {"model_mb", static_cast<double>(model_bytes) / mb},
                 {"activation_mb", static_cast<double>((*trainer)->activation_bytes()) / mb}};
  if (o.profile) {
    const auto times = (*trainer)->profile(batch, 1);
    if (!times) return std::unexpected(times.error());
    result["kernels"] = kernel_times(*times);
  }
  if (o.json) {
    put_json(result);
    return {};
  }
  print(result);
  if (o.profile) print_kernels("Forward and back", result["kernels"]);
  return {};
}

}  // namespace

CLI::App* add_bench_train(CLI::App* bench, Task& task) {
  auto o = std::make_shared<BenchTrainOptions>();
  CLI::App* command = bench->add_subcommand("train", "How fast a step of LoRA training runs here");
  add_device_options(command, o->model);
  command->add_option("--batch-size", o->batch_size, "Examples of a step")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--max-length", o->length, "Tokens of each")->check(CLI::Range(2, 65536))->capture_default_str();
  command->add_option("--lora-r", o->rank, "Rank, on the seven projections of each layer")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("-r,--repeat", o->repeats, "Repetitions, of which the median counts; one more warms up")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag("--gradient-checkpointing,!--no-gradient-checkpointing", o->checkpointing,
                    "Compute layers twice rather than keep what they computed (the default)");
  command->add_option("--keep-layers", o->kept_layers, "Except the last so many layers");
  command->add_flag("--mixed-precision", o->mixed_precision, "The device's fast kernels");
  command->add_flag("--profile", o->profile, "Time of each kernel too");
  command->add_flag("--json", o->json,
                    "One JSON object: device, model, step_s, train_tps, device_mb, model_mb, activation_mb, ...");
  command->footer(
      "Examples:\n  rullama bench train model.gguf --batch-size 1 --max-length 128\n"
      "  rullama bench train model.gguf --profile --json");
  run_with(command, task, o, bench_train);
  return command;
}

}  // namespace rullama::cli
