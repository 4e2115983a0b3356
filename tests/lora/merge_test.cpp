// Adapters worked into a model's file: the new file is the model with its adapters, and all else is as it was.
#include "lora/merge.h"

#include <cmath>
#include <limits>

#include "base/random.h"
#include "runtime/sequence.h"
#include "support/bytes.h"
#include "support/model.h"
#include "train/lora_setup.h"

namespace rullama::test {
namespace {

const std::vector<Token> kTokens = {2, 281, 382, 310, 17, 5, 99, 402};

struct Base {
  explicit Base(const std::string& name)
      : file(*Gguf::read(*open_mapped(data_path("models/" + name + ".gguf")))),
        model(load_golden_model(name, Where::cpu)) {}
  Gguf file;
  std::shared_ptr<TextModel> model;

  // A and B of normal values on every map of these kinds that the model has, the change `size` of a usual weight.
  [[nodiscard]] std::shared_ptr<Adapter> adapter(const std::vector<Target>& targets, double size) const {
    auto all = std::make_shared<Adapter>();
    for (const Target target : targets) {
      LoraSetup setup;
      setup.rank = 3;
      setup.alpha = 3;
      setup.targets = {target};
      auto made = make_adapter(*model, setup);
      if (!made) continue;
      all->pairs.insert(all->pairs.end(), made->pairs.begin(), made->pairs.end());
    }
    Random random(5);
    for (const AdapterPair& pair : all->pairs)
      for (Tensor* t : {pair.a.get(), pair.b.get()}) {
        std::vector<float> values(t->desc().shape.elements());
        for (float& v : values) v = static_cast<float>(random.normal() * std::sqrt(size));
        EXPECT_TRUE(model->backend->write(*t, 0, std::as_bytes(std::span(values))));
      }
    return all;
  }

  [[nodiscard]] Result<std::string> merged(std::span<const ActiveAdapter> adapters, const MergeOptions& how = {},
                                           std::vector<MergedTensor>* report = nullptr) const {
    const auto plan = MergePlan::make(file, model->config, model->weights, *model->backend, adapters, how);
    if (!plan) return std::unexpected(plan.error());
    MemorySink sink;
    auto tensors = plan->write(sink);
    if (!tensors) return failed(tensors);
    if (report) *report = *tensors;
    return std::move(sink.bytes);
  }

