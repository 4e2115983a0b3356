// GGUF files that are not as they should be: each gives an error that names the key or tensor, soon and in little
// memory.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "formats/cost.h"
#include "formats/gguf.h"
#include "support/bytes.h"

namespace rullama::test {
namespace {

constexpr std::uint64_t k2To63 = std::uint64_t{1} << 63;

std::string text(std::string_view s) { return raw(std::uint64_t{s.size()}) + std::string(s); }

// The parts of a file, any of which can be made wrong.
struct Parts {
  struct Pair {
    std::string key;    // with its length
    std::string value;  // with its type
  };
  struct Tensor {
    std::string name;  // with its length
    std::vector<std::uint64_t> dims;
    std::uint32_t type = 0;
    std::uint64_t offset = 0;
    std::optional<std::uint32_t> rank;  // instead of the number of dims
  };
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::optional<std::uint64_t> tensor_count, pair_count;  // instead of the real ones
  std::vector<Pair> pairs;
  std::vector<Tensor> tensors;
  std::size_t data_bytes = 0;
  std::size_t missing_bytes = 0;  // at the end

  void set(std::string_view key, GgufType type, const std::string& value) {
    pairs.push_back({text(key), raw(static_cast<std::uint32_t>(type)) + value});
  }
  [[nodiscard]] std::string file() const {
    std::string out =
        magic + raw(version) + raw(tensor_count.value_or(tensors.size())) + raw(pair_count.value_or(pairs.size()));
    for (const Pair& p : pairs) out += p.key + p.value;
    for (const Tensor& t : tensors) {
      out += t.name + raw(t.rank.value_or(static_cast<std::uint32_t>(t.dims.size())));
      for (const std::uint64_t dim : t.dims) out += raw(dim);
      out += raw(t.type) + raw(t.offset);
    }
    out.resize((out.size() + 31) / 32 * 32 + data_bytes);
    out.resize(out.size() - missing_bytes);
    return out;
  }
};

Parts good() {
  Parts p;
  p.set("general.architecture", GgufType::string, text("gemma3"));
  p.set("a.count", GgufType::u32, raw(std::uint32_t{7}));
  p.set("tokens", GgufType::array,
        raw(static_cast<std::uint32_t>(GgufType::string)) + raw(std::uint64_t{2}) + text("one") + text("two"));
  p.set("scores", GgufType::array,
        raw(static_cast<std::uint32_t>(GgufType::f32)) + raw(std::uint64_t{2}) + raw(1.f) + raw(2.f));
  p.tensors.push_back({text("embd.weight"), {32, 4}, 0, 0, {}});     // F32, 512 bytes
  p.tensors.push_back({text("blk.0.weight"), {64, 3}, 2, 512, {}});  // Q4_0, 108 bytes
  p.data_bytes = 512 + 128;
  return p;
}

struct Case {
  std::string name;
  std::function<void(Parts&)> damage;
  std::string expected;  // part of the message
  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }
};

void add_array(Parts& p, std::string_view key, std::uint32_t element, std::uint64_t count, const std::string& body) {
  p.set(key, GgufType::array, raw(element) + raw(count) + body);
}

std::string nested_arrays(int depth) {
  std::string out;
  for (int i = 0; i < depth; i++) out += raw(std::uint32_t{9}) + raw(std::uint64_t{1});
  return out;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"G2_magic", [](Parts& p) { p.magic = "FUGG"; }, "not a GGUF file"},
      {"G2_big_endian_3", [](Parts& p) { p.version = 0x03000000; }, "big-endian"},
      {"G2_big_endian_2", [](Parts& p) { p.version = 0x02000000; }, "big-endian"},
      {"G3_version_0", [](Parts& p) { p.version = 0; }, "GGUF version 0"},
      {"G3_version_1", [](Parts& p) { p.version = 1; }, "GGUF version 1"},
      {"G3_version_4", [](Parts& p) { p.version = 4; }, "GGUF version 4"},
      {"G3_version_max", [](Parts& p) { p.version = ~0u; }, "GGUF version 4294967295"},
      {"G4_tensors_max", [](Parts& p) { p.tensor_count = ~0ull; }, "tensor count 18446744073709551615"},
      {"G4_tensors_2_63", [](Parts& p) { p.tensor_count = k2To63; }, "tensor count 9223372036854775808"},
      {"G4_tensors_2_40", [](Parts& p) { p.tensor_count = 1ull << 40; }, "tensor count 1099511627776"},
      {"G4_one_tensor_more", [](Parts& p) { p.tensor_count = 3; }, "the name of tensor 2, '', is empty"},
      {"G5_pairs_max", [](Parts& p) { p.pair_count = ~0ull; }, "metadata count 18446744073709551615"},
      {"G5_pairs_2_63", [](Parts& p) { p.pair_count = k2To63; }, "metadata count 9223372036854775808"},
      {"G6_key_max", [](Parts& p) { p.pairs[1].key = raw(~0ull) + "a"; }, "metadata key 1 has a length"},
      {"G6_key_2_30", [](Parts& p) { p.pairs[1].key = raw(1ull << 30) + "a"; }, "metadata key 1 has a length"},
      {"G6_key_past_the_end", [](Parts& p) { p.pairs[1].key = raw(20000ull) + "a"; }, "ends within metadata key 1"},
      {"G7_key_empty", [](Parts& p) { p.pairs[1].key = text(""); }, "metadata key 1, '', is empty"},
      {"G7_key_nul", [](Parts& p) { p.pairs[1].key = text(std::string("a\0b", 3)); }, "metadata key 1, 'a\\x00b'"},
      {"G7_key_utf8", [](Parts& p) { p.pairs[1].key = text("a\xff"); }, "metadata key 1, 'a\\xff'"},
      {"G8_type_13", [](Parts& p) { p.set("k", GgufType{13}, ""); }, "key 'k' has value type 13"},
      {"G8_type_255", [](Parts& p) { p.set("k", GgufType{255}, ""); }, "key 'k' has value type 255"},
      {"G8_type_max", [](Parts& p) { p.pairs.push_back({text("k"), raw(~0u)}); }, "key 'k' has value type 4294967295"},
      {"G9_nested", [](Parts& p) { p.set("k", GgufType::array, nested_arrays(10000)); },
       "key 'k' is an array of arrays"},
      {"G9_element_13", [](Parts& p) { add_array(p, "k", 13, 1, "x"); }, "key 'k' has array element type 13"},
      {"G9_element_max", [](Parts& p) { add_array(p, "k", ~0u, 1, "x"); }, "key 'k' has array element type 4294967295"},
      {"G10_count_2_63", [](Parts& p) { add_array(p, "k", 4, k2To63, ""); }, "key 'k' has 9223372036854775808 entries"},
      {"G10_count_wraps", [](Parts& p) { add_array(p, "k", 10, (1ull << 61) + 1, "12345678"); }, "key 'k' has 2305843"},
      {"G10_count_max", [](Parts& p) { add_array(p, "k", 0, ~0ull, ""); }, "key 'k' has 18446744073709551615 entries"},
      {"G10_strings_2_62", [](Parts& p) { add_array(p, "k", 8, 1ull << 62, ""); }, "key 'k' has 4611686018427387904"},
      {"G11_string_max", [](Parts& p) { p.set("k", GgufType::string, raw(~0ull)); },
       "the value of key 'k' has a length"},
      {"G11_string_long", [](Parts& p) { p.set("k", GgufType::string, raw(9999ull)); }, "within the value of key 'k'"},
      {"G11_in_array", [](Parts& p) { add_array(p, "k", 8, 2, text("a") + raw(9999ull)); }, "the value of key 'k'"},
      {"G12_key_twice", [](Parts& p) { p.set("a.count", GgufType::u8, "x"); }, "key 'a.count' occurs twice"},
      {"G12_tensor_twice", [](Parts& p) { p.tensors[1].name = text("embd.weight"); }, "'embd.weight' occurs twice"},
      {"G13_alignment_0", [](Parts& p) { p.set("general.alignment", GgufType::u32, raw(0u)); }, "alignment' is 0"},
      {"G13_alignment_13", [](Parts& p) { p.set("general.alignment", GgufType::u32, raw(13u)); }, "alignment' is 13"},
      {"G13_alignment_2_30", [](Parts& p) { p.set("general.alignment", GgufType::u32, raw(1u << 30)); },
       "is 1073741824"},
      {"G13_alignment_2_31", [](Parts& p) { p.set("general.alignment", GgufType::u32, raw(1u << 31)); },
       "is 2147483648"},
      {"G13_alignment_i32", [](Parts& p) { p.set("general.alignment", GgufType::i32, raw(32)); }, "is of type i32"},
      {"G13_alignment_text", [](Parts& p) { p.set("general.alignment", GgufType::string, text("32")); },
       "of type string"},
      {"G14_name_64", [](Parts& p) { p.tensors[1].name = text(std::string(64, 'n')); },
       "the name of tensor 1 has a length"},
      {"G14_name_2_32", [](Parts& p) { p.tensors[1].name = raw(1ull << 32) + "n"; },
       "the name of tensor 1 has a length"},
      {"G14_name_empty", [](Parts& p) { p.tensors[1].name = text(""); }, "the name of tensor 1, '', is empty"},
      {"G15_rank_0", [](Parts& p) { p.tensors[1].rank = 0; }, "'blk.0.weight' has 0 dimensions"},
      {"G15_rank_5", [](Parts& p) { p.tensors[1].rank = 5; }, "'blk.0.weight' has 5 dimensions"},
      {"G15_rank_max", [](Parts& p) { p.tensors[1].rank = ~0u; }, "'blk.0.weight' has 4294967295 dimensions"},
      {"G16_dim_0", [](Parts& p) { p.tensors[1].dims = {64, 0}; }, "'blk.0.weight' has a dimension of 0"},
      {"G16_dim_2_63", [](Parts& p) { p.tensors[1].dims = {k2To63}; }, "'blk.0.weight' has dimensions whose product"},
      {"G17_product_wraps_1", [](Parts& p) { p.tensors[0].dims = {~0ull, 2, 1, 1}; },
       "'embd.weight' has dimensions whose"},
      {"G17_product_wraps_2", [](Parts& p) { p.tensors[0].dims = {1ull << 32, 1ull << 32}; },
       "'embd.weight' has dimensions"},
      {"G18_bytes_wrap", [](Parts& p) { p.tensors[0].dims = {1ull << 61}, p.tensors[0].type = 27; },
       "'embd.weight' has more bytes"},
      {"G19_sum_wraps",
       [](Parts& p) {
         for (auto& t : p.tensors) t.dims = {0x7fffffffffffffc0ull}, t.type = 24;
       },
       "'embd.weight' needs 9223372036854775744 bytes"},
      {"G20_block", [](Parts& p) { p.tensors[0].dims = {255}, p.tensors[0].type = 12; },
       "'embd.weight' has rows of 255"},
      {"G21_type_64", [](Parts& p) { p.tensors[0].type = 64; }, "'embd.weight' has type number 64"},
      {"G21_type_2_31", [](Parts& p) { p.tensors[0].type = 1u << 31; }, "'embd.weight' has type number 2147483648"},
      {"G21_type_max", [](Parts& p) { p.tensors[0].type = ~0u; }, "'embd.weight' has type number 4294967295"},
      {"G21_type_4", [](Parts& p) { p.tensors[0].type = 4; }, "'embd.weight' has type number 4,"},
      {"G21_type_5", [](Parts& p) { p.tensors[0].type = 5; }, "'embd.weight' has type number 5,"},
      {"G21_type_31", [](Parts& p) { p.tensors[0].type = 31; }, "'embd.weight' has type number 31,"},
      {"G21_type_32", [](Parts& p) { p.tensors[0].type = 32; }, "'embd.weight' has type number 32,"},
      {"G21_type_33", [](Parts& p) { p.tensors[0].type = 33; }, "'embd.weight' has type number 33,"},
      {"G21_type_36", [](Parts& p) { p.tensors[0].type = 36; }, "'embd.weight' has type number 36,"},
      {"G21_type_37", [](Parts& p) { p.tensors[0].type = 37; }, "'embd.weight' has type number 37,"},
      {"G21_type_38", [](Parts& p) { p.tensors[0].type = 38; }, "'embd.weight' has type number 38,"},
      {"G22_offset_unaligned", [](Parts& p) { p.tensors[1].offset = 513; }, "'blk.0.weight' lies at offset 513"},
      {"G22_offset_past_end", [](Parts& p) { p.tensors[1].offset = 4096; },
       "'blk.0.weight' needs 108 bytes at offset 4096"},
      {"G22_end_past_end", [](Parts& p) { p.data_bytes = 512 + 107; }, "'blk.0.weight' needs 108 bytes"},
      {"G22_overlap", [](Parts& p) { p.tensors[1].offset = 480; }, "'embd.weight' and 'blk.0.weight' overlap"},
      {"G22_same_place", [](Parts& p) { p.tensors[1].offset = 0; }, "overlap"},
      {"G22_offset_max", [](Parts& p) { p.tensors[1].offset = ~0ull - 31; },
       "'blk.0.weight' needs 108 bytes at offset"},
      {"G23_one_byte_short", [](Parts& p) { p.data_bytes = 512 + 108, p.missing_bytes = 1; },
       "'blk.0.weight' needs 108"},
      {"G23_half", [](Parts& p) { p.missing_bytes = 320; }, "'embd.weight' needs 512 bytes"},
  };
  return all;
}

