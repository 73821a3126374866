// Writes to standard output: text, a JSON object, or data. A failed write throws ErrorKind::Output, or Unavailable if
// the reader closed the pipe.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <boost/json/fwd.hpp>
#include <fmt/format.h>

#include <harmonics/error.hpp>

namespace harmonics::engine::cli {

// Ignores SIGPIPE and opens descriptors 0 to 2 if they are closed. Called at the start of main.
void take_standard_streams();

// Prints text through visible(), so that names from data cannot control the terminal.
void print_text(std::string_view text);
template <typename... T>
void print(fmt::format_string<T...> format, T&&... values) {
  print_text(fmt::format(format, std::forward<T>(values)...));
}

// Prints a line of JSON through valid_json(), which makes it valid for any bytes in its strings.
void print_json(const boost::json::value& value);
void print_json_line(std::string serialized);

// Prints bytes unchanged, or through visible() on a terminal.
void print_data(std::string_view bytes);

void flush_output();

// Returns whether print_json() was called.
bool printed_json();

// Returns whether the error is a write after the reader of standard output has ended, such as `head`.
bool is_reader_gone(const Error& error);
bool reader_has_gone();  // whether such an error occurred
// Ends the process by SIGPIPE, the default effect of such a write.
[[noreturn]] void end_by_reader();

// Flushes standard output. Called at the end of a successful verb.
void finish_output();

}  // namespace harmonics::engine::cli
