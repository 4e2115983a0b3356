// Text to token ids and back, for the vocabularies of Gemma 3 and 4.
//
// Encoding: tokens that are markers are cut out of the text first, longest first. In the rest each space becomes
// U+2581 (nothing is stripped or put in front), and neighbouring pieces are joined: the pair with the lowest merge
// rank first, or, in a file without merges, the pair whose union is the token with the highest score; the leftmost
// of equals. There is no word splitting. A character that is no token becomes its bytes as <0xHH> tokens, so any
// byte string can be encoded. 1 MB of the same letter takes as long as 1 MB of prose (n log n).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tokenizer_tables.h"
#include "rullama/result.h"

namespace rullama {

// Numbers as in tokenizer.ggml.token_type.
enum class TokenType : std::uint8_t { undefined, normal, unknown, control, user_defined, unused, byte };

// What a file says about its tokens, not yet checked.
struct Vocabulary {
  StringTable tokens;
  std::vector<float> scores;     // one per token; may be empty if there are merges
  std::vector<TokenType> types;  // one per token
  StringTable merges;            // "left right", best first; empty: the scores decide
  std::optional<Token> bos, eos, unknown, padding;
  std::vector<Token> end_of_generation;  // end tokens that the file names besides eos
  std::vector<Token> suppressed;         // never to be generated
};

class Gguf;

// Reads tokenizer.ggml.*: tokens, token_type, scores, merges, the ids of special tokens, eos_token_ids and
// suppress_tokens. Both spellings of Gemma 4's tokenizer are understood: tokenizer.ggml.model = gemma4 (llama.cpp), or
// llama with pre = gemma4 (Ollama). Merges decide where there are any, else the scores. tokenizer.ggml.add_bos_token
// and add_space_prefix are not asked: Gemma always wants one <bos> and never a leading space.
// An error names the key and what is wrong with it. What Tokenizer::create checks is left to it.
[[nodiscard]] Result<Vocabulary> read_vocabulary(const Gguf& file);

// Which markers a text may contain as tokens. "Markers" are the control tokens and the user-defined ones.
enum class Markup : std::uint8_t {
  none,     // text typed by people: user-defined tokens count (runs of newlines, HTML tags), but not those that
            // mark up a chat (<|tool_call>, <channel|>, <|"|>, <start_of_image>, ...)
  visible,  // all user-defined tokens, no control tokens: what llama.cpp does with special tokens as text
  all,      // control tokens too: a prompt that was rendered by a template
};

struct EncodeOptions {
  Markup markup = Markup::visible;
  bool add_bos = false;  // puts the vocabulary's <bos> in front, unless the text itself begins with it
};

class Tokenizer {
 public:
  // Errors name the metadata key that is wrong and the entry in it.
  [[nodiscard]] static Result<Tokenizer> create(Vocabulary vocabulary);

  [[nodiscard]] std::vector<Token> encode(std::string_view text, EncodeOptions options = {}) const;

  // All ids as one valid UTF-8 string: ill-formed bytes become U+FFFD. Control tokens are left out unless asked for.
  [[nodiscard]] std::string decode(std::span<const Token> ids, bool show_control = false) const;

  // The bytes that a token stands for, not always whole characters. Empty for a hidden control token and for an id
  // that is not in the vocabulary.
  [[nodiscard]] std::string bytes(Token id, bool show_control = false) const;

  // The text of a token as it is stored in the file; `id` must be below size().
  [[nodiscard]] std::string_view text(Token id) const { return vocabulary_.tokens[id]; }
  [[nodiscard]] TokenType type(Token id) const { return vocabulary_.types[id]; }
  [[nodiscard]] std::size_t size() const { return vocabulary_.tokens.size(); }

  // The control or user-defined token with exactly this text.
  [[nodiscard]] std::optional<Token> marker(std::string_view text) const;
  [[nodiscard]] std::optional<Token> bos() const { return vocabulary_.bos; }
  [[nodiscard]] std::optional<Token> eos() const { return vocabulary_.eos; }
  [[nodiscard]] std::optional<Token> padding() const { return vocabulary_.padding; }

  // Generation ends at any of these (sorted): the file's eos tokens, <eos>, <end_of_turn>, <turn|>, and
  // <|tool_response>, by which Gemma 4 hands over to the caller after a tool call.
  [[nodiscard]] std::span<const Token> end_of_generation() const { return vocabulary_.end_of_generation; }
  [[nodiscard]] bool ends_generation(Token id) const;
  // Tokens that the file forbids to generate.
  [[nodiscard]] std::span<const Token> suppressed() const { return vocabulary_.suppressed; }

 private:
  friend class PieceMerger;
  explicit Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  Result<> index_bytes();
  Result<> index_merges();
  void index_markers();
  void index_neighbours();
  void collect_ends();
  // Only these come out of joining pieces: never a control, unknown, unused or byte token.
  [[nodiscard]] bool joinable(Token id) const {
    const TokenType t = vocabulary_.types[id];
    return t == TokenType::normal || t == TokenType::user_defined || t == TokenType::undefined;
  }

  Vocabulary vocabulary_;
  TokenIndex index_;
  MergeIndex merges_;
  MarkerIndex markers_;
  NeighbourFilter neighbours_;
  std::vector<Token> byte_tokens_;  // [256]
  std::size_t longest_ = 0;         // bytes of the longest token
};

// Tokens one by one to text, never half a character: bytes that may still become one are held back.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool show_control = false)
      : tokenizer_(&tokenizer), show_control_(show_control) {}

  // The text that `id` completes: valid UTF-8, perhaps empty.
  [[nodiscard]] std::string push(Token id);
  // One U+FFFD if the tokens ended inside a character, else nothing.
  [[nodiscard]] std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool show_control_;
  std::string held_;
};

}  // namespace rullama
