// Runs the op table: every case on the CPU's vectorised form and on the GPU against the plain form, derivatives also
// against finite differences; small ones twice (on the CPU with one thread), which must give the same bits, with the
// vectors of every instruction set here, and on the GPU once more as if a
// dispatch could have a few workgroups only: kernels must then count through a second dimension.
#include "ops/op_table.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>

#include "formats/file.h"
#include "host/native/crew.h"
#include "ops/adamw/adamw.h"
#include "ops/attention/attention.h"
#include "ops/cpu_backend.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embedding/embedding.h"
#include "ops/gpu_backend.h"
#include "ops/matmul/matmul.h"
#include "ops/weight_layout.h"
#include "support/gpu_device.h"

namespace rullama {
namespace {

Backend& cpu() {
  static const auto backend = make_cpu_backend(make_crew());
  return *backend;
}

Backend& one_thread() {
  static const auto backend = make_cpu_backend(make_crew(1));
  return *backend;
}

struct Gpu {
  std::shared_ptr<gpu::Device> device;
  std::unique_ptr<Backend> backend;
};

const Gpu& gpu() {
  static const Gpu opened = []() -> Gpu {
    auto device = test::open_gpu_device();
    if (!device) return {};
    return {device, make_gpu_backend(device)};
  }();
  return opened;
}

// While it lives, the device has other limits.
class Assumed {
 public:
  Assumed(gpu::Device& device, const std::function<void(gpu::Capabilities&)>& change)
      : device_(device), before_(device.capabilities()) {
    gpu::Capabilities as = before_;
    change(as);
    device.assume(as);
  }
  ~Assumed() { device_.assume(before_); }
  Assumed(const Assumed&) = delete;
  Assumed& operator=(const Assumed&) = delete;

 private:
  gpu::Device& device_;
  gpu::Capabilities before_;
};

std::string test_name(const std::string& text) {
  std::string name;
  for (const char c : text) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return name;
}

class OpTable : public testing::Test {
 public:
  explicit OpTable(OpCase c) : case_(std::move(c)) {}

  void TestBody() override {
    auto expected = run_case(case_, cpu(), Precision::reference, case_.derivative);
    ASSERT_TRUE(expected.has_value()) << expected.error().message;
    for (const Precision precision : {Precision::exact, Precision::fast}) {
      SCOPED_TRACE(precision == Precision::fast ? "fast" : "exact");
      check(cpu(), *expected, precision);
      if (!gpu().backend) continue;
      check(*gpu().backend, *expected, precision);
      if (!case_.split) continue;
      SCOPED_TRACE("weight in several bindings");
      const Assumed small(*gpu().device, [&](auto& as) { as.max_binding_bytes = bytes_of_rows(64); });
      check(*make_gpu_backend(gpu().device), *expected, precision);
    }
    if (case_.derivative) {
      EXPECT_EQ(check_finite_differences(case_, cpu(), 6), "");
    }
  }

 private:
  static constexpr std::size_t kRunTwice = 100'000;  // values up to which a case runs twice: with them all kernels do

  void check(Backend& backend, const std::vector<CaseOutput>& expected, Precision precision) {
    const bool derivative = case_.derivative && precision == Precision::exact;
    auto found = run_case(case_, backend, precision, derivative);
    ASSERT_TRUE(found.has_value()) << backend.device_name() << ": " << found.error().message;
    const auto part = std::span(expected).first(found->size());
    EXPECT_EQ(compare_case(case_, part, *found, precision), "") << "on " << backend.device_name();
    if (found->empty() || found->front().values.size() > kRunTwice) return;
    Backend& other = &backend == &cpu() ? one_thread() : backend;
    auto again = run_case(case_, other, precision, derivative);
    ASSERT_TRUE(again.has_value()) << other.device_name() << ": " << again.error().message;
    for (std::size_t i = 0; i < found->size(); i++)
      EXPECT_TRUE((*found)[i].values == (*again)[i].values)
          << (*found)[i].name << " differs between runs on " << backend.device_name() << " and " << other.device_name();
    if (&backend == gpu().backend.get()) check_small_grids(part, precision);
    if (&backend == &cpu()) check_vectors(part, precision);
  }

