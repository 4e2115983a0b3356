// The native side of the seam: a device that goes away, memory that cannot be had, pipelines kept on disk.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "host/host.h"
#include "host/native/webgpu_native.h"

namespace rullama::host {
namespace {

constexpr std::string_view kDouble =
    "@group(0) @binding(0) var<storage, read_write> x: array<u32>;\n"
    "@compute @workgroup_size(1) fn main() { x[0] = 2u * x[0]; }\n";

std::string error_of(Handle device) {
  std::string text(4096, '\0');
  text.resize(std::min(rullama_host_error(device, text.data(), text.size()), text.size()));
  return text;
}

Handle make_pipeline(Handle device) {
  return rullama_host_pipeline_create(device, kDouble.data(), kDouble.size(), "double", 6);
}

// Runs the kernel on 21; 0 if something failed.
std::uint32_t run_double(Handle device) {
  const Handle pipeline = make_pipeline(device),
               buffer = rullama_host_buffer_create(device, 16, kStorage | kCopySrc | kCopyDst);
  if (!pipeline || !buffer) return 0;
  std::uint32_t x = 21;
  rullama_host_buffer_write(device, buffer, 0, &x, 4);
  const BindEntry entry{0, 0, 0, 16, buffer};
  const Handle group = rullama_host_bind_group_create(device, pipeline, &entry, 1);
  rullama_host_begin(device);
  rullama_host_dispatch(device, pipeline, group, 1, 1, 1);
  rullama_host_submit(device, rullama_host_finish(device));
  x = 0;
  if (!rullama_host_read_finish(device, rullama_host_read_start(device, buffer, 0, 4), &x)) x = 0;
  rullama_host_bind_group_release(device, group);
  rullama_host_buffer_release(device, buffer);
  rullama_host_pipeline_release(device, pipeline);
  return x;
}

class NativeTest : public testing::Test {
 protected:
  void SetUp() override {
    // pipelines of these tests are kept in a folder of their own
    cache_ = testing::TempDir() + "rullama-cache-" + std::to_string(::getpid());
    ::setenv("RULLAMA_CACHE", cache_.c_str(), 1);
    if (!open()) {
      const std::string why = error_of(0);
      ASSERT_TRUE(std::getenv("RULLAMA_TEST_NO_GPU")) << why;
      GTEST_SKIP() << why;
    }
  }
  void TearDown() override {
    close();
    std::filesystem::remove_all(cache_);
    ::unsetenv("RULLAMA_CACHE");
  }
  bool open() { return (device_ = rullama_host_device_open("", 0)) != 0; }
  void close() {
    if (device_) rullama_host_device_close(device_);
    device_ = 0;
  }
  std::vector<std::filesystem::path> cached() const {
    std::vector<std::filesystem::path> files;
    for (const auto& f : std::filesystem::directory_iterator(cache_ + "/pipelines")) files.push_back(f.path());
    return files;
  }
  std::string cache_;
  Handle device_ = 0;
};

TEST_F(NativeTest, LostDevicesAreErrorsAndNeverHang) {
  const Handle buffer = rullama_host_buffer_create(device_, 16, kStorage | kCopySrc | kCopyDst);
  ASSERT_TRUE(buffer);
  wgpuDeviceDestroy(native(device_).device);
  EXPECT_EQ(rullama_host_buffer_create(device_, 16, kStorage), 0u);
  EXPECT_EQ(make_pipeline(device_), 0u);
  std::uint32_t x = 7;
  rullama_host_buffer_write(device_, buffer, 0, &x, 4);
  rullama_host_begin(device_);
  rullama_host_submit(device_, rullama_host_finish(device_));
  rullama_host_idle(device_);
  EXPECT_EQ(rullama_host_read_finish(device_, rullama_host_read_start(device_, buffer, 0, 4), &x), 0);
  const std::string error = error_of(device_);
  EXPECT_NE(error.find("lost"), std::string::npos) << error;
  rullama_host_buffer_release(device_, buffer);
}

TEST_F(NativeTest, MemoryThatCannotBeHadIsAnError) {
  EXPECT_EQ(rullama_host_buffer_create(device_, 1e15, kStorage), 0u);
  EXPECT_NE(error_of(device_), "");
  EXPECT_EQ(error_of(device_), "") << "an error is reported once";
  EXPECT_EQ(run_double(device_), 42u);
}

TEST_F(NativeTest, TheFirstErrorIsKept) {
  const Handle small = rullama_host_buffer_create(device_, 16, kCopyDst),
               read_only = rullama_host_buffer_create(device_, 16, kCopySrc);
  const std::uint32_t x[8] = {};
  rullama_host_buffer_write(device_, small, 0, x, 32);
  rullama_host_buffer_write(device_, read_only, 0, x, 16);
  rullama_host_idle(device_);
  const std::string error = error_of(device_);
  EXPECT_NE(error.find("32"), std::string::npos) << error;
  EXPECT_EQ(error_of(device_), "");
  rullama_host_buffer_release(device_, small);
  rullama_host_buffer_release(device_, read_only);
}

TEST_F(NativeTest, DamagedPipelinesOnDiskDoNoHarm) {
  if (!kDawn) GTEST_SKIP() << "only Dawn keeps pipelines";
  ASSERT_EQ(run_double(device_), 42u);
  close();
  const auto files = cached();
  ASSERT_FALSE(files.empty()) << "nothing was kept in " << cache_;
  for (int damage = 0; damage < 3; damage++) {
    for (const auto& path : files) {
      const auto size = std::filesystem::file_size(path);
      if (damage == 0) std::filesystem::resize_file(path, size / 2);
      if (damage == 1) std::ofstream(path, std::ios::binary) << "not a pipeline";
      if (damage == 2)
        std::fstream(path, std::ios::binary | std::ios::in | std::ios::out)
            .seekp(static_cast<std::streamoff>(size) - 1)
            .put('~');
    }
    ASSERT_TRUE(open()) << error_of(0);
    EXPECT_EQ(run_double(device_), 42u) << "damage " << damage;
    EXPECT_EQ(error_of(device_), "");
    close();
    EXPECT_EQ(cached().size(), files.size()) << "pipelines are kept again after damage " << damage;
  }
}

TEST_F(NativeTest, WithoutAFolderNothingIsKept) {
  close();
  std::ofstream(cache_ + "-file") << "in the way";
  ::setenv("RULLAMA_CACHE", (cache_ + "-file").c_str(), 1);
  EXPECT_FALSE(PipelineCache().usable());
  ASSERT_TRUE(open());
  EXPECT_EQ(run_double(device_), 42u);
  std::filesystem::remove(cache_ + "-file");
}

TEST(PipelineCacheTest, GivesBackWhatWasStored) {
  const std::string folder = testing::TempDir() + "rullama-blobs-" + std::to_string(::getpid());
  ::setenv("RULLAMA_CACHE", folder.c_str(), 1);
  PipelineCache cache;
  ::unsetenv("RULLAMA_CACHE");
  ASSERT_TRUE(cache.usable());
  const std::string value("a\0b", 3);
  EXPECT_EQ(cache.load("key", nullptr, 0), 0u);
  cache.store("key", value);
  std::string got(3, '?');
  EXPECT_EQ(cache.load("key", nullptr, 0), 3u);
  cache.store("key", "another value");  // between the question for the size and the one for the bytes
  EXPECT_EQ(cache.load("key", got.data(), got.size()), 3u);
  EXPECT_EQ(got, value);
  EXPECT_EQ(cache.load("another key", nullptr, 0), 0u);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace rullama::host
