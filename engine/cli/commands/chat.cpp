// harmonics chat: converses with a language model.
#include <atomic>
#include <csignal>
#include <ctime>
#include <iostream>

#include <unistd.h>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/base/file.hpp"
#include "engine/base/spelling.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/run/language_model.hpp"
#include "engine/cli/run/outputs.hpp"
#include "engine/cli/terminal/line_editor.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/language/chat_session.hpp"
#include "formats/exact_json.hpp"

namespace harmonics::engine::cli {

namespace {

std::atomic<int> interrupts{0};  // number of Ctrl-C since the last answer began

void count_interrupt(int) {
  if (++interrupts > 2) std::_Exit(kInterrupted);
}

// During its lifetime Ctrl-C ends the answer, and the third one ends the program.
class AnswerInterrupts {
 public:
  AnswerInterrupts() {
    struct sigaction action {};
    action.sa_handler = count_interrupt;
    action.sa_flags = SA_RESTART;  // an interrupted write continues
    ::sigaction(SIGINT, &action, &before_);
  }
  ~AnswerInterrupts() { ::sigaction(SIGINT, &before_, nullptr); }
  AnswerInterrupts(const AnswerInterrupts&) = delete;
  AnswerInterrupts& operator=(const AnswerInterrupts&) = delete;

 private:
  struct sigaction before_ {};
};

constexpr const char* kSessionEnding = ".session";

constexpr const char* kChatHelp =
    "/help             these commands\n"
    "/system [TEXT]    set the system message; without TEXT, remove it\n"
    "/regenerate       answer the last message again\n"
    "/clear            forget the conversation, but not the system message\n"
    "/save FILE        write the messages (JSON), or, to a file named .session, also what was computed for them\n"
    "/load FILE        continue such a file\n"
    "/quit             end; Ctrl-D does the same\n"
    "Ctrl-C stops an answer. Up and down recall lines.\n";

class Chat {
 public:
  Chat(const Options& options, LanguageModel& model)
      : options_(options),
        model_(model),
        format_(model.chat_template(options)),
        session_(model.decoder, options.context, options.context > 0),
        chat_(session_, *model.tokenizer, format_, options.overflow == "shift" ? Overflow::shift : Overflow::stop),
        speculation_(options, model),
        settings_(continuation_settings(options, *model.tokenizer)) {
    settings_.ends = answer_ends(*model.tokenizer);
    for (const int32_t id : model.ends()) settings_.ends.push_back(id);
    if (std::string stop = format_.stop_text(*model.tokenizer); !stop.empty())
      settings_.stop.push_back(std::move(stop));
    settings_.written = answer_marks(*model.tokenizer);
    settings_.drafter = speculation_.drafter;
    settings_.draft_tokens = speculation_.tokens;
    chat_.now = std::time(nullptr);
    if (const std::optional<SavedSession> saved = saved_session_of(options)) restore(*saved, options.session);
    if (!options.system.empty() || chat_.messages().empty()) chat_.set_system(options.system);
  }

  int run() {
    terminal_ = ::isatty(STDIN_FILENO) != 0 && ::isatty(STDOUT_FILENO) != 0;
    if (!format_.own()) print_note("the model has no chat template: messages are formatted as ChatML");
    if (terminal_ && !options_.quiet) say("/help lists the commands; Ctrl-C stops an answer, Ctrl-D ends");
    while (!over_) {
      const std::optional<std::string> line = next_line();
      if (!line) break;
      take(*line);
    }
    if (!options_.session.empty()) save_session(options_.session);
    if (options_.json) print_summary();
    return interrupted_ ? kInterrupted : kDone;
  }

 private:
  std::optional<std::string> next_line() {
    if (terminal_) return editor_.read("> ");
    std::string line;
    if (interrupted_ || !std::getline(std::cin, line)) return std::nullopt;
    return line;
  }

  void take(const std::string& line) {
    if (line.find_first_not_of(" \t\r\n") == std::string::npos) return;
    try {
      if (line[0] == '/')
        command(line);
      else
        answer(line);
    } catch (const Error& e) {
      if (!terminal_) throw;
      print_error(e);  // the message is ignored and the conversation continues
    }
  }

  void command(const std::string& line) {
    const size_t end = line.find(' ');
    const std::string word = line.substr(0, end);
    const size_t begin = end == std::string::npos ? end : line.find_first_not_of(' ', end);
    const std::string rest = begin == std::string::npos ? "" : line.substr(begin);
    if (word == "/help") return print_text(kChatHelp);
    if (word == "/clear") return chat_.clear();
    if (word == "/system") return chat_.set_system(rest);
    if (word == "/save") return save(rest);
    if (word == "/load") return load(rest);
    if (word == "/quit" || word == "/exit") {
      over_ = true;
      return;
    }
    if (word == "/regenerate") {
      if (!chat_.drop_answer()) throw Error(ErrorKind::Usage, "there is no answer to regenerate");
      ++settings_.seed;
      return answer(std::nullopt);
    }
    Error error(ErrorKind::Usage, fmt::format("there is no command '{}'", word));
    const std::string meant =
        did_you_mean(word, {"/help", "/clear", "/system", "/save", "/load", "/quit", "/exit", "/regenerate"});
    throw error.note(meant.empty() ? "/help lists the commands" : meant);
  }

