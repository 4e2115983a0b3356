// Adapters in files of others and of ours: what is read, what is written, what is refused.
#include "lora/adapter_file.h"

#include <array>
#include <cmath>
#include <cstring>

#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "lora/adapter_names.h"
#include "support/bytes.h"
#include "train/lora_case.h"
#include "train/lora_setup.h"

namespace rullama::test {
namespace {

AdapterHost host_of(const TextModel& model) { return {model.config, model.weights, *model.backend}; }

std::vector<float> values_of(const TextModel& model, const Tensor& tensor) {
  std::vector<float> values(tensor.desc().shape.elements());
  EXPECT_TRUE(model.backend->read(tensor, 0, std::as_writable_bytes(std::span(values))));
  return values;
}

// Each pair of `expected` is in `found`, the same to the bit.
void expect_same(const TextModel& model, const Adapter& expected, const Adapter& found, float tolerance = 0) {
  ASSERT_EQ(found.pairs.size(), expected.pairs.size());
  for (const AdapterPair& e : expected.pairs) {
    const auto f = std::ranges::find_if(
        found.pairs, [&](const AdapterPair& p) { return p.target == e.target && p.layer == e.layer; });
    const std::string name = peft_module_path(e.target, e.layer);
    ASSERT_NE(f, found.pairs.end()) << name;
    EXPECT_FLOAT_EQ(f->scale, e.scale) << name;
    EXPECT_EQ(values_of(model, *f->a), values_of(model, *e.a)) << name << " A";
    const auto b = values_of(model, *e.b), g = values_of(model, *f->b);
    ASSERT_EQ(b.size(), g.size()) << name;
    for (std::size_t i = 0; i < b.size(); i++)
      ASSERT_NEAR(g[i], b[i], tolerance * std::abs(b[i])) << name << " B, element " << i;
  }
}

Result<Adapter> read_peft(const TextModel& model, const std::string& weights, const std::string& config) {
  auto file = Safetensors::read(*open_mapped(weights));
  if (!file) return failed(file);
  auto settings = settings_from_json(file_text(config), config);
  if (!settings) return failed(settings);
  return read_adapter(*file, &*settings, host_of(model));
}

TEST(AdapterFile, PeftsFolderIsRead) {
  const LoraCase c = read_lora_case("e2b-f32");
  const auto model = load_golden_model(c.base, Where::cpu);
  const std::string folder = data_path("lora/e2b-f32.adapter/");
  const auto adapter = read_peft(*model, folder + "adapter_model.safetensors", folder + "adapter_config.json");
  ASSERT_TRUE(adapter) << adapter.error().message;
  expect_same(*model, *case_adapter(c, *model), *adapter);
  EXPECT_NE(adapter->fingerprint, 0u);
}

class GgufTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GgufTest, LlamaCppsFileIsReadAndWritten) {
  const LoraCase c = read_lora_case(GetParam());
  const auto model = load_golden_model(c.base, Where::cpu);
  const auto file = Gguf::read(*open_mapped(data_path("lora/" + c.name + ".adapter.gguf")));
  ASSERT_TRUE(file) << file.error().message;
  const auto adapter = read_adapter(*file, host_of(*model));
  ASSERT_TRUE(adapter) << adapter.error().message;
  expect_same(*model, *case_adapter(c, *model), *adapter);

