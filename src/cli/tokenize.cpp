#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"
#include "cli/output.h"

namespace rullama::cli {

namespace {

struct TokenizeOptions {
  std::string model, text, ids;
  bool has_text = false, no_bos = false, special = false, json = false;
};

Result<> decode(const TokenizeOptions& o, const Tokenizer& tokenizer) {
  const auto ids = parse_ids(o.ids, tokenizer.size());
  if (!ids) return std::unexpected(ids.error());
  const std::string text = tokenizer.decode(*ids, o.special);
  if (o.json)
    put_json({{"text", text}});
  else
    put(cat(is_terminal(Stream::out) ? without_controls(text) : text, "\n"));
  return {};
}

Result<> encode_text(const TokenizeOptions& o, const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.encode(text, {.markup = o.special ? Markup::all : Markup::visible, .add_bos = !o.no_bos});
  if (o.json) {
    Json out = {{"ids", ids}, {"pieces", Json::array()}};
    for (const Token id : ids) out["pieces"].push_back(piece(tokenizer, id));
    put_json(out);
    return {};
  }
  std::vector<std::vector<std::string>> rows;
  for (const Token id : ids) rows.push_back({cat(id), quote(piece(tokenizer, id))});
  put_table(rows, {true, false});
  return {};
}

Result<> tokenize(const TokenizeOptions& o) {
  std::string text = o.text;
  if (!o.has_text && o.ids.empty()) {
    auto piped = piped_text();
    if (!piped) return failed(piped);
    if (!*piped) return fail("there is nothing to tokenize: give TEXT, or pipe it in");
    text = std::move(**piped);
  }
  const auto header = read_header(o.model);
  if (!header) return std::unexpected(header.error());
  return o.ids.empty() ? encode_text(o, header->tokenizer, text) : decode(o, header->tokenizer);
}

}  // namespace

void add_tokenize(CLI::App& app, Task& task) {
  auto o = std::make_shared<TokenizeOptions>();
  CLI::App* command = app.add_subcommand("tokenize", "Text to token ids and back");
  add_model_argument(command, o->model);
  CLI::Option* text =
      command->add_option("TEXT", o->text, "The text; without it what is piped in, less one newline at its end");
  command->add_flag("--no-bos", o->no_bos, "Without the token that marks the beginning");
  command->add_flag("--special", o->special, "Control tokens in TEXT count as such; with --ids: they are shown");
  command->add_option("--ids", o->ids, "Decode these ids: 1,2,3")->excludes(text);
  command->add_flag("--json", o->json, "One JSON object: ids and pieces; with --ids: text");
  command->footer(
      "Examples:\n  rullama tokenize model.gguf \"Hello world\"\n"
      "  rullama tokenize model.gguf --no-bos --json < text.txt\n  rullama tokenize model.gguf --ids 9259,1902");
  command->callback([&task, o, text] {
    o->has_text = text->count() > 0;
    task = [o] { return tokenize(*o); };
  });
}

}  // namespace rullama::cli
