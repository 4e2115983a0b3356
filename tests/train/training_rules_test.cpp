// What must hold of any training step, whatever the model: packing, checkpoints, resuming, masks.
#include <cmath>
#include <cstring>

#include "base/random.h"
#include "base/text.h"
#include "formats/gguf_writer.h"
#include "runtime/sequence.h"
#include "support/bytes.h"
#include "train/lora_case.h"
#include "train/lora_setup.h"

namespace rullama::test {
namespace {

// The CPU shows the rules; trainer_test.cpp shows that a GPU computes the same.
std::unique_ptr<Trainer> trainer_of(const std::shared_ptr<TextModel>& model, const std::shared_ptr<Adapter>& adapter,
                                    const TrainOptions& options) {
  auto trainer = Trainer::make(model, adapter, options);
  EXPECT_TRUE(trainer) << trainer.error().message;
  return trainer ? std::move(*trainer) : nullptr;
}

std::shared_ptr<Adapter> new_adapter(const TextModel& model, LoraSetup setup = {}) {
  setup.rank = 4;
  auto made = make_adapter(model, setup);
  EXPECT_TRUE(made) << made.error().message;
  return std::make_shared<Adapter>(std::move(*made));
}

std::vector<float> values_of(const TextModel& model, const Tensor& tensor) {
  std::vector<float> values(tensor.desc().shape.elements());
  EXPECT_TRUE(model.backend->read(tensor, 0, std::as_writable_bytes(std::span(values))));
  return values;
}

std::vector<std::vector<float>> gradients_of(const Trainer& trainer, const Adapter& adapter) {
  std::vector<std::vector<float>> all;
  for (std::size_t i = 0; i < adapter.pairs.size(); i++)
    for (const bool b : {false, true}) all.push_back(*trainer.gradient(i, b));
  return all;
}

void expect_same(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b, double relative) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); i++) {
    double largest = 0, worst = 0;
    for (std::size_t j = 0; j < a[i].size(); j++) {
      largest = std::max(largest, std::abs(static_cast<double>(a[i][j])));
      worst = std::max(worst, std::abs(static_cast<double>(a[i][j]) - static_cast<double>(b[i][j])));
    }
    EXPECT_LE(worst, relative * largest) << "matrix " << i;
  }
}

TrainOptions plain(std::uint32_t rows, bool checkpointing = true) {
  TrainOptions o;
  o.rows = rows;
  o.checkpointing = checkpointing;
  return o;
}

Safetensors saved(const Trainer& trainer) {
  MemorySink sink;
  EXPECT_TRUE(trainer.save(sink));
  auto file = Safetensors::read(memory_file(sink.bytes, "checkpoint"));
  EXPECT_TRUE(file) << file.error().message;
  return *file;
}

class ModelTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ModelTest, CheckpointingChangesMemoryAndNothingElse) {
  const LoraCase c = read_lora_case(GetParam());
  const auto model = load_golden_model(c.base, Where::cpu);
  const auto adapter = case_adapter(c, *model);
  const auto rows = static_cast<std::uint32_t>(c.tokens.size());
  const auto with = trainer_of(model, adapter, plain(rows)), without = trainer_of(model, adapter, plain(rows, false));
  const auto a = with->accumulate(c.batch(), 0.1f), b = without->accumulate(c.batch(), 0.1f);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(*a, *b);
  expect_same(gradients_of(*without, *adapter), gradients_of(*with, *adapter), 0);
  EXPECT_LT(with->activation_bytes(), without->activation_bytes() * 2 / 3);
  TrainOptions some = plain(rows);
  some.kept_layers = 1;
  const auto between = trainer_of(model, adapter, some);
  const auto again = between->accumulate(c.batch(), 0.1f);
  ASSERT_TRUE(again);
  EXPECT_EQ(*again, *a);
  expect_same(gradients_of(*without, *adapter), gradients_of(*between, *adapter), 0);
  EXPECT_LE(with->activation_bytes(), between->activation_bytes());
  EXPECT_LE(between->activation_bytes(), without->activation_bytes());
}