class MalformedGguf : public testing::TestWithParam<Case> {};

TEST_P(MalformedGguf, IsRefused) {
  Parts parts = good();
  GetParam().damage(parts);
  const std::string bytes = parts.file();
  const auto source = memory_file(bytes, "bad.gguf");
  std::string message;
  const Cost cost = cost_of([&] {
    const auto file = Gguf::read(source);
    message = file ? "no error" : file.error().message;
  });
  EXPECT_NE(message.find(GetParam().expected), std::string::npos)
      << "the message is \"" << message << "\", expected \"" << GetParam().expected << "\" in it";
  EXPECT_NE(message.find("'bad.gguf'"), std::string::npos) << message;
  EXPECT_LT(cost.heap, bytes.size() + (1u << 20));
  EXPECT_LT(cost.seconds, seconds(0.1));
}

INSTANTIATE_TEST_SUITE_P(Cases, MalformedGguf, testing::ValuesIn(cases()),
                         [](const auto& one) { return one.param.name; });

TEST(MalformedGgufTable, TheUndamagedFileIsRead) {
  const auto file = Gguf::read(memory_file(good().file()));
  EXPECT_TRUE(file) << file.error().message;
}

// G1 and G23: cut at every length, mapped and in pieces.
TEST(MalformedGgufTable, CutAnywhere) {
  Parts parts = good();
  parts.data_bytes = 512 + 108;
  const std::string whole = parts.file();
  for (std::size_t n = 0; n < whole.size(); n++) {
    const auto file = Gguf::read(memory_file(std::string_view(whole).substr(0, n), "cut.gguf"));
    ASSERT_FALSE(file) << "cut after " << n << " bytes";
    ASSERT_NE(file.error().message.find("'cut.gguf'"), std::string::npos) << file.error().message;
  }
  EXPECT_TRUE(Gguf::read(memory_file(whole)));
}

