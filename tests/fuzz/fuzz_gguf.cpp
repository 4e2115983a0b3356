// A GGUF file out of arbitrary bytes: metadata, tensors, the model's configuration and the vocabulary.
#include <algorithm>
#include <cstdlib>

#include "formats/gguf_writer.h"
#include "formats/tokenizer.h"
#include "models/gemma/config.h"
#include "padded_file.h"

namespace {

using namespace rullama;

void require(bool holds) {
  if (!holds) std::abort();
}

class Collected final : public ByteSink {
 public:
  Result<> write(std::span<const std::byte> data) override {
    bytes.insert(bytes.end(), data.begin(), data.end());
    return {};
  }
  std::vector<std::byte> bytes;
};

// Every way to ask for a value; the file is small, so all of it may be copied.
void read_all(const Gguf& file) {
  for (const auto& [key, value] : file.metadata()) {
    require(file.find(key) == &value);
    const auto check = [](const auto& result) { require(result || !result.error().message.empty()); };
    check(file.get_u64(key));
    check(file.get_f32(key));
    check(file.get_bool(key));
    check(file.per_layer_u32(key, 3));
    if (const auto text = file.get_string(key)) require(text->size() + 8 == value.data.size());
    if (const auto numbers = file.get_numbers(key)) require(numbers->size() == value.count);
    if (const auto texts = file.get_strings(key)) require(texts->size() == value.count);
  }
  for (const GgufTensor& t : file.tensors()) {
    require(file.tensor(t.name) == &t);
    require(t.bytes > 0 && t.offset <= file.source()->size() && t.bytes <= file.source()->size() - t.offset);
  }
}

// The keys of a file, written and read again, are the same.
void write_again(const Gguf& file) {
  GgufWriter writer(static_cast<std::uint32_t>(file.alignment()));
  for (const auto& [key, value] : file.metadata()) writer.set(key, value);
  Collected copy;
  require(writer.write(copy, {}).has_value());
  const auto again = Gguf::read(std::make_shared<MemorySource>("copy", std::move(copy.bytes)));
  require(again.has_value());
  for (const auto& [key, value] : file.metadata()) {
    const GgufValue* found = again->find(key);
    require(found && found->type == value.type && std::ranges::equal(found->data, value.data));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  for (const std::uint64_t more : {std::uint64_t{0}, std::uint64_t{1} << 40}) {
    const auto file = Gguf::read(std::make_shared<fuzz::PaddedFile>(bytes, size + more));
    if (!file) {
      require(!file.error().message.empty());
      continue;
    }
    read_all(*file);
    write_again(*file);
    (void)read_gemma_config(*file);
    if (const auto vocabulary = read_vocabulary(*file)) (void)Tokenizer::create(*vocabulary);
  }
  return 0;
}