  MemorySink sink;
  const auto ok = write_adapter_gguf(sink, *adapter, host_of(*model));
  ASSERT_TRUE(ok) << ok.error().message;
  const auto written = Gguf::read(memory_file(sink.bytes, "written.gguf"));
  ASSERT_TRUE(written) << written.error().message;
  for (const char* key : {"general.type", "general.architecture", "adapter.type"})
    EXPECT_EQ(*written->get_string(key), *file->get_string(key)) << key;
  EXPECT_EQ(*written->get_f32("adapter.lora.alpha"), *file->get_f32("adapter.lora.alpha"));
  ASSERT_EQ(written->tensors().size(), file->tensors().size());
  for (const GgufTensor& t : file->tensors()) {
    const GgufTensor* w = written->tensor(t.name);
    ASSERT_TRUE(w) << t.name;
    EXPECT_EQ(row_major(*w).str(), row_major(t).str()) << t.name;
  }
  const auto again = read_adapter(*written, host_of(*model));
  ASSERT_TRUE(again) << again.error().message;
  expect_same(*model, *adapter, *again);
}

INSTANTIATE_TEST_SUITE_P(Adapters, GgufTest, ::testing::Values("e2b-f32", "g3-f16"),
                         [](const auto& row) { return std::string(row.param == "g3-f16" ? "gemma3" : "e2b"); });

// Every target that the model has, with a scale of its own each, as PEFT's patterns say it.
TEST(AdapterFile, WhatIsWrittenIsReadAgain) {
  const auto model = load_golden_model("g4-e2b.f32", Where::cpu);
  LoraSetup setup;
  setup.rank = 3;
  setup.alpha = 5;
  setup.rslora = true;
  for (auto t = static_cast<std::uint8_t>(Target::q); t <= static_cast<std::uint8_t>(Target::embed_tokens); t++)
    setup.targets.push_back(static_cast<Target>(t));
  const auto adapter = make_adapter(*model, setup);
  ASSERT_TRUE(adapter) << adapter.error().message;
  AdapterSettings settings;
  settings.rank = setup.rank;
  settings.alpha = setup.alpha;
  settings.rslora = true;
  settings.base = "tiny";
  settings.modules = {"q_proj"};
  MemorySink sink;
  const auto ok = write_adapter(sink, *adapter, settings, *model->backend);
  ASSERT_TRUE(ok) << ok.error().message;
  const auto file = Safetensors::read(memory_file(sink.bytes, "written.safetensors"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->tensor("base_model.model.model.embed_tokens.lora_embedding_A"));
  EXPECT_TRUE(file->tensor("base_model.model.lm_head.lora_B.weight"));
  const auto inside = settings_from_json(*file->metadata("adapter_config"), "inside");
  ASSERT_TRUE(inside) << inside.error().message;
  EXPECT_EQ(inside->base, "tiny");
  EXPECT_EQ(inside->modules, settings.modules);
  const auto again = read_adapter(*file, &*inside, host_of(*model));
  ASSERT_TRUE(again) << again.error().message;
  expect_same(*model, *adapter, *again);
}

// As of node-llama-cpp 3.21.1 llama.cpp cannot load the first, ignores the second, and takes the third in another
// sense.
TEST(AdapterFile, WhatLlamaCppWouldNotApplyIsNoGguf) {
  const auto model = load_golden_model("g4-e2b.f32", Where::cpu);
  ASSERT_EQ(model->weights.output, model->weights.token_embd) << "this model has no head of its own";
  for (const Target target : {Target::lm_head, Target::per_layer_model, Target::embed_tokens}) {
    const auto adapter = make_adapter(*model, {.rank = 2, .targets = {target}});
    ASSERT_TRUE(adapter) << adapter.error().message;
    MemorySink sink;
    const auto refused = write_adapter_gguf(sink, *adapter, host_of(*model));
    ASSERT_FALSE(refused) << module_name(target);
    EXPECT_NE(refused.error().message.find(module_name(target)), std::string::npos) << refused.error().message;
    EXPECT_TRUE(sink.bytes.empty());
  }
}

// PEFT writes the embeddings along when they or the head have an adapter. They are the base model's.
TEST(AdapterFile, TheFrozenEmbeddingsOfPeftAreNoPartOfIt) {
  const auto model = load_golden_model("g3-270m.f16", Where::cpu);
  const auto adapter = make_adapter(*model, {.rank = 2, .targets = {Target::lm_head, Target::embed_tokens}});
  ASSERT_TRUE(adapter) << adapter.error().message;
  const Shape& table = model->weights.token_embd->desc().shape;
  const AdapterSettings settings = settings_of(*adapter);
  for (const std::uint64_t more : {0u, 1u}) {
    SafetensorsWriter writer;
    std::vector<std::uint64_t> sizes;
    const auto add = [&](const std::string& name, std::array<std::uint64_t, 2> dims) {
      ASSERT_TRUE(writer.add_tensor(name, DType::F32, dims));
      sizes.push_back(dims[0] * dims[1]);
    };
    for (const AdapterPair& p : adapter->pairs)
      for (const bool b : {false, true}) {
        const Shape& shape = (b ? p.b : p.a)->desc().shape;
        add(peft_name({p.target, 0, b}), {shape[0], shape[1]});
      }
    add("base_model.model.lm_head.base_layer.weight", {table[0] + more, table[1]});
    add("base_model.model.model.embed_tokens.base_layer.weight", {table[0], table[1]});
    MemorySink sink;
    ASSERT_TRUE(writer.write(sink, [&](std::size_t i, ByteSink& out) {
      const std::vector<float> values(sizes[i], 0.5f);
      return out.write(std::as_bytes(std::span(values)));
    }));
    const auto read =
        read_adapter(*Safetensors::read(memory_file(sink.bytes, "peft.safetensors")), &settings, host_of(*model));
    if (more) {
      ASSERT_FALSE(read);
      EXPECT_NE(read.error().message.find("vocabulary"), std::string::npos) << read.error().message;
    } else {
      ASSERT_TRUE(read) << read.error().message;
      EXPECT_EQ(read->pairs.size(), 2u);
    }
  }
}

// llama.cpp has one alpha for all; what differs goes into B.
TEST(AdapterFile, ScalesThatDifferSurviveGguf) {
  const auto model = load_golden_model("g3-270m.f16", Where::cpu);
  LoraSetup setup;
  setup.targets = {Target::q, Target::down};
  auto adapter = make_adapter(*model, setup);
  ASSERT_TRUE(adapter) << adapter.error().message;
  for (AdapterPair& p : adapter->pairs) {
    std::vector<float> ones(p.b->desc().shape.elements(), 1);
    ASSERT_TRUE(model->backend->write(*p.b, 0, std::as_bytes(std::span(ones))));
    if (p.target == Target::down) p.scale = 0.5f;
  }
  MemorySink sink;
  ASSERT_TRUE(write_adapter_gguf(sink, *adapter, host_of(*model)));
  const auto again = read_adapter(*Gguf::read(memory_file(sink.bytes, "written.gguf")), host_of(*model));
  ASSERT_TRUE(again) << again.error().message;
  for (const AdapterPair& p : again->pairs) {
    EXPECT_FLOAT_EQ(p.scale, 2);
    for (const float v : values_of(*model, *p.b)) ASSERT_FLOAT_EQ(v, p.target == Target::down ? 0.25f : 1);
  }
}

// Settings made from the adapter alone mean the same, also where ranks and scales differ.
TEST(AdapterFile, SettingsOfAnAdapterDescribeIt) {
  const auto model = load_golden_model("g4-e2b.f32", Where::cpu);
  Adapter all;
  for (const auto& [target, rank] : {std::pair{Target::q, 2u}, {Target::down, 3u}, {Target::lm_head, 2u}}) {
    LoraSetup setup;
    setup.targets = {target};
    setup.rank = rank;
    setup.alpha = static_cast<float>(2 * rank + 1);
    auto made = make_adapter(*model, setup);
    ASSERT_TRUE(made) << made.error().message;
    all.pairs.insert(all.pairs.end(), made->pairs.begin(), made->pairs.end());
  }
  all.pairs[1].scale = 7;
  MemorySink sink;
  ASSERT_TRUE(write_adapter(sink, all, settings_of(all), *model->backend));
  const auto file = Safetensors::read(memory_file(sink.bytes, "written.safetensors"));
  ASSERT_TRUE(file) << file.error().message;
  const auto settings = settings_from_json(*file->metadata("adapter_config"), "inside");
  ASSERT_TRUE(settings) << settings.error().message;
  EXPECT_EQ(settings->modules, (std::vector<std::string>{"q_proj", "down_proj", "lm_head"}));
  const auto again = read_adapter(*file, &*settings, host_of(*model));
  ASSERT_TRUE(again) << again.error().message;
  expect_same(*model, all, *again);
}

class PatternTest : public ::testing::TestWithParam<const char*> {};
TEST_P(PatternTest, GivesAModuleItsRankAndAlpha) {
  const auto s =
      settings_from_json(std::string(R"({"peft_type":"LORA","r":8,"lora_alpha":16,"target_modules":["q_proj"],
                       "rank_pattern":{"layers.1.self_attn.q_proj":2},"alpha_pattern":{")") +
                             GetParam() + R"(":3}})",
                         "config");
  ASSERT_TRUE(s) << s.error().message;
  const auto model = load_golden_model("g3-270m.f16", Where::cpu);
  const auto q = *linear_shape(model->config, model->weights, Target::q, 1);
  SafetensorsWriter writer;
  const std::array<std::uint64_t, 2> a{2, q.in}, b{q.out, 2};
  ASSERT_TRUE(writer.add_tensor(peft_name({Target::q, 1, false}), DType::F32, a));
  ASSERT_TRUE(writer.add_tensor(peft_name({Target::q, 1, true}), DType::F32, b));
  MemorySink sink;
  ASSERT_TRUE(writer.write(sink, [&](std::size_t i, ByteSink& out) {
    const std::vector<float> values(i ? b[0] * b[1] : a[0] * a[1], 0.5f);
    return out.write(std::as_bytes(std::span(values)));
  }));
  const auto adapter = read_adapter(*Safetensors::read(memory_file(sink.bytes, "pattern")), &*s, host_of(*model));
  ASSERT_TRUE(adapter) << adapter.error().message;
  EXPECT_FLOAT_EQ(adapter->pairs[0].scale, 1.5f);
}
INSTANTIATE_TEST_SUITE_P(Adapters, PatternTest,
                         ::testing::Values("q_proj", R"(^model\\.layers\\.1\\.self_attn\\.q_proj$)",
                                           "model.language_model.layers.1.self_attn.q_proj"));