// Reads all that a file claims to have.
void use(const Gguf& file) {
  std::size_t used = 0;
  for (const auto& [key, value] : file.metadata()) {
    const auto count = [&](const auto& result) { used += result.has_value(); };
    count(file.get_u64(key)), count(file.get_f32(key)), count(file.get_bool(key)), count(file.get_numbers(key));
    count(file.per_layer_u32(key, 2));
    if (const auto s = file.get_string(key)) used += s->size();
    if (const auto all = file.get_strings(key))
      for (const std::string_view s : *all) used += s.size();
  }
  for (const GgufTensor& t : file.tensors()) {
    ASSERT_EQ(file.tensor(t.name), &t);
    ASSERT_LE(t.offset + t.bytes, file.source()->size());
  }
}

TEST(MalformedGgufTable, FlippedBytes) {
  const std::string whole = good().file();
  const std::size_t header = whole.size() - 640;
  Random random(20);
  std::size_t read = 0;
  for (int round = 0; round < 20000; round++) {
    std::string bytes = whole;
    for (std::uint32_t flips = 1 + random.next() % 4; flips > 0; flips--)
      bytes[random.next() % header] = static_cast<char>(random.next());
    const auto file = Gguf::read(memory_file(bytes));
    if (!file) continue;
    read++;
    use(*file);
  }
  EXPECT_GT(read, 100u) << "most flips in names and values leave a file that can be read";
}