// A batch of two samples, one after the other, is two batches of one.
TEST_P(ModelTest, PackedSamplesDoNotSeeEachOther) {
  const LoraCase c = read_lora_case(GetParam());
  const auto model = load_golden_model(c.base, Where::cpu);
  const auto adapter = case_adapter(c, *model);
  const std::vector<Token> first(c.tokens.begin(), c.tokens.begin() + 17), second(c.tokens.begin() + 5, c.tokens.end());
  const auto trainer = trainer_of(model, adapter, plain(64));
  TrainBatch one, other, both;
  one.add(first, first);
  other.add(second, second);
  both.add(first, first);
  both.add(second, second);
  const auto a = trainer->accumulate(one, 0.1f), b = trainer->accumulate(other, 0.1f);
  ASSERT_TRUE(a && b);
  const auto apart = gradients_of(*trainer, *adapter);
  const auto fresh = trainer_of(model, adapter, plain(64));
  const auto sum = fresh->accumulate(both, 0.1f);
  ASSERT_TRUE(sum);
  EXPECT_NEAR(*sum, *a + *b, 1e-4 * *sum);
  expect_same(apart, gradients_of(*fresh, *adapter), 2e-4);
}

// What training reports for a token is what scoring says of it; a fresh adapter changes nothing.
TEST_P(ModelTest, TheLossIsTheModelsOwnProbability) {
  const LoraCase c = read_lora_case(GetParam());
  const auto model = load_golden_model(c.base, Where::cpu);
  const auto trainer = trainer_of(model, new_adapter(*model), plain(64));
  TrainBatch batch;
  batch.add(c.tokens, c.tokens);
  ASSERT_TRUE(trainer->accumulate(batch, 1));
  auto sequence = Sequence::make(model, Precision::exact, 64, 16, DType::F32);
  ASSERT_TRUE(sequence) << sequence.error().message;
  const std::span<const float> losses = trainer->row_losses();
  ASSERT_TRUE((*sequence)->append(c.tokens, [&](std::uint32_t position, std::span<const float> logits) {
    if (position + 1 == c.tokens.size()) return true;
    double largest = -1e30, sum = 0;
    for (const float l : logits) largest = std::max(largest, static_cast<double>(l));
    for (const float l : logits) sum += std::exp(static_cast<double>(l) - largest);
    const double expected = largest + std::log(sum) - static_cast<double>(logits[c.tokens[position + 1]]);
    EXPECT_NEAR(losses[position], expected, 1e-5 * std::max(1.0, expected)) << "position " << position;
    return true;
  }));
  EXPECT_EQ(losses[c.tokens.size() - 1], 0.0f) << "nothing follows the last token";
}

TEST_P(ModelTest, AStopAndARestartChangeNoBit) {
  const LoraCase c = read_lora_case(GetParam());
  const auto model = load_golden_model(c.base, Where::cpu);
  TrainOptions o = plain(64);
  o.dropout = 0.1f;
  const auto straight = new_adapter(*model);
  const auto one = trainer_of(model, straight, o);
  const auto step = [&](Trainer& t) {
    ASSERT_TRUE(t.accumulate(c.batch(), 0.03f));
    ASSERT_TRUE(t.update(1e-2));
  };
  for (int i = 0; i < 4; i++) step(*one);
  const auto first = trainer_of(model, new_adapter(*model), o);
  for (int i = 0; i < 2; i++) step(*first);
  const Safetensors file = saved(*first);
  LoraSetup other;
  other.seed = 99;
  const auto resumed = new_adapter(*model, other);
  const auto second = trainer_of(model, resumed, o);
  const auto ok = second->restore(file);
  ASSERT_TRUE(ok) << ok.error().message;
  EXPECT_EQ(second->steps(), 2u);
  for (int i = 0; i < 2; i++) step(*second);
  for (std::size_t i = 0; i < straight->pairs.size(); i++)
    EXPECT_EQ(values_of(*model, *straight->pairs[i].b), values_of(*model, *resumed->pairs[i].b)) << "pair " << i;
}

