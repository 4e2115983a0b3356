#include <filesystem>
#include <nlohmann/json.hpp>

#include "api/impl.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"
#include "cli/output.h"
#include "host/native/file_writer.h"
#include "lora/adapter_file.h"

namespace rullama::cli {

namespace {

struct ExportOptions {
  std::string adapter;
  ModelOptions model;
  OutputOptions output;
  bool json = false;
};

Result<> export_adapter(const ExportOptions& o) {
  const std::filesystem::path path = o.output.path, config = path.parent_path() / "adapter_config.json";
  const bool gguf = path.extension() == ".gguf";
  if (!gguf && path.extension() != ".safetensors")
    return fail(cat(quote(o.output.path, 200),
                    " must end with .gguf (for llama.cpp) or .safetensors (for PEFT), which says what to write"));
  const auto loaded = load(o.model);
  if (!loaded) return std::unexpected(loaded.error());
  const auto adapter = loaded->model.load_adapter(o.adapter);
  if (!adapter) return std::unexpected(adapter.error());
  const std::vector<std::string> inputs{o.adapter, o.adapter + "/adapter_model.safetensors", loaded->stored.path};
  std::vector<std::string> written{path.string()};
  if (!gguf) written.push_back(config.string());
  for (const std::string& file : written)
    if (auto ok = check_output({file, o.output.force}, inputs); !ok) return ok;

  const TextModel& model = *loaded->model.impl().text;
  const Adapter& content = *adapter->get();
  AdapterSettings settings = settings_of(content);
  settings.base = model.config.name;
  const auto done = write_file(path.string(), [&](ByteSink& sink) {
    return gguf ? write_adapter_gguf(sink, content, {model.config, model.weights, *model.backend})
                : write_adapter(sink, content, settings, *model.backend);
  });
  if (!done) return done;
  if (!gguf) {
    const auto also = write_text_file(config.string(), settings_to_json(settings) + "\n");
    if (!also) return also;
  }
  if (o.json) {
    put_json({{"output", written}, {"pairs", content.pairs.size()}});
  } else {
    for (const std::string& file : written) put(cat("wrote ", quote(file, 200), "\n"));
  }
  return {};
}

}  // namespace

void add_export(CLI::App& app, Task& task) {
  auto o = std::make_shared<ExportOptions>();
  o->model.device = "cpu";
  CLI::App* command = app.add_subcommand("export", "An adapter as a file for llama.cpp or for PEFT");
  command->add_option("ADAPTER", o->adapter, "PEFT's folder, safetensors or GGUF")->required();
  command->add_option("--model", o->model.model, "The model that the adapter is for: GGUF file or a name in the store")
      ->required();
  add_output_options(command, o->output,
                     "OUT.gguf for llama.cpp; OUT.safetensors, with adapter_config.json beside it, for PEFT");
  command->add_flag("--json", o->json, "One JSON object: output (files), pairs");
  command->footer(
      "Examples:\n  rullama export my-adapter --model gemma3:270m -o my-adapter.gguf\n"
      "  rullama export tone.gguf --model model.gguf -o tone/adapter_model.safetensors");
  run_with(command, task, o, export_adapter);
}

}  // namespace rullama::cli
