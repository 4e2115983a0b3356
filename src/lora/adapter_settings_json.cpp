// adapter_config.json. Apart, so that a build without a JSON library can leave it out.
#include <limits>
#include <type_traits>

#include "base/json.h"
#include "base/text.h"
#include "lora/adapter_file.h"

namespace rullama {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint32_t kMostRank = 1u << 20;

class Config {
 public:
  Config(const Json& json, std::string_view file) : json_(json), file_(file) {}

  // A value that may be absent or null.
  template <class T>
  Result<> take(const char* key, bool (Json::*is)() const noexcept, std::string_view expected, T& to) const {
    const auto found = json_.find(key);
    if (found == json_.end() || found->is_null()) return {};
    if (!((*found).*is)()) return wrong(key, *found, expected);
    if constexpr (std::is_unsigned_v<T> && !std::is_same_v<T, bool>)
      if (found->template get<std::uint64_t>() > std::numeric_limits<T>::max()) return wrong(key, *found, expected);
    to = found->template get<T>();
    return {};
  }

  // {"q_proj": 8, ...}; PEFT also takes regular expressions, of which only the anchors are understood here.
  template <class T>
  Result<> pattern(const char* key, std::vector<std::pair<std::string, T>>& to) const {
    const auto found = json_.find(key);
    if (found == json_.end() || found->is_null()) return {};
    if (!found->is_object()) return wrong(key, *found, "an object");
    for (const auto& [name, value] : found->items()) {
      std::string plain = name;
      if (plain.starts_with('^')) plain.erase(0, 1);
      if (plain.ends_with('$')) plain.pop_back();
      for (std::size_t at = 0; (at = plain.find("\\.", at)) != std::string::npos;) plain.erase(at, 1);
      if (plain.empty() || plain.find_first_of("\\*+?[](){}|^$") != std::string::npos)
        return wrong(key, name, "names of modules without regular expressions");
      if (!value.is_number() || (std::is_integral_v<T> && (!value.is_number_unsigned() || value > kMostRank)))
        return wrong(key, value, "numbers");
      to.emplace_back(std::move(plain), value.template get<T>());
    }
    return {};
  }

  [[nodiscard]] std::unexpected<Error> wrong(std::string_view key, const Json& found, std::string_view expected) const {
    const std::string shown = found.is_structured() ? cat("an ", found.type_name()) : found.dump();
    return fail(cat(file_, ": ", quote(key), " is ", shown, ", expected ", expected));
  }

  // Features that would change the result.
  Result<> refuse() const {
    for (const char* key : {"use_dora", "lora_bias", "fan_in_fan_out", "use_qalora"})
      if (const auto found = json_.find(key); found != json_.end() && *found == true)
        return wrong(key, true, "false; such adapters are not supported");
    if (const auto found = json_.find("modules_to_save"); found != json_.end() && !found->is_null() && !found->empty())
      return wrong("modules_to_save", *found, "none; whole layers are not supported");
    if (const auto found = json_.find("bias"); found != json_.end() && !found->is_null() && *found != "none")
      return wrong("bias", *found, "\"none\"");
    if (const auto found = json_.find("init_lora_weights"); found != json_.end() && found->is_string())
      for (const char* start : {"pissa", "olora", "corda", "loftq", "lora_ga"})
        if (found->get<std::string>().starts_with(start))
          return wrong("init_lora_weights", *found,
                       "a start that leaves the base weights as they are; convert the adapter when PEFT saves it "
                       "(path_initial_model_for_weight_conversion)");
    return {};
  }

 private:
  const Json& json_;
  std::string_view file_;
};

}  // namespace

Result<AdapterSettings> settings_from_json(std::string_view text, std::string_view file) {
  const auto parsed = parse_json(text);
  if (!parsed) return fail(cat(file, ": ", parsed.error().message));
  const Json& json = *parsed;
  if (!json.is_object()) return fail(cat(file, ": not a JSON object"));
  const Config config(json, file);
  std::string type;
  AdapterSettings s;
  double alpha = 0, dropout = 0;
  if (auto ok = config.take("peft_type", &Json::is_string, "a text", type); !ok) return failed(ok);
  if (type != "LORA") return config.wrong("peft_type", type, "\"LORA\"");
  if (auto ok = config.take("r", &Json::is_number_unsigned, "a whole number", s.rank); !ok) return failed(ok);
  if (s.rank == 0 || s.rank > kMostRank) return config.wrong("r", s.rank, cat("1 to ", kMostRank));
  alpha = s.rank;
  if (auto ok = config.take("lora_alpha", &Json::is_number, "a number", alpha); !ok) return failed(ok);
  if (auto ok = config.take("lora_dropout", &Json::is_number, "a number", dropout); !ok) return failed(ok);
  if (auto ok = config.take("use_rslora", &Json::is_boolean, "true or false", s.rslora); !ok) return failed(ok);
  if (auto ok = config.take("base_model_name_or_path", &Json::is_string, "a text", s.base); !ok) return failed(ok);
  if (auto ok = config.pattern("rank_pattern", s.rank_pattern); !ok) return failed(ok);
  if (auto ok = config.pattern("alpha_pattern", s.alpha_pattern); !ok) return failed(ok);
  if (auto ok = config.refuse(); !ok) return failed(ok);
  s.alpha = static_cast<float>(alpha);
  s.dropout = static_cast<float>(dropout);
  if (const auto modules = json.find("target_modules"); modules != json.end() && modules->is_array())
    for (const Json& module : *modules)
      if (module.is_string()) s.modules.push_back(module.get<std::string>());
  return s;
}

std::string settings_to_json(const AdapterSettings& s) {
  const auto number = [](float v) { return static_cast<double>(v); };
  Json ranks = Json::object(), alphas = Json::object();
  for (const auto& [name, rank] : s.rank_pattern) ranks[name] = rank;
  for (const auto& [name, alpha] : s.alpha_pattern) alphas[name] = number(alpha);
  const Json json = {{"peft_type", "LORA"},
                     {"task_type", "CAUSAL_LM"},
                     {"base_model_name_or_path", s.base},
                     {"r", s.rank},
                     {"lora_alpha", number(s.alpha)},
                     {"lora_dropout", number(s.dropout)},
                     {"use_rslora", s.rslora},
                     {"use_dora", false},
                     {"target_modules", s.modules},
                     {"rank_pattern", ranks},
                     {"alpha_pattern", alphas},
                     {"modules_to_save", nullptr},
                     {"bias", "none"},
                     {"fan_in_fan_out", false},
                     {"init_lora_weights", true},
                     {"inference_mode", true}};
  return json.dump(2);
}

}  // namespace rullama