INSTANTIATE_TEST_SUITE_P(Lora, ModelTest,
                         ::testing::Values("e2b-f32", "e2b-f32-global", "12b-q4_k", "26b-f16", "g3-f16"),
                         [](const auto& about) {
                           std::string name = about.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

// The file of a model whose layers share keys and values may hold weights for the sharing layers: they take no part.
TEST(SharedKeys, TheGradientReachesTheLayerWhoseKeysAreRead) {
  const LoraCase c = read_lora_case("e2b-f32");
  const auto model = load_golden_model(c.base, Where::cpu);
  const std::uint32_t layers = model->config.n_layers();
  ASSERT_FALSE(model->config.has_kv(layers - 1)) << "the last layers of this model share";
  LoraSetup setup;
  setup.rank = 2;
  setup.targets = {Target::k, Target::v};
  auto adapter = make_adapter(*model, setup);
  ASSERT_TRUE(adapter) << adapter.error().message;
  for (const AdapterPair& pair : adapter->pairs) EXPECT_TRUE(model->config.has_kv(pair.layer));
  const auto trainer = trainer_of(model, std::make_shared<Adapter>(*adapter), plain(64));
  ASSERT_TRUE(trainer->accumulate(c.batch(), 1));
  for (std::size_t i = 0; i < adapter->pairs.size(); i++) {
    const auto b = *trainer->gradient(i, true);
    EXPECT_TRUE(std::ranges::any_of(b, [](float v) { return v != 0; })) << "layer " << adapter->pairs[i].layer;
  }
}

// The model's file, with keys and values also for the layers that read those of others.
std::shared_ptr<const ByteSource> with_idle_keys(const std::string& name, std::uint64_t seed) {
  const auto file = Gguf::read(*open_mapped(data_path("models/" + name + ".gguf")));
  const auto config = read_gemma_config(*file);
  Random random(seed);
  GgufWriter writer;
  for (const auto& [key, value] : file->metadata()) writer.set(key, value);
  std::vector<std::vector<std::byte>> contents;
  const auto add = [&](const std::string& tensor, std::span<const std::uint64_t> dims, std::uint32_t type,
                       std::vector<std::byte> bytes) {
    EXPECT_TRUE(writer.add_tensor(tensor, dims, type));
    contents.push_back(std::move(bytes));
  };
  for (const GgufTensor& t : file->tensors()) {
    std::vector<std::byte> bytes(t.bytes);
    EXPECT_TRUE(file->source()->read(t.offset, bytes));
    add(std::string(t.name), std::span(t.dims).first(t.rank), t.ggml_type, std::move(bytes));
  }
  for (std::uint32_t layer = 0; layer < config->n_layers(); layer++) {
    if (config->has_kv(layer)) continue;
    for (const std::string part : {".attn_k.weight", ".attn_v.weight", ".attn_k_norm.weight"}) {
      const GgufTensor* like = file->tensor("blk." + std::to_string(config->layers[layer].kv_layer) + part);
      std::vector<float> values(like->dims[0] * like->dims[1]);
      for (float& v : values) v = static_cast<float>(random.normal());
      const auto bytes = std::as_bytes(std::span(values));
      add("blk." + std::to_string(layer) + part, std::span(like->dims).first(like->rank), info(DType::F32).ggml_id,
          {bytes.begin(), bytes.end()});
    }
  }
  MemorySink sink;
  EXPECT_TRUE(writer.write(sink, [&](std::size_t i, ByteSink& out) { return out.write(contents[i]); }));
  return memory_file(sink.bytes, "idle keys");
}

TEST(SharedKeys, WeightsThatNoLayerReadsChangeNothing) {
  const LoraCase c = read_lora_case("e2b-f32");
  const auto plain_model = load_golden_model(c.base, Where::cpu);
  std::vector<double> losses;
  std::vector<std::vector<std::vector<float>>> gradients;
  for (const bool checkpointing : {true, false})
    for (const std::uint64_t seed : {0u, 1u, 2u}) {
      const auto model = seed ? load_model(with_idle_keys(c.base, seed), backend(Where::cpu)) : plain_model;
      ASSERT_TRUE(model);
      const auto adapter = case_adapter(c, *model);
      const auto trainer = trainer_of(model, adapter, plain(64, checkpointing));
      const auto loss = trainer->accumulate(c.batch(), 1);
      ASSERT_TRUE(loss) << loss.error().message;
      losses.push_back(*loss);
      gradients.push_back(gradients_of(*trainer, *adapter));
      EXPECT_EQ(losses.back(), losses[0]) << "seed " << seed;
      expect_same(gradients[0], gradients.back(), 0);
    }
}

TEST(Dropout, IsNewInEachStepAndAbsentFromEvaluation) {
  const LoraCase c = read_lora_case("g3-f16");
  const auto model = load_golden_model(c.base, Where::cpu);
  const auto adapter = case_adapter(c, *model);
  TrainOptions o = plain(64);
  o.dropout = 0.5f;
  const auto trainer = trainer_of(model, adapter, o), without = trainer_of(model, adapter, plain(64));
  const auto a = trainer->accumulate(c.batch(), 1), b = trainer->accumulate(c.batch(), 1);
  ASSERT_TRUE(a && b);
  EXPECT_NE(*a, *b);
  EXPECT_EQ(*trainer->evaluate(c.batch()), *without->evaluate(c.batch()));
}

TEST(Step, TwoRatesPartAtTheSecondStep) {
  const LoraCase c = read_lora_case("e2b-q4_0");
  const auto model = load_golden_model(c.base, Where::cpu);
  std::vector<double> second;
  for (const double rate : {1e-2, 1e-3}) {
    const auto trainer = trainer_of(model, new_adapter(*model), plain(64));
    const auto base = trainer->evaluate(c.batch());
    const auto first = trainer->accumulate(c.batch(), 0.03f);
    ASSERT_TRUE(base && first);
    EXPECT_EQ(*first, *base) << "B is zero: the first loss is the base model's";
    ASSERT_TRUE(trainer->update(rate));
    second.push_back(*trainer->accumulate(c.batch(), 0.03f));
    EXPECT_LT(second.back(), *first);
  }
  EXPECT_LT(second[0], second[1]);
}

TEST(Refusals, SayWhatIsWrong) {
  const LoraCase c = read_lora_case("e2b-f32");
  const auto model = load_golden_model(c.base, Where::cpu);
  const auto message = [](auto result) { return result ? std::string() : result.error().message; };
  LoraSetup setup;
  setup.rank = 0;
  EXPECT_EQ(message(make_adapter(*model, setup)), "a LoRA rank of 0, expected 1 to 4096");
  const auto g3 = load_golden_model("g3-270m.f16", Where::cpu);
  setup.rank = 2;
  setup.targets = {Target::per_layer_gate};
  EXPECT_EQ(message(make_adapter(*g3, setup)),
            "target module 'per_layer_input_gate' is not part of this model; leave it out of --target-modules");
  const auto trainer = trainer_of(model, new_adapter(*model), plain(16));
  EXPECT_EQ(message(trainer->accumulate(c.batch(), 1)), "a batch of 40 rows, but training was set up for 16");
  const auto wider = std::make_shared<Adapter>(*make_adapter(*model, {.rank = 8, .targets = {}}));
  const auto other = trainer_of(model, wider, plain(16));
  EXPECT_EQ(message(other->restore(saved(*trainer))),
            "checkpoint: tensor 'layer0.q_proj.A.value' is F32 [4, 64], expected F32 [8, 64]; go on with the rank and "
            "the model of before");
}

// The device has room for what is asked of it until `room` says otherwise.
TEST(Refusals, OutOfMemorySaysHowMuchAndWhatHelps) {
  std::uint64_t room = UINT64_MAX;
  const auto model =
      load_model(data_path("models/g4-e2b.f32.gguf"), make_cpu_backend(make_crew(), [&] { return room; }));
  ASSERT_TRUE(model);
  const auto refused = [](const auto& result, const std::vector<std::string>& says) {
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::out_of_memory);
    for (const std::string& part : says)
      EXPECT_NE(result.error().message.find(part), std::string::npos) << result.error().message;
  };
  const auto adapter = new_adapter(*model);
  std::uint64_t parameters = 0;
  for (const AdapterPair& p : adapter->pairs) parameters += p.a->desc().shape.elements() + p.b->desc().shape.elements();
  const std::vector<std::string> count{cat(parameters, " parameters"), bytes_text(static_cast<double>(16 * parameters)),
                                       "--lora-r", "--target-modules"};
  TrainOptions o = plain(512);
  o.checkpointing = true;
  o.evaluates = true;
  const auto needed = trainer_of(model, adapter, o)->activation_bytes();
  room = 0;
  refused(make_adapter(*model, {.rank = 4, .targets = {}}), count);
  refused(Trainer::make(model, adapter, o), count);
  room = needed - 1;
  const std::string bytes = cat("needs ", bytes_text(static_cast<double>(needed)));
  refused(Trainer::make(model, adapter, o), {"training on 512 tokens", bytes, "--batch-size", "--max-length"});
  room = needed;
  EXPECT_TRUE(Trainer::make(model, adapter, o));
  o.kept_layers = 1;
  refused(Trainer::make(model, adapter, o), {"--keep-layers"});
  o.checkpointing = false;
  refused(Trainer::make(model, adapter, o), {"--gradient-checkpointing"});
}

}  // namespace
}  // namespace rullama::test
