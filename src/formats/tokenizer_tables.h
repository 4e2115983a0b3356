// The look-up tables of a tokenizer: strings by number, numbers by string, merges by pair.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "rullama/sampling.h"

namespace rullama {

inline constexpr Token no_token = ~Token{0};

// Many short strings end to end in one block (a vocabulary has 262,144, its merges half a million).
// Views into it stay good when the table is moved.
class StringTable {
 public:
  void reserve(std::size_t strings, std::size_t bytes) {
    ends_.reserve(strings);
    bytes_.reserve(bytes);
  }
  void add(std::string_view text) {
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    ends_.push_back(bytes_.size());
  }
  [[nodiscard]] std::size_t size() const { return ends_.size(); }
  [[nodiscard]] bool empty() const { return ends_.empty(); }
  [[nodiscard]] std::string_view operator[](std::size_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends_[i - 1];
    return {bytes_.data() + begin, ends_[i] - begin};
  }

 private:
  std::vector<char> bytes_;
  std::vector<std::size_t> ends_;
};

// Finds a token by its exact text. Keeps no text of its own: the StringTable is passed to every call.
class TokenIndex {
 public:
  TokenIndex() = default;
  explicit TokenIndex(const StringTable& tokens);  // of equal texts the first counts

  [[nodiscard]] Token find(const StringTable& tokens, std::string_view text) const {
    return find(tokens, text, hash(text));
  }
  // The same in two steps, for many look-ups at once: `prepare` starts to fetch what `find` will read.
  [[nodiscard]] std::uint64_t prepare(std::string_view text) const;
  [[nodiscard]] Token find(const StringTable& tokens, std::string_view text, std::uint64_t prepared) const;

 private:
  static std::uint64_t hash(std::string_view text);
  struct Slot {
    std::uint32_t tag = 0;  // other bits of the hash than those that choose the slot
    Token id = no_token;
  };
  std::vector<Slot> slots_;  // open addressing, at most half full
};

// What becomes of two neighbouring tokens. Pairs with the lowest rank are joined first.
struct Merge {
  std::uint32_t rank = 0;
  Token joined = no_token;  // no_token: this pair is never joined
};

class MergeIndex {
 public:
  void reserve(std::size_t merges);
  void add(Token left, Token right, Merge merge);  // of equal pairs the first counts
  void prepare(Token left, Token right) const;     // starts to fetch what `add` will touch

  [[nodiscard]] Merge find(Token left, Token right) const;
  [[nodiscard]] bool empty() const { return slots_.empty(); }

 private:
  struct Slot {
    Token left = no_token, right = no_token;
    Merge merge;
  };
  [[nodiscard]] std::size_t home_of(Token left, Token right) const {
    return ((std::uint64_t{left} << 32 | right) * 0x9e3779b97f4a7c15u >> 32) & (slots_.size() - 1);
  }
  [[nodiscard]] std::size_t slot_of(Token left, Token right) const;
  std::vector<Slot> slots_;
};

// Which characters stand side by side inside some token. Two characters that never do are a place where
// no merge can reach across, so a text may be cut there. Hashed bits: may say yes wrongly, never no.
class NeighbourFilter {
 public:
  NeighbourFilter() : bits_(size / 64) {}
  void add(std::uint32_t left, std::uint32_t right) {
    const std::uint32_t h = hash(left, right);
    bits_[h / 64] |= std::uint64_t{1} << (h % 64);
  }
  [[nodiscard]] bool may_join(std::uint32_t left, std::uint32_t right) const {
    const std::uint32_t h = hash(left, right);
    return bits_[h / 64] >> (h % 64) & 1;
  }

 private:
  static constexpr std::uint32_t size = 1u << 22;
  static std::uint32_t hash(std::uint32_t left, std::uint32_t right) {
    return static_cast<std::uint32_t>((std::uint64_t{left} << 32 | right) * 0x9e3779b97f4a7c15u >> 42);
  }
  std::vector<std::uint64_t> bits_;
};

// Finds the tokens that are cut out of a text before anything else, the longest first.
class MarkerIndex {
 public:
  struct Match {
    Token id = no_token;
    std::size_t length = 0;  // 0: nothing here
  };

  MarkerIndex() = default;
  // levels[i]: how much trust a text needs for ids[i] to count in it.
  MarkerIndex(const StringTable& tokens, std::vector<Token> ids, std::span<const std::uint8_t> levels);

  // The longest marker of a level <= `level` at the start of `text`.
  [[nodiscard]] Match match(const StringTable& tokens, std::string_view text, std::uint8_t level) const;

 private:
  struct Entry {
    Token id;
    std::uint8_t level;
  };
  std::vector<Entry> sorted_;              // by text
  std::vector<std::uint32_t> first_byte_;  // [257] where the entries that begin with a byte start
};

}  // namespace rullama
