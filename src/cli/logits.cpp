#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"
#include "cli/distribution.h"
#include "cli/output.h"
#include "host/native/file_writer.h"

namespace rullama::cli {

namespace {

struct LogitsOptions {
  ModelOptions model;
  PromptOptions prompt;
  std::string text, dump;
  std::uint32_t top = 10;
  bool all = false, json = false;
};

// Takes the rows of logits one after the other: to the dump, and the best tokens of each to the result.
class Rows {
 public:
  Rows(const LogitsOptions& options, const Tokenizer& tokenizer) : o_(options), tokenizer_(tokenizer) {}

  Result<> begin() {
    if (o_.dump.empty()) return {};
    auto file = FileWriter::create(o_.dump);
    if (!file) return failed(file);
    dump_.emplace(std::move(*file));
    return {};
  }

  Result<> take(std::size_t position, std::span<const float> logits) {
    const double total = log_sum_exp(logits);
    Json top = Json::array();
    for (const Token id : best(logits, o_.top))
      top.push_back({{"id", id}, {"piece", piece(tokenizer_, id)}, {"logprob", logits[id] - total}});
    positions_.push_back({{"pos", position}, {"top", std::move(top)}});
    return dump_ ? dump_->write(std::as_bytes(logits)) : Result<>();
  }

  Result<> end() { return dump_ ? dump_->commit() : Result<>(); }
  [[nodiscard]] const Json& positions() const { return positions_; }

 private:
  const LogitsOptions& o_;
  const Tokenizer& tokenizer_;
  std::optional<FileWriter> dump_;
  Json positions_ = Json::array();
};

Result<> evaluate(Session& session, std::span<const Token> tokens, bool all, Rows& rows) {
  if (!all) {
    if (auto ok = session.append(tokens); !ok) return ok;
    const auto logits = session.logits();
    if (!logits) return std::unexpected(logits.error());
    return rows.take(tokens.size() - 1, *logits);
  }
  Result<> taken;
  auto done = session.append(tokens, [&](std::uint32_t position, std::span<const float> logits) {
    taken = rows.take(position, logits);
    return taken.has_value();
  });
  return taken ? done : taken;
}

void print(const Json& positions) {
  for (const Json& position : positions) {
    put(cat("after position ", position["pos"].get<std::size_t>(), "\n"));
    std::vector<std::vector<std::string>> table;
    for (const Json& t : position["top"]) {
      const double logprob = t["logprob"].get<double>();
      table.push_back({cat(t["id"].get<Token>()), fixed(100 * std::exp(logprob), 2) + " %", fixed(logprob, 4),
                       quote(t["piece"].get<std::string>())});
    }
    put_table(table, {true, true, true, false});
  }
}

Result<> logits(const LogitsOptions& o) {
  const auto loaded = load(o.model);
  if (!loaded) return std::unexpected(loaded.error());
  const auto prompt = make_prompt(*loaded, o.prompt, o.text);
  if (!prompt) return std::unexpected(prompt.error());
  SessionOptions how = o.model.session();
  if (!how.context) how.context = std::max<std::uint32_t>(static_cast<std::uint32_t>(prompt->tokens.size()), 16);
  auto session = loaded->session(how);
  if (!session) return failed(session);
  Rows rows(o, loaded->model.tokenizer());
  if (auto ok = rows.begin(); !ok) return ok;
  if (auto ok = evaluate(*session, prompt->tokens, o.all, rows); !ok) return ok;
  if (auto ok = rows.end(); !ok) return ok;
  if (o.json)
    put_json({{"tokens", prompt->tokens}, {"positions", rows.positions()}});
  else
    print(rows.positions());
  return {};
}

}  // namespace

void add_logits(CLI::App& app, Task& task) {
  auto o = std::make_shared<LogitsOptions>();
  CLI::App* command = app.add_subcommand("logits", "What a model expects to come next");
  add_model_options(command, o->model);
  CLI::Option* text = command->add_option("PROMPT", o->text, "The text");
  add_prompt_options(command, o->prompt);
  command->add_option("--top", o->top, "How many of the most likely tokens to show")->capture_default_str();
  command->add_flag("--all", o->all, "After every token of the prompt, not only after its last");
  command->add_option("--dump", o->dump, "File for the raw logits: little-endian f32 [positions, vocabulary]");
  command->add_flag("--json", o->json, "One JSON object: tokens, positions (pos, top (id, piece, logprob))");
  command->footer(
      "Examples:\n  rullama logits model.gguf --raw \"The capital of France is\" --top 5\n"
      "  rullama logits model.gguf --tokens 2,818,5279 --all --dump logits.f32 --exact --json");
  command->callback([&task, o, text] {
    if (text->count() == 0 && o->prompt.tokens.empty()) throw CLI::RequiredError("PROMPT or --tokens");
    if (text->count() > 0 && !o->prompt.tokens.empty())
      throw CLI::ValidationError("--tokens", "and PROMPT exclude each other");
    task = [o] { return logits(*o); };
  });
}

}  // namespace rullama::cli
