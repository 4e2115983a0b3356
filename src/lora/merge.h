// A model's file with adapters worked into its weights: W' = W + strength * scale * B A, stored in W's type or another.
//
// Only the tensors that an adapter touches are encoded again; all others, and the metadata, are copied as they are.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/crew.h"
#include "formats/gguf.h"
#include "lora/adapter.h"
#include "ops/backend.h"

namespace rullama {

struct MergeOptions {
  std::optional<DType> type = {};  // of the tensors that change; default: each keeps its own
  Crew* crew = nullptr;            // null: this thread alone
  // Called now and then with bytes written and in all; returning false cancels.
  std::function<bool(std::uint64_t done, std::uint64_t total)> progress = {};
};

// Squared norms over a tensor's elements.
struct MergeNorms {
  double weight = 0, change = 0, rounding = 0;  // W, W' - W, what is stored - W'

  MergeNorms& operator+=(const MergeNorms& o);
  [[nodiscard]] double relative_change() const;
  [[nodiscard]] double relative_rounding() const;  // of the change; where a type is kept 1 at most: all is lost
};

struct MergedTensor {
  std::string name;
  DType from = DType::F32, to = DType::F32;
  // The head of a model that has none of its own: there is one now, since embeddings and head are not the same any
  // more.
  bool added = false;
  MergeNorms norms;
};

// A merge that has been planned: what the new file holds is known before anything is written. What it is given must
// outlive it.
class MergePlan {
 public:
  // `weights` of `file` on `backend`, where the adapters are too.
  [[nodiscard]] static Result<MergePlan> make(const Gguf& file, const GemmaConfig& config, const GemmaWeights& weights,
                                              Backend& backend, std::span<const ActiveAdapter> adapters,
                                              MergeOptions options);

  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }  // of all tensors
  // Holds a few MB at a time, whatever the tensors' sizes.
  [[nodiscard]] Result<std::vector<MergedTensor>> write(ByteSink& sink) const;

 private:
  // A low-rank term of a tensor's change.
  struct Term {
    const AdapterPair* pair;
    float strength;
  };
  struct Output {
    std::string_view name;
    const GgufTensor* source;
    DType to = DType::F32;  // where there are terms
    std::vector<Term> terms;
    bool added = false;
  };

  MergePlan(const Gguf& file, Backend& backend, MergeOptions options)
      : file_(file), backend_(backend), options_(std::move(options)) {}
  [[nodiscard]] Result<> add_terms(const GemmaConfig& config, const GemmaWeights& weights,
                                   std::span<const ActiveAdapter> adapters);
  [[nodiscard]] Result<> choose_types();
  [[nodiscard]] Result<MergeNorms> write_changed(const Output& output, ByteSink& sink) const;
  [[nodiscard]] Result<> copy(const Output& output, ByteSink& sink) const;

  const Gguf& file_;
  Backend& backend_;
  MergeOptions options_;
  std::vector<Output> outputs_;
  std::uint64_t bytes_ = 0;
};

}  // namespace rullama
