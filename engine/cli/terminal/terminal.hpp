// Writes messages to standard error: errors, notes, the progress line. Control characters in names from data are
// escaped, and write errors are ignored. Formats numbers for them.
#pragma once

#include <string>

#include <boost/json/fwd.hpp>

#include <harmonics/error.hpp>

#include "engine/base/source_text.hpp"
#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::engine::cli {

// Sets the use of colours on standard error: "always", "never" or "auto", which is on for terminals, off with NO_COLOR
// and on with CLICOLOR_FORCE.
void use_colours(const std::string& when);

// Prints the error, with its source line and a caret if it has a position. `source` may be null.
void print_error(const Error& error, const SourceText* source = nullptr);
// Returns the first printed error as the object of docs/schema/error.json, or null.
boost::json::value first_error();
void print_note(const std::string& text);
void say(const std::string& line);

std::string thousands(int64_t n);                                   // 600,000
std::string rate(double per_second, const char* unit = "samples");  // "53.6k samples/s"
std::string duration(double seconds);                               // "11.2 s", "3 min 20 s"; "–" for NaN
std::string percent(double fraction);                               // "98.12 %"
std::string memory(uint64_t bytes);                                 // "412 MiB", "2.31 GiB"

// Returns the width of the terminal on standard error in columns, or 0 if it is not a terminal.
int terminal_width();
int columns_of(const std::string& text);

// A progress line, rewritten in place on a terminal. Without a terminal it prints a plain line every ten seconds.
class ProgressLine {
 public:
  // `tokens` is the number of tokens per sample, to show the rate in tokens; 0: in samples.
  explicit ProgressLine(bool quiet, int64_t tokens = 0);
  ~ProgressLine();
  // Returns whether show() would print now.
  bool is_due(const Progress& progress) const;
  // Shows the progress. `peak_share` is the share of the processor's peak, negative if unknown; `resident` is the bytes
  // of this process, 0 if unknown. Both, and the gradient norm, are shown only for language models.
  void show(const Progress& progress, double peak_share = -1, uint64_t resident = 0);
  void clear();  // must be called before other output

 private:
  bool quiet_, terminal_;
  int64_t tokens_;
  bool shown_ = false;
  double next_plain_ = 10;
  double first_fraction_ = -1, first_seconds_ = 0;
};

}  // namespace harmonics::engine::cli
