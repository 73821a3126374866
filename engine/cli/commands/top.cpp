// harmonics top: shows the state of a run in a terminal.
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/cli/commands/command.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/remote/run_link.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/cli/commands/top_view.hpp"

namespace harmonics::engine::cli {

namespace json = boost::json;

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kFrame{250};
constexpr int kSlow = 8;  // frames between requests for layers

volatile std::sig_atomic_t ended = 0, resized = 0;

// Switches the terminal to its alternate screen without echo and line buffering. Restores it on every exit.
class Screen {
 public:
  Screen() {
    if (::tcgetattr(STDIN_FILENO, &before_) != 0)
      throw Error(ErrorKind::InputOutput, "the terminal cannot be read from", {}, {"--once prints the current state"});
    struct sigaction end {};
    end.sa_handler = [](int) { ended = 1; };
    struct sigaction size {};
    size.sa_handler = [](int) { resized = 1; };
    for (const int s : {SIGTERM, SIGHUP, SIGINT}) ::sigaction(s, &end, nullptr);
    ::sigaction(SIGWINCH, &size, nullptr);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VMIN] = raw.c_cc[VTIME] = 0;
    raw.c_cc[VSUSP] = _POSIX_VDISABLE;  // a suspended program would leave the terminal in this mode
    ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    write("\x1b[?1049h\x1b[?25l");
  }
  ~Screen() {
    write("\x1b[?25h\x1b[?1049l");
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void draw(const std::vector<std::string>& lines) {
    std::string all = "\x1b[H";
    for (size_t i = 0; i < lines.size(); ++i) all += (i > 0 ? "\r\n" : "") + lines[i] + "\x1b[K";
    write(all + "\x1b[J");
  }

  // Returns a key, or 0 if none arrives within the time.
  char key(std::chrono::milliseconds within) {
    pollfd ready{STDIN_FILENO, POLLIN, 0};
    char c = 0;
    if (::poll(&ready, 1, static_cast<int>(within.count())) <= 0) return 0;
    if (::read(STDIN_FILENO, &c, 1) == 1) return c;
    ended = 1;  // the terminal is gone
    return 0;
  }

 private:
  static void write(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n = ::write(STDOUT_FILENO, bytes.data() + at, bytes.size() - at);
      if (n > 0)
        at += static_cast<size_t>(n);
      else if (n < 0 && errno != EINTR && errno != EAGAIN)
        return;
    }
  }
  termios before_{};
};

TopLook look_at_terminal(const Options& options) {
  TopLook look;
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    look.width = size.ws_col, look.height = size.ws_row;
  const char* none = std::getenv("NO_COLOR");
  look.colours = options.color == "always" || (options.color != "never" && !(none && *none));
  return look;
}

class Watch {
 public:
  explicit Watch(const Options& options) : link_(options.files.at(0), options.token) {}

  TopFacts& facts() { return facts_; }

  // Requests the state of the run. Throws if the run does not answer.
  void look(bool layers) {
    const json::object status = link_.get("/v1/status");
    const double line = number_in(status, "notes");
    facts_.take_status(status);
    if (!begun_) facts_.take_history(link_.get("/v1/history"));
    begun_ = true;
    if (line < line_) line_ = 0;  // a new run at this address
    if (line > line_) facts_.take_log(link_.get(fmt::format("/v1/log?after={:.0f}", line_)));
    line_ = line;
    if (!layers) return;
    try {
      facts_.layers = link_.get("/v1/layers");
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Unavailable) throw;
      facts_.layers = {};  // the run is starting
    }
  }

  void act(char key) {
    const std::string state = text_in(facts_.status, "state");
    const char* what = key == 'p'   ? (state == "paused" || state == "pausing" ? "resume" : "pause")
                       : key == 's' ? "step"
                       : key == 'c' ? "checkpoint"
                                    : nullptr;
    if (!what) return;
    const json::object answer = link_.control({{"do", what}});
    facts_.said = answer.contains("error") ? text_in(answer, "error") + ": " + text_in(answer, "note")
                                           : fmt::format("{} done", what);
    if (const json::object* status = object_in(answer, "status")) facts_.take_status(*status);
  }

  const RunLink& link() const { return link_; }

 private:
  RunLink link_;
  TopFacts facts_;
  bool begun_ = false;
  double line_ = 0;
};

int once(const Options& options) {
  Watch watch(options);
  watch.look(true);
  if (options.json) {
    print_json(json::object{
        {"version", 1},
        {"status", watch.facts().status},
        {"layers", watch.facts().layers.empty() ? json::value(nullptr) : json::value(watch.facts().layers)}});
    return kDone;
  }
  TopLook look;
  look.width = 1000;
  for (const std::string& line : top_view(watch.facts(), look)) print("{}\n", line);
  return kDone;
}

int follow(const Options& options) {
  Watch watch(options);
  watch.look(true);  // reports a wrong address before the screen changes
  Screen screen;
  auto heard = Clock::now(), next = heard;
  for (int frame = 1; !ended; ++frame) {
    TopLook look = look_at_terminal(options);
    look.keys = true;
    resized = 0;
    screen.draw(top_view(watch.facts(), look));
    next += kFrame;
    if (next < Clock::now()) next = Clock::now() + kFrame / 4;
    char key = 0;
    while (!ended && !resized && key == 0 && Clock::now() < next)
      key = screen.key(std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now()) +
                       std::chrono::milliseconds(1));
    if (key == 'q' || key == 3 || key == 27) break;
    try {
      if (key != 0)
        watch.act(key);
      else
        watch.look(frame % kSlow == 0);
      heard = Clock::now();
    } catch (const Error& e) {
      if (key != 0) watch.facts().said = e.what();
      watch.facts().silent = std::chrono::duration<double>(Clock::now() - heard).count();
    }
  }
  return kDone;
}

}  // namespace

int top_command(const Options& options) {
  const bool screen = ::isatty(STDIN_FILENO) && ::isatty(STDOUT_FILENO);
  return options.once || options.json || !screen ? once(options) : follow(options);
}

}  // namespace harmonics::engine::cli