// --- names

TEST(AdapterNames, EveryPlaceHasOneNameInEachKindOfFile) {
  for (auto t = static_cast<std::uint8_t>(Target::q); t <= static_cast<std::uint8_t>(Target::embed_tokens); t++) {
    for (const bool b : {false, true}) {
      const auto target = static_cast<Target>(t);
      const bool once = target >= Target::per_layer_model;
      const AdapterPlace place{target, once ? 0u : 11u, b};
      const auto peft = place_in_peft(peft_name(place)), gguf = place_in_gguf(gguf_name(place));
      ASSERT_TRUE(peft) << peft_name(place);
      ASSERT_TRUE(gguf) << gguf_name(place);
      for (const auto& found : {*peft, *gguf}) {
        EXPECT_EQ(found.target, target) << peft_name(place);
        EXPECT_EQ(found.layer, place.layer) << peft_name(place);
        EXPECT_EQ(found.b, b) << peft_name(place);
      }
    }
  }
}

TEST(AdapterNames, VariantsOfPeftAndTheRustProgram) {
  for (const char* name : {"base_model.model.model.language_model.layers.3.self_attn.q_proj.lora_B.default.weight",
                           "base_model.model.language_model.model.layers.3.self_attn.q_proj.lora_B.weight",
                           "model.layers.3.self_attn.q_proj.lora_B.weight"}) {
    const auto place = place_in_peft(name);
    ASSERT_TRUE(place) << name;
    EXPECT_TRUE(place->target == Target::q && place->layer == 3 && place->b) << name;
  }
  const auto rust = place_in_rullama("lora.blk.7.attn_o.A");
  ASSERT_TRUE(rust);
  EXPECT_TRUE(rust->target == Target::o && rust->layer == 7 && !rust->b);
  ASSERT_TRUE(place_in_rullama("lora.blk.0.lm_head.B"));
  for (const char* name : {"", "lora_A", "base_model.model.model.layers.x.self_attn.q_proj.lora_A.weight",
                           "base_model.model.model.layers.99999999999.self_attn.q_proj.lora_A.weight",
                           "model.layers.1.self_attn.q_proj.weight", "model.layers.1.lm_head.lora_A.weight"})
    EXPECT_FALSE(place_in_peft(name)) << name;
}

