#include "formats/tokenizer.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "base/utf8.h"
#include "formats/tokenizer_merge.h"

namespace rullama {
namespace {

constexpr std::size_t longest_allowed = 4096;  // bytes of a token; published ones stay below 256
constexpr std::size_t most_tokens = std::size_t{1} << 24;
constexpr std::string_view visible_space = "\u2581";

bool marks_up_chat(std::string_view text) {
  constexpr std::string_view names[] = {"<start_of_turn>", "<end_of_turn>",      "<start_of_image>",
                                        "<end_of_image>",  "<image_soft_token>", "[multimodal]",
                                        "<mask>"};  // Gemma 3's
  return text.starts_with("<|") || text.ends_with("|>") || std::ranges::find(names, text) != std::end(names);
}

std::string with_spaces(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const bool space = text.substr(i, visible_space.size()) == visible_space;
    out += space ? ' ' : text[i];
    i += space ? visible_space.size() : 1;
  }
  return out;
}

std::optional<unsigned> byte_of(std::string_view text) {  // "<0x1F>" -> 31
  const auto digit = [](char c) -> unsigned {
    if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
    if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A') + 10;
    if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
    return 16;
  };
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  const unsigned high = digit(text[3]), low = digit(text[4]);
  if (high > 15 || low > 15) return std::nullopt;
  return high * 16 + low;
}

Result<> check_ids(const Vocabulary& v) {
  const std::size_t n = v.tokens.size();
  const auto outside = [&](std::string_view key, Token id) {
    return fail(cat("tokenizer.ggml.", key, " is ", id, ", but tokenizer.ggml.tokens has only ", n, " entries"));
  };
  if (v.bos && *v.bos >= n) return outside("bos_token_id", *v.bos);
  if (v.eos && *v.eos >= n) return outside("eos_token_id", *v.eos);
  if (v.unknown && *v.unknown >= n) return outside("unknown_token_id", *v.unknown);
  if (v.padding && *v.padding >= n) return outside("padding_token_id", *v.padding);
  for (const Token id : v.end_of_generation)
    if (id >= n) return outside("eos_token_ids", id);
  for (const Token id : v.suppressed)
    if (id >= n) return outside("suppress_tokens", id);
  return {};
}

Result<> check(const Vocabulary& v) {
  const std::size_t n = v.tokens.size();
  if (n == 0) return fail("tokenizer.ggml.tokens is empty: the file has no vocabulary");
  if (n > most_tokens) return fail(cat("tokenizer.ggml.tokens has ", n, " entries, more than ", most_tokens));
  if (v.types.size() != n)
    return fail(cat("tokenizer.ggml.token_type has ", v.types.size(), " entries for ", n, " tokens"));
  if (!v.scores.empty() && v.scores.size() != n)
    return fail(cat("tokenizer.ggml.scores has ", v.scores.size(), " entries for ", n, " tokens"));
  if (v.scores.empty() && v.merges.empty())
    return fail("the file has neither tokenizer.ggml.merges nor tokenizer.ggml.scores: nothing says how text is cut");
  for (std::size_t i = 0; i < n; i++) {
    if (v.tokens[i].size() > longest_allowed)
      return fail(cat("tokenizer.ggml.tokens entry ", i, " is ", v.tokens[i].size(), " bytes long, more than ",
                      longest_allowed));
    if (!v.scores.empty() && std::isnan(v.scores[i]))
      return fail(cat("tokenizer.ggml.scores entry ", i, " is not a number"));
  }
  return check_ids(v);
}

// An entry of tokenizer.ggml.merges on its way to ids.
struct NamedMerge {
  std::string_view left, right;
  std::string joined;
  std::uint64_t prepared[3] = {};
  Token ids[3] = {};

  bool split(std::string_view entry) {
    const std::size_t space = entry.find(' ', 1);  // the left side may itself be a space, but is never empty
    if (space == std::string_view::npos || space + 1 == entry.size()) return false;
    left = entry.substr(0, space);
    right = entry.substr(space + 1);
    joined.assign(left).append(right);
    return true;
  }
  [[nodiscard]] std::string_view name(int i) const { return i == 0 ? left : i == 1 ? right : joined; }
};

}  // namespace

Result<Tokenizer> Tokenizer::create(Vocabulary vocabulary) {
  if (auto ok = check(vocabulary); !ok) return failed(ok);
  Tokenizer t(std::move(vocabulary));
  t.index_ = TokenIndex(t.vocabulary_.tokens);
  for (Token id = 0; id < t.size(); id++) t.longest_ = std::max(t.longest_, t.text(id).size());
  if (auto ok = t.index_bytes(); !ok) return failed(ok);
  if (auto ok = t.index_merges(); !ok) return failed(ok);
  t.index_markers();
  t.index_neighbours();
  t.collect_ends();
  return t;
}

Result<> Tokenizer::index_bytes() {
  byte_tokens_.assign(256, vocabulary_.unknown.value_or(no_token));
  for (Token id = 0; id < size(); id++) {
    if (type(id) != TokenType::byte) continue;
    const auto byte = byte_of(text(id));
    if (!byte)
      return fail(cat("tokenizer.ggml.tokens entry ", id, " is a byte token by its type, but reads ", quote(text(id)),
                      " and not <0xHH>"));
    byte_tokens_[*byte] = id;
  }
  const auto missing = std::ranges::find(byte_tokens_, no_token);
  if (missing == byte_tokens_.end()) return {};
  return fail(cat("tokenizer.ggml.tokens has no token for byte ", missing - byte_tokens_.begin(),
                  " and the file no tokenizer.ggml.unknown_token_id to stand in for it"));
}

