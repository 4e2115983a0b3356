// The inner part of encoding: plain text to pieces by joining neighbours.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/tokenizer_tables.h"

namespace rullama {

class Tokenizer;

// A character, or a byte that belongs to none (its code lies above all of Unicode).
struct Character {
  std::uint32_t code;
  std::size_t length;
};
[[nodiscard]] Character first_character(std::string_view text);  // `text` is not empty

class PieceMerger {
 public:
  explicit PieceMerger(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Appends the ids of `text`, in which markers have no meaning any more.
  void encode(std::string_view text, std::vector<Token>& ids);

 private:
  // A run of bytes of the word. Joined symbols grow to the right; the swallowed ones are unlinked.
  struct Symbol {
    std::uint32_t begin, length;
    std::uint32_t previous, next;  // indices of the neighbours, or `none`
    Token id;                      // no_token: a character that is no token
    Merge with_next;               // what joining with the next symbol would give
  };
  static constexpr std::uint32_t none = ~0u;

  void encode_word(std::string_view word, std::vector<Token>& ids);
  [[nodiscard]] Merge merge_of(std::string_view word, const Symbol& left, const Symbol& right) const;
  void offer(std::string_view word, std::uint32_t i);
  void join(std::string_view word, std::uint32_t i);
  [[nodiscard]] Token piece(std::string_view text) const;

  const Tokenizer& tokenizer_;
  std::vector<Symbol> symbols_;
  std::vector<std::uint64_t> queue_;  // heap of rank << 32 | index, the smallest on top; may hold outdated entries
  std::string spaced_;
};

}  // namespace rullama
