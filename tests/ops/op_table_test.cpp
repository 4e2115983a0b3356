// Runs the op table: every case on the CPU's vectorised form and on the GPU against the plain form, derivatives also
// against finite differences.
#include "ops/op_table.h"

#include <gtest/gtest.h>

#include <cctype>
#include <cstdlib>

#include "gpu/device.h"
#include "host/native/crew.h"
#include "ops/cpu_backend.h"
#include "ops/gpu_backend.h"

namespace rullama {
namespace {

Backend& cpu() {
  static const auto backend = make_cpu_backend(make_crew());
  return *backend;
}

// Null where the machine has no GPU driver at all; the environment variable then says why that is accepted.
Backend* gpu() {
  static const auto backend = []() -> std::unique_ptr<Backend> {
    auto device = gpu::Device::open("");
    if (!device) {
      EXPECT_TRUE(std::getenv("RULLAMA_TEST_NO_GPU")) << device.error().message;
      return nullptr;
    }
    if (const char* kind = std::getenv("RULLAMA_TEST_KIND")) {  // "discrete": the kernels that such devices get
      gpu::Capabilities as = (*device)->capabilities();
      as.kind = kind;
      (*device)->assume(as);
    }
    return make_gpu_backend(std::move(*device));
  }();
  return backend.get();
}

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
      if (Backend* device = gpu()) check(*device, *expected, precision);
    }
    if (case_.derivative) {
      EXPECT_EQ(check_finite_differences(case_, cpu(), 6), "");
    }
  }

 private:
  void check(Backend& backend, const std::vector<CaseOutput>& expected, Precision precision) {
    const bool derivative = case_.derivative && precision == Precision::exact;
    auto found = run_case(case_, backend, precision, derivative);
    ASSERT_TRUE(found.has_value()) << backend.device_name() << ": " << found.error().message;
    const auto part = std::span(expected).first(found->size());
    EXPECT_EQ(compare_case(case_, part, *found, precision), "") << "on " << backend.device_name();
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
