// The commands of the program: one file each. A command adds its options to the parser; when the parser has met it on
// the command line, `task` is what it does.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>

#include "rullama/result.h"

namespace rullama::cli {

using Task = std::function<Result<>()>;

void add_run(CLI::App& app, Task& task);
void add_list(CLI::App& app, Task& task);
void add_devices(CLI::App& app, Task& task);
void add_inspect(CLI::App& app, Task& task);
void add_tokenize(CLI::App& app, Task& task);
void add_render(CLI::App& app, Task& task);
void add_logits(CLI::App& app, Task& task);
void add_perplexity(CLI::App& app, Task& task);
void add_bench(CLI::App& app, Task& task);
CLI::App* add_bench_ops(CLI::App* bench, Task& task);    // `rullama bench ops`
CLI::App* add_bench_train(CLI::App* bench, Task& task);  // `rullama bench train`
void add_finetune(CLI::App& app, Task& task);
void add_merge(CLI::App& app, Task& task);
void add_export(CLI::App& app, Task& task);
void add_completion(CLI::App& app, Task& task);

// Options live as long as the parser, which keeps the callback that holds them.
template <class Options>
void run_with(CLI::App* command, Task& task, std::shared_ptr<Options> options, Result<> (*act)(const Options&)) {
  command->callback([&task, options, act] { task = [options, act] { return act(*options); }; });
}

}  // namespace rullama::cli
