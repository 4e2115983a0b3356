// rullama: Gemma models from GGUF files on the command line.
//
// Exit status: 0, 1 for errors, 2 for a wrong command line, 130 after Ctrl-C.
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <exception>
#include <iostream>
#include <string>

#include "base/text.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/output.h"

namespace {

using namespace rullama;
using namespace rullama::cli;

// The parser's message as the rest of a sentence, with the command whose help helps.
std::string usage_message(const CLI::App& app, std::string message) {
  std::string command = "rullama";
  const CLI::App* used = &app;
  for (auto chosen = app.get_subcommands(); !chosen.empty(); chosen = used->get_subcommands()) {
    used = chosen.front();
    command += " " + used->get_name();
  }
  // what stands where a command belongs is what is wrong, rather than that none is there
  if (const auto words = used->remaining(); !words.empty()) {
    const auto option = std::ranges::find_if(words, [](const auto& word) { return word.starts_with('-'); });
    message = used == &app            ? cat("there is no command or option ", quote(words.front()))
              : option != words.end() ? cat("there is no option ", quote(*option))
                                      : cat("one argument too many: ", quote(words.front()));
  }
  while (!message.empty() && (message.back() == '\n' || message.back() == '.')) message.pop_back();
  for (char& c : message)
    if (c == '\n') c = ' ';
  return cat(message, "; `", command, " --help` tells how it goes");
}

// The exit status of a command that is done, by whether its result has arrived.
int written() {
  if (std::cout.flush() && stdout_ok()) return 0;
  note("the result could not be written to the standard output (is the disk full?)");
  return 1;
}

int run(const Task& task) {
  if (const auto done = task(); !done) {
    if (done.error().code != ErrorCode::cancelled) note(done.error().message);
    return done.error().code == ErrorCode::cancelled ? 130 : 1;
  }
  return written();
}

}  // namespace

int main(int argc, char** argv) {
  watch_mapped_files();
  CLI::App app{"Runs Gemma models from GGUF files on a GPU, or on the CPU.", "rullama"};
  Task task;
  app.set_version_flag("--version", "rullama " RULLAMA_VERSION);
  app.require_subcommand(1);
  app.footer(
      "MODEL is a path to a GGUF file or a name in Ollama's store, such as gemma3:270m.\n"
      "`rullama COMMAND --help` shows a command's options and examples.");
  for (const auto add : {add_run, add_list, add_devices, add_inspect, add_tokenize, add_render, add_logits,
                         add_perplexity, add_bench, add_finetune, add_merge, add_export, add_completion})
    add(app, task);
  try {
    app.parse(argc, argv);
    return run(task);
  } catch (const CLI::Success& help) {
    app.exit(help);
    return written();
  } catch (const CLI::ParseError& error) {
    note(usage_message(app, error.what()));
    return 2;
  } catch (const std::bad_alloc&) {
    note("there is not enough memory");
    return 1;
  } catch (const std::exception& error) {
    note(cat("an unexpected error: ", error.what()));
    return 1;
  }
}
