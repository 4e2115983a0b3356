#include <ctime>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/command.h"
#include "cli/output.h"
#include "host/native/ollama_store.h"

namespace rullama::cli {

namespace {

struct ListOptions {
  bool json = false, names = false;
};

std::string date(std::int64_t seconds) {
  const auto t = static_cast<std::time_t>(seconds);
  std::tm local{};
  char text[32];
  return localtime_r(&t, &local) && std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &local) ? text : "";
}

Result<> list_models(const ListOptions& options) {
  const OllamaStore store;
  const auto models = store.list();
  if (options.names) {
    for (const StoredModel& m : models) put(m.name + "\n");
    return {};
  }
  if (options.json) {
    Json out = {{"models", Json::array()}, {"stores", store.roots()}};
    for (const StoredModel& m : models)
      out["models"].push_back({{"name", m.name}, {"path", m.path}, {"bytes", m.bytes}, {"modified", m.modified}});
    put_json(out);
    return {};
  }
  if (models.empty()) {
    std::string places;
    for (const std::string& root : store.roots()) places += (places.empty() ? "" : ", ") + root;
    note(cat("there are no models in Ollama's store (looked in ", places, "); a path to a GGUF file works as well"));
    return {};
  }
  std::vector<std::vector<std::string>> rows = {{"NAME", "SIZE", "MODIFIED"}};
  for (const StoredModel& m : models)
    rows.push_back({m.name, bytes_text(static_cast<double>(m.bytes)), date(m.modified)});
  put_table(rows, {false, true, false});
  return {};
}

}  // namespace

void add_list(CLI::App& app, Task& task) {
  auto options = std::make_shared<ListOptions>();
  CLI::App* command = app.add_subcommand("list", "Models in Ollama's store");
  command->add_flag("--json", options->json, "One JSON object: models (name, path, bytes, modified) and stores");
  command->add_flag("--names", options->names, "Names only, a line each");
  command->footer(
      "Examples:\n  rullama list\n  OLLAMA_MODELS=/data/models rullama list --json\n\n"
      "Looks in $OLLAMA_MODELS, or else in ~/.ollama/models and /usr/share/ollama/.ollama/models.");
  run_with(command, task, options, list_models);
}

}  // namespace rullama::cli
