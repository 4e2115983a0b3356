// JSON lines to train on, out of arbitrary bytes.
#include <cstdlib>
#include <string>

#include "train/examples.h"
#include "train/trainer.h"

namespace {

using namespace rullama;

void require(bool holds) {
  if (!holds) std::abort();
}

Tokenizer make_tokenizer() {
  Vocabulary v;
  const auto add = [&](std::string_view text, TokenType type) {
    v.tokens.add(text);
    v.types.push_back(type);
    v.scores.push_back(0);
  };
  for (const char* name : {"<bos>", "<eos>", "<|turn>", "<turn|>", "<|think|>", "<|channel>", "<channel|>", "<|tool>",
                           "<tool|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>", "<|\"|>",
                           "<|image|>", "<|audio|>", "<|video|>"})
    add(name, TokenType::control);
  constexpr std::string_view digits = "0123456789ABCDEF";
  for (unsigned b = 0; b < 256; b++) add(std::string("<0x") + digits[b / 16] + digits[b % 16] + '>', TokenType::byte);
  v.bos = 0;
  v.eos = 1;
  auto made = Tokenizer::create(std::move(v));
  require(made.has_value());
  return std::move(*made);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Tokenizer tokenizer = make_tokenizer();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const auto format : {ChatFormat::gemma4_small, ChatFormat::gemma4_large}) {
    const ExampleOptions options{.format = format, .end_texts = true, .max_length = 64};
    const auto read = examples_from_jsonl(text, "data", tokenizer, options);
    if (!read) {
      require(read.error().message.starts_with("data"));
      continue;
    }
    require(!read->examples.empty());
    for (const Example& e : read->examples) {
      require(e.tokens.size() == e.labels.size() && e.tokens.size() <= 64 && e.targets() > 0);
      for (const Token t : e.tokens) require(t < tokenizer.size());
      for (const Token t : e.labels) require(t < tokenizer.size() || t == TrainBatch::kNoTarget);
    }
  }
  return 0;
}
