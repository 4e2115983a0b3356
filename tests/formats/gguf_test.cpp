// GGUF files as they should be: what the writer writes, the reader reads.
#include "formats/gguf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>

#include "formats/cost.h"
#include "formats/gguf_writer.h"
#include "host/native/mapped_file.h"
#include "support/bytes.h"

namespace rullama::test {
namespace {

constexpr std::uint32_t kF32 = 0, kQ4_0 = 2;

std::string data_path(const std::string& below) { return std::string(RULLAMA_TEST_DATA) + "/" + below; }

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

Gguf read_good(std::shared_ptr<const ByteSource> source) {
  auto file = Gguf::read(std::move(source));
  if (!file) {
    ADD_FAILURE() << file.error().message;
    std::abort();
  }
  return std::move(*file);
}

Gguf written(const GgufWriter& writer, const TensorData& data = {}) {
  MemorySink sink;
  const auto ok = writer.write(sink, data);
  EXPECT_TRUE(ok) << ok.error().message;
  return read_good(memory_file(sink.bytes));
}

TEST(Gguf, EveryValueTypeComesBack) {
  GgufWriter w;
  w.set("u8", std::uint8_t{200});
  w.set("i8", std::int8_t{-100});
  w.set("u16", std::uint16_t{60000});
  w.set("i16", std::int16_t{-30000});
  w.set("u32", std::uint32_t{4000000000u});
  w.set("i32", std::int32_t{-2000000000});
  w.set("u64", std::uint64_t{1} << 63);
  w.set("i64", std::int64_t{77});
  w.set("f32", 1.5f);
  w.set("f64", 2.5);
  w.set("yes", true);
  w.set("text", "a text");
  const Gguf file = written(w);
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.metadata().size(), 12u);
  EXPECT_EQ(file.get_u64("u8"), 200u);
  EXPECT_EQ(file.get_u64("u16"), 60000u);
  EXPECT_EQ(file.get_u64("u32"), 4000000000u);
  EXPECT_EQ(file.get_u64("u64"), std::uint64_t{1} << 63);
  EXPECT_EQ(file.get_u64("i64"), 77u);
  EXPECT_EQ(file.get_f32("i8"), -100.f);
  EXPECT_EQ(file.get_f32("i16"), -30000.f);
  EXPECT_EQ(file.get_f32("i32"), -2e9f);
  EXPECT_EQ(file.get_f32("f32"), 1.5f);
  EXPECT_EQ(file.get_f32("f64"), 2.5f);
  EXPECT_EQ(file.get_bool("yes"), true);
  EXPECT_EQ(file.get_string("text"), "a text");
}

TEST(Gguf, ArraysComeBack) {
  GgufWriter w;
  const std::int32_t ints[] = {3, -4, 5};
  const bool flags[] = {true, false, true};
  const float floats[] = {0.5f, -1.f};
  const std::string_view texts[] = {"one", "", "drei"};
  w.set_array("ints", std::span<const std::int32_t>(ints));
  w.set_array("flags", std::span<const bool>(flags));
  w.set_array("floats", std::span<const float>(floats));
  w.set_array("texts", texts);
  w.set_array("empty", std::span<const std::uint16_t>());
  const Gguf file = written(w);
  EXPECT_EQ(file.get_numbers("ints"), (std::vector<double>{3, -4, 5}));
  EXPECT_EQ(file.get_numbers("flags"), (std::vector<double>{1, 0, 1}));
  EXPECT_EQ(file.get_numbers("floats"), (std::vector<double>{0.5, -1}));
  EXPECT_EQ(file.get_numbers("empty"), (std::vector<double>{}));
  EXPECT_EQ(file.get_strings("texts"), (std::vector<std::string_view>{"one", "", "drei"}));
  EXPECT_EQ(file.per_layer_u32("flags", 3), (std::vector<std::uint32_t>{1, 0, 1}));
  EXPECT_TRUE(file.is_array("ints"));
  EXPECT_FALSE(file.is_array("none"));
}

TEST(Gguf, PerLayerTakesAScalarForAll) {
  GgufWriter w;
  w.set("one", std::int32_t{8});
  const Gguf file = written(w);
  EXPECT_EQ(file.per_layer_u32("one", 3), (std::vector<std::uint32_t>{8, 8, 8}));
}

TEST(Gguf, ErrorsOfGettersNameTheKeyAndWhatWasFound) {
  GgufWriter w;
  const std::int32_t ints[] = {3, -4};
  w.set_array("ints", std::span<const std::int32_t>(ints));
  w.set("text", "x");
  w.set("minus", std::int8_t{-3});
  w.set("huge", 1e300);
  const Gguf file = written(w);
  const auto message = [](const auto& result) { return result ? "no error" : result.error().message; };
  EXPECT_EQ(message(file.get_u64("none")), "key 'none' is missing");
  EXPECT_EQ(message(file.get_u64("text")), "key 'text' is of type string, expected an integer");
  EXPECT_EQ(message(file.get_u64("ints")), "key 'ints' is an array of 2 values of type i32, expected an integer");
  EXPECT_EQ(message(file.get_u64("minus")), "key 'minus' is -3, expected 0 or more");
  EXPECT_EQ(message(file.get_f32("text")), "key 'text' is of type string, expected a number");
  EXPECT_EQ(message(file.get_f32("huge")), "key 'huge' is 1e+300, beyond the range of a 32-bit float");
  EXPECT_EQ(message(file.get_string("minus")), "key 'minus' is of type i8, expected a string");
  EXPECT_EQ(message(file.get_bool("minus")), "key 'minus' is of type i8, expected true or false");
  EXPECT_EQ(message(file.per_layer_u32("ints", 3)), "key 'ints' has 2 entries, expected one for each of 3 layers");
  EXPECT_EQ(message(file.per_layer_u32("ints", 2)), "key 'ints' has the value -4, expected 0 to 4294967295");
  EXPECT_EQ(message(file.per_layer_u32("text", 2)), "key 'text' is of type string, expected integers");
  EXPECT_EQ(message(file.get_numbers("minus")), "key 'minus' is of type i8, expected an array of numbers");
  EXPECT_EQ(message(file.get_strings("ints")),
            "key 'ints' is an array of 2 values of type i32, expected an array of strings");
}

TEST(Gguf, TensorsLieWhereTheWriterPutThem) {
  for (const std::uint32_t alignment : {8u, 32u, 4096u}) {
    SCOPED_TRACE(alignment);
    GgufWriter w(alignment);
    const std::string contents[] = {std::string(7 * 4, 'a'), std::string(2 * 3 * 18, 'b'), "cccc"};
    ASSERT_TRUE(w.add_tensor("first", std::array<std::uint64_t, 1>{7}, kF32));
    ASSERT_TRUE(w.add_tensor("second", std::array<std::uint64_t, 2>{64, 3}, kQ4_0));
    ASSERT_TRUE(w.add_tensor("third", std::array<std::uint64_t, 4>{1, 1, 1, 1}, kF32));
    const Gguf file = written(w, [&](std::size_t i, ByteSink& sink) { return sink.write(bytes_of(contents[i])); });
    EXPECT_EQ(file.alignment(), alignment);
    ASSERT_EQ(file.tensors().size(), 3u);
    EXPECT_EQ(file.tensors()[1].name, "second");
    const GgufTensor* second = file.tensor("second");
    ASSERT_NE(second, nullptr);
    EXPECT_EQ(second->rank, 2u);
    EXPECT_EQ(second->dims, (std::array<std::uint64_t, 4>{64, 3, 1, 1}));
    EXPECT_EQ(second->dtype, DType::Q4_0);
    EXPECT_EQ(second->type_name(), "Q4_0");
    EXPECT_EQ(file.tensor("fourth"), nullptr);
    for (std::size_t i = 0; i < 3; i++) {
      const GgufTensor& t = file.tensors()[i];
      EXPECT_EQ(t.offset % alignment, 0u);
      std::string found(t.bytes, '\0');
      ASSERT_TRUE(file.source()->read(t.offset, std::as_writable_bytes(std::span(found))));
      EXPECT_EQ(found, contents[i]) << t.name;
    }
  }
}

TEST(Gguf, TypesThatCannotBeComputedWithAreListedAllTheSame) {
  GgufWriter w;
  ASSERT_TRUE(w.add_tensor("odd", std::array<std::uint64_t, 1>{256}, 17));
  const Gguf file = written(w, [](std::size_t, ByteSink& sink) { return sink.write(bytes_of(std::string(74, 'x'))); });
  EXPECT_EQ(file.tensor("odd")->type_name(), "IQ2_XS");
  EXPECT_FALSE(file.tensor("odd")->dtype.has_value());
}

TEST(GgufWriter, RefusesWhatAReaderWould) {
  GgufWriter w;
  const std::uint64_t row[] = {32}, odd[] = {33}, none[] = {0}, huge[] = {std::uint64_t{1} << 62, 4};
  EXPECT_FALSE(w.add_tensor("", row, kF32));
  EXPECT_FALSE(w.add_tensor(std::string(64, 'n'), row, kF32));
  EXPECT_FALSE(w.add_tensor("t", odd, kQ4_0));
  EXPECT_FALSE(w.add_tensor("t", none, kF32));
  EXPECT_FALSE(w.add_tensor("t", huge, kF32));
  EXPECT_FALSE(w.add_tensor("t", row, 4));
  EXPECT_FALSE(w.add_tensor("t", std::span<const std::uint64_t>(), kF32));
  EXPECT_TRUE(w.add_tensor("t", row, kF32));
  EXPECT_FALSE(w.add_tensor("t", row, kF32)) << "the name occurs twice";
}

TEST(GgufWriter, RefusesTheWrongAmountOfData) {
  GgufWriter w;
  ASSERT_TRUE(w.add_tensor("t", std::array<std::uint64_t, 1>{2}, kF32));
  MemorySink sink;
  for (const std::size_t n : {0, 7, 9}) {
    const auto ok = w.write(sink, [&](std::size_t, ByteSink& out) { return out.write(bytes_of(std::string(n, 'x'))); });
    EXPECT_FALSE(ok) << n << " bytes for 8";
  }
}

TEST(GgufWriter, CopiesKeysOfAnotherFile) {
  auto source = open_mapped(data_path("models/g4-e2b.q4_0.gguf"));
  ASSERT_TRUE(source) << source.error().message;
  const Gguf original = read_good(*source);
  GgufWriter w;
  for (const auto& [key, value] : original.metadata()) w.set(key, value);
  for (const GgufTensor& t : original.tensors())
    ASSERT_TRUE(w.add_tensor(t.name, std::span(t.dims).first(t.rank), t.ggml_type));
  MemorySink sink;
  const auto ok = w.write(sink, [&](std::size_t i, ByteSink& out) {
    const GgufTensor& t = original.tensors()[i];
    return out.write((*source)->mapped().subspan(t.offset, t.bytes));
  });
  ASSERT_TRUE(ok) << ok.error().message;
  const auto whole = (*source)->mapped();
  ASSERT_EQ(sink.bytes.size(), whole.size());
  EXPECT_TRUE(std::ranges::equal(bytes_of(sink.bytes), whole)) << "a copied file differs from its original";
}

TEST(GgufWriter, ReplacesAndErases) {
  GgufWriter w;
  w.set("a", std::uint32_t{1});
  w.set("b", "x");
  w.set("a", std::uint64_t{2});
  w.erase("b");
  const Gguf file = written(w);
  EXPECT_EQ(file.metadata().size(), 1u);
  EXPECT_EQ(file.get_u64("a"), 2u);
}

// A header longer than the first piece that is read.
TEST(Gguf, LongHeaders) {
  std::vector<std::string> texts;
  for (int i = 0; i < 300000; i++) texts.push_back("piece " + std::to_string(i));
  const std::vector<std::string_view> views(texts.begin(), texts.end());
  GgufWriter w;
  w.set_array("tokens", views);
  w.set("template", std::string(3'000'000, 't'));
  w.set("last", std::uint32_t{9});
  MemorySink sink;
  ASSERT_TRUE(w.write(sink, {}));
  const auto source = memory_file(sink.bytes);
  const Cost cost = cost_of([&] {
    const Gguf file = read_good(source);
    EXPECT_EQ(file.get_u64("last"), 9u);
    EXPECT_EQ((*file.get_strings("tokens"))[299999], "piece 299999");
    EXPECT_EQ(file.get_string("template")->size(), 3'000'000u);
  });
  EXPECT_LT(cost.heap, sink.bytes.size() + (32u << 20));
}

TEST(Gguf, ModelsOfTheTestData) {
  for (const char* name : {"g3-270m.f16", "g3-270m-k.q4_k_m", "g4-e2b-k.q4_k_m", "g4-26b.q8_0"}) {
    auto source = open_mapped(data_path(std::string("models/") + name + ".gguf"));
    ASSERT_TRUE(source) << source.error().message;
    const Gguf file = read_good(*source);
    EXPECT_TRUE(file.tensor("token_embd.weight")) << name;
    EXPECT_TRUE(file.get_strings("tokenizer.ggml.tokens")) << name;
  }
}

}  // namespace
}  // namespace rullama::test
