// Output for users: errors, notes, the progress line, numbers. All of it goes to standard error, with control
// characters in names from data escaped. Write errors are ignored.
#pragma once

#include <string>

#include <boost/json/fwd.hpp>

#include <harmonics/error.hpp>

#include "engine/base/source_text.hpp"
#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::engine::cli {

// "auto", "always", "never": colours on standard error. Auto: on terminals, off with NO_COLOR, on with CLICOLOR_FORCE.
void use_colours(const std::string& when);

// Prints the error with its source line and caret when it has a position. `source` may be null.
void print_error(const Error& error, const SourceText* source = nullptr);
// Returns the first error that was printed, as the object of docs/schema/error.json, or null.
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

// A line that is rewritten in place on a terminal, within its width. Elsewhere it prints one plain line every ten
// seconds.
class ProgressLine {
 public:
  // `tokens`: in a sample, to show the rate in tokens; 0: in samples.
  explicit ProgressLine(bool quiet, int64_t tokens = 0);
  ~ProgressLine();
  // Whether show() would print now.
  bool is_due(const Progress& progress) const;
  // `peak_share`: of the processor's peak, negative: unknown; `resident`: bytes of this process, 0: unknown. Both are
  // shown of language models, and the norm of the gradients.
  void show(const Progress& progress, double peak_share = -1, uint64_t resident = 0);
  void clear();  // before other output

 private:
  bool quiet_, terminal_;
  int64_t tokens_;
  bool shown_ = false;
  double next_plain_ = 10;
  double first_fraction_ = -1, first_seconds_ = 0;
};

}  // namespace harmonics::engine::cli
