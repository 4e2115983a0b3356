#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>

#include "api/impl.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "host/native/file_writer.h"
#include "host/native/folder_lock.h"
#include "host/native/mapped_file.h"
#include "lora/adapter_file.h"
#include "rullama/training.h"
#include "train/course.h"
#include "train/lora_setup.h"

namespace rullama {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::size_t kPrompts = 8;  // of FinetunePlan::prompts
constexpr std::uint32_t kDefaultRank = 16;
constexpr double kMostNumber = std::numeric_limits<float>::max();  // what the device computes with

// Where a training puts what.
struct Paths {
  fs::path folder, adapter, config, log, checkpoint, best;

  explicit Paths(const fs::path& output) {
    std::error_code none;
    const bool file = output.extension() == ".safetensors" && !fs::is_directory(output, none);
    folder = file ? output.parent_path() : output;
    if (folder.empty()) folder = ".";
    adapter = file ? output : folder / "adapter_model.safetensors";
    config = folder / "adapter_config.json";
    const std::string prefix = file ? output.stem().string() + "." : "";
    log = folder / (prefix + "training.jsonl");
    checkpoint = folder / (prefix + "checkpoint.safetensors");
    best = folder / (prefix + "best.safetensors");
  }
};

// training.jsonl, to which a line is added with each step.
class Log {
 public:
  ~Log() {
    if (file_) std::fclose(file_);
  }
  Log() = default;
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  // Begins with the steps of before.
  Result<> open(const fs::path& path, std::span<const FinetuneStep> before) {
    std::string text;
    for (const FinetuneStep& step : before) text += to_json(step) + "\n";
    if (auto ok = write_text_file(path.string(), text); !ok) return ok;
    path_ = path;
    file_ = std::fopen(path.c_str(), "a");
    return file_ ? Result<>() : wrong();
  }
  Result<> add(const FinetuneStep& step) {
    const std::string line = to_json(step) + "\n";
    return std::fputs(line.c_str(), file_) >= 0 && std::fflush(file_) == 0 ? Result<>() : wrong();
  }

  // The steps that a log has up to `step`; none where it cannot be read.
  static std::vector<FinetuneStep> read(const fs::path& path, std::uint64_t until) {
    std::vector<FinetuneStep> steps;
    const auto text = read_text_file(path.string());
    if (!text) return steps;
    for (std::size_t at = 0; at < text->size();) {
      const std::size_t end = std::min(text->find('\n', at), text->size());
      const auto json = parse_json(std::string_view(*text).substr(at, end - at));
      at = end + 1;
      if (!json || !json->is_object()) continue;
      const auto number = [&](const char* key) {
        const auto found = json->find(key);
        return found != json->end() && found->is_number() ? found->get<double>() : 0.0;
      };
      FinetuneStep s;
      s.step = static_cast<std::uint64_t>(std::clamp(number("step"), 0.0, 1e15));
      s.steps = static_cast<std::uint64_t>(std::clamp(number("steps"), 0.0, 1e15));
      s.tokens = static_cast<std::uint64_t>(std::clamp(number("tokens"), 0.0, 1e15));
      s.epoch = number("epoch");
      s.loss = number("loss");
      s.learning_rate = number("lr");
      s.grad_norm = number("grad_norm");
      const double rate = number("tokens_per_s");
      s.seconds = rate > 0 ? static_cast<double>(s.tokens) / rate : 0;
      if (json->contains("eval_loss")) s.eval_loss = number("eval_loss");
      if (s.step > (steps.empty() ? 0 : steps.back().step) && s.step <= until) steps.push_back(s);
    }
    return steps;
  }

 private:
  [[nodiscard]] Result<> wrong() const {
    return fail(ErrorCode::io, cat("writing ", quote(path_.string(), 200), " failed: ", std::strerror(errno)));
  }
  fs::path path_;
  std::FILE* file_ = nullptr;
};

class Finetuning {
 public:
  Finetuning(const Model& model, const FinetuneOptions& options, const FinetuneObserver& observer)
      : api_(model), model_(model.impl()), o_(options), observer_(observer), paths_(options.output) {}

  Result<FinetuneResult> run() {
    for (auto stage : {&Finetuning::check, &Finetuning::read_data, &Finetuning::make_adapter, &Finetuning::make_trainer,
                       &Finetuning::make_folder, &Finetuning::resume})
      if (auto ok = (this->*stage)(); !ok) return failed(ok);
    if (observer_.on_plan)
      if (auto ok = observer_.on_plan(plan_); !ok) return failed(ok);
    return train();
  }

