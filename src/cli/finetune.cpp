#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"
#include "cli/interrupt.h"
#include "cli/loss_plot.h"
#include "cli/output.h"
#include "host/native/file_writer.h"

namespace rullama::cli {

namespace {

constexpr std::uint32_t kAnswerTokens = 48;  // of an answer before or after
constexpr std::size_t kLines = 100;          // of progress, where there is no terminal
constexpr std::size_t kMostSamples = 8;      // as many prompts a plan has

struct FinetuneCommand {
  ModelOptions model;
  FinetuneOptions how;
  bool mixed_precision = false, json = false;
  std::size_t samples = 3;
};

// What the model says to some prompts of the data, before and after.
class Samples {
 public:
  Samples(const Model& model, std::size_t count, const InterruptScope& interrupt)
      : model_(model), count_(count), interrupt_(interrupt) {}

  void prompts(const FinetunePlan& plan) {
    for (const auto& prompt : plan.prompts)
      if (prompts_.size() < count_ && prompt.size() < model_.info().context_length) prompts_.push_back(prompt);
  }
  Result<> answer(std::span<const AdapterUse> adapters, std::vector<std::string>& answers) const {
    if (prompts_.empty()) return {};
    std::size_t longest = 0;
    for (const auto& prompt : prompts_) longest = std::max(longest, prompt.size());
    SessionOptions how;
    how.context =
        std::min<std::uint32_t>(static_cast<std::uint32_t>(longest) + kAnswerTokens + 1, model_.info().context_length);
    auto session = model_.session(how);
    if (!session) return failed(session);
    session->set_adapters(adapters);
    GenerateOptions greedy;
    greedy.sampling.temperature = 0;
    greedy.max_tokens = kAnswerTokens;
    greedy.stop = {"\n\n"};
    greedy.cancelled = [&] { return interrupt_.interrupted(); };
    for (const auto& prompt : prompts_) {
      auto answer = session->generate(prompt, greedy);
      if (!answer) return failed(answer);
      if (interrupt_.interrupted()) return {};
      answers.push_back(std::move(answer->text));
    }
    return {};
  }
  Result<> before() { return answer({}, before_); }
  Result<> after(const LoadedAdapter& adapter) {
    const AdapterUse use{adapter, 1};
    return answer(std::span(&use, 1), after_);
  }

  [[nodiscard]] Json to_json() const {
    Json all = Json::array();
    for (std::size_t i = 0; i < after_.size(); i++)
      all.push_back({{"prompt", model_.detokenize(prompts_[i])}, {"before", before_[i]}, {"after", after_[i]}});
    return all;
  }
  void show() const {
    const auto line = [](std::string text) {
      std::ranges::replace(text, '\n', ' ');
      return without_controls(text);
    };
    for (std::size_t i = 0; i < after_.size(); i++)
      put(cat("\n", line(model_.detokenize(prompts_[i])), "\n  before: ", line(before_[i]),
              "\n  after:  ", line(after_[i]), "\n"));
  }

 private:
  const Model& model_;
  std::size_t count_;
  const InterruptScope& interrupt_;
  std::vector<std::vector<Token>> prompts_;
  std::vector<std::string> before_, after_;
};

void show_plan(const FinetunePlan& p) {
  std::string text = cat(p.examples, " examples from ", p.rows, " rows, ", p.tokens, " tokens, ", p.targets,
                         " of them to be predicted");
  if (p.eval_examples) text += cat("; ", p.eval_examples, " to evaluate on");
  note(text);
  std::size_t most = 1;
  for (const auto& [length, count] : p.lengths) most = std::max(most, count);
  std::size_t from = 1;
  for (const auto& [length, count] : p.lengths) {
    const std::size_t bar = (count * 40 + most - 1) / most;
    std::string range = cat(from, "-", length);
    range.insert(0, 13 - std::min<std::size_t>(range.size(), 13), ' ');
    note_line(cat(range, " tokens ", std::string(bar, '#'), bar ? " " : "", count));
    from = length + 1;
  }
  note(cat(p.parameters, " parameters to train; ", p.steps, " steps, at most ", p.batch_rows,
           " tokens at a time, which take ", bytes_text(static_cast<double>(p.activation_bytes)),
           " of intermediate results"));
  if (p.done) note(cat("going on after step ", p.done));
}

void show_warnings(const FinetunePlan& p, const FinetuneOptions& o) {
  if (p.truncated)
    note(cat("warning: ", p.truncated, " examples are longer than --max-length ", o.max_length, " and were cut",
             p.without_target ? cat("; ", p.without_target, " of them have nothing left to learn and were left out")
                              : std::string()));
  if (o.warmup_steps >= p.steps)
    note(cat("warning: --warmup-steps ", o.warmup_steps, " is no less than the ", p.steps,
             " steps of the training, so the learning rate never reaches its highest"));
}

std::string clock(double seconds) {
  const auto s = static_cast<std::uint64_t>(std::max(0.0, seconds));
  const auto two = [](std::uint64_t v) { return cat(v < 10 ? "0" : "", v); };
  return s >= 3600 ? cat(s / 3600, ":", two(s / 60 % 60), ":", two(s % 60)) : cat(s / 60, ":", two(s % 60));
}

// One line that is drawn again with each step; where there is no terminal a line now and then.
class StepView {
 public:
  void show(const FinetuneStep& s) {
    seconds_ = seconds_ == 0 ? s.seconds : 0.9 * seconds_ + 0.1 * s.seconds;
    const double left = seconds_ * static_cast<double>(s.steps - s.step);
    char rate[32];
    std::snprintf(rate, sizeof rate, "%.2e", s.learning_rate);
    std::string text = cat("step ", s.step, "/", s.steps, "  loss ", fixed(s.loss, 4), "  lr ", rate, "  ",
                           fixed(s.tokens_per_second(), 0), " tok/s  ETA ", clock(left));
    if (s.eval_loss) text += cat("  eval loss ", fixed(*s.eval_loss, 4));
    if (is_terminal(Stream::err)) {
      const double share = static_cast<double>(s.step) / static_cast<double>(s.steps);
      std::string bar(static_cast<std::size_t>(20 * share), '#');
      bar.resize(20, ' ');
      line_.show(cat("[", bar, "] ", text));
      if (s.eval_loss) line_.keep();
      return;
    }
    const std::uint64_t every = std::max<std::uint64_t>(1, s.steps / kLines);
    if (s.step % every == 0 || s.step == s.steps || s.eval_loss) note_line(text);
  }

