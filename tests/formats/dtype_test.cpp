// Codecs of the weight formats.
#include "formats/dtype.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
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

// Root of the mean square error of random normal values, relative to theirs.
TEST(DType, EncodersKeepTheError) {
  const std::map<DType, double> bounds = {{DType::F32, 0},      {DType::F16, 3e-4},   {DType::BF16, 2.5e-3},
                                          {DType::Q8_0, 6e-3},  {DType::Q4_0, 0.095}, {DType::Q4_1, 0.085},
                                          {DType::Q5_0, 0.048}, {DType::Q5_1, 0.042}, {DType::Q4_K, 0.085},
                                          {DType::Q5_K, 0.042}, {DType::Q6_K, 0.022}};
  Random random(7);
  std::vector<float> values(256 * 64);
  for (float& v : values) v = static_cast<float>(random.normal());
  for (const DType type : kWeightTypes) {
    const auto found = round_trip(type, values);
    double error = 0, whole = 0;
    for (std::size_t i = 0; i < values.size(); i++) {
      error += std::pow(static_cast<double>(found[i]) - values[i], 2);
      whole += std::pow(static_cast<double>(values[i]), 2);
    }
    EXPECT_LE(std::sqrt(error / whole), bounds.at(type)) << name(type);
  }
}

// Encoding what was decoded changes nothing more: a file can be written again.
TEST(DType, EncodersKeepZerosAndEqualValues) {
  const std::vector<float> zeros(512, 0.f), minus(512, -0.75f), plus(512, 0.75f);
  for (const DType type : kWeightTypes) {
    for (const float v : round_trip(type, zeros)) ASSERT_EQ(v, 0.f) << name(type);
    for (const auto* values : {&minus, &plus})
      for (const float v : round_trip(type, *values)) ASSERT_NEAR(v, values->front(), 0.06) << name(type);
  }
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
