#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "base/utf8.h"
#include "cli/command.h"
#include "cli/common.h"
#include "cli/output.h"
#include "host/native/mapped_file.h"

namespace rullama::cli {

namespace {

constexpr std::size_t kShownEntries = 8;  // of a long array

struct InspectOptions {
  std::string model;
  bool json = false, all = false;
};

template <class T>
T number(const GgufValue& value) {
  T out{};
  std::memcpy(&out, value.data.data(), std::min(sizeof out, value.data.size()));
  return out;
}

Json scalar(const Gguf& file, std::string_view key, const GgufValue& value) {
  switch (value.type) {
    case GgufType::u8: return number<std::uint8_t>(value);
    case GgufType::i8: return number<std::int8_t>(value);
    case GgufType::u16: return number<std::uint16_t>(value);
    case GgufType::i16: return number<std::int16_t>(value);
    case GgufType::u32: return number<std::uint32_t>(value);
    case GgufType::i32: return number<std::int32_t>(value);
    case GgufType::u64: return number<std::uint64_t>(value);
    case GgufType::i64: return number<std::int64_t>(value);
    case GgufType::f32: return number<float>(value);
    case GgufType::f64: return number<double>(value);
    case GgufType::boolean: return number<std::uint8_t>(value) != 0;
    case GgufType::string: return utf8::repair(file.get_string(key).value_or(""));
    case GgufType::array: break;
  }
  return nullptr;
}

// The first `count` entries; empty for arrays of arrays.
Json entries(const Gguf& file, std::string_view key, const GgufValue& value, std::size_t count) {
  Json out = Json::array();
  if (value.element == GgufType::array) return out;
  if (value.element == GgufType::string) {
    if (const auto strings = file.get_strings(key))
      for (std::size_t i = 0; i < std::min(count, strings->size()); i++) out.push_back(utf8::repair((*strings)[i]));
    return out;
  }
  const bool whole = value.element != GgufType::f32 && value.element != GgufType::f64;
  if (const auto numbers = file.get_numbers(key))
    for (std::size_t i = 0; i < std::min(count, numbers->size()); i++)
      out.push_back(value.element == GgufType::boolean ? Json((*numbers)[i] != 0)
                    : whole                            ? Json(static_cast<std::int64_t>((*numbers)[i]))
                                                       : Json((*numbers)[i]));
  return out;
}

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return out;
}

Json metadata_json(const Gguf& file, bool all) {
  Json out = Json::object();
  for (const auto& [key, value] : file.metadata()) {
    Json& entry = out[utf8::repair(key)];
    if (value.type == GgufType::array) {
      const std::size_t shown = all ? value.count : std::min<std::uint64_t>(kShownEntries, value.count);
      entry = {{"type", cat("ARRAY of ", upper(name(value.element)))}, {"length", value.count}};
      entry[shown == value.count ? "value" : "first"] = entries(file, key, value, shown);
    } else {
      entry = {{"type", upper(name(value.type))}, {"value", scalar(file, key, value)}};
    }
  }
  return out;
}

std::uint64_t elements(const GgufTensor& t) { return t.dims[0] * t.dims[1] * t.dims[2] * t.dims[3]; }

struct Total {
  std::uint64_t tensors = 0, elements = 0, bytes = 0;
};

std::map<std::string, Total> totals_by_type(const Gguf& file) {
  std::map<std::string, Total> totals;
  for (const GgufTensor& t : file.tensors()) {
    Total& total = totals[std::string(t.type_name())];
    total.tensors++;
    total.elements += elements(t);
    total.bytes += t.bytes;
  }
  return totals;
}

Json to_json(const Gguf& file, bool all) {
  Json tensors = Json::array();
  std::uint64_t start = file.source()->size(), parameters = 0;
  for (const GgufTensor& t : file.tensors()) {
    start = std::min(start, t.offset);
    parameters += elements(t);
    Json shape = Json::array();
    for (std::uint32_t i = 0; i < t.rank; i++) shape.push_back(t.dims[i]);
    tensors.push_back({{"name", utf8::repair(t.name)},
                       {"type", t.type_name()},
                       {"ne", shape},
                       {"bytes", t.bytes},
                       {"offset", t.offset},
                       {"supported", t.dtype.has_value()}});
  }
  Json formats = Json::object();
  for (const auto& [type, total] : totals_by_type(file))
    formats[type] = {{"tensors", total.tensors}, {"elements", total.elements}, {"bytes", total.bytes}};
  return {{"file", file.source()->name()},
          {"file_bytes", file.source()->size()},
          {"version", file.version()},
          {"alignment", file.alignment()},
          {"data_start", start},
          {"kv_count", file.metadata().size()},
          {"tensor_count", file.tensors().size()},
          {"parameters", parameters},
          {"formats", formats},
          {"metadata", metadata_json(file, all)},
          {"tensors", tensors}};
}

void print(const Gguf& file, const Json& all) {
  put(cat("file        ", without_controls(file.source()->name()), "\n"));
  put(cat("size        ", bytes_text(static_cast<double>(file.source()->size())), ", GGUF version ", file.version(),
          "\n"));
  put(cat("parameters  ", all["parameters"].get<std::uint64_t>(), " in ", file.tensors().size(), " tensors\n\n"));

  put("Formats\n");
  std::vector<std::vector<std::string>> rows;
  for (const auto& [type, total] : totals_by_type(file))
    rows.push_back({"  " + type, cat(total.tensors, " tensors"), bytes_text(static_cast<double>(total.bytes))});
  put_table(rows, {false, true, true});

  put("\nMetadata\n");
  rows.clear();
  for (const auto& [key, entry] : all["metadata"].items()) {
    const bool array = entry.contains("length");
    const Json& value = entry.contains("value") ? entry["value"] : entry["first"];
    std::string shown = value.is_string() ? quote(value.get<std::string>(), 100)
                                          : value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (array && shown.size() > 100) shown = shown.substr(0, shown.rfind(',', 97)) + ", ...";
    if (array) shown = cat(entry["length"].get<std::uint64_t>(), " entries ", utf8::repair(shown));
    rows.push_back({"  " + without_controls(key), without_controls(shown)});
  }
  put_table(rows);

  put("\nTensors (fastest dimension first)\n");
  rows.clear();
  for (const GgufTensor& t : file.tensors())
    rows.push_back({"  " + quote(t.name), std::string(t.type_name()), list(std::span(t.dims).first(t.rank)),
                    bytes_text(static_cast<double>(t.bytes)), t.dtype ? "" : "not supported"});
  put_table(rows, {false, false, false, true, false});
}

Result<> inspect(const InspectOptions& o) {
  const auto stored = find_model(o.model);
  if (!stored) return std::unexpected(stored.error());
  auto source = open_mapped(stored->path);
  if (!source) return failed(source);
  const auto file = Gguf::read(*source);
  if (!file) return std::unexpected(file.error());
  const Json all = to_json(*file, o.all);
  if (o.json)
    put_json(all);
  else
    print(*file, all);
  return {};
}

}  // namespace

void add_inspect(CLI::App& app, Task& task) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand("inspect", "Metadata, tensors, formats and sizes of a GGUF file");
  add_model_argument(command, options->model);
  command->add_flag("--json", options->json, "One JSON object: metadata, tensors, formats and totals");
  command->add_flag("--all", options->all, "Arrays in full, not only their first entries");
  command->footer("Examples:\n  rullama inspect model.gguf\n  rullama inspect gemma3:270m --json | jq .formats");
  run_with(command, task, options, inspect);
}

}  // namespace rullama::cli