// --- refusals

struct Refusal {
  const char* name;
  const char* json;
  std::vector<std::string> says;
};
class SettingsTest : public ::testing::TestWithParam<Refusal> {};
TEST_P(SettingsTest, AreRefusedByName) {
  const auto s = settings_from_json(GetParam().json, "DIR/adapter_config.json");
  ASSERT_FALSE(s);
  EXPECT_TRUE(s.error().message.starts_with("DIR/adapter_config.json: ")) << s.error().message;
  for (const std::string& part : GetParam().says)
    EXPECT_NE(s.error().message.find(part), std::string::npos) << s.error().message;
}
INSTANTIATE_TEST_SUITE_P(
    Adapters, SettingsTest,
    ::testing::Values(
        Refusal{"NotJson", "{", {"JSON"}}, Refusal{"AList", "[]", {"JSON object"}},
        Refusal{"OtherMethod", R"({"peft_type":"IA3","r":4})", {"peft_type", "IA3"}},
        Refusal{"NoRank", R"({"peft_type":"LORA"})", {"'r'", "1 to"}},
        Refusal{"RankText", R"({"peft_type":"LORA","r":"4"})", {"'r'", "whole number"}},
        Refusal{"RankWraps", R"({"peft_type":"LORA","r":4294967297})", {"'r'", "4294967297"}},
        Refusal{"RankNegative", R"({"peft_type":"LORA","r":-1})", {"'r'", "-1"}},
        Refusal{"Dora", R"({"peft_type":"LORA","r":4,"use_dora":true})", {"use_dora"}},
        Refusal{"Bias", R"({"peft_type":"LORA","r":4,"bias":"all"})", {"bias"}},
        Refusal{"ChangedBase",
                R"({"peft_type":"LORA","r":4,"init_lora_weights":"pissa_niter_16"})",
                {"init_lora_weights", "pissa_niter_16", "base weights"}},
        Refusal{"WholeLayers", R"({"peft_type":"LORA","r":4,"modules_to_save":["lm_head"]})", {"modules_to_save"}},
        Refusal{"Expression", R"({"peft_type":"LORA","r":4,"rank_pattern":{".*q_proj":2}})", {"rank_pattern", ".*q"}},
        Refusal{"PatternText", R"({"peft_type":"LORA","r":4,"rank_pattern":{"q_proj":"2"}})", {"rank_pattern"}}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(AdapterSettings, NestedBeyondMeasureIsRefused) {
  const std::string deep =
      R"({"peft_type":"LORA","r":)" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}";
  const auto s = settings_from_json(deep, "deep.json");
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().message, "deep.json: JSON is nested more than 100 levels deep");
}