 private:
  Result<> check() {
    if (o_.output.empty()) return fail("there is no name for the adapter: -o says where it goes");
    if (fs::path(o_.output).extension() == ".gguf")
      return fail(cat("-o ", quote(o_.output, 200),
                      ": training writes safetensors, so name a folder or a .safetensors file; `rullama export` makes "
                      "a GGUF file of it"));
    if (o_.batch_size == 0 || o_.grad_accum == 0) return fail("--batch-size and --grad-accum must be at least 1");
    if (o_.max_length < 2) return fail("--max-length must be at least 2");
    if (o_.max_length > model_.text->config.context_length)
      return fail(cat("--max-length ", o_.max_length, " is more than the model's context of ",
                      model_.text->config.context_length));
    if (!(o_.learning_rate > 0) || o_.learning_rate > kMostNumber)
      return fail("--learning-rate must be above 0, and no more than an f32 holds");
    if (!(o_.lora_alpha >= 0) || !std::isfinite(o_.lora_alpha)) return fail("--lora-alpha must be above 0");
    if (o_.max_steps == 0 && !(o_.num_epochs > 0 && o_.num_epochs <= 1e6))
      return fail("--num-epochs must be above 0, and at most a million");
    if (!(o_.max_grad_norm >= 0) || !(o_.weight_decay >= 0) || o_.weight_decay > kMostNumber)
      return fail("--max-grad-norm and --weight-decay must be numbers that are not negative");
    if (o_.early_stopping && o_.eval_data.empty())
      return fail("--early-stopping needs --eval-data, whose loss it watches");
    if (!schedule_of(o_.lr_scheduler))
      return fail(cat("--lr-scheduler ", quote(o_.lr_scheduler),
                      " is unknown; there are constant, linear, cosine and cosine_with_restarts"));
    if (o_.num_cycles == 0) return fail("--num-cycles must be at least 1");
    return check_output();
  }

  // Nothing of the user's is written over, and no other training's files.
  Result<> check_output() {
    std::error_code none;
    if (fs::is_regular_file(o_.output, none) && paths_.adapter != fs::path(o_.output))
      return fail(cat("-o ", quote(o_.output, 200), " is a file that is there; name a folder or a .safetensors file"));
    for (const std::string* input : {&o_.data, &o_.eval_data, &model_.path})
      for (const fs::path* path : {&paths_.adapter, &paths_.config, &paths_.checkpoint, &paths_.log, &paths_.best})
        if (fs::equivalent(*path, *input, none))
          return fail(cat("training would write over ", quote(*input, 200), ", which it reads; choose another -o"));
    if (fs::is_directory(paths_.folder, none) && !(lock_ = FolderLock::take(paths_.folder.string())))
      return fail(ErrorCode::io, cat("another training is writing into ", quote(paths_.folder.string(), 200),
                                     ": wait until it has ended, or choose another -o"));
    goes_on_ = o_.resume && fs::exists(paths_.checkpoint, none);
    if (o_.overwrite || goes_on_) return {};
    for (const fs::path* path : {&paths_.adapter, &paths_.config})
      if (o_.resume && fs::exists(*path, none))
        return fail(cat(quote(path->string(), 200),
                        " is there already, but no checkpoint to go on from: choose another -o, or replace it with "
                        "--force"));
    for (const fs::path* path : {&paths_.adapter, &paths_.config, &paths_.checkpoint, &paths_.log})
      if (!o_.resume && fs::exists(*path, none))
        return fail(cat(quote(path->string(), 200),
                        " is there already: choose another -o, go on with --resume, or replace it with --force"));
    return {};
  }

  ExampleOptions example_options() const {
    return {.format = chat_format(model_.tokenizer, model_.text->config.per_layer > 0),
            .prompts_too = o_.train_on_prompts,
            .end_texts = o_.add_eos,
            .max_length = o_.max_length};
  }

  Result<Dataset> read_examples(const std::string& path) const {
    const auto text = read_text_file(path);
    if (!text) return std::unexpected(text.error());
    return examples_from_jsonl(*text, path, model_.tokenizer, example_options());
  }

