#include "base/text.h"
#include "formats/gguf.h"
#include "formats/tokenizer.h"

namespace rullama {
namespace {

Result<StringTable> read_strings(const Gguf& file, std::string_view key) {
  auto texts = file.get_strings(key);
  if (!texts) return failed(texts);
  std::size_t bytes = 0;
  for (const std::string_view text : *texts) bytes += text.size();
  StringTable table;
  table.reserve(texts->size(), bytes);
  for (const std::string_view text : *texts) table.add(text);
  return table;
}

Result<std::vector<TokenType>> read_types(const Gguf& file, std::string_view key) {
  auto numbers = file.get_numbers(key);
  if (!numbers) return failed(numbers);
  std::vector<TokenType> types;
  types.reserve(numbers->size());
  for (const double n : *numbers) {
    const bool known = n >= 0 && n <= static_cast<double>(TokenType::byte) && n == static_cast<int>(n);
    if (!known) return fail(cat(key, " entry ", types.size(), " is ", n, "; a token type is 0 to 6"));
    types.push_back(static_cast<TokenType>(static_cast<int>(n)));
  }
  return types;
}

Result<std::vector<Token>> read_ids(const Gguf& file, std::string_view key) {
  std::vector<Token> ids;
  if (!file.find(key)) return ids;
  auto numbers = file.get_numbers(key);
  if (!numbers) return failed(numbers);
  for (const double n : *numbers) {
    if (!(n >= 0 && n < static_cast<double>(no_token)))
      return fail(cat(key, " entry ", ids.size(), " is ", n, ", which is no token id"));
    ids.push_back(static_cast<Token>(n));
  }
  return ids;
}

Result<std::optional<Token>> read_id(const Gguf& file, std::string_view key) {
  if (!file.find(key)) return std::nullopt;
  auto id = file.get_u64(key);
  if (!id) return failed(id);
  if (*id >= no_token) return fail(cat(key, " is ", *id, ", which is no token id"));
  return static_cast<Token>(*id);
}

}  // namespace

Result<Vocabulary> read_vocabulary(const Gguf& file) {
  auto model = file.get_string("tokenizer.ggml.model");
  if (!model) return failed(model);
  if (*model != "llama" && *model != "gemma4")
    return fail(ErrorCode::unsupported, cat("tokenizer.ggml.model is ", quote(*model),
                                            "; only the tokenizers of Gemma, 'llama' and 'gemma4', are known"));
  Vocabulary v;
  auto tokens = read_strings(file, "tokenizer.ggml.tokens");
  if (!tokens) return failed(tokens);
  v.tokens = std::move(*tokens);
  auto types = read_types(file, "tokenizer.ggml.token_type");
  if (!types) return failed(types);
  v.types = std::move(*types);

  if (file.find("tokenizer.ggml.scores")) {
    auto scores = file.get_numbers("tokenizer.ggml.scores");
    if (!scores) return failed(scores);
    v.scores.assign(scores->begin(), scores->end());
  }
  if (file.find("tokenizer.ggml.merges")) {
    auto merges = read_strings(file, "tokenizer.ggml.merges");
    if (!merges) return failed(merges);
    v.merges = std::move(*merges);
  }

  const struct {
    std::string_view key;
    std::optional<Token>& id;
  } special[] = {{"tokenizer.ggml.bos_token_id", v.bos},
                 {"tokenizer.ggml.eos_token_id", v.eos},
                 {"tokenizer.ggml.unknown_token_id", v.unknown},
                 {"tokenizer.ggml.padding_token_id", v.padding}};
  for (const auto& [key, id] : special) {
    auto found = read_id(file, key);
    if (!found) return failed(found);
    id = *found;
  }
  auto ends = read_ids(file, "tokenizer.ggml.eos_token_ids");
  if (!ends) return failed(ends);
  v.end_of_generation = std::move(*ends);
  auto end_of_turn = read_id(file, "tokenizer.ggml.eot_token_id");
  if (!end_of_turn) return failed(end_of_turn);
  if (*end_of_turn) v.end_of_generation.push_back(**end_of_turn);
  auto suppressed = read_ids(file, "tokenizer.ggml.suppress_tokens");
  if (!suppressed) return failed(suppressed);
  v.suppressed = std::move(*suppressed);
  return v;
}

}  // namespace rullama