  // With the vectors of the other instruction sets that this processor has.
  void check_vectors(std::span<const CaseOutput> expected, Precision precision) {
    const std::int64_t best = hwy::SupportedTargets();
    for (const std::int64_t target : {HWY_AVX3, HWY_AVX2, HWY_SSE4, HWY_EMU128, HWY_SCALAR}) {
      if ((target & best & HWY_TARGETS) == 0) continue;
      hwy::GetChosenTarget().Update(target);
      auto found = run_case(case_, cpu(), precision, case_.derivative && precision == Precision::exact);
      hwy::GetChosenTarget().Update(best);
      ASSERT_TRUE(found.has_value()) << found.error().message;
      EXPECT_EQ(compare_case(case_, expected, *found, precision), "") << "with vectors of " << hwy::TargetName(target);
    }
  }

  // The smallest limit for workgroups with which the case's dispatches are possible in two dimensions.
  void check_small_grids(std::span<const CaseOutput> expected, Precision precision) {
    for (const std::uint32_t most : {2, 7, 60, 500}) {
      const Assumed small(*gpu().device, [most](auto& as) { as.max_workgroups = most; });
      auto found = run_case(case_, *gpu().backend, precision, case_.derivative && precision == Precision::exact);
      if (!found && found.error().code == ErrorCode::unsupported) continue;
      ASSERT_TRUE(found.has_value()) << found.error().message;
      EXPECT_EQ(compare_case(case_, expected, *found, precision), "") << "with at most " << most << " workgroups";
      return;
    }
  }

  // What so many rows of the weight take on the GPU.
  std::uint64_t bytes_of_rows(std::uint64_t rows) const {
    const auto w = std::find_if(case_.inputs.begin(), case_.inputs.end(), [](const CaseInput& i) { return i.outside; });
    return (rows + 1) * (weight_layout(w->desc.dtype, 1024, w->desc.shape.back()).bytes / 1024 + 1);
  }

  OpCase case_;
};

class Refusal : public testing::Test {
 public:
  explicit Refusal(OpRefusal r) : refusal_(std::move(r)) {}
  void TestBody() override {
    Graph graph;
    refusal_.build(graph);
    const auto status = graph.status();
    ASSERT_FALSE(status.has_value()) << refusal_.op << " accepted: " << refusal_.what;
    EXPECT_NE(status.error().message.find(refusal_.message), std::string::npos) << status.error().message;
  }

