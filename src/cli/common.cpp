#include "cli/common.h"

#include <sys/stat.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <random>

#include "api/impl.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "cli/output.h"
#include "host/native/mapped_file.h"
#include "runtime/load.h"

namespace rullama::cli {

namespace {

std::optional<ChatFormat> format_of(const Tokenizer& tokenizer, const Gguf& file) {
  const auto architecture = file.get_string("general.architecture");
  if (!architecture) return std::nullopt;
  const auto width = file.get_u64(cat(*architecture, ".embedding_length_per_layer_input"));
  return chat_format(tokenizer, width && *width > 0);
}

// A file that was not imported from HuggingFace may have its template in the store only.
bool published_as_chat(const Gguf& file, const StoredModel& stored) {
  return stored.has_template || file.find("tokenizer.chat_template") != nullptr;
}

Json stored_parameters(const StoredModel& stored) {
  auto parsed = parse_json(stored.parameters);
  return parsed && parsed->is_object() ? std::move(*parsed) : Json::object();
}

template <class T>
void take(const Json& from, const char* key, T& to) {
  if (const auto found = from.find(key); found != from.end() && found->is_number()) to = found->get<T>();
}

}  // namespace

SessionOptions ModelOptions::session() const {
  return {.context = context, .batch = batch, .kv_type = kv_type == "f32" ? KvType::f32 : KvType::f16, .exact = exact};
}

void add_model_argument(CLI::App* command, std::string& model) {
  command->add_option("MODEL", model, "GGUF file, or a name in Ollama's store (gemma3:270m)")->required();
}

// A file whose name ends like a scale goes before it.
Result<std::pair<std::string, float>> adapter_argument(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  struct stat about{};
  if (colon == std::string::npos || stat(text.c_str(), &about) == 0) return std::pair{text, 1.0f};
  const std::string file = text.substr(0, colon), scale = text.substr(colon + 1);
  char* end = nullptr;
  const float strength = std::strtof(scale.c_str(), &end);
  if (!scale.empty() && *end == 0 && std::isfinite(strength)) return std::pair{file, strength};
  if (stat(file.c_str(), &about) != 0) return std::pair{text, 1.0f};
  return fail(
      cat("--lora ", quote(text, 200), ": ", quote(scale), " is no scale; a number is expected after the colon"));
}

CLI::Option* add_lora_option(CLI::App* command, std::vector<std::string>& adapters) {
  return command
      ->add_option("--lora", adapters,
                   "Adapter to use, FILE or FILE:SCALE (PEFT's folder, safetensors or GGUF); may be repeated")
      ->allow_extra_args(false)
      ->type_name("FILE[:SCALE]");
}

void add_device_options(CLI::App* command, ModelOptions& o) {
  add_model_argument(command, o.model);
  command->add_option("--device", o.device,
                      "cpu, gpu, an index or a part of a name of `rullama devices`; default: the best");
  command->add_option("--threads", o.threads, "Threads of the CPU device; 0: all cores")->check(CLI::Range(0, 1024));
}

void add_model_options(CLI::App* command, ModelOptions& o) {
  add_device_options(command, o);
  command->add_option("-c,--ctx-size", o.context, "Positions of the context; 0: the model's, at most 4096");
  command
      ->add_option("-b,--batch", o.batch,
                   "Tokens of a prompt that are processed at a time; 0: 1024 on a discrete GPU, else 512")
      ->check(CLI::Range(0, 65536));
  command->add_option("--kv-type", o.kv_type, "Keys and values in f16 or f32")
      ->check(CLI::IsMember({"f16", "f32"}))
      ->capture_default_str();
  add_lora_option(command, o.adapters);
  command->add_flag("--exact", o.exact, "f32 all the way, instead of the device's fast kernels");
}

Result<Header> read_header(const std::string& model) {
  auto stored = find_model(model);
  if (!stored) return failed(stored);
  auto source = open_mapped(stored->path);
  if (!source) return failed(source);
  auto file = Gguf::read(*source);
  if (!file) return failed(file);
  auto tokenizer = read_tokenizer(*file);
  if (!tokenizer) return failed(tokenizer);
  const auto format = format_of(*tokenizer, *file);
  const bool chat = format && published_as_chat(*file, *stored);
  return Header{std::move(*stored), std::make_shared<const Gguf>(std::move(*file)), std::move(*tokenizer), format,
                chat};
}

Result<LoadedModel> load(const ModelOptions& options) {
  auto stored = find_model(options.model);
  if (!stored) return failed(stored);
  ProgressBar bar(cat("Loading ", stored->name));
  LoadOptions how{.device = options.device, .threads = options.threads};
  how.progress = [&bar](std::uint64_t done, std::uint64_t total) {
    bar.show(done, total);
    return true;
  };
  auto model = Model::load(stored->path, how);
  if (!model) return failed(model);
  const Gguf& file = *model->impl().file;
  const auto format = format_of(model->tokenizer(), file);
  const bool chat = format && published_as_chat(file, *stored);
  std::vector<AdapterUse> adapters;
  for (const std::string& text : options.adapters) {
    const auto use = adapter_argument(text);
    if (!use) return std::unexpected(use.error());
    auto adapter = model->load_adapter(use->first);
    if (!adapter) return failed(adapter);
    adapters.push_back({std::move(*adapter), use->second});
  }
  return LoadedModel{std::move(*stored), std::move(*model), format, chat, std::move(adapters)};
}

Result<Session> LoadedModel::session(const SessionOptions& options) const {
  auto made = model.session(options);
  if (made) made->set_adapters(adapters);
  return made;
}

Sampling SamplingOptions::over(Sampling s) const {
  s.temperature = temperature.value_or(s.temperature);
  s.top_k = top_k.value_or(s.top_k);
  s.top_p = top_p.value_or(s.top_p);
  s.min_p = min_p.value_or(s.min_p);
  s.repeat_penalty = repeat_penalty.value_or(s.repeat_penalty);
  s.presence_penalty = presence_penalty.value_or(s.presence_penalty);
  s.frequency_penalty = frequency_penalty.value_or(s.frequency_penalty);
  s.repeat_last_n = repeat_last_n.value_or(s.repeat_last_n);
  s.seed = seed ? *seed : std::random_device()();
  return s;
}

void add_sampling_options(CLI::App* command, SamplingOptions& o) {
  command->add_option("--temp", o.temperature, "Temperature; 0: always the most likely token");
  command->add_option("--top-k", o.top_k, "Only the K most likely tokens; 0: all");
  command->add_option("--top-p", o.top_p, "Only the most likely tokens that together have this probability");
  command->add_option("--min-p", o.min_p, "Only tokens with at least this share of the best one's probability");
  command->add_option("--repeat-penalty", o.repeat_penalty, "Divides the chances of recent tokens; 1: off");
  command->add_option("--presence-penalty", o.presence_penalty, "Subtracted for tokens that came up recently");
  command->add_option("--frequency-penalty", o.frequency_penalty,
                      "Subtracted for each time that a token came up recently");
  command->add_option("--repeat-last-n", o.repeat_last_n, "How many tokens count as recent");
  command->add_option("--seed", o.seed, "The same seed gives the same answer; default: a random one");
}

Sampling model_sampling(const LoadedModel& loaded) {
  Sampling s = loaded.model.default_sampling();
  const Json stored = stored_parameters(loaded.stored);
  take(stored, "temperature", s.temperature);
  take(stored, "top_k", s.top_k);
  take(stored, "top_p", s.top_p);
  take(stored, "min_p", s.min_p);
  take(stored, "repeat_penalty", s.repeat_penalty);
  return s;
}

std::vector<std::string> model_stops(const LoadedModel& loaded) {
  std::vector<std::string> stops;
  const Json stored = stored_parameters(loaded.stored);
  if (const auto stop = stored.find("stop"); stop != stored.end() && stop->is_array())
    for (const Json& text : *stop)
      if (text.is_string()) stops.push_back(text.get<std::string>());
  return stops;
}

void add_prompt_options(CLI::App* command, PromptOptions& o) {
  command->add_option("-s,--system", o.system, "System prompt of the chat");
  command->add_flag("--think", o.think, "Let the model think before it answers (Gemma 4)");
  command->add_flag("--raw", o.raw, "No chat: continue the text as it is");
  command->add_flag("--chat", o.chat, "Chat, even if the file has no chat template")->excludes("--raw");
  command->add_flag("--special", o.special, "With --raw: control tokens in the text count as such");
  command->add_option("--tokens", o.tokens, "The prompt as token ids: 2,818,5279 (nothing is added to them)");
}

bool is_chat(const PromptOptions& options, bool published) {
  return options.tokens.empty() && !options.raw && (options.chat || published);
}

Result<ChatFormat> need_format(const std::optional<ChatFormat>& format) {
  if (format) return *format;
  return fail(
      ErrorCode::unsupported,
      "this file's vocabulary has no <start_of_turn> or <|turn> token, so it cannot chat; --raw continues a text");
}

Result<Prompt> text_prompt(const Tokenizer& tokenizer, std::string_view text, bool special) {
  return Prompt{
      tokenizer.encode(text, {.markup = special ? Markup::all : Markup::visible, .add_bos = true}), {}, false};
}

Result<Prompt> chat_prompt(const Tokenizer& tokenizer, ChatFormat format, const std::vector<Message>& messages,
                           bool think) {
  const auto rendered = render(messages, {.format = format, .think = think});
  if (!rendered) return std::unexpected(rendered.error());
  auto tokens = encode(tokenizer, *rendered);
  if (!tokens) return failed(tokens);
  return Prompt{std::move(*tokens), format, rendered->opens_thought};
}

Result<Prompt> make_prompt(const LoadedModel& loaded, const PromptOptions& options, std::string_view text) {
  const Tokenizer& tokenizer = loaded.model.tokenizer();
  if (!options.tokens.empty()) {
    auto ids = parse_ids(options.tokens, tokenizer.size());
    if (!ids) return failed(ids);
    return Prompt{std::move(*ids), {}, false};
  }
  if (!is_chat(options, loaded.chat)) return text_prompt(tokenizer, text, options.special);
  const auto format = need_format(loaded.format);
  if (!format) return std::unexpected(format.error());
  std::vector<Message> messages;
  const std::string system = options.system.value_or(loaded.stored.system);
  if (!system.empty()) messages.push_back(Message::text(Role::system, system));
  messages.push_back(Message::text(Role::user, std::string(text)));
  return chat_prompt(tokenizer, *format, messages, options.think);
}

Result<std::vector<Token>> parse_ids(std::string_view text, std::size_t vocabulary) {
  std::vector<Token> ids;
  const char *at = text.data(), *const end = at + text.size();
  const auto separator = [](char c) { return c == ',' || c == ' ' || c == '\t' || c == '\n' || c == '[' || c == ']'; };
  for (;;) {
    while (at != end && separator(*at)) at++;
    if (at == end) break;
    const char* word_end = std::find_if(at, end, separator);
    Token id = 0;
    const auto [stop, error] = std::from_chars(at, word_end, id);
    if (error != std::errc() || stop != word_end)
      return fail(cat(quote({at, word_end}), " is not a token id; ids are numbers with commas between them"));
    if (id >= vocabulary) return fail(cat("token id ", id, " is not in the vocabulary of ", vocabulary, " tokens"));
    ids.push_back(id);
    at = word_end;
  }
  if (ids.empty()) return fail("there are no token ids in the list");
  return ids;
}

std::string piece(const Tokenizer& tokenizer, Token id) {
  const std::string bytes = tokenizer.bytes(id, true);
  return utf8::valid(bytes) && !bytes.empty() ? bytes : utf8::repair(tokenizer.text(id));
}

Result<std::optional<std::string>> piped_text() {
  struct stat in{};
  if (fstat(0, &in) != 0 || !(S_ISFIFO(in.st_mode) || S_ISREG(in.st_mode) || S_ISSOCK(in.st_mode))) return std::nullopt;
  auto text = read_text_file("-");
  if (!text) return failed(text);
  if (text->ends_with('\n')) text->pop_back();
  if (text->ends_with('\r')) text->pop_back();
  return *text;
}

void add_output_options(CLI::App* command, OutputOptions& o, const std::string& what) {
  command->add_option("-o,--output", o.path, what)->required();
  command->add_flag("--force", o.force, "Replace the file if it exists");
}

Result<> check_output(const OutputOptions& o, const std::vector<std::string>& inputs) {
  std::error_code none;
  for (const std::string& input : inputs)
    if (std::filesystem::equivalent(o.path, input, none))
      return fail(
          cat(quote(o.path, 200), " is what is read here, ", quote(input, 200), "; give the new file another name"));
  if (!o.force && std::filesystem::is_regular_file(o.path, none))
    return fail(cat(quote(o.path, 200), " exists; --force replaces it"));
  return {};
}

}  // namespace rullama::cli
