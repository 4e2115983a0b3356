// The vocabulary that a GGUF file holds.
#pragma once

#include "formats/gguf.h"
#include "formats/tokenizer.h"

namespace rullama {

// Reads tokenizer.ggml.*: tokens, token_type, scores, merges, the ids of special tokens, eos_token_ids and
// suppress_tokens. Both spellings of Gemma 4's tokenizer are understood: tokenizer.ggml.model = gemma4 (llama.cpp), or
// llama with pre = gemma4 (Ollama). Merges decide where there are any, else the scores. tokenizer.ggml.add_bos_token and
// add_space_prefix are not asked: Gemma always wants one <bos> and never a leading space.
// An error names the key and what is wrong with it. What Tokenizer::create checks is left to it.
[[nodiscard]] Result<Vocabulary> read_vocabulary(const Gguf& file);

}  // namespace rullama
