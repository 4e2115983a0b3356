// What the tests of this folder share.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "formats/tokenizer.h"

namespace rullama::test {

inline std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << "cannot open " << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline nlohmann::json read_cases(const std::string& name) {
  return nlohmann::json::parse(read_text(RULLAMA_TEST_DATA "/cases/" + name));
}

struct NewToken {
  std::string text;
  TokenType type = TokenType::normal;
  float score = 0;
};

// <pad> <eos> <bos> <unk>, the 256 bytes from id 4 on, then `more` from id 260 on.
inline Vocabulary vocabulary_with(const std::vector<NewToken>& more, const std::vector<std::string>& merges = {}) {
  Vocabulary v;
  const auto add = [&](const NewToken& t) {
    v.tokens.add(t.text);
    v.types.push_back(t.type);
    v.scores.push_back(t.score);
  };
  for (const char* name : {"<pad>", "<eos>", "<bos>", "<unk>"}) add({name, TokenType::control, -1000});
  for (unsigned b = 0; b < 256; b++) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", b);
    add({name, TokenType::byte});
  }
  for (const NewToken& t : more) add(t);
  for (const std::string& m : merges) v.merges.add(m);
  v.bos = 2;
  v.eos = 1;
  v.unknown = 3;
  v.padding = 0;
  return v;
}
inline constexpr Token first_byte = 4, first_new = 260;

inline Tokenizer tokenizer_of(Vocabulary vocabulary) {
  auto tokenizer = Tokenizer::create(std::move(vocabulary));
  if (!tokenizer) throw std::runtime_error(tokenizer.error().message);  // fails the test with the message
  return std::move(*tokenizer);
}

}  // namespace rullama::test
