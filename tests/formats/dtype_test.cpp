// Codecs of the weight formats.
#include "formats/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/half.h"
#include "base/random.h"
#include "formats/ggml_types.h"
#include "formats/safetensors.h"
#include "host/native/mapped_file.h"

namespace rullama::test {
namespace {

constexpr DType kWeightTypes[] = {DType::F32,  DType::F16,  DType::BF16, DType::Q8_0, DType::Q4_0, DType::Q4_1,
                                  DType::Q5_0, DType::Q5_1, DType::Q4_K, DType::Q5_K, DType::Q6_K};

struct File {
  Safetensors table;
  std::vector<std::byte> bytes(const std::string& name) const {
    const SafetensorsTensor* t = table.tensor(name);
    EXPECT_TRUE(t) << name << " is not in the test data";
    std::vector<std::byte> out(t ? t->bytes : 0);
    if (t) {
      EXPECT_TRUE(table.source()->read(t->offset, out));
    }
    return out;
  }
  std::vector<float> floats(const std::string& name) const {
    const auto raw = bytes(name);
    std::vector<float> out(raw.size() / 4);
    std::memcpy(out.data(), raw.data(), raw.size());
    return out;
  }
};

File open(const std::string& below) {
  auto source = open_mapped(std::string(RULLAMA_TEST_DATA) + "/" + below);
  EXPECT_TRUE(source) << source.error().message;
  auto table = Safetensors::read(*source);
  EXPECT_TRUE(table) << table.error().message;
  return {std::move(*table)};
}

std::vector<float> decode(DType type, std::span<const std::byte> raw) {
  const DTypeInfo& t = info(type);
  const std::size_t blocks = raw.size() / t.block_bytes;
  std::vector<float> out(blocks * t.block_elements);
  t.decode(raw.data(), blocks, out.data());
  return out;
}

std::vector<float> round_trip(DType type, const std::vector<float>& values) {
  const DTypeInfo& t = info(type);
  std::vector<std::byte> raw(row_bytes(type, values.size()));
  t.encode(values.data(), values.size() / t.block_elements, raw.data());
  return decode(type, raw);
}

TEST(DType, TableAgreesWithItself) {
  for (const DType type : kWeightTypes) {
    const DTypeInfo& t = info(type);
    SCOPED_TRACE(t.name);
    EXPECT_EQ(std::accumulate(t.fields.begin(), t.fields.end(), 0u), t.block_bytes);
    EXPECT_EQ(dtype_of_ggml(t.ggml_id), type);
    EXPECT_EQ(dtype_of_name(t.name), type);
    EXPECT_EQ(ggml_type(t.ggml_id).name, t.name);
    EXPECT_EQ(ggml_type(t.ggml_id).block_elements, t.block_elements);
    EXPECT_EQ(ggml_type(t.ggml_id).block_bytes, t.block_bytes);
    EXPECT_EQ(row_bytes(type, 512), 512 / t.block_elements * t.block_bytes);
  }
  EXPECT_FALSE(dtype_of_ggml(info(DType::U32).ggml_id)) << "no file may ask for the engine's own type";
  EXPECT_FALSE(dtype_of_ggml(17));
}

TEST(DType, DecodesRandomBlocksToTheBit) {
  const File file = open("quant/blocks.safetensors");
  for (const DType type : kWeightTypes) {
    if (type == DType::F32) continue;
    const std::string name(info(type).name);
    const auto expected = file.floats(name + ".f32"), found = decode(type, file.bytes(name + ".raw"));
    ASSERT_EQ(found.size(), expected.size()) << name;
    for (std::size_t i = 0; i < found.size(); i++)
      ASSERT_EQ(std::bit_cast<std::uint32_t>(found[i]), std::bit_cast<std::uint32_t>(expected[i]))
          << name << " element " << i << " is " << found[i] << ", expected " << expected[i];
  }
}

// Rows of whole matrices, through the products that the reference made of them.
TEST(DType, DecodedMatricesGiveTheReferenceProducts) {
  const File file = open("quant/matmul.safetensors");
  for (const DType type : kWeightTypes) {
    const std::string name(info(type).name);
    if (!file.table.tensor(name + ".w_raw")) continue;
    const auto w = decode(type, file.bytes(name + ".w_raw")), x = file.floats(name + ".x"),
               y = file.floats(name + ".y");
    const std::size_t columns = x.size() / 5, rows = y.size() / 5;
    ASSERT_EQ(w.size(), rows * columns) << name;
    for (std::size_t t = 0; t < 5; t++)
      for (std::size_t r = 0; r < rows; r++) {
        double sum = 0;
        for (std::size_t c = 0; c < columns; c++) sum += static_cast<double>(w[r * columns + c]) * x[t * columns + c];
        ASSERT_NEAR(sum, y[t * rows + r], 1e-6 + 1e-6 * std::fabs(sum)) << name << " row " << r;
      }
  }
}

// Root of the mean square error, relative to the values'.
double relative_error(std::span<const float> found, std::span<const float> values) {
  double error = 0, whole = 0;
  for (std::size_t i = 0; i < values.size(); i++) {
    error += std::pow(static_cast<double>(found[i]) - values[i], 2);
    whole += std::pow(static_cast<double>(values[i]), 2);
  }
  return std::sqrt(error / whole);
}

std::vector<float> normal(std::size_t count) {
  Random random(7);
  std::vector<float> values(count);
  for (float& v : values) v = static_cast<float>(random.normal());
  return values;
}
// Student's t with three degrees of freedom: now and then a value far from the others.
std::vector<float> heavy_tailed(std::size_t count) {
  Random random(8);
  std::vector<float> values(count);
  for (float& v : values) {
    double chi = 0;
    for (int k = 0; k < 3; k++) chi += std::pow(random.normal(), 2);
    v = static_cast<float>(0.02 * random.normal() / std::sqrt(chi / 3));
  }
  return values;
}

// Without a search (the gguf package, a million values) Q8_0 to Q5_1 have 0.00535, 0.0860, 0.0783, 0.0427, 0.0379 on
// normal values and 0.0085, 0.128, 0.101, 0.066, 0.049 on heavy-tailed ones.
TEST(DType, EncodersKeepTheError) {
  struct Bound {
    DType type;
    double normal, heavy;
  };
  constexpr Bound bounds[] = {{DType::F32, 0, 0},
                              {DType::F16, 2.2e-4, 2.2e-4},
                              {DType::BF16, 1.7e-3, 1.7e-3},
                              {DType::Q8_0, 0.0051, 0.0085},
                              {DType::Q4_0, 0.082, 0.128},
                              {DType::Q4_1, 0.071, 0.094},
                              {DType::Q5_0, 0.041, 0.066},
                              {DType::Q5_1, 0.034, 0.046},
                              {DType::Q4_K, 0.072, 0.096},
                              {DType::Q5_K, 0.0355, 0.048},
                              {DType::Q6_K, 0.0168, 0.026}};
  const auto values = normal(256 * 256), tailed = heavy_tailed(256 * 256);
  for (const Bound& b : bounds) {
    EXPECT_LE(relative_error(round_trip(b.type, values), values), b.normal) << name(b.type);
    EXPECT_LE(relative_error(round_trip(b.type, tailed), tailed), b.heavy) << name(b.type);
  }
}

bool k_quant(DType type) { return info(type).block_elements == 256; }

// A file can be written again: what was decoded encodes to the same values, and in K-quants, whose steps are not
// told by the values alone, to far less than a rounding away.
TEST(DType, EncodersMeetDecodedValuesAgain) {
  const File file = open("quant/blocks.safetensors");
  for (const DType type : kWeightTypes) {
    auto values = normal(256 * 64);
    if (type != DType::F32) {
      const auto random = file.floats(std::string(name(type)) + ".f32");  // of any codes, not those of an encoder
      const auto again = round_trip(type, random);
      if (!k_quant(type)) {
        for (std::size_t i = 0; i < random.size(); i++)
          ASSERT_EQ(again[i], random[i]) << name(type) << " element " << i;
      }
      EXPECT_LE(relative_error(again, random), 0.02) << name(type);
    }
    const auto once = round_trip(type, values), twice = round_trip(type, once);
    if (k_quant(type)) {
      EXPECT_LE(relative_error(twice, once), relative_error(once, values) / 10) << name(type);
    } else {
      EXPECT_EQ(twice, once) << name(type);
    }
  }
}

TEST(DType, EncodersKeepZerosAndEqualValues) {
  const std::vector<float> zeros(512, 0.f), minus_zeros(512, -0.f);
  for (const DType type : kWeightTypes) {
    for (const auto* values : {&zeros, &minus_zeros})
      for (const float v : round_trip(type, *values)) ASSERT_EQ(v, 0.f) << name(type);
    for (const float value : {-0.75f, 0.75f, 1e-3f, -300.f})
      for (const float v : round_trip(type, std::vector<float>(512, value)))
        ASSERT_NEAR(v, value, std::fabs(value) * 0.01) << name(type);
  }
}

// Beyond what scales can hold, values become large or zero, never infinite; the others of the block stay in order.
TEST(DType, EncodersTakeAnyMagnitude) {
  for (const DType type : kWeightTypes)
    for (const float scale : {1e-45f, 1e-38f, 1e-20f, 1e-9f, 1e-7f, 1e-6f, 1e-4f, 1e4f, 1e6f, 1e9f, 1e20f, 1e37f}) {
      auto values = normal(512);
      for (float& v : values) v *= scale;
      const auto found = round_trip(type, values);
      for (std::size_t i = 0; i < found.size(); i++) {
        ASSERT_TRUE(std::isfinite(found[i])) << name(type) << " makes " << found[i] << " of " << values[i];
        ASSERT_LE(std::fabs(found[i]), std::fabs(values[i]) + 8 * scale) << name(type) << " of " << values[i];
      }
      // a half holds steps from 6e-8 to 65504; below, it has few bits
      if (scale >= 1e-4f && scale <= 1e4f) {
        EXPECT_LE(relative_error(found, values), 0.1) << name(type) << " at " << scale;
      }
    }
}

TEST(DType, ValuesThatAreNoNumbersAreAnErrorAndTheirEncodingDefined) {
  for (const DType type : kWeightTypes)
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      auto values = normal(512);
      values[300] = bad;
      std::vector<std::byte> out(row_bytes(type, values.size()));
      const auto done = encode(type, values, out);
      ASSERT_FALSE(done) << name(type);
      EXPECT_NE(done.error().message.find(name(type)), std::string::npos) << done.error().message;
      round_trip(type, values);  // for the sanitizers
    }
  std::vector<std::byte> half_a_block(72);
  EXPECT_FALSE(encode(DType::Q4_K, normal(128), half_a_block));
}

TEST(DType, DecodersDoNotNeedAlignedBlocks) {
  const File file = open("quant/blocks.safetensors");
  for (const DType type : kWeightTypes) {
    if (type == DType::F32) continue;
    auto raw = file.bytes(std::string(name(type)) + ".raw");
    const auto expected = decode(type, raw);
    raw.insert(raw.begin(), std::byte{0});
    const auto found = decode(type, std::span(raw).subspan(1));
    EXPECT_TRUE(std::ranges::equal(found, expected)) << name(type);
  }
}

TEST(GgmlTypes, RemovedAndUnknownNumbersHaveNoName) {
  for (const std::uint32_t id : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 64u, 1u << 31, ~0u})
    EXPECT_TRUE(ggml_type(id).name.empty()) << id;
  EXPECT_EQ(ggml_type(39).name, "MXFP4");
}

}  // namespace
}  // namespace rullama::test
