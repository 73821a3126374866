#include "engine/cli/terminal.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <unistd.h>

#include <fmt/core.h>

#include "engine/base/utf8.hpp"

namespace harmonics::cli {

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool wanted_by_default() {
  if (!variable("NO_COLOR").empty()) return false;
  if (const std::string force = variable("CLICOLOR_FORCE"); !force.empty() && force != "0") return true;
  return isatty(STDERR_FILENO) && variable("TERM") != "dumb";
}

std::optional<bool> chosen_colours;

bool colours() {
  static const bool otherwise = wanted_by_default();
  return chosen_colours.value_or(otherwise);
}

std::string paint(const char* code, const std::string& text) { return colours() ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text; }

// Messages that cannot be written are dropped: no run ends because its terminal or its log has gone.
void write_message(const std::string& text) { (void)std::fwrite(text.data(), 1, text.size(), stderr); }

bool labelled(const std::string& note) { return note.rfind("note: ", 0) == 0; }

}  // namespace

void use_colours(const std::string& when) {
  if (when != "auto") chosen_colours = when == "always";
}

void print_error(const Error& error, const SourceText* source) {
  if (dynamic_cast<const SourceErrors*>(&error)) return write_message(visible(error.what()));
  if (source && error.span().line) return write_message(visible(source->render(error)));
  std::string text = fmt::format("{} {}\n", paint("1;31", "error:"), visible(error.what()));
  for (const std::string& note : error.notes()) text += visible(labelled(note) ? note : "help: " + note) + "\n";
  write_message(text);
}

void print_note(const std::string& text) { write_message(fmt::format("{} {}\n", paint("36", "note:"), visible(text))); }
void say(const std::string& line) { write_message(visible(line) + "\n"); }

std::string thousands(int64_t n) {
  std::string s = std::to_string(n);
  for (int64_t i = static_cast<int64_t>(s.size()) - 3; i > (n < 0 ? 1 : 0); i -= 3) s.insert(static_cast<size_t>(i), ",");
  return s;
}

std::string rate(double per_second) {
  if (per_second >= 1e6) return fmt::format("{:.2f}M samples/s", per_second / 1e6);
  if (per_second >= 1e4) return fmt::format("{:.1f}k samples/s", per_second / 1e3);
  return fmt::format("{:.0f} samples/s", per_second);
}

std::string duration(double seconds) {
  constexpr double kLongest = 1e12;
  if (!(seconds >= 0 && seconds < kLongest)) return "–";  // what a run says of itself may be anything
  if (seconds < 0.0995) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 99.95) return fmt::format("{:.1f} s", seconds);
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s % 3600 / 60);
}

std::string percent(double fraction) { return fmt::format("{:.2f} %", fraction * 100); }

ProgressLine::ProgressLine(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0) {}
ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::clear() {
  if (!shown_) return;
  write_message("\r\x1b[K");
  shown_ = false;
}

void ProgressLine::show(const Progress& p) {
  if (quiet_ || (!terminal_ && p.seconds < next_plain_)) return;
  next_plain_ = p.seconds + 10;
  std::string text;
  if (terminal_ && p.fraction >= 0) {
    constexpr int kWidth = 24;
    const int full = static_cast<int>(p.fraction * kWidth + 0.5);
    for (int i = 0; i < kWidth; ++i) text += i < full ? "━" : "·";
    text += fmt::format(" {:3.0f} %  ", p.fraction * 100);
  }
  if (p.epochs > 0) text += fmt::format("epoch {}/{}  ", std::min(p.epoch + 1, p.epochs), p.epochs);
  text += fmt::format("step {}  loss {:.4g}", thousands(p.step), p.loss);
  if (p.accuracy >= 0) text += fmt::format("  accuracy {}", percent(p.accuracy));
  if (p.window > 0) text += fmt::format("  last {} new: {}", thousands(p.window), p.window_accuracy >= 0 ? percent(p.window_accuracy) : fmt::format("loss {:.4g}", p.window_loss));
  text += "  " + rate(p.samples_per_second);
  if (first_fraction_ < 0) first_fraction_ = std::max(p.fraction, 0.0), first_seconds_ = p.seconds;
  // By what this process took: a resumed run begins in the middle.
  if (p.fraction > first_fraction_ + 0.005) text += fmt::format("  {} left", duration((1 - p.fraction) * (p.seconds - first_seconds_) / (p.fraction - first_fraction_)));
  if (terminal_) {
    write_message("\r\x1b[K" + text);
    shown_ = true;
  } else {
    write_message(text + "\n");
  }
}

}  // namespace harmonics::cli
