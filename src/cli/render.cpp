#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"
#include "cli/output.h"
#include "host/native/mapped_file.h"
#include "runtime/chat_json.h"

namespace rullama::cli {

namespace {

struct RenderCommand {
  std::string model, file, tools;
  bool think = false, keep_thinking = false, no_generation_prompt = false, json = false;
};

Result<> render_file(const RenderCommand& o) {
  const auto text = read_text_file(o.file);
  if (!text) return std::unexpected(text.error());
  auto conversation = conversation_from_json(*text);
  if (!conversation) {
    conversation.error().message = cat(o.file, ": ", conversation.error().message);
    return failed(conversation);
  }
  const auto header = read_header(o.model);
  if (!header) return std::unexpected(header.error());
  const auto format = need_format(header->format);
  if (!format) return std::unexpected(format.error());
  RenderOptions how{.format = *format,
                    .think = o.think,
                    .keep_thinking = o.keep_thinking,
                    .add_generation_prompt = !o.no_generation_prompt,
                    .tools = std::move(conversation->tools)};
  if (!o.tools.empty()) {
    const auto tools_text = read_text_file(o.tools);
    if (!tools_text) return std::unexpected(tools_text.error());
    auto tools = tools_from_json(*tools_text);
    if (!tools) {
      tools.error().message = cat(o.tools, ": ", tools.error().message);
      return failed(tools);
    }
    how.tools = std::move(*tools);
  }
  const auto rendered = render(conversation->messages, how);
  if (!rendered) return std::unexpected(rendered.error());
  if (!o.json) {
    put(is_terminal(Stream::out) ? without_controls(rendered->text()) + "\n" : rendered->text());
    return {};
  }
  const auto tokens = encode(header->tokenizer, *rendered);
  if (!tokens) return std::unexpected(tokens.error());
  put_json({{"text", rendered->text()}, {"tokens", *tokens}, {"opens_thought", rendered->opens_thought}});
  return {};
}

}  // namespace

void add_render(CLI::App& app, Task& task) {
  auto options = std::make_shared<RenderCommand>();
  CLI::App* command = app.add_subcommand("render", "The prompt that a list of messages becomes");
  add_model_argument(command, options->model);
  command
      ->add_option("FILE", options->file,
                   "JSON: a list of messages, or an object with messages and tools; -: standard input")
      ->required();
  command->add_flag("--think", options->think, "With thinking on (Gemma 4)");
  command->add_flag("--keep-thinking", options->keep_thinking,
                    "Also the thoughts of earlier answers that called tools");
  command->add_flag("--no-generation-prompt", options->no_generation_prompt,
                    "Without the beginning of the model's next turn");
  command->add_option("--tools", options->tools, "JSON: a list of tools that the model may call");
  command->add_flag("--json", options->json, "One JSON object: text, tokens, opens_thought");
  command->footer(
      "Examples:\n"
      "  echo '[{\"role\": \"user\", \"content\": \"Hello\"}]' | rullama render model.gguf -\n"
      "  rullama render model.gguf messages.json --tools tools.json --think --json");
  run_with(command, task, options, render_file);
}

}  // namespace rullama::cli
