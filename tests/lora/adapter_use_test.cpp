// Adapters at run time: through the library's API, on the CPU and on a GPU.
#include <cmath>

#include "lora/adapter_file.h"
#include "runtime/sequence.h"
#include "train/lora_case.h"

namespace rullama::test {
namespace {

std::vector<float> logits_of(Sequence& sequence) {
  const auto logits = sequence.logits();
  EXPECT_TRUE(logits) << logits.error().message;
  return logits ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>{};
}

double mean_loss(Sequence& sequence, const LoraCase& c) {
  double sum = 0;
  EXPECT_TRUE(sequence.append(c.tokens, [&](std::uint32_t position, std::span<const float> logits) {
    if (position + 1 < c.first_target || position + 1 >= c.tokens.size()) return true;
    double largest = -1e30, all = 0;
    for (const float l : logits) largest = std::max(largest, static_cast<double>(l));
    for (const float l : logits) all += std::exp(static_cast<double>(l) - largest);
    sum += largest + std::log(all) - static_cast<double>(logits[c.tokens[position + 1]]);
    return true;
  }));
  return sum / static_cast<double>(c.tokens.size() - c.first_target);
}

class UseTest : public ::testing::TestWithParam<Where> {
 protected:
  void SetUp() override {
    if (GetParam() == Where::gpu && !backend(Where::gpu)) GTEST_SKIP() << "no GPU driver";
  }
  std::unique_ptr<Sequence> sequence(const std::shared_ptr<TextModel>& model) {
    auto made = Sequence::make(model, Precision::exact, 64, 16, DType::F32);
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
};

// The adapted model in inference is the one that torch trains.
TEST_P(UseTest, TheLossIsTorchs) {
  for (const char* name : {"e2b-f32", "e2b-f32-global", "g3-f16", "26b-f16"}) {
    const LoraCase c = read_lora_case(name);
    const auto model = load_golden_model(c.base, GetParam());
    const auto s = sequence(model);
    s->set_adapters({{case_adapter(c, *model), 1}});
    EXPECT_NEAR(mean_loss(*s, c), c.loss, 1e-3 * c.loss) << name;
  }
}

// On, off and on again within a session; off is the base model to the bit.
TEST_P(UseTest, HotSwapLeavesNoTrace) {
  const LoraCase c = read_lora_case("e2b-f32");
  const auto model = load_golden_model(c.base, GetParam());
  const auto adapter = case_adapter(c, *model);
  const auto base = sequence(model), adapted = sequence(model), swapped = sequence(model);
  adapted->set_adapters({{adapter, 1}});
  for (Sequence* s : {base.get(), adapted.get(), swapped.get()}) ASSERT_TRUE(s->append(c.tokens));
  const auto plain = logits_of(*base), changed = logits_of(*adapted);
  EXPECT_NE(plain, changed);
  EXPECT_EQ(logits_of(*swapped), plain);
  swapped->set_adapters({{adapter, 1}});
  EXPECT_EQ(logits_of(*swapped), changed);
  swapped->set_adapters({});
  EXPECT_EQ(logits_of(*swapped), plain);
  swapped->set_adapters({{adapter, 0}});
  EXPECT_EQ(logits_of(*swapped), plain) << "strength 0";
}

// Twice at half the strength is once; a prompt in pieces and one in one piece agree.
TEST_P(UseTest, SeveralAddUp) {
  const LoraCase c = read_lora_case("e2b-f32-global");
  const auto model = load_golden_model(c.base, GetParam());
  const auto adapter = case_adapter(c, *model);
  const auto once = sequence(model), twice = sequence(model);
  once->set_adapters({{adapter, 1}});
  twice->set_adapters({{adapter, 0.25f}, {adapter, 0.75f}});
  ASSERT_TRUE(once->append(c.tokens));
  for (const Token t : c.tokens) ASSERT_TRUE(twice->append(std::span(&t, 1)) && twice->logits());
  const auto a = logits_of(*once), b = logits_of(*twice);
  for (std::size_t i = 0; i < a.size(); i++) ASSERT_NEAR(a[i], b[i], 1e-3) << "token " << i;
}

INSTANTIATE_TEST_SUITE_P(Adapters, UseTest, ::testing::Values(Where::cpu, Where::gpu),
                         [](const auto& row) { return place_name(row.param); });

}  // namespace
}  // namespace rullama::test
