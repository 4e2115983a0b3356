#include "formats/tokenizer_merge.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/utf8.h"
#include "formats/tokenizer.h"

namespace rullama {
namespace {

// No merge is lost by it: it only bounds the 32-bit positions when a text without any cut is larger.
constexpr std::size_t longest_word = std::size_t{1} << 30;

// Ranks by falling score: the order of floats as that of unsigned numbers.
std::uint32_t rank_of(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0f);
  return bits & 0x80000000u ? bits : ~bits & 0x7fffffffu;
}

}  // namespace

Character first_character(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {first, 1};
  const std::size_t length = utf8::valid_length(text);
  if (length == 0) return {0x110000u + first, 1};
  return {utf8::decode(text), length};
}

void PieceMerger::encode(std::string_view text, std::vector<Token>& ids) {
  spaced_.clear();
  for (const char c : text) {
    if (c == ' ')
      spaced_ += "\u2581";
    else
      spaced_ += c;
  }
  std::string_view rest = spaced_;
  while (!rest.empty()) {
    Character left = first_character(rest);
    std::size_t length = left.length;
    while (length < rest.size() && length < longest_word) {
      const Character right = first_character(rest.substr(length));
      if (!tokenizer_.neighbours_.may_join(left.code, right.code)) break;
      length += right.length;
      left = right;
    }
    encode_word(rest.substr(0, length), ids);
    rest.remove_prefix(length);
  }
}

Token PieceMerger::piece(std::string_view text) const {
  if (text.size() > tokenizer_.longest_) return no_token;
  const Token id = tokenizer_.index_.find(tokenizer_.vocabulary_.tokens, text);
  return id != no_token && tokenizer_.joinable(id) ? id : no_token;
}

Merge PieceMerger::merge_of(std::string_view word, const Symbol& left, const Symbol& right) const {
  if (!tokenizer_.merges_.empty()) {
    if (left.id == no_token || right.id == no_token) return {};
    return tokenizer_.merges_.find(left.id, right.id);
  }
  const Token joined = piece(word.substr(left.begin, left.length + right.length));
  return joined == no_token ? Merge{} : Merge{rank_of(tokenizer_.vocabulary_.scores[joined]), joined};
}

void PieceMerger::offer(std::string_view word, std::uint32_t i) {
  Symbol& s = symbols_[i];
  s.with_next = s.next == none ? Merge{} : merge_of(word, s, symbols_[s.next]);
  if (s.with_next.joined == no_token) return;
  queue_.push_back(std::uint64_t{s.with_next.rank} << 32 | i);
  std::ranges::push_heap(queue_, std::greater{});
}

void PieceMerger::join(std::string_view word, std::uint32_t i) {
  Symbol& left = symbols_[i];
  Symbol& right = symbols_[left.next];
  left.length += right.length;
  left.id = left.with_next.joined;
  left.next = right.next;
  right.with_next = {};
  if (left.next != none) symbols_[left.next].previous = i;
  offer(word, i);
  if (left.previous != none) offer(word, left.previous);
}

void PieceMerger::encode_word(std::string_view word, std::vector<Token>& ids) {
  symbols_.clear();
  queue_.clear();
  for (std::size_t begin = 0; begin < word.size();) {
    const std::size_t length = first_character(word.substr(begin)).length;
    const auto index = static_cast<std::uint32_t>(symbols_.size());
    symbols_.push_back({static_cast<std::uint32_t>(begin),
                        static_cast<std::uint32_t>(length),
                        index - 1,
                        index + 1,
                        piece(word.substr(begin, length)),
                        {}});
    begin += length;
  }
  symbols_.back().next = none;  // and the first one's `previous` is index - 1 == none
  for (std::uint32_t i = 0; i < symbols_.size(); i++) offer(word, i);

  while (!queue_.empty()) {
    std::ranges::pop_heap(queue_, std::greater{});
    const std::uint64_t best = queue_.back();
    queue_.pop_back();
    const auto i = static_cast<std::uint32_t>(best);
    const Merge& merge = symbols_[i].with_next;
    if (merge.joined != no_token && merge.rank == best >> 32) join(word, i);
  }

  for (std::uint32_t i = 0; i != none; i = symbols_[i].next) {
    const Symbol& s = symbols_[i];
    if (s.id != no_token) {
      ids.push_back(s.id);
      continue;
    }
    for (const char c : word.substr(s.begin, s.length))
      ids.push_back(tokenizer_.byte_tokens_[static_cast<unsigned char>(c)]);
  }
}

}  // namespace rullama