// A file of `size` bytes that begins with `head`; the rest repeats `filler`.
class LargeFile final : public ByteSource {
 public:
  LargeFile(std::string head, std::uint64_t size, std::string filler = std::string(1, '\0'))
      : head_(std::move(head)), filler_(std::move(filler)), size_(size) {}
  std::uint64_t size() const override { return size_; }
  const std::string& name() const override { return name_; }
  Result<> read(std::uint64_t offset, std::span<std::byte> dst) const override {
    if (offset > size_ || dst.size() > size_ - offset) return fail(ErrorCode::io, "past the end");
    for (std::size_t i = 0; i < dst.size(); i++) {
      const std::uint64_t at = offset + i;
      dst[i] = static_cast<std::byte>(at < head_.size() ? head_[at] : filler_[(at - head_.size()) % filler_.size()]);
    }
    return {};
  }

 private:
  std::string name_ = "large.gguf", head_, filler_;
  std::uint64_t size_;
};

std::string start(std::uint64_t tensors, std::uint64_t pairs) {
  return "GGUF" + raw(std::uint32_t{3}) + raw(tensors) + raw(pairs);
}

// Large files could hold what these headers claim; it must still not be believed for long.
TEST(MalformedGgufTable, LargeFilesCostLittle) {
  const std::uint64_t size = std::uint64_t{1} << 40;
  const std::string array = text("k") + raw(std::uint32_t{9});
  const struct {
    std::string head, expected;
  } large[] = {
      {start(1ull << 34, 0), "tensor count 17179869184 is above the limit"},
      {start(0, 1ull << 35), "metadata count 34359738368 is above the limit"},
      {start(0, 1) + text("k") + raw(std::uint32_t{8}) + raw(1ull << 39),
       "the value of key 'k' has a length of 549755813888"},
      {start(0, 1) + text("k") + raw(std::uint32_t{8}) + raw(100ull << 20),
       "the value of key 'k' has a length of 104857600"},
      {start(0, 1) + array + raw(std::uint32_t{8}) + raw(1ull << 36), "key 'k' has 68719476736 strings"},
      {start(0, 1) + array + raw(std::uint32_t{0}) + raw(1ull << 39), "more than 268.4 MB of metadata"},
  };
  for (const auto& [head, expected] : large) {
    const auto source = std::make_shared<LargeFile>(head, size);
    std::string message;
    const Cost cost = cost_of([&] {
      const auto file = Gguf::read(source);
      message = file ? "no error" : file.error().message;
    });
    EXPECT_NE(message.find(expected), std::string::npos)
        << "the message is \"" << message << "\", expected " << expected;
    EXPECT_LT(cost.heap, 8u << 20) << expected;
    EXPECT_LT(cost.seconds, seconds(0.1)) << expected;
  }
}