Result<> Tokenizer::index_merges() {
  // Half a million merges are 1.5 million look-ups: a batch of them is prepared at once to overlap the cache misses.
  constexpr std::size_t batch_size = 64;
  std::vector<NamedMerge> batch(batch_size);
  const StringTable& tokens = vocabulary_.tokens;
  const std::size_t count = vocabulary_.merges.size();
  merges_.reserve(count);
  for (std::size_t begin = 0; begin < count; begin += batch_size) {
    const std::size_t end = std::min(begin + batch_size, count);
    for (std::size_t rank = begin; rank < end; rank++) {
      NamedMerge& merge = batch[rank - begin];
      if (!merge.split(vocabulary_.merges[rank]))
        return fail(cat("tokenizer.ggml.merges entry ", rank, " reads ", quote(vocabulary_.merges[rank]),
                        " and not 'left right'"));
      for (int i = 0; i < 3; i++) merge.prepared[i] = index_.prepare(merge.name(i));
    }
    for (std::size_t rank = begin; rank < end; rank++) {
      NamedMerge& merge = batch[rank - begin];
      for (int i = 0; i < 3; i++) {
        merge.ids[i] = index_.find(tokens, merge.name(i), merge.prepared[i]);
        if (merge.ids[i] == no_token)
          return fail(cat("tokenizer.ggml.merges entry ", rank, " reads ", quote(vocabulary_.merges[rank]), ", but ",
                          quote(merge.name(i)), " is not in tokenizer.ggml.tokens"));
      }
      merges_.prepare(merge.ids[0], merge.ids[1]);
    }
    for (std::size_t rank = begin; rank < end; rank++) {
      const auto& [left, right, joined] = batch[rank - begin].ids;
      if (joinable(joined)) merges_.add(left, right, {static_cast<std::uint32_t>(rank), joined});
    }
  }
  vocabulary_.merges = {};
  return {};
}

void Tokenizer::index_markers() {
  std::vector<Token> ids;
  std::vector<std::uint8_t> levels;
  for (Token id = 0; id < size(); id++) {
    if (text(id).empty()) continue;
    Markup level = Markup::all;
    if (type(id) == TokenType::user_defined)
      level = marks_up_chat(text(id)) ? Markup::visible : Markup::none;
    else if (type(id) != TokenType::control && type(id) != TokenType::unknown)
      continue;
    ids.push_back(id);
    levels.push_back(static_cast<std::uint8_t>(level));
  }
  markers_ = MarkerIndex(vocabulary_.tokens, std::move(ids), levels);
}

void Tokenizer::index_neighbours() {
  for (Token id = 0; id < size(); id++) {
    if (!joinable(id)) continue;
    std::string_view rest = text(id);
    for (std::uint32_t previous = no_token; !rest.empty();) {
      const Character c = first_character(rest);
      if (previous != no_token) neighbours_.add(previous, c.code);
      previous = c.code;
      rest.remove_prefix(c.length);
    }
  }
}

void Tokenizer::collect_ends() {
  std::vector<Token>& ends = vocabulary_.end_of_generation;
  if (vocabulary_.eos) ends.push_back(*vocabulary_.eos);
  for (const std::string_view name : {"<eos>", "<end_of_turn>", "<turn|>", "<|tool_response>"})
    if (const auto id = marker(name)) ends.push_back(*id);
  std::ranges::sort(ends);
  ends.erase(std::ranges::unique(ends).begin(), ends.end());
}

bool Tokenizer::ends_generation(Token id) const { return std::ranges::binary_search(end_of_generation(), id); }

std::optional<Token> Tokenizer::marker(std::string_view text) const {
  const Token id = index_.find(vocabulary_.tokens, text);
  if (id == no_token || (type(id) != TokenType::control && type(id) != TokenType::user_defined)) return std::nullopt;
  return id;
}

std::vector<Token> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  std::vector<Token> ids;
  ids.reserve(text.size() / 4 + 8);
  const bool add_bos = options.add_bos && bos();
  if (add_bos) ids.push_back(*bos());

  const auto level = static_cast<std::uint8_t>(options.markup);
  PieceMerger merger(*this);
  std::size_t plain = 0;  // start of the text that waits to be cut into pieces
  for (std::size_t i = 0; i < text.size();) {
    const MarkerIndex::Match match = markers_.match(vocabulary_.tokens, text.substr(i), level);
    if (match.length == 0) {
      i++;
      continue;
    }
    merger.encode(text.substr(plain, i - plain), ids);
    ids.push_back(match.id);
    i += match.length;
    plain = i;
  }
  merger.encode(text.substr(plain), ids);
  if (add_bos && ids.size() > 1 && ids[1] == ids[0]) ids.erase(ids.begin());
  return ids;
}

std::string Tokenizer::bytes(Token id, bool show_control) const {
  if (id >= size()) return {};
  switch (type(id)) {
    case TokenType::byte: return {static_cast<char>(*byte_of(text(id)))};
    case TokenType::control:
    case TokenType::unknown: return show_control ? std::string(text(id)) : std::string();
    default: return with_spaces(text(id));
  }
}

std::string Tokenizer::decode(std::span<const Token> ids, bool show_control) const {
  std::string all;
  for (const Token id : ids) all += bytes(id, show_control);
  return utf8::repair(all);
}

std::string StreamDecoder::push(Token id) {
  held_ += tokenizer_->bytes(id, show_control_);
  std::size_t tail = std::min<std::size_t>(held_.size(), 3);
  while (tail > 0 && !utf8::incomplete(std::string_view(held_).substr(held_.size() - tail))) tail--;
  std::string text = utf8::repair(std::string_view(held_).substr(0, held_.size() - tail));
  held_.erase(0, held_.size() - tail);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text = utf8::repair(held_);
  held_.clear();
  return text;
}

}  // namespace rullama
