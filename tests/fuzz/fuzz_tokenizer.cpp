// A vocabulary out of arbitrary bytes, then text through it and back.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "formats/tokenizer.h"

namespace {

using rullama::Markup;
using rullama::Token;
using rullama::Tokenizer;
using rullama::TokenType;

class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
  std::uint8_t byte() {
    const std::string_view one = take(1);
    return one.empty() ? 0 : static_cast<std::uint8_t>(one[0]);
  }
  std::string_view take(std::size_t n) {
    const std::string_view taken = rest_.substr(0, n);
    rest_.remove_prefix(taken.size());
    return taken;
  }
  std::string_view short_text() { return take(byte() % 12); }
  std::string_view all() { return take(rest_.size()); }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

rullama::Vocabulary vocabulary_from(Input& in) {
  rullama::Vocabulary v;
  const std::uint8_t flags = in.byte();
  const auto add = [&](std::string_view text, TokenType type, float score) {
    v.tokens.add(text);
    v.types.push_back(type);
    v.scores.push_back(score);
  };
  if (flags & 1) {  // all that a text needs to come back as it was
    add("\u2581", TokenType::normal, 0);
    constexpr std::string_view digits = "0123456789ABCDEF";
    for (unsigned b = 0; b < 256; b++)
      add(std::string("<0x") + digits[b / 16] + digits[b % 16] + '>', TokenType::byte, 0);
  }
  for (unsigned n = in.byte(); n > 0 && !in.empty(); n--) {
    const auto type = static_cast<TokenType>(in.byte() % 7);
    const auto score = static_cast<float>(static_cast<std::int8_t>(in.byte()));
    add(in.short_text(), type, score);
  }
  if (flags & 2)
    for (unsigned n = in.byte(); n > 0 && !in.empty(); n--) v.merges.add(in.short_text());
  if (flags & 4)  // merges that fit: of two tokens
    for (unsigned n = in.byte(); n > 0 && !in.empty() && v.tokens.size() > 0; n--) {
      const auto pick = [&] { return v.tokens[(in.byte() | std::size_t{in.byte()} << 8) % v.tokens.size()]; };
      const std::string left(pick()), right(pick());
      add(left + right, TokenType::normal, static_cast<float>(-static_cast<int>(n)));
      v.merges.add(left + ' ' + right);
    }
  if (flags & 8) v.scores.resize(in.byte());
  if (flags & 16) v.bos = in.byte();
  if (flags & 32) v.unknown = in.byte();
  if (flags & 64) v.end_of_generation = {in.byte(), in.byte()};
  return v;
}

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input in(data, size);
  const bool complete = size > 0 && (data[0] & 1);
  auto tokenizer = Tokenizer::create(vocabulary_from(in));
  if (!tokenizer) {
    require(!tokenizer.error().message.empty());
    return 0;
  }
  const std::string_view text = in.all();
  for (const Markup markup : {Markup::none, Markup::visible, Markup::all}) {
    const auto ids = tokenizer->encode(text, {markup, true});
    std::string bytes;
    rullama::StreamDecoder decoder(*tokenizer, true);
    std::string streamed;
    const std::size_t first = !ids.empty() && ids[0] == tokenizer->bos() ? 1 : 0;
    for (std::size_t i = 0; i < ids.size(); i++) {
      require(ids[i] < tokenizer->size());
      if (i >= first) bytes += tokenizer->bytes(ids[i], true);
      const std::string delta = decoder.push(ids[i]);
      require(rullama::utf8::valid(delta));
      streamed += delta;
    }
    streamed += decoder.finish();
    require(streamed == tokenizer->decode(ids, true));
    // Nothing is lost, but for U+2581, which reads as a space.
    if (complete && first == 0 && text.find("\u2581") == std::string_view::npos) require(bytes == text);
  }
  return 0;
}
