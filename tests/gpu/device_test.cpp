// The GPU layer: kernels, parameters, order, limits, and errors as values.
#include "gpu/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "gpu/command_list.h"

namespace rullama::gpu {
namespace {

constexpr std::string_view kAddScaled = R"(
struct Params { n: u32, by: f32, pad0: u32, pad1: u32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> p: Params;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) g: vec3u, @builtin(num_workgroups) gs: vec3u, @builtin(local_invocation_index) l: u32) {
  let i = (g.x + g.y * gs.x) * 64u + l;
  if (i < p.n) { y[i] += p.by * x[i]; }
}
)";

struct Params {
  std::uint32_t n;
  float by;
  std::uint32_t pad[2] = {};
};
std::span<const std::byte> bytes_of(const Params& p) { return std::as_bytes(std::span(&p, 1)); }

class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = Device::open("");
    if (!opened) {
      ASSERT_TRUE(std::getenv("RULLAMA_TEST_NO_GPU")) << opened.error().message;
      GTEST_SKIP() << "no GPU driver";
    }
    device_ = *opened;
  }
  Buffer buffer(const std::vector<float>& values) {
    auto made = device_->buffer(values.size() * 4, "test data");
    EXPECT_TRUE(made.has_value()) << made.error().message;
    EXPECT_TRUE(device_->write(*made, 0, std::as_bytes(std::span(values))).has_value());
    return std::move(*made);
  }
  std::vector<float> values(const Buffer& b, std::size_t n) {
    std::vector<float> out(n);
    auto ok = device_->read(b, 0, std::as_writable_bytes(std::span(out)));
    EXPECT_TRUE(ok.has_value()) << ok.error().message;
    return out;
  }
  const Kernel& add_scaled() {
    auto kernel = device_->kernel("add_scaled", [] { return std::string(kAddScaled); });
    EXPECT_TRUE(kernel.has_value()) << kernel.error().message;
    return **kernel;
  }
  // An error before leaves the device usable, and nothing of it comes up later.
  void expect_alive() {
    const auto before = device_->wait();
    EXPECT_TRUE(before.has_value()) << before.error().message;
    const Buffer x = buffer({4}), y = buffer({0});
    CommandList list(device_);
    const Binding bindings[] = {read(x), write(y)};
    ASSERT_TRUE(list.add(add_scaled(), bindings, bytes_of({1, 1}), Grid::wrap(1)).has_value());
    ASSERT_TRUE(list.submit().has_value());
    EXPECT_EQ(values(y, 1)[0], 4);
  }
  std::shared_ptr<Device> device_;
};

TEST_F(DeviceTest, CapabilitiesAreFilledIn) {
  const Capabilities& c = device_->capabilities();
  EXPECT_FALSE(c.name.empty());
  EXPECT_GE(c.max_binding_bytes, 128u << 20);
  EXPECT_GE(c.storage_buffers, 8u);
  EXPECT_GE(c.max_workgroups, 65535u);
  EXPECT_TRUE(c.kind == "cpu" || c.kind == "discrete" || c.kind == "integrated" || c.kind == "unknown") << c.kind;
}

TEST_F(DeviceTest, AKeyOfTwoTextsIsFoundWhereThatIsAskedFor) {
  const Kernel* first = &add_scaled();
  const auto other = [&] { return device_->kernel("add_scaled", [] { return std::string("another text"); }); };
  EXPECT_EQ(*other(), first);
  device_->check_keys();
  EXPECT_EQ(&add_scaled(), first);
  const auto refused = other();
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "kernel add_scaled is the key of two texts");
}

TEST_F(DeviceTest, ParametersBelongToTheDispatch) {
  const Buffer x = buffer({1, 2, 3, 4, 5}), y = buffer({0, 0, 0, 0, 0});
  CommandList list(device_);
  const Binding bindings[] = {read(x), write(y)};
  for (const float by : {2.0f, 3.0f, 10.0f})
    ASSERT_TRUE(list.add(add_scaled(), bindings, bytes_of({5, by}), Grid::wrap(1)).has_value());
  ASSERT_TRUE(list.submit().has_value());
  EXPECT_EQ(values(y, 5), (std::vector<float>{15, 30, 45, 60, 75}));
}