  Result<> read_data() {
    auto data = read_examples(o_.data);
    if (!data) return failed(data);
    data_ = std::move(*data);
    if (!o_.eval_data.empty()) {
      auto eval = read_examples(o_.eval_data);
      if (!eval) return failed(eval);
      eval_ = std::move(*eval);
    }
    const BatchOptions how{o_.batch_size, o_.grad_accum, o_.max_length, o_.packing, o_.shuffle, o_.seed};
    batches_.emplace(data_.examples, how);
    plan_.steps = o_.max_steps ? o_.max_steps : batches_->steps_of(o_.num_epochs);
    plan_.batch_rows = batches_->rows();
    plan_.rows = data_.rows;
    plan_.examples = data_.examples.size();
    plan_.eval_examples = eval_.examples.size();
    plan_.truncated = data_.truncated + eval_.truncated;
    plan_.without_target = data_.without_target + eval_.without_target;
    for (const Example& e : data_.examples) {
      plan_.tokens += e.tokens.size();
      plan_.targets += e.targets();
    }
    for (std::size_t most = 16; most / 2 < o_.max_length; most *= 2) plan_.lengths.emplace_back(most, 0);
    for (const Example& e : data_.examples)
      std::ranges::find_if(plan_.lengths, [&](const auto& bin) { return e.tokens.size() <= bin.first; })->second++;
    while (plan_.lengths.size() > 1 && plan_.lengths.back().second == 0) plan_.lengths.pop_back();
    for (const Example& e : eval_.examples.empty() ? data_.examples : eval_.examples)
      if (const auto prompt = e.prompt(); plan_.prompts.size() < kPrompts && prompt.size() > 1)
        plan_.prompts.emplace_back(prompt.begin(), prompt.end());
    return {};
  }

  Result<> make_adapter() {
    const TextModel& text = *model_.text;
    if (!o_.init_adapter.empty()) {
      auto loaded = api_.load_adapter(o_.init_adapter);
      if (!loaded) return failed(loaded);
      adapter_ = loaded->get();
      settings_ = settings_of(*adapter_);
      if (o_.lora_r && (o_.lora_r != settings_.rank || !settings_.rank_pattern.empty()))
        return fail(cat("--lora-r ", o_.lora_r, " does not go with --init-adapter, whose rank is ", settings_.rank,
                        "; leave it out"));
      if (o_.lora_alpha != 0 || o_.rslora || !o_.target_modules.empty())
        return fail("--lora-alpha, --rslora and --target-modules do not go with --init-adapter, which has its own");
    } else {
      LoraSetup setup;
      setup.rank = o_.lora_r ? o_.lora_r : kDefaultRank;
      setup.alpha = o_.lora_alpha != 0 ? o_.lora_alpha : 2 * static_cast<float>(setup.rank);
      setup.rslora = o_.rslora;
      setup.seed = o_.seed;
      for (const std::string& name : o_.target_modules) {
        const auto target = target_of_module(name);
        if (!target)
          return fail(cat("--target-modules: there is no ", quote(name),
                          "; known are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, "
                          "per_layer_input_gate, per_layer_projection, per_layer_model_projection, lm_head and "
                          "embed_tokens"));
        if (std::ranges::find(setup.targets, *target) == setup.targets.end()) setup.targets.push_back(*target);
      }
      auto made = rullama::make_adapter(text, setup);
      if (!made) return failed(made);
      adapter_ = std::make_shared<Adapter>(std::move(*made));
      settings_ = settings_of(*adapter_);
      settings_.alpha = setup.alpha;
      settings_.alpha_pattern.clear();
      settings_.rslora = setup.rslora;
    }
    settings_.dropout = o_.lora_dropout;
    settings_.base = text.config.name;
    for (const AdapterPair& p : adapter_->pairs)
      plan_.parameters += p.a->desc().shape.elements() + p.b->desc().shape.elements();
    return {};
  }

  Result<> make_trainer() {
    TrainOptions how;
    how.rows = plan_.batch_rows;
    how.checkpointing = o_.gradient_checkpointing;
    how.kept_layers = o_.kept_layers;
    how.precision = o_.exact ? Precision::exact : Precision::fast;
    how.dropout = o_.lora_dropout;
    how.max_grad_norm = static_cast<float>(o_.max_grad_norm);
    how.weight_decay = static_cast<float>(o_.weight_decay);
    how.seed = o_.seed;
    // evaluation goes through batches of the same size
    for (const Example& e : eval_.examples) {
      if (e.tokens.size() > how.rows) how.rows = static_cast<std::uint32_t>(e.tokens.size());
    }
    for (const Example& e : eval_.examples) {
      if (evaluation_.empty() || evaluation_.back().rows() + e.tokens.size() > how.rows) evaluation_.emplace_back();
      evaluation_.back().add(e.tokens, e.labels);
    }
    how.evaluates = !evaluation_.empty();
    auto made = Trainer::make(model_.text, adapter_, how);
    if (!made) return failed(made);
    trainer_ = std::move(*made);
    plan_.batch_rows = how.rows;
    plan_.activation_bytes = trainer_->activation_bytes();
    return {};
  }

