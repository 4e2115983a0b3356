// What another engine computed on the tiny models: tests/data/expected/NAME.{json,safetensors}.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace rullama::test {

struct GoldenPrompt {
  std::string id, text;
  std::vector<std::uint32_t> tokens, greedy;
  std::vector<double> greedy_margin;
  std::size_t first_logit_row = 0;
};

struct Golden {
  std::string name, scheme;
  std::vector<GoldenPrompt> prompts;
  std::map<std::string, std::vector<float>> values;  // "short.layer0.out", row-major
  [[nodiscard]] const GoldenPrompt& prompt(const std::string& id) const {
    for (const GoldenPrompt& p : prompts)
      if (p.id == id) return p;
    ADD_FAILURE() << name << " has no prompt " << id;
    return prompts.front();
  }
};

inline std::string data_path(const std::string& below) { return std::string(RULLAMA_TEST_DATA) + "/" + below; }

inline std::string file_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << "cannot read " << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

// The F32 tensors of a safetensors file that this repository made.
inline std::map<std::string, std::vector<float>> read_f32(const std::string& path) {
  const std::string bytes = file_text(path);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  const auto header = nlohmann::json::parse(bytes.substr(8, length));
  std::map<std::string, std::vector<float>> out;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__" || entry.at("dtype") != "F32") continue;
    const std::size_t begin = entry.at("data_offsets")[0], end = entry.at("data_offsets")[1];
    std::vector<float> values((end - begin) / 4);
    std::memcpy(values.data(), bytes.data() + 8 + length + begin, end - begin);
    out.emplace(name, std::move(values));
  }
  return out;
}

inline Golden read_golden(const std::string& name) {
  Golden golden;
  golden.name = name;
  const auto json = nlohmann::json::parse(file_text(data_path("expected/" + name + ".json")));
  golden.scheme = json.at("scheme");
  for (const auto& p : json.at("prompts")) {
    GoldenPrompt prompt{p.at("id"),     p.at("text"),          p.at("tokens"),
                        p.at("greedy"), p.at("greedy_margin"), p.at("first_logit_row")};
    golden.prompts.push_back(std::move(prompt));
  }
  golden.values = read_f32(data_path("expected/" + name + ".safetensors"));
  return golden;
}

inline const std::vector<std::string>& golden_names() {
  static const std::vector<std::string> names = {
      "g3-270m.f16", "g3-270m.q8_0",    "g3-270m-k.q4_k_m", "g4-e2b.f32",  "g4-e2b.q4_0",    "g4-e2b-k.q4_k_m",
      "g4-12b.f16",  "g4-12b-k.q4_k_m", "g4-26b.f16",       "g4-26b.q8_0", "g4-26b-k.q4_k_m"};
  return names;
}

// Fails with the worst element if any |found - expected| is above `tolerance`.
inline void expect_close(std::span<const float> expected, std::span<const float> found, double tolerance,
                         const std::string& what) {
  ASSERT_EQ(expected.size(), found.size()) << what;
  std::size_t worst = 0;
  double most = -1;
  for (std::size_t i = 0; i < expected.size(); i++) {
    const double d = std::abs(static_cast<double>(expected[i]) - found[i]);
    if (!(d <= most)) most = d, worst = i;
    if (d != d) break;
  }
  EXPECT_LE(most, tolerance) << what << ": element " << worst << " is " << found[worst] << ", expected "
                             << expected[worst];
}

}  // namespace rullama::test
