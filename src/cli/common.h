// What several commands share: which model, on which device, how it samples, what it is asked.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf.h"
#include "host/native/ollama_store.h"
#include "rullama/rullama.h"
#include "runtime/chat.h"

namespace rullama::cli {

struct ModelOptions {
  std::string model, device;
  std::uint32_t threads = 0, context = 0, batch = 0;
  std::string kv_type = "f16";
  bool exact = false;
  std::vector<std::string> adapters;  // FILE or FILE:SCALE

  [[nodiscard]] SessionOptions session() const;
};
void add_model_argument(CLI::App* command, std::string& model);
// --lora FILE[:SCALE]
CLI::Option* add_lora_option(CLI::App* command, std::vector<std::string>& adapters);
// Its parts; the scale is 1 where none is given.
[[nodiscard]] Result<std::pair<std::string, float>> adapter_argument(const std::string& text);
void add_device_options(CLI::App* command, ModelOptions& options);  // MODEL, --device, --threads
void add_model_options(CLI::App* command, ModelOptions& options);   // these, --ctx-size and so on

// A file's header and vocabulary, without its weights.
struct Header {
  StoredModel stored;
  std::shared_ptr<const Gguf> file;
  Tokenizer tokenizer;
  std::optional<ChatFormat> format;  // the one that its vocabulary has the marks of
  bool chat = false;                 // it was published as a chat model
};
[[nodiscard]] Result<Header> read_header(const std::string& model);

struct LoadedModel {
  StoredModel stored;
  Model model;
  std::optional<ChatFormat> format;
  bool chat = false;
  std::vector<AdapterUse> adapters;

  // With the adapters in use.
  [[nodiscard]] Result<Session> session(const SessionOptions& options) const;
};
// Shows a progress bar on a terminal.
[[nodiscard]] Result<LoadedModel> load(const ModelOptions& options);

// Sampling settings that were given; the others come from the model.
struct SamplingOptions {
  std::optional<float> temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
  std::optional<std::uint32_t> top_k, repeat_last_n;
  std::optional<std::uint64_t> seed;

  // A random seed if none was given.
  [[nodiscard]] Sampling over(Sampling sampling) const;
};
void add_sampling_options(CLI::App* command, SamplingOptions& options);
// The model's own settings: the file's, and those that Ollama's store keeps beside it.
[[nodiscard]] Sampling model_sampling(const LoadedModel& loaded);
[[nodiscard]] std::vector<std::string> model_stops(const LoadedModel& loaded);

struct PromptOptions {
  bool raw = false, chat = false, special = false, think = false;
  std::string tokens;  // ids, "1,2,3"
  std::optional<std::string> system;
};
void add_prompt_options(CLI::App* command, PromptOptions& options);

struct Prompt {
  std::vector<Token> tokens;
  std::optional<ChatFormat> format;  // the answer's, if this is a chat
  bool opens_thought = false;
};
// True if the text becomes a chat message rather than the beginning of a text.
[[nodiscard]] bool is_chat(const PromptOptions& options, bool published_as_chat);
[[nodiscard]] Result<Prompt> text_prompt(const Tokenizer& tokenizer, std::string_view text, bool special);
[[nodiscard]] Result<Prompt> chat_prompt(const Tokenizer& tokenizer, ChatFormat format,
                                         const std::vector<Message>& messages, bool think);
[[nodiscard]] Result<ChatFormat> need_format(const std::optional<ChatFormat>& format);
// As `options` say: ids, text, or a chat with one message. Notes what does not go with the model.
[[nodiscard]] Result<Prompt> make_prompt(const LoadedModel& loaded, const PromptOptions& options,
                                         std::string_view text);

// "1,2, 3" or "1 2 3"
[[nodiscard]] Result<std::vector<Token>> parse_ids(std::string_view text, std::size_t vocabulary);

// A token for people to read: its text, or the stored form where that is not valid text.
[[nodiscard]] std::string piece(const Tokenizer& tokenizer, Token id);

// A file that a command makes.
struct OutputOptions {
  std::string path;
  bool force = false;
};
void add_output_options(CLI::App* command, OutputOptions& options, const std::string& what);
// An error if it exists, unless `force`; always if it is one of the `inputs`.
[[nodiscard]] Result<> check_output(const OutputOptions& options, const std::vector<std::string>& inputs);

// What was piped or redirected to the program, if anything was.
[[nodiscard]] Result<std::optional<std::string>> piped_text();

}  // namespace rullama::cli
