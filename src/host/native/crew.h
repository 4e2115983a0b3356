// A crew of threads. Between two pieces of work the threads spin for a short while before they sleep: a token is
// some hundred pieces of a few microseconds each.
#pragma once

#include <memory>

#include "base/crew.h"

namespace rullama {

// `threads` 0: one for each core that this process may use.
[[nodiscard]] std::shared_ptr<Crew> make_crew(std::size_t threads = 0);

}  // namespace rullama
