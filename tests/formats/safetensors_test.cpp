#include "formats/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/random.h"
#include "base/text.h"
#include "formats/cost.h"
#include "support/bytes.h"

namespace rullama::test {
namespace {

std::string file_of(const std::string& header, std::size_t data_bytes) {
  return raw(std::uint64_t{header.size()}) + header + std::string(data_bytes, 'd');
}

std::string message_of(const std::string& bytes) {
  const auto file = Safetensors::read(memory_file(bytes, "bad.safetensors"));
  return file ? "no error" : file.error().message;
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Safetensors, WhatIsWrittenIsRead) {
  SafetensorsWriter w;
  const std::uint64_t shape[] = {2, 3}, one[] = {1}, none[] = {0, 5};
  w.set_metadata("format", "pt");
  w.set_metadata("note", "line\n\"quoted\" \\ \xe2\x82\xac \x01");
  ASSERT_TRUE(w.add_tensor("b.weight", DType::F32, shape));
  ASSERT_TRUE(w.add_tensor("a \"odd\" name", DType::F16, one));
  ASSERT_TRUE(w.add_tensor("empty", DType::BF16, none));
  ASSERT_TRUE(w.add_tensor("scalar", DType::U32, std::span<const std::uint64_t>()));
  const std::string contents[] = {std::string(24, 'x'), "yy", "", "zzzz"};
  MemorySink sink;
  const auto written = w.write(sink, [&](std::size_t i, ByteSink& out) { return out.write(bytes_of(contents[i])); });
  ASSERT_TRUE(written) << written.error().message;

  const auto file = Safetensors::read(memory_file(sink.bytes));
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->tensors().size(), 4u);
  ASSERT_NE(file->metadata("note"), nullptr);
  EXPECT_EQ(*file->metadata("note"), "line\n\"quoted\" \\ \xe2\x82\xac \x01");
  EXPECT_EQ(*file->metadata("format"), "pt");
  EXPECT_EQ(file->metadata("other"), nullptr);
  EXPECT_EQ(file->tensor("other"), nullptr);
  const std::string names[] = {"b.weight", "a \"odd\" name", "empty", "scalar"};
  for (std::size_t i = 0; i < 4; i++) {
    const SafetensorsTensor* t = file->tensor(names[i]);
    ASSERT_NE(t, nullptr) << names[i];
    std::string found(t->bytes, '\0');
    ASSERT_TRUE(file->source()->read(t->offset, std::as_writable_bytes(std::span(found))));
    EXPECT_EQ(found, contents[i]) << names[i];
  }
  const SafetensorsTensor* b = file->tensor("b.weight");
  EXPECT_EQ(b->type, "F32");
  EXPECT_EQ(b->dtype, DType::F32);
  EXPECT_TRUE(std::ranges::equal(b->shape(), shape));
  EXPECT_EQ(b->offset % 8, 0u);
  EXPECT_EQ(file->tensor("scalar")->rank, 0u);
}

TEST(Safetensors, OtherProgramsHeaders) {
  const auto file = Safetensors::read(memory_file(
      file_of(" { \"\\u00e9\\ud83d\\ude00\" : {\"data_offsets\" : [0, 8] , \"shape\":[ ], \"dtype\": \"I64\" } , "
              "\"__metadata__\": { } }\n  ",
              8)));
  ASSERT_TRUE(file) << file.error().message;
  const SafetensorsTensor* t = file->tensor("\xc3\xa9\xf0\x9f\x98\x80");
  ASSERT_NE(t, nullptr);
  EXPECT_EQ(t->type, "I64");
  EXPECT_FALSE(t->dtype.has_value());
  EXPECT_TRUE(Safetensors::read(memory_file(file_of("{}", 0))));
}

struct Case {
  std::string name, bytes, expected;
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

std::string tensor(const std::string& name, const std::string& type, const std::string& shape,
                   const std::string& range) {
  return cat('"', name, "\":{\"dtype\":\"", type, "\",\"shape\":", shape, ",\"data_offsets\":", range, "}");
}
std::string one(const std::string& type, const std::string& shape, const std::string& range, std::size_t data = 8) {
  return file_of(cat("{", tensor("t.A", type, shape, range), "}"), data);
}
std::string two(const std::string& first, const std::string& second, std::size_t data,
                const std::string& name = "t.B") {
  return file_of(cat("{", tensor("t.A", "F32", "[1]", first), ",", tensor(name, "F32", "[1]", second), "}"), data);
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"empty", "", "is empty"},
      {"short", "1234567", "too short"},
      {"length_2_63", raw(std::uint64_t{1} << 63) + "{}", "cut short"},
      {"length_max", raw(~0ull) + "{}", "cut short"},
      {"length_one_more", raw(3ull) + "{}", "cut short"},
      {"no_header", file_of("", 0), "expected '{'"},
      {"not_json", file_of("PK\x03\x04", 0), "expected '{'"},
      {"list", file_of("[]", 0), "expected '{'"},
      {"no_end", file_of("{", 0), "expected '\"'"},
      {"text_after", file_of("{} {}", 0), "text after the end"},
      {"trailing_comma", file_of(cat("{", tensor("t.A", "F32", "[1]", "[0,4]"), ",}"), 4), "expected '\"'"},
      {"nested", file_of(std::string(30000, '{'), 0), "expected '\"'"},
      {"nested_lists", one(R"(F32)", std::string(30000, '['), "[0,4]"), "expected a whole number"},
      {"string_no_end", file_of("{\"abc", 0), "a string without an end"},
      {"string_escape_no_end", file_of("{\"abc\\", 0), "a string without an end"},
      {"wrong_escape", file_of("{\"\\x41\":{}}", 0), "a wrong escape"},
      {"half_surrogate", file_of("{\"\\ud83d\":{}}", 0), "a wrong escape"},
      {"low_surrogate", file_of("{\"\\ude00\":{}}", 0), "a wrong escape"},
      {"utf8", file_of("{\"\xff\":{}}", 0), "invalid UTF-8"},
      {"control", file_of("{\"a\nb\":{}}", 0), "a control character"},
      {"metadata_number", file_of("{\"__metadata__\":{\"a\":1}}", 0), "expected '\"'"},
      {"metadata_twice", file_of("{\"__metadata__\":{},\"__metadata__\":{}}", 0), "occurs twice"},
      {"metadata_key_twice", file_of("{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0), "key 'a' occurs twice"},
      {"type_unknown", one("Q9", "[2]", "[0,8]"), "'t.A' has the unknown type 'Q9'"},
      {"shape_negative", one("F32", "[-2]", "[0,8]"), "expected a whole number"},
      {"shape_fraction", one("F32", "[2.0]", "[0,8]"), "expected ']'"},
      {"shape_exponent", one("F32", "[2e0]", "[0,8]"), "expected ']'"},
      {"shape_leading_zero", one("F32", "[02]", "[0,8]"), "expected a whole number"},
      {"shape_too_large", one("F32", "[9223372036854775808]", "[0,8]"), "a number that is too large"},
      {"shape_wraps", one("F32", "[4294967296,4294967296]", "[0,8]"), "'t.A' has a shape whose product is too large"},
      {"shape_wraps_bytes", one("F64", "[2305843009213693952]", "[0,0]", 0), "whose product is too large"},
      {"rank_9", one("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), "more than 8 numbers"},
      {"size_differs", one("F32", "[3]", "[0,8]"), "'t.A' has 8 bytes of data, but F32 of shape [3] takes 12"},
      {"offsets_reversed", one("F32", "[2]", "[8,0]"), "'t.A' has data_offsets in the wrong order"},
      {"offsets_one", one("F32", "[2]", "[8]"), "'t.A' needs two data_offsets"},
      {"offsets_three", one("F32", "[2]", "[0,8,8]"), "more than 2 numbers"},
      {"offsets_past_end", one("F32", "[4]", "[0,16]"), "'t.A' reaches byte 16 of 8"},
      {"offsets_huge", one("F32", "[2]", "[9223372036854775800,9223372036854775807]"), "'t.A' reaches byte"},
      {"fields_missing", file_of("{\"t.A\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8), "'t.A' lacks"},
      {"field_twice", file_of("{\"t.A\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 8), "'t.A' has a repeated or unknown"},
      {"field_unknown", file_of("{\"t.A\":{\"kind\":\"F32\"}}", 8), "unknown entry 'kind'"},
      {"tensor_twice", two("[0,4]", "[4,8]", 8, "t.A"), "'t.A' occurs twice"},
      {"overlap", two("[0,4]", "[2,6]", 6), "'t.B' overlaps another"},
      {"same_place", two("[0,4]", "[0,4]", 4), "overlaps another"},
      {"gap", two("[0,4]", "[8,12]", 12), "'t.B' lies behind a gap"},
      {"gap_at_start", one("F32", "[1]", "[4,8]"), "'t.A' lies behind a gap"},
      {"rest", one("F32", "[1]", "[0,4]"), "has 4 bytes after its last tensor"},
      {"rest_without_tensors", file_of("{}", 5), "has 5 bytes after its last tensor"},
  };
  return all;
}

class MalformedSafetensors : public testing::TestWithParam<Case> {};

void expect_refused(const std::string& bytes, const std::string& expected) {
  const auto source = memory_file(bytes, "bad.safetensors");
  std::string message;
  const Cost cost = cost_of([&] {
    const auto file = Safetensors::read(source);
    message = file ? "no error" : file.error().message;
  });
  EXPECT_NE(message.find(expected), std::string::npos)
      << "the message is \"" << message << "\", expected \"" << expected << "\" in it";
  EXPECT_NE(message.find("'bad.safetensors'"), std::string::npos) << message;
  EXPECT_LT(cost.heap, source->size() + (1u << 20));
  EXPECT_LT(cost.seconds, seconds(0.1));
}

TEST_P(MalformedSafetensors, IsRefused) { expect_refused(GetParam().bytes, GetParam().expected); }

// Not a row of the table, which every run of the program fills.
TEST(Safetensors, AHeaderAboveTheLimitIsRefused) {
  expect_refused(file_of(std::string(100'000'001, ' '), 0), "a header of 100000001 bytes, above the limit");
}

INSTANTIATE_TEST_SUITE_P(Cases, MalformedSafetensors, testing::ValuesIn(cases()),
                         [](const auto& c) { return c.param.name; });

std::string good_file() {
  return file_of(cat("{\"__metadata__\":{\"rank\":\"4\"},", tensor("t.A", "F32", "[2,1]", "[0,8]"), ",",
                     tensor("t.B", "BF16", "[2]", "[8,12]"), "}"),
                 12);
}

TEST(Safetensors, CutAnywhere) {
  const std::string whole = good_file();
  EXPECT_EQ(message_of(whole), "no error");
  for (std::size_t n = 0; n < whole.size(); n++)
    ASSERT_NE(message_of(whole.substr(0, n)), "no error") << "cut after " << n << " bytes";
}

TEST(Safetensors, FlippedBytes) {
  const std::string whole = good_file();
  Random random(21);
  std::size_t read = 0;
  for (int round = 0; round < 20000; round++) {
    std::string bytes = whole;
    bytes[random.next() % (whole.size() - 12)] = static_cast<char>(random.next());
    const auto file = Safetensors::read(memory_file(bytes));
    if (!file) continue;
    read++;
    for (const SafetensorsTensor& t : file->tensors()) {
      ASSERT_EQ(file->tensor(t.name), &t);
      ASSERT_LE(t.offset + t.bytes, bytes.size());
    }
  }
  EXPECT_GT(read, 100u) << "most flips in names and texts leave a file that can be read";
}

TEST(Safetensors, LongHeadersCostLittle) {
  const std::string header = cat("{\"__metadata__\":{\"text\":\"", std::string(20'000'000, 't'), "\"}}");
  const auto source = memory_file(file_of(header, 0));
  const Cost cost = cost_of([&] { EXPECT_TRUE(Safetensors::read(source)); });
  EXPECT_LT(cost.heap, source->size() + (64u << 20));
  EXPECT_LT(cost.seconds, seconds(1));
}

TEST(SafetensorsWriter, RefusesWhatAReaderWould) {
  SafetensorsWriter w;
  const std::uint64_t shape[] = {2}, wraps[] = {1ull << 32, 1ull << 32}, long_shape[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  EXPECT_FALSE(w.add_tensor("\xff", DType::F32, shape));
  EXPECT_FALSE(w.add_tensor("__metadata__", DType::F32, shape));
  EXPECT_FALSE(w.add_tensor("t", DType::Q4_0, shape));
  EXPECT_FALSE(w.add_tensor("t", DType::F32, wraps));
  EXPECT_FALSE(w.add_tensor("t", DType::F32, long_shape));
  ASSERT_TRUE(w.add_tensor("t", DType::F32, shape));
  EXPECT_FALSE(w.add_tensor("t", DType::F32, shape)) << "the name occurs twice";
  MemorySink sink;
  for (const std::size_t n : {0, 7, 9})
    EXPECT_FALSE(w.write(sink, [&](std::size_t, ByteSink& out) { return out.write(bytes_of(std::string(n, 'x'))); }))
        << n;
}

}  // namespace
}  // namespace rullama::test
