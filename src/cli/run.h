// `rullama run`: what its one-shot form and its chat share.
#pragma once

#include <string>
#include <vector>

#include "cli/common.h"

namespace rullama::cli {

struct RunOptions {
  ModelOptions model;
  SamplingOptions sampling;
  PromptOptions prompt;
  std::string text;
  bool has_text = false;
  std::int64_t predict = -1;  // most tokens of an answer; negative: no limit
  std::vector<std::string> stops;
  bool ignore_eos = false, slide = false, verbose = false, json = false;
  std::string prompt_cache;
};

[[nodiscard]] GenerateOptions generate_options(const RunOptions& options, const LoadedModel& loaded);

// What --verbose says after an answer.
void note_timings(const Generation& generation, const Sampling& sampling);
// A sentence about an answer that ended early; nothing for those that ended by themselves.
void note_end(const Generation& generation, const Session& session, const GenerateOptions& options);

// The conversation on a terminal, until the user leaves.
[[nodiscard]] Result<> chat(const RunOptions& options, const LoadedModel& loaded, Session& session);

}  // namespace rullama::cli