// The case's file with one tensor renamed, reshaped or left out.
struct Tamper {
  const char* name;
  std::function<void(std::string& name, std::array<std::uint64_t, 2>& shape, std::vector<float>& values)> change;
  std::vector<std::string> says;
};
class TamperTest : public ::testing::TestWithParam<Tamper> {};
TEST_P(TamperTest, IsRefusedByFileAndTensor) {
  const auto model = load_golden_model("g4-e2b.f32", Where::cpu);
  AdapterSettings settings;
  settings.rank = 4;
  settings.alpha = 8;
  SafetensorsWriter writer;
  std::vector<std::vector<float>> all;
  for (const bool b : {false, true}) {
    const auto shape = *linear_shape(model->config, model->weights, Target::q, 0);
    std::string name = peft_name({Target::q, 0, b});
    std::array<std::uint64_t, 2> dims =
        b ? std::array{shape.out, std::uint64_t{4}} : std::array{std::uint64_t{4}, shape.in};
    std::vector<float> values;
    GetParam().change(name, dims, values);
    values.resize(dims[0] * dims[1], 0.25f);
    if (name.empty()) continue;
    ASSERT_TRUE(writer.add_tensor(name, DType::F32, dims));
    all.push_back(values);
  }
  MemorySink sink;
  ASSERT_TRUE(
      writer.write(sink, [&](std::size_t i, ByteSink& out) { return out.write(std::as_bytes(std::span(all[i]))); }));
  const auto file = Safetensors::read(memory_file(sink.bytes, "DIR/adapter.safetensors"));
  ASSERT_TRUE(file) << file.error().message;
  const auto adapter = read_adapter(*file, &settings, host_of(*model));
  ASSERT_FALSE(adapter);
  const std::string& message = adapter.error().message;
  EXPECT_TRUE(message.starts_with("DIR/adapter.safetensors: ")) << message;
  for (const std::string& part : GetParam().says) EXPECT_NE(message.find(part), std::string::npos) << message;
}
using Dims = std::array<std::uint64_t, 2>;
void rename(std::string& name, const char* from, const char* to) {
  if (const auto at = name.find(from); at != std::string::npos) name.replace(at, std::strlen(from), to);
}
INSTANTIATE_TEST_SUITE_P(
    Adapters, TamperTest,
    ::testing::Values(
        Tamper{"Empty", [](std::string& n, Dims&, std::vector<float>&) { n.clear(); }, {"no LoRA matrices"}},
        Tamper{"NoB",
               [](std::string& n, Dims&, std::vector<float>&) {
                 if (n.find("lora_B") != std::string::npos) n.clear();
               },
               {"q_proj.lora_A", "has no B"}},
        Tamper{"Narrow",
               [](std::string&, Dims& d, std::vector<float>&) {
                 if (d[0] == 4) d[1] -= 1;
               },
               {"q_proj.lora_A", "another model"}},
        Tamper{"OtherRank",
               [](std::string&, Dims& d, std::vector<float>&) { (d[0] == 4 ? d[0] : d[1]) = 3; },
               {"q_proj.lora_A", "rank 3", "says 4"}},
        Tamper{"RanksDiffer",
               [](std::string&, Dims& d, std::vector<float>&) {
                 if (d[0] != 4) d[1] = 5;
               },
               {"q_proj.lora_B"}},
        Tamper{"NoSuchLayer",
               [](std::string& n, Dims&, std::vector<float>&) { rename(n, "layers.0.", "layers.77."); },
               {"layer 77", "another model"}},
        Tamper{"Vision",
               [](std::string& n, Dims&, std::vector<float>&) { rename(n, "model.layers", "vision.layers"); },
               {"target_modules"}},
        Tamper{"Dora",
               [](std::string& n, Dims&, std::vector<float>&) { rename(n, "lora_A", "lora_magnitude_vector"); },
               {"DoRA"}},
        Tamper{"WholeLayer",
               [](std::string& n, Dims&, std::vector<float>&) { rename(n, "lora_A.weight", "weight"); },
               {"modules_to_save"}},
        Tamper{"NotANumber", [](std::string&, Dims&, std::vector<float>& v) { v = {NAN}; }, {"finite"}}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(AdapterFile, AModelIsNoAdapter) {
  const auto model = load_golden_model("g3-270m.f16", Where::cpu);
  const auto file = Gguf::read(*open_mapped(data_path("models/g3-270m.f16.gguf")));
  ASSERT_TRUE(file);
  const auto adapter = read_adapter(*file, host_of(*model));
  ASSERT_FALSE(adapter);
  EXPECT_NE(adapter.error().message.find("no LoRA adapter"), std::string::npos) << adapter.error().message;
}

// The Rust program's files carry rank and alpha in their metadata.
TEST(AdapterFile, TheRustProgramsFileIsRead) {
  const auto model = load_golden_model("g3-270m.f16", Where::cpu);
  const auto o = *linear_shape(model->config, model->weights, Target::o, 1);
  SafetensorsWriter writer;
  writer.set_metadata("rank", "2");
  writer.set_metadata("alpha", "6");
  const Dims a{2, o.in}, b{o.out, 2};
  ASSERT_TRUE(writer.add_tensor("lora.blk.1.attn_o.A", DType::F32, a));
  ASSERT_TRUE(writer.add_tensor("lora.blk.1.attn_o.B", DType::F32, b));
  MemorySink sink;
  ASSERT_TRUE(writer.write(sink, [&](std::size_t i, ByteSink& out) {
    const std::vector<float> values(i ? b[0] * b[1] : a[0] * a[1], 0.5f);
    return out.write(std::as_bytes(std::span(values)));
  }));
  const auto adapter = read_adapter(*Safetensors::read(memory_file(sink.bytes, "rust")), nullptr, host_of(*model));
  ASSERT_TRUE(adapter) << adapter.error().message;
  ASSERT_EQ(adapter->pairs.size(), 1u);
  EXPECT_EQ(adapter->pairs[0].target, Target::o);
  EXPECT_FLOAT_EQ(adapter->pairs[0].scale, 3);
}

}  // namespace
}  // namespace rullama::test
