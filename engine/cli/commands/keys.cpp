// harmonics keys: generates a key pair for streams over ZeroMQ. Loads libzmq on demand, since no other verb needs it.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/cli/commands/command.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"

namespace harmonics::engine::cli {

namespace {

struct Pair {
  char public_key[41], secret_key[41];
};

Pair make_pair() {
  void* const library = dlopen("libzmq.so.5", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw Error(ErrorKind::Unavailable, "libzmq, which makes keys, is not installed", {},
                {"install libzmq5 (Debian), or the package of your system that has libzmq.so.5"});
  const auto make = reinterpret_cast<int (*)(char*, char*)>(dlsym(library, "zmq_curve_keypair"));
  Pair pair{};
  if (!make || make(pair.public_key, pair.secret_key) != 0)
    throw Error(ErrorKind::Unavailable, "this libzmq makes no keys: it was built without CURVE");
  return pair;
}

void write_new(const std::string& path, mode_t mode, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  const bool written =
      fd >= 0 && write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(fd) == 0;
  const int reason = errno;
  if (fd >= 0) close(fd);
  if (written) return;
  Error error(kind_of_failure(reason, ErrorKind::Output),
              fmt::format("cannot write '{}': {}", path, std::strerror(reason)));
  if (reason == EEXIST) error.note("key files are never overwritten: choose another name, or remove the file");
  throw error;
}

}  // namespace

int keys_command(const Options& options) {
  const std::string& file = options.files.front();
  const Pair pair = make_pair();
  write_new(file, 0600,
            fmt::format("# A pair of keys of Harmonics. Keep it secret.\npublic = {}\nsecret = {}\n", pair.public_key,
                        pair.secret_key));
  write_new(file + ".pub", 0644, fmt::format("public = {}\n", pair.public_key));
  if (options.json)
    print_json(boost::json::object{
        {"version", 1}, {"public", pair.public_key}, {"file", file}, {"public_file", file + ".pub"}});
  else
    print("{}\n", pair.public_key);
  if (!options.quiet) say(fmt::format("wrote {} (secret) and {}.pub", file, file));
  return kDone;
}

}  // namespace harmonics::engine::cli
