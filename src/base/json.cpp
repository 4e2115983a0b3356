#include "base/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace rullama {
namespace {

using Json = nlohmann::json;

class Checker final : public nlohmann::json_sax<Json> {
 public:
  std::size_t position = 0;  // of an error
  bool too_deep = false;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return enter(); }
  bool key(string_t&) override { return true; }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool parse_error(std::size_t at, const std::string&, const Json::exception&) override {
    position = at;
    return false;
  }

 private:
  bool enter() {
    too_deep = ++level_ > kMostJsonLevels;
    return !too_deep;
  }
  bool leave() {
    level_--;
    return true;
  }
  int level_ = 0;
};

}  // namespace

Result<> check_json(std::string_view text) {
  Checker checker;
  if (Json::sax_parse(text.begin(), text.end(), &checker)) return {};
  if (checker.too_deep) return fail(cat("JSON is nested more than ", kMostJsonLevels, " levels deep"));
  const std::string_view before = text.substr(0, std::max<std::size_t>(checker.position, 1) - 1);
  const auto line = std::ranges::count(before, '\n') + 1;
  return fail(cat("not valid JSON: line ", line, ", column ", before.size() - (before.rfind('\n') + 1) + 1));
}

}  // namespace rullama
