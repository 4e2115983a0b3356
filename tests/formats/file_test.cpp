// Files of this machine: mapped for reading, written whole or not at all.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "host/native/file_writer.h"
#include "host/native/mapped_file.h"

namespace rullama::test {
namespace {

namespace fs = std::filesystem;

class Files : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "rullama-files-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string made(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }
  static std::string content(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string error_of(const std::string& path) {
  const auto source = open_mapped(path);
  return source ? "no error" : source.error().message;
}

TEST_F(Files, ReadsAndMaps) {
  const std::string text = "some bytes of a file";
  auto source = open_mapped(made("f", text));
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ((*source)->size(), text.size());
  std::string found(5, '\0');
  ASSERT_TRUE((*source)->read(5, std::as_writable_bytes(std::span(found))));
  EXPECT_EQ(found, "bytes");
  EXPECT_TRUE(std::ranges::equal((*source)->mapped(), bytes_of(text)));
  (*source)->release(0, text.size());
  EXPECT_TRUE(std::ranges::equal((*source)->mapped(), bytes_of(text))) << "released pages come back when read";
  EXPECT_FALSE((*source)->read(16, std::as_writable_bytes(std::span(found)))) << "past the end";
  EXPECT_FALSE((*source)->read(~0ull, std::as_writable_bytes(std::span(found))));
  EXPECT_TRUE((*source)->read(20, {}));
}

TEST_F(Files, EmptyFileOpens) {
  auto source = open_mapped(made("empty", ""));
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_EQ((*source)->size(), 0u);
  EXPECT_TRUE((*source)->mapped().empty());
}

TEST_F(Files, ErrorsNameTheFileAndTheReason) {
  const auto contains = [](const std::string& message, const std::string& part) {
    return message.find(part) != std::string::npos;
  };
  const std::string none = path("none");
  EXPECT_TRUE(contains(error_of(none), none)) << error_of(none);
  EXPECT_TRUE(contains(error_of(none), "No such file")) << error_of(none);
  EXPECT_EQ(open_mapped(none).error().code, ErrorCode::not_found);
  EXPECT_TRUE(contains(error_of(folder_.string()), "is a folder")) << error_of(folder_.string());
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_TRUE(contains(error_of(path("pipe")), "not a regular file")) << error_of(path("pipe"));
  if (::geteuid() != 0) {
    const std::string secret = made("secret", "x");
    ::chmod(secret.c_str(), 0);
    EXPECT_TRUE(contains(error_of(secret), "Permission denied")) << error_of(secret);
  }
}

// A file that another program cuts while it is open: reading fails, with its name.
TEST_F(Files, CutWhileOpen) {
  const std::string file = made("cut", std::string(100000, 'x'));
  auto source = open_mapped(file);
  ASSERT_TRUE(source) << source.error().message;
  fs::resize_file(file, 10);
  std::string found(4096, '\0');
  const auto ok = (*source)->read(50000, std::as_writable_bytes(std::span(found)));
  ASSERT_FALSE(ok);
  EXPECT_NE(ok.error().message.find(file), std::string::npos) << ok.error().message;
}

TEST_F(Files, WriterReplacesOnCommit) {
  const std::string target = made("target", "old");
  {
    auto writer = FileWriter::create(target);
    ASSERT_TRUE(writer) << writer.error().message;
    ASSERT_TRUE(writer->write(bytes_of("ne")));
    ASSERT_TRUE(writer->write(bytes_of("w")));
    EXPECT_EQ(content(target), "old") << "the target stays as it was until commit";
    ASSERT_TRUE(writer->commit());
  }
  EXPECT_EQ(content(target), "new");
  EXPECT_EQ(files(), 1u) << "no temporary file stays";
}

TEST_F(Files, WriterWithoutCommitLeavesNothing) {
  const std::string target = made("target", "old");
  {
    auto writer = FileWriter::create(target);
    ASSERT_TRUE(writer) << writer.error().message;
    FileWriter moved = std::move(*writer);
    ASSERT_TRUE(moved.write(bytes_of("half")));
  }
  EXPECT_EQ(content(target), "old");
  EXPECT_EQ(files(), 1u);
}

TEST_F(Files, WriterErrorsNameTheTarget) {
  const std::string target = path("no/such/folder/file");
  const auto writer = FileWriter::create(target);
  ASSERT_FALSE(writer);
  EXPECT_NE(writer.error().message.find(target), std::string::npos) << writer.error().message;
}

}  // namespace
}  // namespace rullama::test
