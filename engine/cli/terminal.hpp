// What people read: errors, notes, the progress line, numbers. Everything here goes to standard error, without control
// characters of names in data; where that cannot be written, nothing happens.
#pragma once

#include <string>

#include <boost/json/fwd.hpp>

#include <harmonics/error.hpp>

#include "engine/base/source_text.hpp"
#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::cli {

// "auto", "always", "never": colours on standard error. Auto: on terminals, off with NO_COLOR, on with CLICOLOR_FORCE.
void use_colours(const std::string& when);

// With its source's line and caret when it has a place; `source` may be null.
void print_error(const Error& error, const SourceText* source = nullptr);
// The first error that was printed, as the object of docs/schema/error.json; null: none was.
boost::json::value first_error();
void print_note(const std::string& text);
void say(const std::string& line);

std::string thousands(int64_t n);      // 600,000
std::string rate(double per_second);   // "53.6k samples/s"
std::string duration(double seconds);  // "11.2 s", "3 min 20 s"; "–" of what is none
std::string percent(double fraction);  // "98.12 %"

// Columns of the terminal that standard error is; 0: it is none.
int terminal_width();
int columns_of(const std::string& text);

// A line that is rewritten in place on a terminal, within its width; elsewhere one plain line every ten seconds.
class ProgressLine {
 public:
  explicit ProgressLine(bool quiet);
  ~ProgressLine();
  void show(const Progress& progress);
  void clear();  // before other output

 private:
  bool quiet_, terminal_;
  bool shown_ = false;
  double next_plain_ = 10;
  double first_fraction_ = -1, first_seconds_ = 0;
};

}  // namespace harmonics::cli
