#include "lora/merge.h"

#include <nlohmann/json.hpp>
#include <set>

#include "api/impl.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "host/native/crew.h"
#include "host/native/file_writer.h"

namespace rullama::cli {

namespace {

constexpr double kMostRounding = 0.5;  // of the change: beyond it the adapter may not show any more

struct MergeCommand {
  ModelOptions model;
  OutputOptions output;
  std::string type;
  bool json = false;
};

std::string percent(double share) { return fixed(100 * share, share < 0.1 ? 2 : 0) + " %"; }

Result<std::vector<MergedTensor>> write(const MergePlan& merge, const std::string& path,
                                        const InterruptScope& interrupt) {
  auto file = FileWriter::create(path);
  if (!file) return failed(file);
  auto merged = merge.write(*file);
  if (!merged && merged.error().code == ErrorCode::io)
    merged.error().message += cat("; the whole file needs ", bytes_text(static_cast<double>(merge.bytes())));
  if (!merged) return merged;
  if (interrupt.interrupted()) return fail(ErrorCode::cancelled, "merging was cancelled");
  if (auto ok = file->commit(); !ok) return failed(ok);
  return merged;
}

void report(const MergeCommand& o, const MergePlan& merge, const std::vector<MergedTensor>& merged) {
  MergeNorms all;
  bool quantised = false;
  Json tensors = Json::array();
  std::vector<std::vector<std::string>> rows{{"tensor", "type", "change", "rounding/change"}};
  for (const MergedTensor& t : merged) {
    all += t.norms;
    quantised = quantised || info(t.to).quantised;
    tensors.push_back({{"name", t.name},
                       {"from", name(t.from)},
                       {"to", name(t.to)},
                       {"added", t.added},
                       {"change", t.norms.relative_change()},
                       {"rounding", t.norms.relative_rounding()}});
    rows.push_back({quote(t.name) + (t.added ? " (new)" : ""),
                    t.from == t.to ? std::string(name(t.to)) : cat(name(t.from), " -> ", name(t.to)),
                    percent(t.norms.relative_change()), percent(t.norms.relative_rounding())});
  }
  if (o.json) {
    put_json({{"output", o.output.path},
              {"tensor_bytes", merge.bytes()},
              {"change", all.relative_change()},
              {"rounding", all.relative_rounding()},
              {"tensors", tensors}});
  } else {
    if (!merged.empty()) put_table(rows, {false, false, true, true});
    put(cat(merged.size(), merged.size() == 1 ? " tensor" : " tensors", " of ", quote(o.output.path, 200),
            " changed, by ", percent(all.relative_change()), "; rounding is ", percent(all.relative_rounding()),
            " of that\n"));
  }
  if (all.relative_rounding() > kMostRounding)
    note(cat("rounding to the weight formats is ", percent(all.relative_rounding()), " of what the adapter changes; ",
             quantised ? "--type F16 or Q8_0" : "--type F32", " keeps more"));
}

Result<> merge(const MergeCommand& o) {
  MergeOptions how;
  if (!o.type.empty()) how.type = dtype_of_name(o.type);
  auto loaded = load(o.model);
  if (!loaded) return failed(loaded);
  std::vector<std::string> inputs{loaded->stored.path};
  for (const std::string& text : o.model.adapters) {
    const std::string adapter = adapter_argument(text)->first;  // `load` has read it
    inputs.insert(inputs.end(), {adapter, adapter + "/adapter_model.safetensors"});
  }
  if (auto ok = check_output(o.output, inputs); !ok) return ok;
  std::vector<ActiveAdapter> adapters;
  for (const AdapterUse& use : loaded->adapters) adapters.push_back({use.adapter.get(), use.strength});
  const auto crew = make_crew(o.model.threads);
  const InterruptScope interrupt;
  ProgressBar bar(cat("Merging ", loaded->stored.name));
  how.crew = crew.get();
  how.progress = [&](std::uint64_t done, std::uint64_t total) {
    bar.show(done, total);
    return !interrupt.interrupted();
  };
  const Model::Impl& model = loaded->model.impl();
  const auto plan = MergePlan::make(*model.file, model.text->config, model.text->weights, *model.text->backend,
                                    adapters, std::move(how));
  if (!plan) return std::unexpected(plan.error());
  const auto merged = write(*plan, o.output.path, interrupt);
  if (!merged) return std::unexpected(merged.error());
  bar.hide();
  report(o, *plan, *merged);
  return {};
}

}  // namespace

void add_merge(CLI::App& app, Task& task) {
  auto o = std::make_shared<MergeCommand>();
  o->model.device = "cpu";
  CLI::App* command = app.add_subcommand("merge", "A model's file with adapters worked into its weights");
  add_model_argument(command, o->model.model);
  add_lora_option(command, o->model.adapters)->required();
  add_output_options(command, o->output, "The GGUF file to write");
  std::set<std::string> types;
  for (std::size_t i = 0; i < kDTypeCount; i++)
    if (info(static_cast<DType>(i)).encode) types.emplace(name(static_cast<DType>(i)));
  command->add_option("--type", o->type, "Weight format of the tensors that change; default: each keeps its own")
      ->transform(CLI::IsMember(types, CLI::ignore_case));
  command->add_option("--threads", o->model.threads, "Threads; 0: all cores")->check(CLI::Range(0, 1024));
  command->add_flag("--json", o->json,
                    "One JSON object: output, change, rounding, tensors (name, from, to, change, rounding)");
  command->footer(
      "What an adapter does not touch is copied as it is. A small change can vanish below the steps of a 4-bit "
      "format:\n"
      "the table compares the rounding with it, and --type gives the tensors that change a finer one.\n"
      "Where embeddings and head share a tensor, an adapter of one of them gives the file an output.weight.\n\n"
      "Examples:\n  rullama merge gemma3:270m --lora my-adapter -o merged.gguf\n"
      "  rullama merge model.gguf --lora tone.gguf:0.5 --lora facts -o merged.gguf --type Q8_0");
  run_with(command, task, o, merge);
}

}  // namespace rullama::cli