  void save(const std::string& path) {
    if (path.empty()) throw Error(ErrorKind::Usage, "'/save' needs the name of a file");
    if (path.ends_with(kSessionEnding))
      save_session(path);
    else
      write_file_atomically(path, boost::json::serialize(chat_.messages()) + "\n");
    if (!options_.quiet) say(fmt::format("saved {} to {}", quantity(chat_.messages().size(), "message"), path));
  }

  void save_session(const std::string& path) {
    const std::span<const int32_t> tokens = session_.tokens();
    write_session(harmonics::engine::saved_session(session_, model_.model, {tokens.begin(), tokens.end()}, {},
                                                   boost::json::serialize(chat_.messages())),
                  path);
  }

  static boost::json::value messages_in(const std::string& text, const std::string& path) {
    boost::json::error_code failed;
    boost::json::value all = parse_json(text, failed);
    if (failed) throw Error(ErrorKind::Usage, fmt::format("'{}' has no messages: {}", path, failed.message()));
    return all;
  }

  // Restores a saved session. One without messages is from 'generate' and has only tokens.
  void restore(const SavedSession& saved, const std::string& path) {
    restore_session(session_, model_.model, saved, path);
    if (!saved.messages.empty()) chat_.set_messages(messages_in(saved.messages, path));
  }

  void load(const std::string& path) {
    if (path.empty()) throw Error(ErrorKind::Usage, "'/load' needs the name of a file");
    if (path.ends_with(kSessionEnding))
      restore(read_session(path), path);
    else
      chat_.set_messages(messages_in(read_plain_file(path), path));
    if (!options_.quiet) say(fmt::format("loaded {} from {}", quantity(chat_.messages().size(), "message"), path));
  }

  void show(const AnswerPart& part) {
    if (options_.json) return;
    if (part.kind == AnswerPart::reasoning) {
      if (!terminal_) return;  // a pipe gets only answers
      if (!thinking_) print_colour("\x1b[2m");
      thinking_ = true;
    } else if (thinking_) {
      thinking_ = false;
      print_colour("\x1b[0m\n\n");
    }
    print_data(part.text);
    flush_output();
  }
  static void print_colour(const char* sequence) {
    std::fwrite(sequence, 1, std::char_traits<char>::length(sequence), stdout);
  }

  void answer(const std::optional<std::string>& message) {
    interrupts = 0;
    thinking_ = false;
    ChatAnswer done;
    {
      const AnswerInterrupts catching;
      done = chat_.answer(
          message, settings_, [&](const AnswerPart& part) { show(part); }, [] { return interrupts > 0; });
    }
    if (thinking_) print_colour("\x1b[0m");
    if (!options_.json) print("\n");
    flush_output();
    tokens_ += done.done.tokens;
    seconds_ += done.done.seconds;
    interrupted_ = done.interrupted && !terminal_;
    if (options_.quiet) return;
    if (done.forgotten > 0)
      print_note(fmt::format("the conversation no longer fits the context: removed {}",
                             quantity(done.forgotten, "old message")));
    if (done.done.end == EndOfText::context)
      print_note(fmt::format("the context of {} tokens is full: /clear, or give a larger --context",
                             thousands(session_.context())));
    if (!terminal_) return;
    const Continuation& c = done.done;
    const std::string drafts =
        c.drafted > 0 ? fmt::format("; {} of {} drafted tokens accepted", thousands(c.accepted), thousands(c.drafted))
                      : "";
    say(fmt::format("{}, {:.1f} tokens/s; {} of {} tokens of the conversation read in {}{}{}",
                    number_of(static_cast<uint64_t>(c.tokens), "token"), per_second(c.tokens, c.seconds),
                    thousands(c.prompt_tokens - c.reused_tokens), thousands(c.prompt_tokens),
                    duration(c.prompt_seconds), drafts, done.interrupted ? "; stopped" : ""));
  }

  void print_summary() {
    print_json(boost::json::object{{"version", 1},
                                   {"model", model_.path},
                                   {"messages", chat_.messages()},
                                   {"tokens", tokens_},
                                   {"seconds", seconds_},
                                   {"tokens_per_second", per_second(tokens_, seconds_)}});
  }

  const Options& options_;
  LanguageModel& model_;
  const ChatTemplate format_;
  Session session_;
  ChatSession chat_;
  Speculation speculation_;  // declared before the settings, which refer to it
  ContinuationSettings settings_;
  LineEditor editor_;
  bool terminal_ = false, over_ = false, interrupted_ = false, thinking_ = false;
  int64_t tokens_ = 0;
  double seconds_ = 0;
};

}  // namespace

int chat_command(const Options& options) {
  expect_writable_outputs(options);
  LanguageModel model(options);
  note_long_context(options, model);
  return Chat(options, model).run();
}

}  // namespace harmonics::engine::cli
