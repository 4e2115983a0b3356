// JSON of others: every text of a file or a message is parsed here. Only for code that has the JSON library, which the
// page's build lacks.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "rullama/result.h"

namespace rullama {

// Lists and objects within each other. Building a value takes many times the memory of its text, and so do the
// functions that walk it.
constexpr int kMostJsonLevels = 100;

// Says where `text` stops being JSON, or that it is nested too deeply; builds nothing.
[[nodiscard]] Result<> check_json(std::string_view text);

template <class Json = nlohmann::ordered_json>
[[nodiscard]] Result<Json> parse_json(std::string_view text) {
  if (auto ok = check_json(text); !ok) return failed(ok);
  return Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
}

}  // namespace rullama
