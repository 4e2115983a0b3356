#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/impl.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/common.h"
#include "cli/measure.h"
#include "cli/output.h"

namespace rullama::cli {

namespace {

struct BenchOptions {
  ModelOptions model;
  std::uint32_t prompt = 512, decode = 64, repeats = 3;
  bool json = false, profile = false;
};

struct Rates {
  std::vector<double> prompt_tps, decode_tps, first_token_s;
};

Json spread(const std::vector<double>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return {*least, median(values), *most};
}

Result<> measure(Session& session, std::span<const Token> prompt, const BenchOptions& o, Rates& rates) {
  if (auto ok = session.truncate(0); !ok) return ok;
  GenerateOptions how{.max_tokens = o.decode + 1, .ignore_eos = true};
  how.sampling.temperature = 0;
  const auto g = session.generate(prompt, how);
  if (!g) return std::unexpected(g.error());
  rates.prompt_tps.push_back(g->timings.prompt_tps());
  rates.decode_tps.push_back(g->timings.decode_tps());
  rates.first_token_s.push_back(g->timings.prompt_seconds);
  return {};
}

void print(const Json& r) {
  const auto value = [&](const char* key, int digits) { return fixed(r[key].get<double>(), digits); };
  put_table(
      {{"model", r["model"].get<std::string>()},
       {"device", r["device"].get<std::string>()},
       {"prompt", cat(value("prompt_tps", 1), " tok/s (", r["prompt_tokens"].get<int>(), " tokens)")},
       {"first token", cat(value("first_token_s", 3), " s")},
       {"decode", cat(value("decode_tps", 1), " tok/s (", r["decode_tokens"].get<int>(), " tokens), ",
                      value("decode_gbps", 1), " GB/s")},
       {"memory reads",
        cat(value("peak_gbps", 1), " GB/s measured; decode reaches ",
            fixed(100 * r["decode_gbps"].get<double>() / std::max(r["peak_gbps"].get<double>(), 1e-9), 0), " % of it")},
       {"device memory", cat(value("device_mb", 0), " MB")},
       {"host memory",
        cat(value("host_rss_mb", 0), " MB resident, ", value("host_file_mb", 0), " MB of it pages of the model file")},
       {"load", cat(value("load_s", 2), " s")}});
}

Result<Json> profile(Session& session, std::span<const Token> ids, std::uint32_t position) {
  Runner& runner = session.impl().sequence->runner();
  if (auto warm = runner.profile(ids, position); !warm) return failed(warm);
  auto times = runner.profile(ids, position);
  if (!times) return failed(times);
  return kernel_times(*times);
}

Result<> bench(const BenchOptions& o) {
  const auto loaded = load(o.model);
  if (!loaded) return std::unexpected(loaded.error());
  SessionOptions how = o.model.session();
  const std::uint32_t needed = o.prompt + o.decode, most = loaded->model.info().context_length;
  if (needed > most)
    return fail(cat("--prompt-tokens ", o.prompt, " and --predict ", o.decode, " take ", needed,
                    " positions and the model has ", most));
  if (!how.context) how.context = needed;
  auto session = loaded->session(how);
  if (!session) return failed(session);
  const auto prompt = some_tokens(loaded->model.tokenizer(), o.prompt);
  const double mb = 1e6;

  Rates rates;
  ProgressBar bar("Measuring");
  if (auto ok = measure(*session, prompt, o, rates); !ok) return ok;  // warms up: kernels are made, files read
  rates = {};
  for (std::uint32_t i = 0; i < o.repeats; i++) {
    bar.show(i, o.repeats);
    if (auto ok = measure(*session, prompt, o, rates); !ok) return ok;
  }
  const ResidentMemory memory = resident_memory();
  const std::uint64_t on_device = device_bytes(loaded->model);
  const auto peak = peak_bandwidth(loaded->model, o.model.threads);
  if (!peak) return std::unexpected(peak.error());

  const ModelInfo& info = loaded->model.info();
  const double decode_tps = median(rates.decode_tps);
  Json result = {{"device", info.device},
                 {"model", loaded->stored.name},
                 {"exact", how.exact},
                 {"prompt_tps", median(rates.prompt_tps)},
                 {"decode_tps", decode_tps},
                 {"bytes_per_token", info.bytes_per_token},
                 {"decode_gbps", decode_tps * static_cast<double>(info.bytes_per_token) / 1e9},
                 {"peak_gbps", *peak},
                 {"host_rss_mb", static_cast<double>(memory.total) / mb},
                 {"host_own_mb", static_cast<double>(memory.own) / mb},
                 {"host_file_mb", static_cast<double>(memory.file) / mb},
                 {"device_mb", static_cast<double>(on_device) / mb},
                 {"first_token_s", median(rates.first_token_s)},
                 {"load_s", info.load_seconds},
                 {"prompt_tokens", o.prompt},
                 {"decode_tokens", o.decode},
                 {"repeats", o.repeats},
                 {"prompt_tps_range", spread(rates.prompt_tps)},
                 {"decode_tps_range", spread(rates.decode_tps)}};
  const std::uint32_t batch = std::min(o.prompt, session->batch());
  if (o.profile) {
    const auto some = std::span(prompt).first(batch);
    auto in_prompt = profile(*session, some, 0);
    if (!in_prompt) return failed(in_prompt);
    auto in_decode = profile(*session, some.first(1), o.prompt);
    if (!in_decode) return failed(in_decode);
    result["prompt_kernels"] = std::move(*in_prompt);
    result["decode_kernels"] = std::move(*in_decode);
  }
  if (o.json) {
    put_json(result);
    return {};
  }
  print(result);
  if (o.profile) {
    print_kernels(cat("A batch of the prompt, ", batch, " tokens"), result["prompt_kernels"]);
    print_kernels("One token", result["decode_kernels"]);
  }
  return {};
}

}  // namespace

void add_bench(CLI::App& app, Task& task) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "How fast a model runs here");
  add_model_options(command, options->model);
  command->add_option("-p,--prompt-tokens", options->prompt, "Tokens of the prompt")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_option("-n,--predict", options->decode, "Tokens that are decoded after it")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  command->add_option("-r,--repeat", options->repeats, "Repetitions, of which the median counts; one more warms up")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag("--profile", options->profile, "Time of each kernel too");
  command->add_flag("--json", options->json,
                    "One JSON object: device, model, prompt_tps, decode_tps, bytes_per_token, decode_gbps, peak_gbps,\n"
                    "host_rss_mb, device_mb, first_token_s, ...");
  command->footer(
      "GB/s counts the weights that one token reads. peak_gbps is what the same device reaches when it only reads.\n"
      "host_rss_mb is the process's resident memory; host_file_mb of it are pages of the mapped model file.\n\n"
      "Examples:\n  rullama bench model.gguf\n  rullama bench gemma3:270m --device cpu -p 64 -n 32 --json\n"
      "  rullama bench ops matmul Q4_K\n  rullama bench train model.gguf");
  CLI::App* ops = add_bench_ops(command, task);
  CLI::App* train = add_bench_train(command, task);
  command->get_option("MODEL")->required(false);  // a required argument would take "ops" and "train" for itself
  command->callback([&task, command, options, ops, train] {
    if (const CLI::App* form = ops->parsed() ? ops : train; form->parsed()) {
      for (const CLI::Option* given : command->get_options())
        if (given->count())
          throw CLI::ValidationError(given->get_name(), cat("is of no use to `bench ", form->get_name(),
                                                            "`, whose own options come behind these words"));
      return;
    }
    if (options->model.model.empty()) throw CLI::RequiredError("MODEL");
    const std::uint32_t context = options->model.context, needed = options->prompt + options->decode;
    if (context && context < needed)
      throw CLI::ValidationError("--ctx-size", cat(context, " is less than the ", needed,
                                                   " positions that --prompt-tokens and --predict take"));
    task = [options] { return bench(*options); };
  });
}

}  // namespace rullama::cli