  // What must be as it was for a training to go on; in checkpoints as their note.
  Json identity() const {
    std::uint64_t hash = kFnvBasis;  // over the examples
    for (const Example& e : data_.examples)
      for (const std::vector<Token>* ids : {&e.tokens, &e.labels})
        for (const Token t : *ids) hash = fnv1a(hash, t);
    return {{"MODEL", fingerprint(*model_.text)},
            {"--data", hash},
            {"--learning-rate", o_.learning_rate},
            {"--lr-scheduler", o_.lr_scheduler},
            {"--num-cycles", o_.num_cycles},
            {"--warmup-steps", o_.warmup_steps},
            {"--max-steps or --num-epochs", plan_.steps},
            {"--batch-size", o_.batch_size},
            {"--grad-accum", o_.grad_accum},
            {"--max-length", o_.max_length},
            {"--packing", o_.packing},
            {"--mixed-precision", !o_.exact},
            {"--no-shuffle", !o_.shuffle},
            {"--weight-decay", o_.weight_decay},
            {"--max-grad-norm", o_.max_grad_norm},
            {"--lora-r", settings_.rank},
            {"--lora-alpha", settings_.alpha},
            {"--lora-dropout", o_.lora_dropout},
            {"--rslora", settings_.rslora},
            {"--seed", o_.seed}};
  }

  Result<> resume() {
    if (!goes_on_) return {};
    auto source = open_mapped(paths_.checkpoint.string());
    if (!source) return failed(source);
    auto file = Safetensors::read(*source);
    if (!file) return failed(file);
    const std::string* note = file->metadata("note");
    const auto before = parse_json(note ? *note : std::string());
    const Json now = identity();
    if (!before || !before->is_object())
      return fail(cat(paths_.checkpoint.string(), ": no checkpoint of `rullama finetune`; remove it to begin anew"));
    for (const auto& [key, value] : now.items())
      if (const auto was = before->find(key); was == before->end() || *was != value)
        return fail(
            cat(paths_.checkpoint.string(), " was made with another ", key,
                key == "--data" || key == "MODEL" || was == before->end() ? std::string() : cat(" (", was->dump(), ")"),
                "; go on with the same, or begin anew with --force"));
    if (auto ok = trainer_->restore(*file); !ok) return ok;
    plan_.done = trainer_->steps();
    history_ = Log::read(paths_.log, plan_.done);
    for (const FinetuneStep& s : history_) {
      if (!s.eval_loss) continue;
      const bool best = !past_.best_eval_loss || *s.eval_loss < *past_.best_eval_loss;
      past_.evaluations_since = best ? 0 : past_.evaluations_since + 1;
      if (best) past_.best_eval_loss = s.eval_loss;
    }
    return {};
  }

  Result<> write_adapter_to(const fs::path& path, const Adapter& adapter) const {
    return write_file(path.string(),
                      [&](ByteSink& sink) { return write_adapter(sink, adapter, settings_, *model_.text->backend); });
  }

  // What cannot be written is known before anything is computed.
  Result<> make_folder() {
    std::error_code why;
    fs::create_directories(paths_.folder, why);
    if (why)
      return fail(ErrorCode::io,
                  cat("the folder ", quote(paths_.folder.string(), 200), " cannot be made: ", why.message()));
    if (!lock_)
      if (auto ok = check_output(); !ok) return ok;
    if (const auto probe = FileWriter::create(paths_.log.string()); !probe) return std::unexpected(probe.error());
    if (!goes_on_) fs::remove(paths_.best, why);
    return {};
  }

  // Files of which a kill left only a part: FileWriter's, named as the file and a suffix.
  void remove_remains() const {
    constexpr std::size_t kSuffix = 7;  // ".XXXXXX"
    std::error_code none;
    std::vector<fs::path> remains;
    for (const fs::directory_entry& entry : fs::directory_iterator(paths_.folder, none)) {
      const std::string name = entry.path().filename().string();
      for (const fs::path* path : {&paths_.adapter, &paths_.config, &paths_.log, &paths_.checkpoint, &paths_.best})
        if (const std::string file = path->filename().string();
            name.size() == file.size() + kSuffix && name.starts_with(file + "."))
          remains.push_back(entry.path());
    }
    for (const fs::path& path : remains) fs::remove(path, none);
  }