 private:
  OpRefusal refusal_;
};

// Of all cases, those that are no tests too: they are encoded before an op sees their shapes.
TEST(Cases, RowsAreWholeBlocks) {
  for (const OpCase& c : op_cases())
    for (const CaseInput& input : c.inputs)
      EXPECT_EQ(input.desc.shape.back() % info(input.desc.dtype).block_elements, 0u)
          << c.op << " " << c.format << " " << c.shape << ": " << input.name << " is " << input.desc.str();
  OpCase broken;
  broken.inputs = {{"w", {DType::Q4_K, {3, 640}}, Fill::normal()}};
  const auto refused = run_case(broken, cpu(), Precision::exact, false);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "w is Q4_K [3, 640], whose rows are no whole blocks of 256");
}

// Tensors beyond WebGPU's guaranteed 128 MiB a binding, where the device takes them: a weight and activations.
TEST(LargeTensor, ProductAndScale) {
  if (!gpu().backend) GTEST_SKIP() << "no GPU driver";
  constexpr std::uint64_t columns = 1024, rows = 34816;  // 136 MiB
  Backend& backend = *gpu().backend;
  std::vector<std::byte> bytes(rows * columns * sizeof(float));
  const auto value = [](std::uint64_t row) { return static_cast<float>(row % 1001) - 500; };
  for (std::uint64_t row = 0; row < rows; row++)
    std::fill_n(reinterpret_cast<float*>(bytes.data()) + row * columns, columns, value(row));
  const TensorDesc desc{DType::F32, {rows, columns}};
  const bool whole = backend.max_activation_bytes() >= desc.bytes();

  Graph graph;
  const Var x = graph.input("x", {DType::F32, {1, columns}});
  auto w = backend.load_tensor(desc, "w", std::make_shared<MemorySource>("w", bytes), 0);
  ASSERT_TRUE(w.has_value()) << w.error().message;
  const Var y = graph.keep(matmul(x, graph.tensor("w", *w)));
  const Var large = whole ? graph.input("large", desc) : Var{}, scaled = whole ? graph.keep(scale(large, 3)) : Var{};
  auto program = backend.compile(graph, Precision::exact);
  ASSERT_TRUE(program.has_value()) << program.error().message;
  const std::vector<float> ones(columns, 1);
  ASSERT_TRUE((*program)->write(x, std::as_bytes(std::span(ones))).has_value());
  if (whole) {
    ASSERT_TRUE((*program)->write(large, bytes).has_value());
  }
  ASSERT_TRUE((*program)->run().has_value());
  std::vector<float> sums(rows);
  ASSERT_TRUE((*program)->read(y, std::as_writable_bytes(std::span(sums))).has_value());
  for (std::uint64_t row = 0; row < rows; row++) ASSERT_EQ(sums[row], value(row) * columns) << "row " << row;
  if (!whole) return;
  ASSERT_TRUE((*program)->read(scaled, bytes).has_value());
  const auto* found = reinterpret_cast<const float*>(bytes.data());
  for (std::uint64_t i = 0; i < rows * columns; i++) ASSERT_EQ(found[i], 3 * value(i / columns)) << "element " << i;
}

// Q8_0 weights whose rows are one whole number each.
int whole_row(std::uint64_t row) { return static_cast<int>(row % 101) - 50; }
Result<std::shared_ptr<Tensor>> load_whole_rows(Backend& backend, const TensorDesc& desc) {
  const std::uint64_t blocks = desc.shape.back() / 32;  // of a row
  std::vector<std::byte> bytes(desc.bytes());
  for (std::uint64_t block = 0; block < desc.shape.rows() * blocks; block++) {
    std::byte* at = bytes.data() + block * 34;
    at[0] = std::byte{0x00}, at[1] = std::byte{0x3c};  // a scale of 1
    std::fill_n(at + 2, 32, static_cast<std::byte>(whole_row(block / blocks)));
  }
  return backend.load_tensor(desc, "w", std::make_shared<MemorySource>("w", std::move(bytes)), 0);
}

// A quantised vocabulary beyond 128 MiB: whole numbers, so that all sums are exact.
TEST(LargeTensor, Vocabulary) {
  if (!gpu().backend) GTEST_SKIP() << "no GPU driver";
  constexpr std::uint64_t rows = 262144, columns = 512, first = 200000;  // 136 MiB
  Backend& backend = *gpu().backend;
  const TensorDesc desc{DType::Q8_0, {rows, columns}};
  auto w = load_whole_rows(backend, desc);
  ASSERT_TRUE(w.has_value()) << w.error().message;
  Graph graph;
  const Var weight = graph.tensor("w", *w), x = graph.input("x", {DType::F32, {1, columns}});
  const Var ids = graph.input("ids", {DType::U32, {3}}), dy = graph.input("dy", {DType::F32, {1, rows - first}});
  const Var logits = graph.keep(matmul(x, weight)), looked_up = graph.keep(embedding(weight, ids));
  const Var dx = graph.keep(matmul_transposed(dy, weight, {.row0 = first}));
  auto program = backend.compile(graph, Precision::exact);
  ASSERT_TRUE(program.has_value()) << program.error().message;
  const std::vector<float> ones(rows, 1);
  const std::uint32_t some[] = {7, rows / 2, rows - 1};
  const auto write = [&](Var v, const auto& values) {
    return (*program)->write(v, std::as_bytes(std::span(values)).first(v.desc().bytes())).has_value();
  };
  ASSERT_TRUE(write(x, ones) && write(ids, some) && write(dy, ones) && (*program)->run().has_value());
  const auto read = [&](Var v) {
    std::vector<float> values(v.shape().elements());
    EXPECT_TRUE((*program)->read(v, std::as_writable_bytes(std::span(values))).has_value());
    return values;
  };
  double sum = 0;
  const auto y = read(logits), found = read(looked_up);
  for (std::uint64_t row = 0; row < rows; row++) {
    ASSERT_EQ(y[row], whole_row(row) * static_cast<int>(columns)) << "row " << row;
    if (row >= first) sum += whole_row(row);
  }
  for (std::size_t i = 0; i < found.size(); i++) ASSERT_EQ(found[i], whole_row(some[i / columns])) << "element " << i;
  for (const float v : read(dx)) ASSERT_EQ(v, sum);
}

TEST(Product, TilesOfRowsGiveTheBitsOfTheWhole) {
  if (!gpu().backend) GTEST_SKIP() << "no GPU driver";
  constexpr std::uint64_t m = 2, k = 256, cuts[] = {0, 13, 77, 100};
  for (const DType type : {DType::F32, DType::F16, DType::Q8_0, DType::Q6_K}) {
    OpCase c;
    c.op = "matmul", c.format = name(type), c.shape = "whole and in tiles";
    c.inputs = {{"x", {DType::F32, {m, k}}, Fill::normal()}, {"w", {type, {cuts[3], k}}, Fill::normal(0.1), true}};
    c.build = [&](Graph&, std::span<const Var> in) {
      std::vector<Var> out{matmul(in[0], in[1])};
      for (std::size_t i = 0; i < 3; i++) out.push_back(matmul(in[0], in[1], {.row0 = cuts[i], .row1 = cuts[i + 1]}));
      return out;
    };
    for (const Precision precision : {Precision::exact, Precision::fast}) {
      const auto found = run_case(c, *gpu().backend, precision, false);
      ASSERT_TRUE(found.has_value()) << found.error().message;
      for (std::size_t i = 0; i < 3; i++)
        for (std::size_t row = 0; row < m; row++)
          for (std::uint64_t j = cuts[i], width = cuts[i + 1] - cuts[i]; j < cuts[i + 1]; j++)
            ASSERT_EQ((*found)[0].values[row * cuts[3] + j], (*found)[i + 1].values[row * width + j - cuts[i]])
                << c.format << " row " << row << " column " << j;
    }
  }
}

// The last part of a weight has so few rows that its workgroups take more memory than those of the whole would; here
// more than there is.
TEST(Product, PartsOfAWeightFitWorkgroupMemory) {
  if (!gpu().backend) GTEST_SKIP() << "no GPU driver";
  constexpr std::uint64_t m = 2, rows = 4200, first = 4120, columns = 12928;
  const TensorDesc desc{DType::Q8_0, {rows, columns}};
  const Assumed discrete(*gpu().device, [&](gpu::Capabilities& as) {
    as.kind = "discrete";
    as.max_binding_bytes = first * desc.bytes() / rows;
    as.workgroup_memory = std::min(as.workgroup_memory, 32768u);
  });
  Backend& backend = *gpu().backend;
  auto w = load_whole_rows(backend, desc);
  ASSERT_TRUE(w.has_value()) << w.error().message;
  Graph graph;
  const Var x = graph.input("x", {DType::F32, {m, columns}}), y = graph.keep(matmul(x, graph.tensor("w", *w)));
  auto program = backend.compile(graph, Precision::fast);
  ASSERT_TRUE(program.has_value()) << program.error().message;
  const std::vector<float> ones(m * columns, 1);
  ASSERT_TRUE((*program)->write(x, std::as_bytes(std::span(ones))).has_value());
  const auto ran = (*program)->run();
  ASSERT_TRUE(ran.has_value()) << ran.error().message;
  std::vector<float> found(m * rows);
  ASSERT_TRUE((*program)->read(y, std::as_writable_bytes(std::span(found))).has_value());
  for (std::uint64_t i = 0; i < m * rows; i++)
    ASSERT_NEAR(found[i], whole_row(i % rows) * static_cast<int>(columns), 1)
        << "row " << i / rows << " column " << i % rows;
}

// One program, histories that leave parts without keys: keys of zero make each result the mean of the values.
TEST(Program, LongerAndShorterHistories) {
  if (!gpu().backend) GTEST_SKIP() << "no GPU driver";
  constexpr std::uint32_t slots = 4096, d = 64;
  const TensorDesc cache{DType::F32, {slots, 1, d}};
  Backend& backend = *gpu().backend;
  std::vector<float> values(cache.shape.elements());
  for (std::size_t i = 0; i < values.size(); i++) values[i] = static_cast<float>(i / d);
  auto k = backend.make_tensor(cache, "k"), v = backend.make_tensor(cache, "v");
  ASSERT_TRUE(k.has_value() && v.has_value());
  ASSERT_TRUE(backend.write(**v, 0, std::as_bytes(std::span(values))).has_value());
  Graph graph;
  const Var q = graph.input("q", {DType::F32, {1, 2, d}}), positions = graph.input("positions", {DType::U32, {1}});
  const Var y = graph.keep(attention(q, graph.tensor("k", *k), graph.tensor("v", *v), positions, {}));
  auto program = backend.compile(graph, Precision::exact);
  ASSERT_TRUE(program.has_value()) << program.error().message;
  const std::vector<float> ones(2 * d, 1);
  ASSERT_TRUE((*program)->write(q, std::as_bytes(std::span(ones))).has_value());
  std::vector<float> found(2 * d);
  for (const std::uint32_t position : {0, 3, 4, 1023, 1024, 1025, 4095, 2047, 2048, 5, 6}) {
    ASSERT_TRUE((*program)->write(positions, std::as_bytes(std::span(&position, 1))).has_value());
    ASSERT_TRUE((*program)->run().has_value());
    ASSERT_TRUE((*program)->read(y, std::as_writable_bytes(std::span(found))).has_value());
    for (const float x : found) ASSERT_NEAR(x, position / 2.0, 1e-3 + position * 1e-6) << "position " << position;
  }
}

// More than 65,535 workgroups of 256, as of a vocabulary's matrix: every weight moves, and once.
TEST(LargeTensor, AdamStep) {
  if (!gpu().backend) GTEST_SKIP() << "no GPU driver";
  const TensorDesc desc{DType::F32, {65536, 257}}, step{DType::F32, {8}};
  Backend& backend = *gpu().backend;
  Graph graph;
  std::vector<float> values(desc.shape.elements(), 1);
  std::shared_ptr<Tensor> states[3];
  for (auto& state : states) {
    auto made = backend.make_tensor(desc, "state");
    ASSERT_TRUE(made.has_value()) << made.error().message;
    ASSERT_TRUE(backend.write(**made, 0, std::as_bytes(std::span(values))).has_value());
    state = *made;
  }
  const Var g = graph.input("g", desc), hyper = graph.input("hyper", step);
  adamw(graph.tensor("p", states[0]), graph.tensor("m", states[1]), graph.tensor("v", states[2]), g, hyper);
  auto program = backend.compile(graph, Precision::exact);
  ASSERT_TRUE(program.has_value()) << program.error().message;
  const AdamHyper how = adam_hyper(0.5, 1, 0.5, 0.5);
  ASSERT_TRUE((*program)->write(g, std::as_bytes(std::span(values))).has_value());
  ASSERT_TRUE((*program)->write(hyper, std::as_bytes(std::span(&how, 1))).has_value());
  ASSERT_TRUE((*program)->run().has_value());
  // m and v stay 1, their corrections make 2 of them
  ASSERT_TRUE(backend.read(*states[0], 0, std::as_writable_bytes(std::span(values))).has_value());
  const float expected = 1 - 0.5f * 2 / std::sqrt(2.0f);
  for (std::size_t i = 0; i < values.size(); i++) ASSERT_NEAR(values[i], expected, 1e-6) << "element " << i;
}

}  // namespace
}  // namespace rullama

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (const auto& c : rullama::op_cases()) {
    if (c.use == rullama::CaseUse::bench) continue;
    const std::string name = rullama::test_name(c.format + "_" + c.shape);
    testing::RegisterTest(("OpTable_" + c.op).c_str(), name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [c]() -> rullama::OpTable* { return new rullama::OpTable(c); });
  }
  for (const auto& r : rullama::op_refusals())
    testing::RegisterTest(("Refusal_" + r.op).c_str(), rullama::test_name(r.what).c_str(), nullptr, nullptr, __FILE__,
                          __LINE__, [r]() -> rullama::Refusal* { return new rullama::Refusal(r); });
  return RUN_ALL_TESTS();
}
