#include "engine/cli/output.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include <boost/json.hpp>

#include <harmonics/error.hpp>

#include "engine/base/utf8.hpp"

namespace harmonics::cli {

namespace {

Error output_error(int reason) {
  return Error(kind_of_failure(reason, ErrorKind::Output),
               std::string("cannot write to standard output: ") + std::strerror(reason));
}

void write_output(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size()) throw output_error(errno);
}

}  // namespace

void take_standard_streams() {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes away is an error like others
  for (int file = 0; file <= 2; ++file) {
    if (::fcntl(file, F_GETFD) >= 0 || errno != EBADF) continue;
    // Else a checkpoint could be opened as descriptor 2 and receive messages. Reading 0 and writing 1 still fail.
    const int direction = file == STDOUT_FILENO ? O_RDONLY : O_WRONLY;
    if (::open("/dev/null", direction) < 0) return;  // takes the lowest number that is free
  }
}

void print_text(std::string_view text) { write_output(visible(text)); }

void print_json(const boost::json::value& value) { print_json_line(boost::json::serialize(value)); }

void print_json_line(std::string serialized) { write_output(valid_json(std::move(serialized)) + "\n"); }

void print_data(std::string_view bytes) {
  static const bool terminal = ::isatty(STDOUT_FILENO) != 0;
  if (terminal) print_text(bytes);
  else write_output(bytes);
}

void flush_output() {
  if (std::fflush(stdout) != 0) throw output_error(errno);
}

void finish_output() {
  if (std::ferror(stdout)) throw Error(ErrorKind::Output, "cannot write to standard output");  // --help reports none
  flush_output();
}

}  // namespace harmonics::cli