TEST_F(DeviceTest, ManyDependentDispatchesRunInOrder) {
  const Buffer x = buffer({1}), y = buffer({0});
  CommandList list(device_);
  const Binding forth[] = {read(x), write(y)}, back[] = {read(y), write(x)};
  for (int i = 0; i < 2000; i++)
    ASSERT_TRUE(
        list.add(add_scaled(), i % 2 ? back : forth, bytes_of({1, i % 2 ? -1.0f : 1.0f}), Grid::wrap(1)).has_value());
  ASSERT_TRUE(list.submit().has_value());
  float a = 1, b = 0;
  for (int i = 0; i < 2000; i++) i % 2 ? a -= b : b += a;
  EXPECT_EQ(values(x, 1)[0], a);
  EXPECT_EQ(values(y, 1)[0], b);
}

TEST_F(DeviceTest, GridsBeyondADimensionCoverEachElementOnce) {
  const std::uint64_t n = 70000 * 64 - 5;
  EXPECT_EQ(Grid::wrap(70000).within(65535).y, 2u);
  EXPECT_EQ(Grid::wrap(65535).within(65535).y, 1u);
  std::vector<float> ones(n, 1);
  const Buffer x = buffer(ones), y = buffer(std::vector<float>(n, 0));
  CommandList list(device_);
  const Binding bindings[] = {read(x), write(y)};
  ASSERT_TRUE(
      list.add(add_scaled(), bindings, bytes_of({static_cast<std::uint32_t>(n), 1}), Grid::wrap(70000)).has_value());
  ASSERT_TRUE(list.submit().has_value());
  const auto out = values(y, n);
  for (std::uint64_t i = 0; i < n; i++) ASSERT_EQ(out[i], 1) << "element " << i;
}

TEST_F(DeviceTest, EmptyGridsDoNotRun) {
  const Buffer x = buffer({1}), y = buffer({0});
  CommandList list(device_);
  const Binding bindings[] = {read(x), write(y)};
  ASSERT_TRUE(list.add(add_scaled(), bindings, bytes_of({1, 1}), Grid{0, 1, 1}).has_value());
  ASSERT_TRUE(list.submit().has_value());
  EXPECT_EQ(values(y, 1)[0], 0);
  ASSERT_TRUE(list.add(add_scaled(), bindings, bytes_of({1, 1}), Grid::wrap(1)).has_value());
  ASSERT_TRUE(list.submit().has_value());
  EXPECT_EQ(values(y, 1)[0], 1);
}

// From the third time on a list submits what it encoded ahead: never the commands as they were before one more.
TEST_F(DeviceTest, ListsSubmittedOftenMayGrow) {
  const Buffer x = buffer({1}), y = buffer({0});
  CommandList list(device_);
  const Binding bindings[] = {read(x), write(y)};
  ASSERT_TRUE(list.add(add_scaled(), bindings, bytes_of({1, 1}), Grid::wrap(1)).has_value());
  float expected = 0;
  const auto submit = [&](float adds, const char* what) {
    for (int i = 0; i < 4; i++) {
      ASSERT_TRUE(list.submit().has_value());
      expected += adds;
      EXPECT_EQ(values(y, 1)[0], expected) << what << ", submission " << i;
    }
  };
  submit(1, "as recorded");
  ASSERT_TRUE(list.add(add_scaled(), bindings, bytes_of({1, 100}), Grid::wrap(1)).has_value());
  submit(101, "one dispatch more");
}

