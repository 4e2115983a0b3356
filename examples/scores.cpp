// Which of two endings a model finds more likely: sums of log-probabilities after a common beginning, which is
// evaluated once.
//   scores MODEL.gguf "The sky is" " blue" " green" [DEVICE]
#include <algorithm>
#include <cmath>
#include <iostream>
#include <vector>

#include "rullama/rullama.h"

namespace {

double log_probability(std::span<const float> logits, rullama::Token token) {
  const float most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float v : logits) sum += std::exp(static_cast<double>(v - most));
  return logits[token] - most - std::log(sum);
}

// The tokens of `ending` after those of `text`.
rullama::Result<double> score(const rullama::Model& model, rullama::Session& session, const std::string& text,
                              const std::string& ending) {
  const auto before = model.tokenize(text), whole = model.tokenize(text + ending);
  if (!before) return std::unexpected(before.error());
  if (!whole) return std::unexpected(whole.error());
  double sum = 0;
  for (std::size_t i = before->size(); i < whole->size(); i++) {
    if (auto ok = session.set(std::span(*whole).first(i)); !ok) return std::unexpected(ok.error());
    const auto logits = session.logits();
    if (!logits) return std::unexpected(logits.error());
    sum += log_probability(*logits, (*whole)[i]);
  }
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::cerr << "usage: scores MODEL.gguf TEXT ENDING ENDING [DEVICE]\n";
    return 2;
  }
  const auto model = rullama::Model::load(argv[1], {.device = argc > 5 ? argv[5] : ""});
  if (!model) {
    std::cerr << model.error().message << "\n";
    return 1;
  }
  auto session = model->session();
  if (!session) {
    std::cerr << session.error().message << "\n";
    return 1;
  }
  for (int i = 3; i < 5; i++) {
    const auto sum = score(*model, *session, argv[2], argv[i]);
    if (!sum) {
      std::cerr << sum.error().message << "\n";
      return 1;
    }
    std::cout << argv[i] << ": " << *sum << "\n";
  }
}