// As many tensors as may be, all alike but for what must differ.
TEST(MalformedGgufTable, ManyTensorsWithinTheLimits) {
  Parts parts;
  for (std::uint64_t i = 0; i < kMaxGgufTensors; i++)
    parts.tensors.push_back({text(std::to_string(i)), {1}, 24, 32 * i, {}});
  parts.data_bytes = 32 * kMaxGgufTensors;
  const std::string bytes = parts.file();
  const auto source = memory_file(bytes);
  const Cost cost = cost_of([&] {
    const auto file = Gguf::read(source);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_TRUE(file->tensor("131071"));
  });
  EXPECT_LT(cost.heap, bytes.size() + (64u << 20));
  parts.tensors.push_back({text("one more"), {1}, 24, 32, {}});
  const auto file = Gguf::read(memory_file(parts.file()));
  EXPECT_FALSE(file) << "one tensor above the limit";
}

// A source that fails does not go unnoticed, and one that is shorter than it says (a file cut after it was opened).
TEST(MalformedGgufTable, FailingReads) {
  class Failing final : public ByteSource {
   public:
    std::uint64_t size() const override { return 4096; }
    const std::string& name() const override { return name_; }
    Result<> read(std::uint64_t, std::span<std::byte>) const override {
      return fail(ErrorCode::io, "the disk is gone");
    }

   private:
    std::string name_ = "failing.gguf";
  };
  const auto file = Gguf::read(std::make_shared<Failing>());
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().message, "the disk is gone");
  EXPECT_EQ(file.error().code, ErrorCode::io);
}

}  // namespace
}  // namespace rullama::test
