#include "engine/cli/terminal/output.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <boost/json.hpp>

#include <harmonics/error.hpp>

#include "formats/utf8.hpp"

namespace harmonics::engine::cli {

namespace {

const std::string kCannotPrint = "cannot write to standard output: ";
bool json_was_printed = false, reader_gone = false;

bool nobody_reads() {
  pollfd output{STDOUT_FILENO, POLLOUT, 0};
  return ::poll(&output, 1, 0) == 1 && (output.revents & (POLLERR | POLLHUP)) != 0;
}

Error output_error(int reason) {
  return Error(kind_of_failure(reason, ErrorKind::Output), kCannotPrint + std::strerror(reason));
}

void write_output(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size()) throw output_error(errno);
}

}  // namespace

void take_standard_streams() {
  std::signal(SIGPIPE, SIG_IGN);  // writes then fail, and results can be saved before the process ends
  for (int file = 0; file <= 2; ++file) {
    if (::fcntl(file, F_GETFD) >= 0 || errno != EBADF) continue;
    // Otherwise a checkpoint could be opened as descriptor 2 and receive messages. Reading from 0 and writing to 1
    // still fail.
    const int direction = file == STDOUT_FILENO ? O_RDONLY : O_WRONLY;
    if (::open("/dev/null", direction) < 0) return;  // gets the lowest free descriptor
  }
}

void print_text(std::string_view text) { write_output(visible(text)); }

void print_json(const boost::json::value& value) { print_json_line(boost::json::serialize(value)); }

void print_json_line(std::string serialized) {
  json_was_printed = true;
  write_output(plain_numbers(valid_json(std::move(serialized))) + "\n");
}

bool printed_json() { return json_was_printed; }

bool is_reader_gone(const Error& error) {
  if (error.kind() != ErrorKind::Unavailable ||
      !std::string_view(error.what()).ends_with(kCannotPrint + std::string(std::strerror(EPIPE))))
    return false;
  return reader_gone = reader_gone || nobody_reads();
}

bool reader_has_gone() { return reader_gone; }

void end_by_reader() {
  std::signal(SIGPIPE, SIG_DFL);
  ::raise(SIGPIPE);
  ::_exit(128 + SIGPIPE);  // the parent process blocked the signal
}

void print_data(std::string_view bytes) {
  static const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  if (terminal)
    print_text(bytes);
  else
    write_output(bytes);
}

void flush_output() {
  if (std::fflush(stdout) != 0) throw output_error(errno);
}

void finish_output() {
  if (std::ferror(stdout) && nobody_reads()) throw output_error(EPIPE);
  if (std::ferror(stdout)) throw Error(ErrorKind::Output, "cannot write to standard output");
  flush_output();
}

}  // namespace harmonics::engine::cli
