// Standard output: text, one JSON object, or data. A failed write throws ErrorKind::Output, or Unavailable if the
// reader closed the pipe.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <boost/json/fwd.hpp>
#include <fmt/format.h>

#include <harmonics/error.hpp>

namespace harmonics::engine::cli {

// Called at the start of main: ignores SIGPIPE and opens descriptors 0 to 2.
void take_standard_streams();

// Prints text through visible(): names in data cannot send commands to the terminal.
void print_text(std::string_view text);
template <typename... T>
void print(fmt::format_string<T...> format, T&&... values) {
  print_text(fmt::format(format, std::forward<T>(values)...));
}

// Prints one line of valid JSON for any bytes in its strings, through valid_json().
void print_json(const boost::json::value& value);
void print_json_line(std::string serialized);

// Prints bytes unchanged, on a terminal through visible().
void print_data(std::string_view bytes);

void flush_output();

// Returns whether an object was printed as the last line of standard output.
bool printed_json();

// Returns whether the error comes from a closed reader of standard output, such as `head` after its last line.
bool is_reader_gone(const Error& error);
bool reader_has_gone();  // whether such an error occurred
// Ends the process by SIGPIPE, as such a write does by default.
[[noreturn]] void end_by_reader();

// Called at the end of a successful verb: flushes standard output.
void finish_output();

}  // namespace harmonics::engine::cli
