// Standard output: lines for people, one object for programs, data. A write that fails throws ErrorKind::Output, or
// Unavailable where the reader went away.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <boost/json/fwd.hpp>
#include <fmt/format.h>

#include <harmonics/error.hpp>

namespace harmonics::cli {

// At the beginning of main: SIGPIPE is ignored, and descriptors 0 to 2 are open.
void take_standard_streams();

// For people, by visible(): names in data cannot send commands to the terminal.
void print_text(std::string_view text);
template <typename... T>
void print(fmt::format_string<T...> format, T&&... values) {
  print_text(fmt::format(format, std::forward<T>(values)...));
}

// One line that is valid JSON whatever bytes its strings have, by valid_json().
void print_json(const boost::json::value& value);
void print_json_line(std::string serialized);

// As it is, on a terminal by visible().
void print_data(std::string_view bytes);

void flush_output();

// Was an object printed, so that standard output ends with one?
bool printed_json();

// Is this what came of a reader of standard output that has gone, as `head` does when it has enough?
bool is_reader_gone(const Error& error);
bool reader_has_gone();  // was an error that?
// Ends the process as the signal would that such writing gives a program by default.
[[noreturn]] void end_by_reader();

// At the end of a verb that is done: everything printed has been written.
void finish_output();

}  // namespace harmonics::cli