  [[nodiscard]] std::string bytes_of(const GgufTensor& t) const { return bytes_of(file, t); }
  static std::string bytes_of(const Gguf& of, const GgufTensor& t) {
    std::string bytes(t.bytes, 0);
    EXPECT_TRUE(of.source()->read(t.offset, std::as_writable_bytes(std::span(bytes))));
    return bytes;
  }
};

std::vector<float> logits(const std::shared_ptr<TextModel>& model, std::vector<ActiveAdapter> adapters = {}) {
  auto s = Sequence::make(model, Precision::exact, 16, 16, DType::F32);
  EXPECT_TRUE(s) << s.error().message;
  (*s)->set_adapters(std::move(adapters));
  EXPECT_TRUE((*s)->append(kTokens));
  const auto out = (*s)->logits();
  EXPECT_TRUE(out) << out.error().message;
  return {out->begin(), out->end()};
}

// Root mean square difference of the logits, relative to what the adapters change of them.
double difference(std::span<const float> found, std::span<const float> expected, std::span<const float> base) {
  double error = 0, change = 0;
  for (std::size_t i = 0; i < found.size(); i++) {
    error += std::pow(static_cast<double>(found[i]) - expected[i], 2);
    change += std::pow(static_cast<double>(base[i]) - expected[i], 2);
  }
  return std::sqrt(error / change);
}

std::vector<Target> all_targets() {
  std::vector<Target> all;
  for (auto t = static_cast<std::uint8_t>(Target::q); t <= static_cast<std::uint8_t>(Target::embed_tokens); t++)
    all.push_back(static_cast<Target>(t));
  return all;
}

class MergeTest : public ::testing::TestWithParam<std::string> {};

// Every model, both dialects, every map that can carry an adapter, embeddings apart from the head they are tied to.
TEST_P(MergeTest, InF32TheMergedModelIsTheAdaptedOne) {
  const Base base(GetParam());
  const std::vector<ActiveAdapter> adapters{{base.adapter(all_targets(), 0.004), 0.5f},
                                            {base.adapter({Target::q, Target::down}, 0.002), 2}};
  const auto file = base.merged(adapters, {.type = DType::F32});
  ASSERT_TRUE(file) << file.error().message;
  const auto merged = logits(load_model(memory_file(*file), base.model->backend));
  const auto expected = logits(base.model, adapters), before = logits(base.model);
  EXPECT_LE(difference(merged, expected, before), 1e-4);
}

// In its own types the merged model is as near as they allow: the rounding is less than the change.
TEST_P(MergeTest, InItsOwnTypesTheMergedModelIsNear) {
  const Base base(GetParam());
  const std::vector<ActiveAdapter> adapters{
      {base.adapter({Target::q, Target::v, Target::o, Target::up, Target::down}, 0.004), 1}};
  std::vector<MergedTensor> report;
  const auto file = base.merged(adapters, {}, &report);
  ASSERT_TRUE(file) << file.error().message;
  const auto merged = logits(load_model(memory_file(*file), base.model->backend));
  const auto expected = logits(base.model, adapters), before = logits(base.model);
  double bound = 0;  // 0.004 in F16, 0.1 in Q8_0, about 0.6 in K-quants, 0.9 in Q4_0
  for (const MergedTensor& t : report) {
    EXPECT_EQ(t.from, t.to) << t.name;
    EXPECT_LE(t.norms.relative_rounding(), 1) << t.name;
    bound = std::max(bound, t.norms.relative_rounding());
  }
  EXPECT_LE(difference(merged, expected, before), 1.5 * bound + 1e-4);
}

// What no adapter touches is copied to the bit, and so is everything at strength 0.
TEST_P(MergeTest, TheRestIsCopied) {
  const Base base(GetParam());
  const auto adapter = base.adapter({Target::k, Target::gate, Target::per_layer_gate}, 0.01);
  std::vector<MergedTensor> report;
  const std::vector<ActiveAdapter> adapters{{adapter, 1}}, off{{adapter, 0}};
  const auto file = base.merged(adapters, {}, &report);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(report.size(), adapter->pairs.size());
  const auto merged = Gguf::read(memory_file(*file));
  ASSERT_TRUE(merged) << merged.error().message;
  ASSERT_EQ(merged->tensors().size(), base.file.tensors().size());
  for (const GgufTensor& t : base.file.tensors()) {
    const GgufTensor* found = merged->tensor(t.name);
    ASSERT_TRUE(found) << t.name;
    EXPECT_EQ(found->ggml_type, t.ggml_type) << t.name;
    const bool touched = std::ranges::find(report, t.name, &MergedTensor::name) != report.end();
    EXPECT_EQ(base.bytes_of(t) != Base::bytes_of(*merged, *found), touched) << t.name;
  }
  ASSERT_EQ(merged->metadata().size(), base.file.metadata().size());
  for (const auto& [key, value] : base.file.metadata()) {
    const GgufValue* found = merged->find(key);
    ASSERT_TRUE(found) << key;
    EXPECT_TRUE(found->type == value.type && std::ranges::equal(found->data, value.data)) << key;
  }

  const auto same = base.merged(off, {.type = DType::Q8_0}, &report);
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_TRUE(report.empty());
  EXPECT_EQ(*same, file_text(data_path("models/" + GetParam() + ".gguf")));
}

INSTANTIATE_TEST_SUITE_P(Models, MergeTest, ::testing::ValuesIn(golden_names()), [](const auto& row) {
  std::string name = row.param;
  std::ranges::replace_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

// A change far below the steps of four bits vanishes rather than become noise, and the report says so.
TEST(Merge, RoundingNeverTakesMoreThanTheChange) {
  for (const char* name : {"g4-e2b.q4_0", "g4-e2b-k.q4_k_m", "g3-270m.q8_0"}) {
    const Base base(name);
    const std::vector<ActiveAdapter> adapters{{base.adapter({Target::q, Target::down}, 1e-6), 1}};
    std::vector<MergedTensor> report;
    ASSERT_TRUE(base.merged(adapters, {}, &report));
    for (const MergedTensor& t : report) {
      EXPECT_GT(t.norms.relative_rounding(), 0.2) << name << " " << t.name;
      EXPECT_LE(t.norms.relative_rounding(), 1) << name << " " << t.name;
    }
  }
}

TEST(Merge, ATiedHeadBecomesATensorOfItsOwn) {
  const Base base("g3-270m.q8_0");
  for (const Target target : {Target::lm_head, Target::embed_tokens}) {
    const std::vector<ActiveAdapter> adapters{{base.adapter({target}, 0.01), 1}};
    std::vector<MergedTensor> report;
    const auto file = base.merged(adapters, {}, &report);
    ASSERT_TRUE(file) << file.error().message;
    const auto merged = Gguf::read(memory_file(*file));
    ASSERT_TRUE(merged) << merged.error().message;
    const GgufTensor *head = merged->tensor("output.weight"), *table = merged->tensor("token_embd.weight");
    ASSERT_TRUE(head && table);
    const std::string before = base.bytes_of(*base.file.tensor("token_embd.weight"));
    EXPECT_EQ(Base::bytes_of(*merged, *head) == before, target == Target::embed_tokens);
    EXPECT_EQ(Base::bytes_of(*merged, *table) == before, target == Target::lm_head);
    EXPECT_TRUE(std::ranges::find(report, "output.weight", &MergedTensor::name)->added);
  }
}

TEST(Merge, ThreadsDoNotChangeTheResult) {
  const Base base("g4-e2b-k.q4_k_m");
  const std::vector<ActiveAdapter> adapters{{base.adapter(all_targets(), 0.01), 1}};
  const auto crew = make_crew(3);
  std::vector<MergedTensor> alone, together;
  const auto a = base.merged(adapters, {}, &alone), b = base.merged(adapters, {.crew = crew.get()}, &together);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(*a, *b);
  for (std::size_t i = 0; i < alone.size(); i++)
    EXPECT_EQ(alone[i].norms.relative_rounding(), together[i].norms.relative_rounding());
}

TEST(Merge, Refusals) {
  const Base base("g4-e2b.f32");
  const auto adapter = base.adapter({Target::q}, 100);
  const auto refused = [&](float strength, const MergeOptions& how, ErrorCode code, std::vector<std::string> names) {
    const std::vector<ActiveAdapter> adapters{{adapter, strength}};
    const auto file = base.merged(adapters, how);
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, code);
    for (const std::string& name : names)
      EXPECT_NE(file.error().message.find(name), std::string::npos) << file.error().message;
  };
  refused(1, {.type = DType::Q4_K}, ErrorCode::invalid, {"blk.0.attn_q.weight", "Q4_K", "256", "--type"});
  refused(std::numeric_limits<float>::max(), {}, ErrorCode::invalid, {"blk.0.attn_q.weight", "scale"});
  refused(1, {.progress = [](std::uint64_t, std::uint64_t) { return false; }}, ErrorCode::cancelled, {});
  const Base other("g3-270m.f16");
  const auto wrong = MergePlan::make(other.file, other.model->config, other.model->weights, *other.model->backend,
                                     std::vector<ActiveAdapter>{{base.adapter({Target::per_layer_proj}, 1), 1}}, {});
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("blk.0.proj.weight"), std::string::npos) << wrong.error().message;
}

TEST(Merge, ProgressReachesTheEnd) {
  const Base base("g3-270m.f16");
  const std::vector<ActiveAdapter> adapters{{base.adapter({Target::q}, 0.01), 1}};
  std::uint64_t last = 0, whole = 0;
  ASSERT_TRUE(base.merged(adapters, {.progress = [&](std::uint64_t done, std::uint64_t total) {
                            EXPECT_GE(done, last);
                            last = done;
                            whole = total;
                            return true;
                          }}));
  EXPECT_EQ(last, whole);
  EXPECT_GT(whole, 0u);
}

}  // namespace
}  // namespace rullama::test
