#include "formats/tokenizer_tables.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

namespace rullama {
namespace {

std::size_t slots_for(std::size_t entries) { return std::bit_ceil(std::max<std::size_t>(2 * entries, 16)); }

unsigned char byte_at(std::string_view text, std::size_t i) { return static_cast<unsigned char>(text[i]); }

}  // namespace

std::uint64_t TokenIndex::hash(std::string_view text) {
  constexpr std::uint64_t multiplier = 0x9e3779b97f4a7c15u;
  std::uint64_t h = text.size() * multiplier;
  const auto mix = [&](std::uint64_t word) {
    h = (h ^ word) * multiplier;
    h ^= h >> 29;
  };
  while (text.size() >= 8) {
    std::uint64_t word;
    std::memcpy(&word, text.data(), 8);
    mix(word);
    text.remove_prefix(8);
  }
  std::uint64_t word = 0;
  if (!text.empty()) std::memcpy(&word, text.data(), text.size());
  mix(word);
  return h ^ h >> 32;
}

TokenIndex::TokenIndex(const StringTable& tokens) : slots_(slots_for(tokens.size())) {
  for (Token id = 0; id < tokens.size(); id++) {
    const std::uint64_t h = hash(tokens[id]);
    const auto tag = static_cast<std::uint32_t>(h >> 32);
    std::size_t i = h & (slots_.size() - 1);
    while (slots_[i].id != no_token && (slots_[i].tag != tag || tokens[slots_[i].id] != tokens[id]))
      i = (i + 1) & (slots_.size() - 1);
    if (slots_[i].id == no_token) slots_[i] = {tag, id};
  }
}

std::uint64_t TokenIndex::prepare(std::string_view text) const {
  const std::uint64_t h = hash(text);
  __builtin_prefetch(&slots_[h & (slots_.size() - 1)]);
  return h;
}

Token TokenIndex::find(const StringTable& tokens, std::string_view text, std::uint64_t h) const {
  const auto tag = static_cast<std::uint32_t>(h >> 32);
  for (std::size_t i = h & (slots_.size() - 1);; i = (i + 1) & (slots_.size() - 1)) {
    const Slot& slot = slots_[i];
    if (slot.id == no_token || (slot.tag == tag && tokens[slot.id] == text)) return slot.id;
  }
}

void MergeIndex::reserve(std::size_t merges) { slots_.assign(merges == 0 ? 0 : slots_for(merges), {}); }

std::size_t MergeIndex::slot_of(Token left, Token right) const {
  std::size_t i = home_of(left, right);
  while (slots_[i].left != no_token && (slots_[i].left != left || slots_[i].right != right))
    i = (i + 1) & (slots_.size() - 1);
  return i;
}

void MergeIndex::prepare(Token left, Token right) const { __builtin_prefetch(&slots_[home_of(left, right)]); }

void MergeIndex::add(Token left, Token right, Merge merge) {
  Slot& slot = slots_[slot_of(left, right)];
  if (slot.left == no_token) slot = {left, right, merge};
}

Merge MergeIndex::find(Token left, Token right) const { return slots_[slot_of(left, right)].merge; }

MarkerIndex::MarkerIndex(const StringTable& tokens, std::vector<Token> ids, std::span<const std::uint8_t> levels)
    : first_byte_(257, 0) {
  for (std::size_t i = 0; i < ids.size(); i++) sorted_.push_back({ids[i], levels[i]});
  std::ranges::sort(sorted_, {}, [&](const Entry& e) { return std::pair(tokens[e.id], e.id); });
  for (const Entry& e : sorted_) first_byte_[byte_at(tokens[e.id], 0) + 1u]++;
  std::partial_sum(first_byte_.begin(), first_byte_.end(), first_byte_.begin());
}

MarkerIndex::Match MarkerIndex::match(const StringTable& tokens, std::string_view text, std::uint8_t level) const {
  Match best;
  if (text.empty() || sorted_.empty()) return best;
  auto first = sorted_.begin() + first_byte_[byte_at(text, 0)];
  auto last = sorted_.begin() + first_byte_[byte_at(text, 0) + 1u];
  // [first, last) begin with the same `depth` bytes as `text`; the one that is no longer than that sorts first.
  for (std::size_t depth = 1; first != last; depth++) {
    for (; first != last && tokens[first->id].size() == depth; ++first)
      if (first->level <= level && best.length < depth) best = {first->id, depth};
    if (depth == text.size()) break;
    const auto next_byte = [&](const Entry& e) { return byte_at(tokens[e.id], depth); };
    const auto same = std::ranges::equal_range(first, last, byte_at(text, depth), {}, next_byte);
    first = same.begin();
    last = same.end();
  }
  return best;
}

}  // namespace rullama