  void end() { line_.keep(); }

 private:
  double seconds_ = 0;  // of a step, lately
  StatusLine line_;
};

std::string plot_path(std::string log) {
  const std::string_view end = "training.jsonl";
  return log.replace(log.size() - end.size(), end.size(), "loss.svg");
}

Result<> train(const FinetuneCommand& o) {
  const auto loaded = load(o.model);
  if (!loaded) return std::unexpected(loaded.error());
  FinetuneOptions how = o.how;
  how.exact = !o.mixed_precision;
  const InterruptScope interrupt(InterruptScope::Catches::interrupt_and_end);
  Samples samples(loaded->model, o.samples, interrupt);
  StepView view;
  FinetuneObserver observer;
  observer.on_plan = [&](const FinetunePlan& plan) {
    if (!o.json) show_plan(plan);
    show_warnings(plan, how);
    samples.prompts(plan);
    return samples.before();
  };
  observer.on_step = [&](const FinetuneStep& step) {
    if (o.json)
      put_now(to_json(step) + "\n");
    else
      view.show(step);
  };
  observer.cancelled = [&] { return interrupt.interrupted(); };
  auto result = finetune(loaded->model, how, observer);
  view.end();
  if (!result) return failed(result);
  const std::string plot = plot_path(result->log);
  if (auto ok =
          write_text_file(plot, loss_plot(result->history, cat("Loss of ", loaded->stored.name, " on ", how.data)));
      !ok)
    return ok;
  if (result->end != FinetuneEnd::cancelled)
    if (auto ok = samples.after(result->adapter); !ok) return ok;

  const Json loss = result->history.empty() ? Json() : Json(result->history.back().loss);
  if (o.json) {
    constexpr std::array kEnds{"complete", "early", "cancelled"};
    put_json({{"adapter", result->files.front()},
              {"steps", result->steps},
              {"final_loss", loss},
              {"end", kEnds[static_cast<std::size_t>(result->end)]},
              {"log", result->log},
              {"plot", plot},
              {"checkpoint", result->checkpoint},
              {"samples", samples.to_json()}});
  } else {
    samples.show();
    put(cat(samples.to_json().empty() ? "" : "\n", "wrote ", result->files.front(), " (adapter), ", result->log, ", ",
            plot, "\n"));
    if (result->end == FinetuneEnd::early)
      put("training ended early: the loss on the evaluation data no longer fell\n");
  }
  if (result->end != FinetuneEnd::cancelled) return {};
  note(cat("stopped after step ", result->steps, "; the same command with --resume goes on"));
  return fail(ErrorCode::cancelled, "");
}

void add_data_options(CLI::App* command, FinetuneOptions& o) {
  command
      ->add_option("--data", o.data,
                   "JSON lines with messages, prompt and completion, text, or input_ids and labels (-100: masked)")
      ->required();
  command->add_option("--eval-data", o.eval_data, "The same, to measure the loss on without training");
  command
      ->add_option("-o,--output", o.output,
                   "FILE.safetensors, with adapter_config.json beside it, or a folder as PEFT has it")
      ->required();
  command->add_flag("--force", o.overwrite, "Replace what is there");
  command->add_flag("--resume", o.resume, "Go on from the checkpoint of this training, if there is one");
  command->add_option("--max-length", o.max_length, "Tokens of an example, at most")->capture_default_str();
  command->add_flag("--packing", o.packing, "Fill batches to batch-size * max-length tokens (examples stay apart)");
  command->add_flag("!--no-shuffle", o.shuffle, "Take the examples in the order of the file");
  command->add_flag("--train-on-prompts", o.train_on_prompts, "Learn the prompts as well as the answers");
  command->add_flag("--add-eos", o.add_eos, "End completions and texts with the end-of-text token");
}

void add_lora_options(CLI::App* command, FinetuneOptions& o) {
  command->add_option("--lora-r", o.lora_r, "Rank; default 16")->check(CLI::Range(1, 4096));
  command->add_option("--lora-alpha", o.lora_alpha, "Scale times rank; default twice the rank");
  command->add_option("--lora-dropout", o.lora_dropout, "Share of inputs dropped in training")->capture_default_str();
  command->add_flag("--rslora", o.rslora, "Scale by alpha / sqrt(rank)");
  command
      ->add_option("--target-modules", o.target_modules,
                   "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj (the default), per_layer_input_gate, "
                   "per_layer_projection, per_layer_model_projection, lm_head, embed_tokens")
      ->delimiter(',')
      ->allow_extra_args(false);
  command->add_option("--init-adapter", o.init_adapter, "Folder or file of an adapter to train on from");
}

void add_course_options(CLI::App* command, FinetuneOptions& o) {
  command->add_option("--learning-rate", o.learning_rate, "The highest")->capture_default_str();
  command->add_option("--lr-scheduler", o.lr_scheduler, "How it goes on")
      ->check(CLI::IsMember({"constant", "linear", "cosine", "cosine_with_restarts"}))
      ->capture_default_str();
  command->add_option("--num-cycles", o.num_cycles, "Of cosine_with_restarts")->capture_default_str();
  command->add_option("--warmup-steps", o.warmup_steps, "Steps in which it rises from 0")->capture_default_str();
  command->add_option("--max-steps", o.max_steps, "Steps to take; default: those of --num-epochs");
  command->add_option("--num-epochs", o.num_epochs, "How often each example is seen")->capture_default_str();
  command->add_option("--batch-size", o.batch_size, "Examples of a batch")->capture_default_str();
  command->add_option("--grad-accum", o.grad_accum, "Batches of a step")->capture_default_str();
  command->add_option("--weight-decay", o.weight_decay, "Of AdamW, decoupled")->capture_default_str();
  command->add_option("--max-grad-norm", o.max_grad_norm, "Norm that gradients are clipped to; 0: none")
      ->capture_default_str();
  command->add_option("--seed", o.seed, "Of the adapter's start, the order and dropout")->capture_default_str();
  command->add_option("--save-steps", o.save_steps, "Steps between checkpoints; 0: at the end only")
      ->capture_default_str();
  command->add_option("--eval-steps", o.eval_steps, "Steps between evaluations; default: after each epoch");
  command->add_option("--early-stopping", o.early_stopping,
                      "Stop after so many evaluations without a better loss, and keep the best adapter");
  command->add_flag("--gradient-checkpointing,!--no-gradient-checkpointing", o.gradient_checkpointing,
                    "Compute layers twice rather than keep what they computed (the default; saves memory)");
  command->add_option("--keep-layers", o.kept_layers, "Except the last so many layers: faster, and takes more memory")
      ->capture_default_str();
}

}  // namespace

void add_finetune(CLI::App& app, Task& task) {
  auto o = std::make_shared<FinetuneCommand>();
  CLI::App* command = app.add_subcommand("finetune", "Train a LoRA adapter for a model");
  add_device_options(command, o->model);
  add_data_options(command, o->how);
  add_lora_options(command, o->how);
  add_course_options(command, o->how);
  command->add_flag("--mixed-precision", o->mixed_precision,
                    "The device's fast kernels where they exist, instead of f32 all the way");
  command->add_option("--samples", o->samples, "Prompts of the data to answer before and after")
      ->check(CLI::Range(std::size_t{0}, kMostSamples))
      ->capture_default_str();
  command->add_flag("--json", o->json,
                    "A JSON object a step: step, steps, epoch, loss, lr, grad_norm, tokens, tokens_per_s, eval_loss; "
                    "at last adapter, steps, final_loss, end, log, plot, checkpoint, samples");
  command->footer(
      "Ctrl-C and SIGTERM save and stop; the same command with --resume goes on. The adapter works with\n"
      "`rullama run --lora`, with PEFT, and after `rullama export` with llama.cpp.\n"
      "Examples:\n"
      "  rullama finetune model.gguf --data train.jsonl -o adapter.safetensors\n"
      "  rullama finetune model.gguf --data train.jsonl --eval-data held-out.jsonl -o my-adapter/ --early-stopping 3\n"
      "  rullama finetune model.gguf --data train.jsonl -o a.safetensors --lora-r 8 --learning-rate 1e-4 "
      "--lr-scheduler cosine\n"
      "  rullama run model.gguf --lora adapter.safetensors \"What is the capital of Velmora?\"");
  run_with(command, task, o, train);
}

}  // namespace rullama::cli
