#include "engine/cli/terminal/terminal.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

#include <sys/ioctl.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "formats/utf8.hpp"
#include "engine/cli/terminal/exit_codes.hpp"
#include "engine/cli/terminal/output.hpp"

namespace harmonics::engine::cli {

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

std::string paint(const char* code, const std::string& text) {
  return colours() ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : text;
}

// Writes a message. Failures are ignored, because the loss of a terminal or log must not end a run.
void write_message(const std::string& text) { (void)std::fwrite(text.data(), 1, text.size(), stderr); }

boost::json::value printed_error;

constexpr const char* kKinds[] = {"internal", "syntax",       "name",   "shape",       "type",  "weights",
                                  "plugin",   "device",       "stream", "no input",    "usage", "output",
                                  "diverged", "input output", "denied", "unavailable", "memory"};

boost::json::object error_object(const Error& error, const SourceText* source) {
  const auto* several = dynamic_cast<const SourceErrors*>(&error);
  const Error& first = several && !several->errors().empty() ? several->errors().front() : error;
  boost::json::object o{{"kind", kKinds[static_cast<size_t>(first.kind())]},
                        {"exit_code", exit_code(error.kind())},
                        {"message", first.what()},
                        {"notes", boost::json::value_from(first.notes())}};
  const bool placed = first.span().line > 0;
  o["file"] = placed && source ? boost::json::value(source->name()) : boost::json::value(nullptr);
  o["line"] = placed ? boost::json::value(first.span().line) : boost::json::value(nullptr);
  o["column"] = placed ? boost::json::value(first.span().column) : boost::json::value(nullptr);
  return o;
}

bool labelled(const std::string& note) { return note.rfind("note: ", 0) == 0; }

}  // namespace

void use_colours(const std::string& when) {
  if (when != "auto") chosen_colours = when == "always";
}

void print_error(const Error& error, const SourceText* source) {
  if (is_reader_gone(error)) return;  // no message, because the reader ended
  if (printed_error.is_null()) printed_error = error_object(error, source);
  if (dynamic_cast<const SourceErrors*>(&error)) return write_message(visible(error.what()));
  if (source && error.span().line) return write_message(visible(source->render(error)));
  std::string text = fmt::format("{} {}\n", paint("1;31", "error:"), visible(error.what()));
  for (const std::string& note : error.notes()) text += visible(labelled(note) ? note : "help: " + note) + "\n";
  write_message(text);
}

boost::json::value first_error() { return printed_error; }

void print_note(const std::string& text) { write_message(fmt::format("{} {}\n", paint("36", "note:"), visible(text))); }
void say(const std::string& line) { write_message(visible(line) + "\n"); }

std::string thousands(int64_t n) {
  std::string s = std::to_string(n);
  for (int64_t i = static_cast<int64_t>(s.size()) - 3; i > (n < 0 ? 1 : 0); i -= 3)
    s.insert(static_cast<size_t>(i), ",");
  return s;
}

std::string rate(double per_second, const char* unit) {
  if (per_second >= 1e6) return fmt::format("{:.2f}M {}/s", per_second / 1e6, unit);
  if (per_second >= 1e4) return fmt::format("{:.1f}k {}/s", per_second / 1e3, unit);
  return fmt::format("{:.0f} {}/s", per_second, unit);
}

std::string duration(double seconds) {
  constexpr double kLongest = 1e12;
  if (!(seconds >= 0 && seconds < kLongest)) return "–";  // the run's value is invalid
  if (seconds < 0.0995) return fmt::format("{:.0f} ms", seconds * 1e3);
  if (seconds < 99.95) return fmt::format("{:.1f} s", seconds);
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s % 3600 / 60);
}

std::string percent(double fraction) { return fmt::format("{:.2f} %", fraction * 100); }

std::string memory(uint64_t bytes) {
  const double mebibytes = static_cast<double>(bytes) / (1 << 20);
  return mebibytes < 1000 ? fmt::format("{:.0f} MiB", mebibytes) : fmt::format("{:.2f} GiB", mebibytes / 1024);
}

int terminal_width() {
  winsize size{};
  if (isatty(STDERR_FILENO) == 0) return 0;
  constexpr int kUsual = 80;
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsual;
}

