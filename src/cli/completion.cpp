#include <algorithm>

#include "base/text.h"
#include "cli/command.h"
#include "cli/output.h"

namespace rullama::cli {

namespace {

// Made from the parser itself, so that it cannot fall behind.
std::string bash_script(const CLI::App& app) {
  std::string commands, cases;
  for (const CLI::App* command : app.get_subcommands({})) {
    commands += command->get_name() + " ";
    std::string flags, takes_value;
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) flags += "--" + name + " ";
      for (const std::string& name : option->get_snames()) flags += "-" + name + " ";
      if (option->get_expected_max() == 0 || option->get_positional()) continue;
      for (const std::string& name : option->get_lnames()) takes_value += (takes_value.empty() ? "--" : "|--") + name;
    }
    cases += cat("    ", command->get_name(), ") flags=\"", flags, "\" valued=\"", takes_value, "\" ;;\n");
  }
  return cat(
      "# Completion of rullama for bash: source this file, or put it into\n"
      "# ~/.local/share/bash-completion/completions/rullama\n"
      "_rullama() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD-1]} flags= valued=\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" = 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"",
      commands,
      "--help --version\" -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case ${COMP_WORDS[1]} in\n",
      cases,
      "  esac\n"
      "  case $last in\n"
      "    --kv-type) COMPREPLY=($(compgen -W \"f16 f32\" -- \"$word\")); return ;;\n"
      "    --device) COMPREPLY=($(compgen -W \"cpu gpu\" -- \"$word\")); return ;;\n"
      "  esac\n"
      "  if [[ $word == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$flags\" -- \"$word\"))\n"
      "  elif [[ -n $valued && \"|$valued|\" == *\"|$last|\"* ]] || [ \"$COMP_CWORD\" -gt 2 ]; then\n"
      "    COMPREPLY=($(compgen -f -- \"$word\"))\n"
      "  else\n"
      "    # a model: a file, or a name in the store; bash cuts words at colons\n"
      "    local IFS=$'\\n'\n"
      "    COMPREPLY=($(compgen -f -- \"$word\") $(compgen -W \"$(rullama list --names 2>/dev/null)\" -- \"$word\"))\n"
      "    declare -F __ltrim_colon_completions >/dev/null && __ltrim_colon_completions \"$word\"\n"
      "  fi\n"
      "}\n"
      "complete -o filenames -F _rullama rullama\n");
}

}  // namespace

void add_completion(CLI::App& app, Task& task) {
  CLI::App* command = app.add_subcommand("completion", "A script that makes a shell complete rullama's command line");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash")->required()->check(CLI::IsMember({"bash"}));
  command->footer(
      "Examples:\n  source <(rullama completion bash)\n"
      "  rullama completion bash > ~/.local/share/bash-completion/completions/rullama");
  command->callback([&app, &task, shell] {
    task = [&app, shell] {
      put(bash_script(app));
      return Result<>();
    };
  });
}

}  // namespace rullama::cli