  Result<FinetuneResult> train() {
    remove_remains();
    Log log;
    if (auto ok = log.open(paths_.log, history_); !ok) return failed(ok);
    const std::string note = identity().dump();
    CourseHooks hooks;
    hooks.step = [&](const StepReport& r) -> Result<> {
      FinetuneStep s{r.step, r.steps, r.epoch, r.loss, r.learning_rate, r.grad_norm, r.tokens, r.seconds, r.eval_loss};
      if (auto ok = log.add(s); !ok) return ok;
      if (observer_.on_step) observer_.on_step(s);
      history_.push_back(s);
      return {};
    };
    hooks.checkpoint = [&] {
      return write_file(paths_.checkpoint.string(), [&](ByteSink& sink) { return trainer_->save(sink, note); });
    };
    if (o_.early_stopping) hooks.best = [&] { return write_adapter_to(paths_.best, *adapter_); };
    hooks.cancelled = observer_.cancelled;
    CourseOptions how;
    how.schedule = {*schedule_of(o_.lr_scheduler), o_.learning_rate, o_.warmup_steps, plan_.steps, o_.num_cycles};
    how.save_steps = o_.save_steps;
    how.eval_steps = o_.eval_steps;
    how.patience = o_.early_stopping;
    const auto end = run_course(*trainer_, *batches_, evaluation_, how, hooks, past_);
    if (end) return finish(*end);
    std::string kept = how_to_go_on();
    // all is trained, and the disk may have room for the adapter where it had none for a checkpoint
    if (end.error().code == ErrorCode::io && trainer_->steps() == plan_.steps && finish(CourseEnd::complete))
      kept = cat(" (the adapter is whole, in ", quote(paths_.adapter.string(), 200), ")");
    return fail(end.error().code, cat(end.error().message, kept));
  }

  std::string how_to_go_on() const {
    std::error_code none;
    return fs::exists(paths_.checkpoint, none)
               ? cat(" (what was trained until the last checkpoint is in ", quote(paths_.checkpoint.string(), 200), ")")
               : std::string();
  }

  Result<FinetuneResult> finish(CourseEnd end) {
    std::error_code none;
    std::shared_ptr<const Adapter> result = adapter_;
    if (o_.early_stopping && end != CourseEnd::cancelled && fs::exists(paths_.best, none)) {
      auto loaded = api_.load_adapter(paths_.best.string());
      if (!loaded) return failed(loaded);
      result = loaded->get();
    }
    if (auto ok = write_adapter_to(paths_.adapter, *result); !ok) return failed(ok);
    if (auto ok = write_text_file(paths_.config.string(), settings_to_json(settings_) + "\n"); !ok) return failed(ok);
    return FinetuneResult{static_cast<FinetuneEnd>(end),
                          LoadedAdapter(std::move(result)),
                          {paths_.adapter.string(), paths_.config.string()},
                          paths_.log.string(),
                          paths_.checkpoint.string(),
                          trainer_->steps(),
                          std::move(history_)};
  }

  const Model& api_;
  const Model::Impl& model_;
  const FinetuneOptions& o_;
  const FinetuneObserver& observer_;
  const Paths paths_;
  std::optional<FolderLock> lock_;
  bool goes_on_ = false;  // from a checkpoint
  FinetunePlan plan_;
  Dataset data_, eval_;
  std::optional<BatchPlan> batches_;
  std::vector<TrainBatch> evaluation_;
  std::shared_ptr<const Adapter> adapter_;
  AdapterSettings settings_;
  std::unique_ptr<Trainer> trainer_;
  std::vector<FinetuneStep> history_;
  CoursePast past_;
};

}  // namespace

std::string to_json(const FinetuneStep& s) {
  Json json = {{"step", s.step},        {"steps", s.steps},
               {"epoch", s.epoch},      {"loss", s.loss},
               {"lr", s.learning_rate}, {"grad_norm", s.grad_norm},
               {"tokens", s.tokens},    {"tokens_per_s", s.tokens_per_second()}};
  if (s.eval_loss) json["eval_loss"] = *s.eval_loss;
  return json.dump();
}

Result<FinetuneResult> finetune(const Model& model, const FinetuneOptions& options, const FinetuneObserver& observer) {
  return Finetuning(model, options, observer).run();
}

}  // namespace rullama
