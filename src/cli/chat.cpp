#include <filesystem>
#include <random>

#include "base/text.h"
#include "cli/answer_view.h"
#include "cli/chat_commands.h"
#include "cli/interrupt.h"
#include "cli/line_editor.h"
#include "cli/output.h"
#include "cli/run.h"

namespace rullama::cli {

namespace {

constexpr std::string_view kQuotes = "\"\"\"";

// Reads what the user enters: a line, or several between """ marks.
class Entry {
 public:
  explicit Entry(LineEditor& editor) : editor_(editor) {}

  LineEditor::Line read() {
    LineEditor::Line line = editor_.read(">>> ");
    using Kind = LineEditor::Line::Kind;
    if (line.kind != Kind::text || !std::string_view(line.text).starts_with(kQuotes)) return line;
    std::string text = line.text.substr(kQuotes.size());
    while (!text.ends_with(kQuotes)) {
      line = editor_.read("... ");
      if (line.kind != Kind::text) return line;
      text += "\n" + line.text;
    }
    text.resize(text.size() - kQuotes.size());
    return {Kind::text, std::move(text)};
  }

 private:
  LineEditor& editor_;
};

class Chat {
 public:
  Chat(const RunOptions& options, const LoadedModel& loaded, Session& session)
      : options_(options), session_(session), editor_(default_history_file()) {
    c_.loaded = &loaded;
    c_.session = &session;
    c_.chat = is_chat(options.prompt, loaded.chat);
    c_.how = generate_options(options, loaded);
    c_.random_seed = !options.sampling.seed;
    c_.system = options.prompt.system.value_or(c_.chat ? loaded.stored.system : "");
    c_.think = options.prompt.think;
    c_.verbose = options.verbose;
  }

  Result<> loop() {
    if (auto ok = restore(); !ok) return ok;
    put_now("/help lists the commands, /bye or Ctrl-D leaves.\n");
    Entry entry(editor_);
    for (;;) {
      const LineEditor::Line line = entry.read();
      if (line.kind == LineEditor::Line::Kind::end) break;
      if (line.kind == LineEditor::Line::Kind::interrupted) {
        put_now("Ctrl-D or /bye leaves.\n");
        continue;
      }
      if (line.text.find_first_not_of(" \t\n") == line.text.npos) continue;
      if (c_.keep_history) editor_.remember(line.text);
      if (line.text.starts_with('/')) {
        if (obey(line.text, c_) == CommandResult::leave) break;
      } else if (auto ok = answer(line.text); !ok) {
        if (ok.error().code == ErrorCode::device) return ok;  // nothing can be computed any more
        note(ok.error().message);
      }
    }
    put_now("\n");
    return options_.prompt_cache.empty() || session_.tokens().empty() ? Result<>()
                                                                      : session_.save(options_.prompt_cache);
  }

 private:
  Result<> restore() {
    std::error_code ignored;
    if (options_.prompt_cache.empty() || !std::filesystem::exists(options_.prompt_cache, ignored)) return {};
    return session_.restore(options_.prompt_cache);
  }

  Result<Prompt> prompt(const std::string& text) const {
    const Tokenizer& tokenizer = c_.loaded->model.tokenizer();
    if (!c_.chat) return text_prompt(tokenizer, text, options_.prompt.special);
    const auto format = need_format(c_.loaded->format);
    if (!format) return std::unexpected(format.error());
    std::vector<Message> all;
    if (!c_.system.empty()) all.push_back(Message::text(Role::system, c_.system));
    all.insert(all.end(), c_.messages.begin(), c_.messages.end());
    return chat_prompt(tokenizer, *format, all, c_.think);
  }

  // The prompt with the newest message, within the context; --slide drops the oldest turns for that.
  Result<Prompt> fitting_prompt(const std::string& text) {
    for (;;) {
      auto made = prompt(text);
      if (!made || made->tokens.size() < session_.context()) return made;
      if (options_.slide && c_.messages.size() > 2) {
        c_.messages.erase(c_.messages.begin(), c_.messages.begin() + 2);
        continue;
      }
      return fail(cat("the conversation takes ", made->tokens.size(), " positions and the context has ",
                      session_.context(),
                      "; /clear begins anew, and at the start -c gives more room and --slide drops the oldest turns"));
    }
  }

  Result<> answer(const std::string& text) {
    if (c_.chat) c_.messages.push_back(Message::text(Role::user, text));
    auto done = generate(text);
    if (!done && c_.chat) c_.messages.pop_back();
    return done;
  }

  Result<> generate(const std::string& text) {
    const auto made = fitting_prompt(text);
    if (!made) return std::unexpected(made.error());
    const InterruptScope interrupt;
    AnswerView view(*made, false);
    GenerateOptions how = c_.how;
    if (c_.random_seed) how.sampling.seed = std::random_device()();
    how.show_special = made->format && *made->format != ChatFormat::gemma3;
    how.on_text = [&view](std::string_view piece) {
      view.push(piece);
      return true;
    };
    how.cancelled = [&interrupt] { return interrupt.interrupted(); };
    const auto generation = session_.generate(made->tokens, how);
    view.finish();
    if (!generation) return std::unexpected(generation.error());
    note_end(*generation, session_, how);
    if (c_.verbose) note_timings(*generation, how.sampling);
    const bool taken_back = generation->finish == FinishReason::cancelled && generation->tokens.empty();
    if (taken_back) put_now("\n");                      // after the ^C that the terminal shows
    if (c_.chat && taken_back) c_.messages.pop_back();  // the question, of which nothing came
    if (c_.chat && !taken_back) {                       // also what came of an answer that was stopped
      Message said = Message::text(Role::assistant, view.answer().content);
      said.thinking = view.answer().thinking;
      c_.messages.push_back(std::move(said));
    }
    return {};
  }

  const RunOptions& options_;
  Session& session_;
  LineEditor editor_;
  ChatState c_;
};

}  // namespace

Result<> chat(const RunOptions& options, const LoadedModel& loaded, Session& session) {
  return Chat(options, loaded, session).loop();
}

}  // namespace rullama::cli
