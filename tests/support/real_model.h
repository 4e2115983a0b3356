// Gemma 3 270M, which is not part of the project: tests that need it are skipped where it is not in the model cache.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace rullama::test {

inline std::optional<std::string> real_model() {
  const char* cache = std::getenv("RULLAMA_MODEL_CACHE");
  const char* home = std::getenv("HOME");
  const std::filesystem::path folder =
      cache ? std::filesystem::path(cache) : std::filesystem::path(home ? home : "") / ".cache" / "rullama-models";
  const std::filesystem::path file = folder / "gemma-3-270m-q4_k_m.gguf";
  if (!std::filesystem::exists(file)) return std::nullopt;
  return file.string();
}
inline constexpr const char* kNoRealModel = "needs gemma-3-270m-q4_k_m.gguf in the model cache: run ./try once";

}  // namespace rullama::test
