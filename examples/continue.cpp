// Continues a text and prints it as it comes; Ctrl-C stops the text, not the program.
//   continue MODEL.gguf "The three primary colours are" [DEVICE]
#include <atomic>
#include <csignal>
#include <iostream>

#include "rullama/rullama.h"

namespace {
std::atomic<bool> stopped = false;
}

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: continue MODEL.gguf TEXT [DEVICE]\n";
    return 2;
  }
  std::signal(SIGINT, [](int) { stopped = true; });

  const auto model = rullama::Model::load(argv[1], {.device = argc > 3 ? argv[3] : ""});
  if (!model) {
    std::cerr << model.error().message << "\n";
    return 1;
  }
  auto session = model->session();
  const auto prompt = model->tokenize(argv[2]);
  if (!session || !prompt) {
    std::cerr << (session ? prompt.error() : session.error()).message << "\n";
    return 1;
  }
  rullama::GenerateOptions how;
  how.sampling = model->default_sampling();
  how.max_tokens = 64;
  how.on_text = [](std::string_view text) {
    std::cout << text << std::flush;
    return true;
  };
  how.cancelled = [] { return stopped.load(); };
  const auto answer = session->generate(*prompt, how);
  if (!answer) {
    std::cerr << answer.error().message << "\n";
    return 1;
  }
  std::cout << "\n";
  std::cerr << answer->tokens.size() << " tokens on " << model->info().device << ", " << answer->timings.decode_tps()
            << " tok/s, ended by " << rullama::name(answer->finish) << "\n";
}
