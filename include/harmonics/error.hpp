// The exception type of Harmonics: message, source location, remedies.
#pragma once

#include <cerrno>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace harmonics {

// The same numbers as hx_error_kind. The command line maps them to exit codes.
enum class ErrorKind : uint32_t {
  Internal = 0,
  Syntax = 1,
  Name = 2,
  Shape = 3,
  Type = 4,
  Weights = 5,
  Plugin = 6,
  Device = 7,
  Stream = 8,
  NoInput = 9,
  Usage = 10,
  Output = 11,
  Diverged = 12,
  InputOutput = 13,
  Denied = 14,
  Unavailable = 15,
  Memory = 16,
};

// Returns the kind for errno of a failed system call: InputOutput for a failed device, Unavailable for an absent or
// lost peer, else `otherwise`.
__attribute__((visibility("hidden"))) inline ErrorKind kind_of_failure(int number, ErrorKind otherwise) {
  switch (number) {
    case EIO:
      return ErrorKind::InputOutput;
    case EPIPE:
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENOTCONN:
    case ETIMEDOUT:
      return ErrorKind::Unavailable;
    default:
      return otherwise;
  }
}

// Returns the text of an ErrorKind::Memory error. Exceptions that report the requested size keep their text.
__attribute__((visibility("hidden"))) inline const char* text_of_memory(const std::bad_alloc& e) {
  return std::string_view(e.what()) == "std::bad_alloc" ? "not enough memory" : e.what();
}

// A location in a text: line and column from 1, columns and length in bytes. line 0: none.
struct Span {
  uint32_t line = 0, column = 0, length = 0;
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  Error(ErrorKind kind, const std::string& message, Span span, std::vector<std::string> notes = {})
      : std::runtime_error(message), kind_(kind), span_(span), notes_(std::move(notes)) {}

  ErrorKind kind() const { return kind_; }
  Span span() const { return span_; }
  // Additional lines: remedies ("did you mean ...") and context, in the order of printing.
  const std::vector<std::string>& notes() const { return notes_; }
  Error& note(std::string text) {
    notes_.push_back(std::move(text));
    return *this;
  }

 private:
  ErrorKind kind_;
  Span span_;
  std::vector<std::string> notes_;
};

}  // namespace harmonics