// Work that nobody waits for, as that of a long prompt in small batches, piles up only so far.
TEST_F(DeviceTest, TheQueueIsBounded) {
  const Buffer x = buffer({1}), y = buffer({0});
  CommandList list(device_);
  const Binding bindings[] = {read(x), write(y)};
  constexpr std::size_t commands = 500, submissions = 100;
  for (std::size_t i = 0; i < commands; i++)
    ASSERT_TRUE(list.add(add_scaled(), bindings, bytes_of({1, 1}), Grid::wrap(1)).has_value());
  std::size_t most = 0;
  for (std::size_t i = 0; i < submissions; i++) {
    ASSERT_TRUE(list.submit().has_value());
    most = std::max(most, device_->unfinished());
  }
  EXPECT_LE(most, Device::kMostUnfinished);
  EXPECT_GE(most, Device::kMostUnfinished - commands) << "waits more often than it need";
  EXPECT_EQ(values(y, 1)[0], commands * submissions);
  EXPECT_EQ(device_->unfinished(), 0u) << "after a read";
}

TEST_F(DeviceTest, KernelErrorsNameTheKernelAndTheLine) {
  auto kernel = device_->kernel("broken", [] {
    return std::string("@compute @workgroup_size(1)\nfn main() {\n  let x: f32 = no_such_name;\n}\n");
  });
  ASSERT_FALSE(kernel.has_value());
  const std::string& message = kernel.error().message;
  for (const char* part : {"kernel broken", ":3:16", "let x: f32 = no_such_name;"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  expect_alive();
}

TEST_F(DeviceTest, KernelsBeyondTheLimitsAreErrors) {
  auto kernel = device_->kernel("huge", [] { return std::string("@compute @workgroup_size(8192) fn main() {}"); });
  ASSERT_FALSE(kernel.has_value());
  EXPECT_NE(kernel.error().message.find("8192"), std::string::npos) << kernel.error().message;
  expect_alive();
}

TEST_F(DeviceTest, KernelsAreCompiledOnce) {
  const Kernel* first = &add_scaled();
  const std::size_t count = device_->kernel_count();
  EXPECT_EQ(&add_scaled(), first);
  EXPECT_EQ(device_->kernel_count(), count);
}

TEST_F(DeviceTest, BindingsThatCannotBeAreRefused) {
  const Buffer x = buffer(std::vector<float>(100, 1)), y = buffer(std::vector<float>(100, 0)), none;
  const std::uint32_t most = device_->capabilities().storage_buffers;
  struct Row {
    std::vector<Binding> bindings;
    const char* message;
  };
  const Row rows[] = {
      {{read(x), write(x)}, "bindings 0 and 1 are the same buffer and one is written"},
      {{read(x), write(none)}, "binding 1 has no buffer"},
      {{read(x, 100), write(y)}, "binding 0 begins at byte 100"},
      {{read(x), write(y, 512)}, "binding 1 covers"},
      {{read(x, 256, 400), write(y)}, "binding 0 covers 400 bytes from byte 256 of a buffer of 400"},
      {std::vector<Binding>(most + 1, read(x)), "binds at most"},
      {{read(x)}, "add_scaled"},  // found by the driver
  };
  CommandList list(device_);
  for (const Row& row : rows) {
    const auto command = list.add(add_scaled(), row.bindings, bytes_of({1, 1}), Grid::wrap(1));
    ASSERT_FALSE(command.has_value()) << row.message;
    EXPECT_NE(command.error().message.find(row.message), std::string::npos) << command.error().message;
    EXPECT_NE(command.error().message.find("kernel add_scaled"), std::string::npos) << command.error().message;
  }
  EXPECT_EQ(list.size(), 0u);
  expect_alive();
}

TEST_F(DeviceTest, PartsOfBuffersAreBound) {
  const Buffer x = buffer(std::vector<float>(70, 1)), y = buffer(std::vector<float>(70, 0));
  CommandList list(device_);
  const Binding bindings[] = {read(x), write(y, 256, 20)};
  ASSERT_TRUE(list.add(add_scaled(), bindings, bytes_of({5, 2}), Grid::wrap(1)).has_value());
  ASSERT_TRUE(list.submit().has_value());
  std::vector<float> expected(70, 0);
  std::fill_n(expected.begin() + 64, 5, 2.0f);
  EXPECT_EQ(values(y, 70), expected);
}

TEST_F(DeviceTest, BindingsBeyondTheLimitSayTheSizes) {
  const Capabilities& c = device_->capabilities();
  if (c.kind != "cpu" || c.max_binding_bytes >= c.max_buffer_bytes) GTEST_SKIP() << "needs a lot of GPU memory";
  auto large = device_->buffer(c.max_binding_bytes + 256, "a table");
  ASSERT_TRUE(large.has_value()) << large.error().message;
  const Buffer y = buffer({0});
  CommandList list(device_);
  const Binding bindings[] = {read(*large), write(y)};
  const auto command = list.add(add_scaled(), bindings, bytes_of({1, 1}), Grid::wrap(1));
  ASSERT_FALSE(command.has_value());
  EXPECT_EQ(command.error().code, ErrorCode::out_of_memory);
  EXPECT_NE(command.error().message.find("134.2 MB"), std::string::npos) << command.error().message;
}

TEST_F(DeviceTest, GridsBeyondTheLimitAreRefused) {
  const Buffer x = buffer({1}), y = buffer({0});
  CommandList list(device_);
  const Binding bindings[] = {read(x), write(y)};
  const std::uint32_t most = device_->capabilities().max_workgroups;
  EXPECT_FALSE(list.add(add_scaled(), bindings, bytes_of({1, 1}), Grid{1, most + 1, 1}).has_value());
  EXPECT_FALSE(list.add(add_scaled(), bindings, bytes_of({1, 1}), Grid::wrap(UINT64_MAX)).has_value());
  const auto refused = list.add(add_scaled(), bindings, bytes_of({1, 1}), Grid{most + 1, 1, 1});
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("add_scaled"), std::string::npos) << refused.error().message;
}

TEST_F(DeviceTest, AbsurdSizesAreErrors) {
  for (const std::uint64_t bytes : {device_->capabilities().max_buffer_bytes + 4, std::uint64_t{UINT64_MAX}}) {
    const auto over = device_->buffer(bytes, "a weight");
    ASSERT_FALSE(over.has_value()) << bytes;
    EXPECT_EQ(over.error().code, ErrorCode::out_of_memory);
    EXPECT_NE(over.error().message.find("a weight"), std::string::npos) << over.error().message;
  }
  const Buffer x = buffer({1, 2, 3, 4});
  std::vector<std::byte> more(20);
  EXPECT_FALSE(device_->read(x, 0, more).has_value());
  EXPECT_FALSE(device_->read(x, 4, std::span(more).first(16)).has_value());
  EXPECT_FALSE(device_->write(x, 2, std::span(more).first(4)).has_value());
  EXPECT_FALSE(device_->write(x, 0, std::span(more).first(3)).has_value());
  EXPECT_TRUE(device_->write(x, 0, {}).has_value());
  expect_alive();
}

TEST_F(DeviceTest, BuffersGiveTheirMemoryBack) {
  const std::uint64_t before = device_->allocated_bytes();
  {
    auto b = device_->buffer(1001, "test data");
    ASSERT_TRUE(b.has_value());
    EXPECT_EQ(device_->allocated_bytes(), before + 1008);
  }
  EXPECT_EQ(device_->allocated_bytes(), before);
}

TEST_F(DeviceTest, LargeReadsComeInPieces) {
  const std::size_t n = (70u << 20) / 4;
  std::vector<float> in(n);
  for (std::size_t i = 0; i < n; i++) in[i] = static_cast<float>(i % 8191);
  const Buffer x = buffer(in);
  EXPECT_EQ(values(x, n), in);
}

TEST_F(DeviceTest, TimedSubmissionGivesATimeForEachKernel) {
  if (!device_->capabilities().timestamps) GTEST_SKIP() << "no time stamps on this device";
  const Buffer x = buffer(std::vector<float>(100000, 1)), y = buffer(std::vector<float>(100000, 0));
  CommandList list(device_);
  const Binding bindings[] = {read(x), write(y)};
  for (int i = 0; i < 3; i++)
    ASSERT_TRUE(list.add(add_scaled(), bindings, bytes_of({100000, 1}), Grid::wrap(i == 1 ? 0 : 1563)).has_value());
  const auto times = list.submit_timed();
  ASSERT_TRUE(times.has_value()) << times.error().message;
  ASSERT_EQ(times->size(), 2u);
  for (const KernelTime& t : *times) {
    EXPECT_EQ(t.name, "add_scaled");
    EXPECT_GT(t.nanoseconds, 0);
  }
  EXPECT_EQ(values(y, 1)[0], 2);
}

TEST_F(DeviceTest, LongListsAreTimedToo) {
  if (!device_->capabilities().timestamps) GTEST_SKIP() << "no time stamps on this device";
  const Buffer x = buffer({1}), y = buffer({0});
  CommandList list(device_);
  const Binding bindings[] = {read(x), write(y)};
  for (int i = 0; i < 2500; i++)
    ASSERT_TRUE(list.add(add_scaled(), bindings, bytes_of({1, 1}), Grid::wrap(1)).has_value());
  const auto times = list.submit_timed();
  ASSERT_TRUE(times.has_value()) << times.error().message;
  EXPECT_EQ(times->size(), 2500u);
  EXPECT_EQ(values(y, 1)[0], 2500);
}

TEST_F(DeviceTest, SubgroupsHaveAsManyLanesAsTheySay) {
  const Capabilities& c = device_->capabilities();
  if (!c.subgroups) GTEST_SKIP() << "no subgroups on this device";
  auto kernel = device_->kernel("lanes", [] {
    return std::string(
        "enable subgroups;\n@group(0) @binding(0) var<storage, read_write> y: array<f32>;\n"
        "@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32,\n"
        "                                     @builtin(subgroup_size) n: u32) {\n"
        "  y[2u * i] = f32(n);\n  y[2u * i + 1u] = subgroupAdd(1.0);\n}\n");
  });
  ASSERT_TRUE(kernel.has_value()) << kernel.error().message;
  const Buffer y = buffer(std::vector<float>(128, 0));
  CommandList list(device_);
  const Binding bindings[] = {write(y)};
  ASSERT_TRUE(list.add(**kernel, bindings, {}, Grid::wrap(1)).has_value());
  ASSERT_TRUE(list.submit().has_value());
  const auto out = values(y, 128);
  for (std::size_t i = 0; i < 64; i++) {
    EXPECT_GE(out[2 * i], static_cast<float>(c.subgroup_min)) << "invocation " << i;
    EXPECT_LE(out[2 * i], static_cast<float>(c.subgroup_max)) << "invocation " << i;
    EXPECT_EQ(out[2 * i + 1], std::min(out[2 * i], 64.0f)) << "invocation " << i;
  }
}

TEST(Devices, AreListed) {
  const auto all = list_adapters();
  if (!all) GTEST_SKIP() << all.error().message;
  ASSERT_FALSE(all->empty());
  for (std::size_t i = 0; i < all->size(); i++) {
    EXPECT_FALSE((*all)[i].name.empty()) << "adapter " << i;
    const auto opened = Device::open(std::to_string(i));
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    EXPECT_EQ((*opened)->capabilities().name, (*all)[i].name);
  }
}

TEST(Devices, UnknownSelectorsSayWhatThereIs) {
  const auto opened = Device::open("no such gpu");
  ASSERT_FALSE(opened.has_value());
  EXPECT_NE(opened.error().message.find("GPU"), std::string::npos) << opened.error().message;
}

}  // namespace
}  // namespace rullama::gpu
