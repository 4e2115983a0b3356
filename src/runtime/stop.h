// Stop strings in text that arrives in pieces.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rullama {

// Feed it valid UTF-8 (StreamDecoder's output) and what comes out is valid UTF-8 too: text is held back only from a
// character on that may begin a stop string.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);  // empty ones are ignored

  // The text that is certain not to belong to a stop string. After a match nothing more comes out.
  [[nodiscard]] std::string push(std::string_view text);
  // What was held back, when generation has ended without a match.
  [[nodiscard]] std::string finish();

  // True once a stop string was found: the text before it has come out, the string and all behind it are dropped.
  [[nodiscard]] bool stopped() const { return stopped_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace rullama