int columns_of(const std::string& text) {
  int columns = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = decode_utf8(text, at);
    columns += c.valid ? display_width(c.value) : 1;
    at += c.length;
  }
  return columns;
}

namespace {

// A field of the progress line. If the line is too long, the field with the highest `goes` is removed first.
struct Field {
  std::string text;
  int goes;
};

std::string progress_bar(double fraction, int width) {
  std::string text;
  const int full = static_cast<int>(fraction * width + 0.5);
  for (int i = 0; i < width; ++i) text += i < full ? "━" : "·";
  return text + (width > 0 ? " " : "") + fmt::format("{:3.0f} %", fraction * 100);
}

std::string joined_fields(const std::vector<Field>& fields) {
  std::string text;
  for (const Field& field : fields) text += (text.empty() ? "" : "  ") + field.text;
  return text;
}

// Returns a line of at most `columns` columns. Its first field is a progress bar if the fraction is known.
std::string fitted_line(std::vector<Field> fields, double fraction, int columns) {
  constexpr int kBar = 24, kShortBar = 10;
  if (fraction >= 0) {
    fields.insert(fields.begin(), {progress_bar(fraction, kBar), 0});
    for (const int width : {kShortBar, 0})
      if (columns_of(joined_fields(fields)) > columns) fields.front().text = progress_bar(fraction, width);
  }
  while (fields.size() > 1 && columns_of(joined_fields(fields)) > columns)
    fields.erase(
        std::max_element(fields.begin(), fields.end(), [](const Field& a, const Field& b) { return a.goes < b.goes; }));
  std::string text = joined_fields(fields);
  while (columns_of(text) > columns) text.pop_back();
  return text;
}

}  // namespace

ProgressLine::ProgressLine(bool quiet, int64_t tokens)
    : quiet_(quiet), terminal_(isatty(STDERR_FILENO) != 0), tokens_(tokens) {}
ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::clear() {
  if (!shown_) return;
  write_message("\r\x1b[K");
  shown_ = false;
}

bool ProgressLine::is_due(const Progress& p) const { return !quiet_ && (terminal_ || p.seconds >= next_plain_); }

void ProgressLine::show(const Progress& p, double peak_share, uint64_t resident) {
  if (!is_due(p)) return;
  next_plain_ = p.seconds + 10;
  std::vector<Field> fields;
  if (p.epochs > 0) fields.push_back({fmt::format("epoch {}/{}", std::min(p.epoch + 1, p.epochs), p.epochs), 2});
  fields.push_back({"step " + thousands(p.step), 5});
  fields.push_back({fmt::format("loss {:.4g}", p.loss), 1});
  if (p.accuracy >= 0) fields.push_back({"accuracy " + percent(p.accuracy), 3});
  if (p.window > 0)
    fields.push_back(
        {fmt::format("last {} new: {}", thousands(p.window),
                     p.window_accuracy >= 0 ? percent(p.window_accuracy) : fmt::format("loss {:.4g}", p.window_loss)),
         7});
  if (tokens_ > 0) {
    fields.push_back({rate(p.samples_per_second * static_cast<double>(tokens_), "tokens"), 3});
    if (peak_share >= 0) fields.push_back({fmt::format("{:.0f} % of peak", 100 * peak_share), 7});
    if (p.gradient_norm >= 0) fields.push_back({fmt::format("norm {:.3g}", p.gradient_norm), 8});
    if (resident > 0) fields.push_back({memory(resident), 9});
  } else {
    fields.push_back({rate(p.samples_per_second), 6});
  }
  if (first_fraction_ < 0) first_fraction_ = std::max(p.fraction, 0.0), first_seconds_ = p.seconds;
  // The estimate uses only the time of this process, because a resumed run starts in the middle.
  if (p.fraction > first_fraction_ + 0.005)
    fields.push_back(
        {duration((1 - p.fraction) * (p.seconds - first_seconds_) / (p.fraction - first_fraction_)) + " left", 4});
  if (!terminal_) return write_message(joined_fields(fields) + "\n");
  // The width is queried each time, because the window may be resized. Some terminals wrap a line as wide as the
  // window.
  write_message("\r\x1b[K" + fitted_line(std::move(fields), p.fraction, std::max(terminal_width() - 1, 1)));
  shown_ = true;
}

}  // namespace harmonics::engine::cli
