#include "cli/run.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/answer_view.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "host/native/file_writer.h"

namespace rullama::cli {

namespace {

// A model without an end-of-turn token to look for writes on and on.
constexpr std::uint32_t kContinuationTokens = 256;

Result<std::string> question(const RunOptions& o) {
  std::string text = o.text;
  if (!o.prompt.tokens.empty()) {
    if (o.has_text) return fail("PROMPT and --tokens exclude each other");
    return text;
  }
  auto piped = piped_text();
  if (!piped) return failed(piped);
  if (*piped && !(*piped)->empty()) text += (text.empty() ? "" : "\n\n") + **piped;
  if (text.empty() && !o.has_text) return fail("there is no prompt: give PROMPT, or pipe one in");
  return text;
}

// A new one can be written there: else that would show only when a prompt was evaluated, or a chat over.
Result<> check_prompt_cache(const std::string& path) {
  std::error_code failed_to_look;
  if (path.empty() || std::filesystem::exists(path, failed_to_look)) return {};
  auto file = FileWriter::create(path);
  return file ? Result<>() : failed(file);
}

// Brings a kept prompt back, evaluates what is new of it and keeps the result. Returns what that took.
Result<Timings> use_prompt_cache(const std::string& path, std::span<const Token> prompt, Session& session,
                                 const std::function<bool()>& cancelled) {
  std::error_code failed_to_look;
  if (std::filesystem::exists(path, failed_to_look))
    if (auto ok = session.restore(path); !ok) return failed(ok);
  if (std::ranges::equal(session.tokens(), prompt)) return {};
  GenerateOptions how{.max_tokens = 0, .cancelled = cancelled};
  how.sampling.top_k = 0;  // all logits, so that the file has what any choice is made from
  const auto evaluated = session.generate(prompt, how);
  if (!evaluated) return std::unexpected(evaluated.error());
  if (evaluated->finish == FinishReason::cancelled) return evaluated->timings;
  if (auto ok = session.save(path); !ok) return failed(ok);
  return evaluated->timings;
}

Json to_json(const Generation& g, const Answer& answer, const LoadedModel& loaded, const Sampling& sampling) {
  Json out = {{"text", answer.content}};
  if (!answer.thinking.empty()) out["thinking"] = answer.thinking;
  out["tokens"] = g.tokens;
  out["prompt_tokens"] = g.prompt_tokens;
  out["finish_reason"] = name(g.finish);
  out["seed"] = sampling.seed;
  out["timings"] = {{"load_s", loaded.model.info().load_seconds},
                    {"prompt_s", g.timings.prompt_seconds},
                    {"prompt_tps", g.timings.prompt_tps()},
                    {"decode_s", g.timings.decode_seconds},
                    {"decode_tps", g.timings.decode_tps()}};
  return out;
}

void note_model(const RunOptions& o, const LoadedModel& loaded) {
  const ModelInfo& info = loaded.model.info();
  if (o.verbose)
    note(cat(loaded.stored.name, " (", info.architecture, ", ", info.layers, " layers, ",
             bytes_text(static_cast<double>(info.weight_bytes)), ") on ", info.device, ", loaded in ",
             fixed(info.load_seconds, 2), " s"));
  if (!loaded.chat && !o.prompt.chat && !o.prompt.raw && o.prompt.tokens.empty())
    note(cat("this file is no chat model: it continues the text",
             o.predict < 0 ? cat(" (", kContinuationTokens, " tokens at most; -n sets another limit)") : ""));
  const bool chats = is_chat(o.prompt, loaded.chat);
  if (!chats && o.prompt.system) note("--system goes with a chat only and is ignored");
  if (o.prompt.think && (!chats || loaded.format == ChatFormat::gemma3))
    note("this model has no thinking mode: --think is ignored");
}

Result<> answer_once(const RunOptions& o, const LoadedModel& loaded, Session& session, const std::string& text) {
  const auto prompt = make_prompt(loaded, o.prompt, text);
  if (!prompt) return std::unexpected(prompt.error());
  const InterruptScope interrupt;
  const auto cancelled = [&interrupt] { return interrupt.interrupted(); };
  const auto kept =
      o.prompt_cache.empty() ? Result<Timings>() : use_prompt_cache(o.prompt_cache, prompt->tokens, session, cancelled);
  if (!kept) return std::unexpected(kept.error());

  GenerateOptions how = generate_options(o, loaded);
  how.show_special = prompt->format && *prompt->format != ChatFormat::gemma3;  // thoughts lie between control tokens
  AnswerView view(*prompt, o.json);
  how.on_text = [&view](std::string_view piece) {
    view.push(piece);
    return true;
  };
  how.cancelled = cancelled;
  auto generation = session.generate(prompt->tokens, how);
  if (!generation) return failed(generation);
  generation->timings.prompt_seconds += kept->prompt_seconds;
  generation->timings.prompt_tokens += kept->prompt_tokens;
  view.finish();
  if (o.json) put_json(to_json(*generation, view.answer(), loaded, how.sampling));
  note_end(*generation, session, how);
  if (o.verbose) note_timings(*generation, how.sampling);
  if (generation->finish == FinishReason::cancelled) return fail(ErrorCode::cancelled, "");
  return {};
}

Result<> run(const RunOptions& o) {
  const bool talk = is_terminal(Stream::in) && !o.has_text && o.prompt.tokens.empty() && !o.json;
  std::string text;
  if (!talk) {  // before the model is loaded: a mistake shows at once
    auto asked = question(o);
    if (!asked) return failed(asked);
    text = std::move(*asked);
  }
  if (auto ok = check_prompt_cache(o.prompt_cache); !ok) return ok;
  const auto loaded = load(o.model);
  if (!loaded) return std::unexpected(loaded.error());
  auto session = loaded->session(o.model.session());
  if (!session) return failed(session);
  note_model(o, *loaded);
  return talk ? chat(o, *loaded, *session) : answer_once(o, *loaded, *session, text);
}

}  // namespace

GenerateOptions generate_options(const RunOptions& o, const LoadedModel& loaded) {
  GenerateOptions how;
  how.sampling = o.sampling.over(model_sampling(loaded));
  if (o.predict >= 0)
    how.max_tokens = static_cast<std::uint32_t>(std::min<std::int64_t>(o.predict, UINT32_MAX));
  else if (!loaded.chat && !o.prompt.chat)
    how.max_tokens = kContinuationTokens;
  how.stop = o.stops;
  if (is_chat(o.prompt, loaded.chat))
    for (std::string& stop : model_stops(loaded)) how.stop.push_back(std::move(stop));
  how.ignore_eos = o.ignore_eos;
  how.slide = o.slide;
  return how;
}

void note_timings(const Generation& g, const Sampling& sampling) {
  const Timings& t = g.timings;
  note(cat("prompt ", g.prompt_tokens, " tokens (", t.prompt_tokens, " evaluated) in ", fixed(t.prompt_seconds, 2),
           " s, ", fixed(t.prompt_tps(), 1), " tok/s; answer ", g.tokens.size(), " tokens in ",
           fixed(t.decode_seconds, 2), " s, ", fixed(t.decode_tps(), 1), " tok/s; seed ", sampling.seed));
}

void note_end(const Generation& g, const Session& session, const GenerateOptions& how) {
  if (g.finish == FinishReason::context)
    note(cat("the answer ends here because the context of ", session.context(),
             " positions is full; -c gives more, --slide drops the oldest half and goes on"));
  else if (g.finish == FinishReason::length && how.max_tokens > 0 && is_terminal(Stream::err) &&
           is_terminal(Stream::out))
    note(cat("the answer was cut at ", how.max_tokens, " tokens"));
}

void add_run(CLI::App& app, Task& task) {
  auto o = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Chat with a model, or get one answer");
  add_model_options(command, o->model);
  CLI::Option* text = command->add_option("PROMPT", o->text, "What to answer or continue; without it a chat begins");
  add_prompt_options(command, o->prompt);
  command->add_option("-n,--predict", o->predict, "Most tokens of an answer; -1: until it ends by itself");
  add_sampling_options(command, o->sampling);
  command->add_option("--stop", o->stops, "Text at which the answer ends (may be given several times)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  command->add_flag("--ignore-eos", o->ignore_eos, "Go on after the model has ended its turn (for measurements)");
  command->add_flag("--slide", o->slide, "When the context is full, drop its oldest part and go on");
  command->add_option("--prompt-cache", o->prompt_cache, "File that keeps the evaluated prompt for the next run")
      ->check([](const std::string& path) { return path.empty() ? "needs the name of a file" : ""; }, "");
  command->add_flag("-v,--verbose", o->verbose, "Load time, tokens per second and seed on stderr");
  command->add_flag("--json", o->json,
                    "One JSON object: text, thinking, tokens, prompt_tokens, finish_reason, seed, timings");
  command->footer(
      "Examples:\n"
      "  rullama run gemma3:270m \"Why is the sky blue?\"\n"
      "  rullama run model.gguf                                   (a chat; /help lists its commands)\n"
      "  rullama run model.gguf \"Sum this up:\" < letter.txt       (what is piped in comes after PROMPT)\n"
      "  rullama run model.gguf --raw --temp 0 -n 32 --json \"The capital of France is\"");
  command->callback([&task, o, text] {
    o->has_text = text->count() > 0;
    if (o->json && !o->has_text && o->prompt.tokens.empty() && is_terminal(Stream::in))
      throw CLI::ValidationError("--json", "needs PROMPT or --tokens");
    task = [o] { return run(*o); };
  });
}

}  // namespace rullama::cli
