// Replacements of the C library's system call functions.
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/faults/layer/injection.hpp"

using namespace faults;

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

using Do = Verdict::Do;

int system_call(long result) { return static_cast<int>(result); }

// Returns the function that this one replaces.
template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

ino_t inode_of(int file) {
  struct stat state {};
  return ::syscall(SYS_fstat, file, &state) == 0 ? state.st_ino : 0;
}

bool writes(int flags) { return (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)); }

int open_file(int directory, const char* path, int flags, mode_t mode) {
  const auto call = [&] { return system_call(::syscall(SYS_openat, directory, path, flags, mode)); };
  if (directory != AT_FDCWD && path[0] != '/') return call();
  const std::string name = absolute(path);
  if (!matches(name)) return call();
  const Verdict verdict = writes(flags) ? judge(Call::Open, name) : Verdict{};
  if (verdict.what == Do::Fail) {
    errno = verdict.reason;
    if (traces()) trace({Call::Open, verdict.number, -1, name});
    return -1;
  }
  const int file = call();
  const ino_t inode = file >= 0 ? inode_of(file) : 0;
  if (file >= 0) remember(file, {name, false, (flags & O_APPEND) != 0, inode});
  char octal[16];
  std::snprintf(octal, sizeof octal, "%o", static_cast<unsigned>(flags));
  if (traces() && writes(flags)) trace({Call::Open, verdict.number, file, name, inode, octal});
  if (verdict.what == Do::Tear) die();
  return file;
}

// A call with one path.
template <typename System>
int on_path(Call call, const char* path, const std::string& fields, System system) {
  const std::string name = absolute(path);
  if (!matches(name)) return system();
  const Verdict verdict = judge(call, name);
  int result = -1;
  if (verdict.what == Do::Fail)
    errno = verdict.reason;
  else
    result = system();
  if (traces()) trace({call, verdict.number, result, name, 0, fields});
  if (verdict.what == Do::Tear) die();
  return result;
}

// A call with a descriptor that transfers no bytes.
template <typename System>
int on_file(Call call, int file, const std::string& fields, System system) {
  const Known* of = known(file);
  if (!of || of->socket) return system();
  const Verdict verdict = judge(call, of->path);
  int result = -1;
  if (verdict.what == Do::Fail)
    errno = verdict.reason;
  else
    result = system();
  if (traces()) trace({call, verdict.number, result, of->path, of->inode, fields});
  if (verdict.what == Do::Tear) die();
  return result;
}

long long offset_of(const Known& of, int file) {
  if (of.socket) return 0;
  return ::syscall(SYS_lseek, file, 0, of.appends ? SEEK_END : SEEK_CUR);
}

// Sends bytes through `system(bytes)`: all of them, or the first half.
template <typename System>
ssize_t put_out(const Known& of, int file, const void* data, size_t bytes, System system) {
  const Call call = of.socket ? Call::Send : Call::Write;
  const Verdict verdict = judge(call, of.path);
  const long long offset = traces() ? offset_of(of, file) : 0;
  const bool half = (verdict.what == Do::Tear || verdict.what == Do::Short) && bytes > 1;
  ssize_t result = -1;
  if (verdict.what == Do::Fail)
    errno = verdict.reason;
  else
    result = system(half ? bytes / 2 : bytes);
  if (traces()) trace({call, verdict.number, result, of.path, of.inode, "", data, bytes, offset});
  if (verdict.what == Do::Tear) die();
  return result;
}

// Receives bytes.
template <typename System>
ssize_t take_in(const Known& of, size_t bytes, System system) {
  const Verdict verdict = judge(Call::Receive, of.path);
  ssize_t result = -1;
  if (verdict.what == Do::Fail)
    errno = verdict.reason;
  else
    result = system(verdict.what == Do::Short && bytes > 1 ? bytes / 2 : bytes);
  if (traces()) trace({Call::Receive, verdict.number, result, of.path});
  if (verdict.what == Do::Tear) die();
  return result;
}

std::vector<char> joined(const iovec* pieces, size_t count) {
  std::vector<char> all;
  for (size_t i = 0; i < count; ++i) {
    const char* bytes = static_cast<const char*>(pieces[i].iov_base);
    all.insert(all.end(), bytes, bytes + pieces[i].iov_len);
  }
  return all;
}

std::string name_of(const sockaddr* address, socklen_t size) {
  if (address->sa_family == AF_UNIX && size > offsetof(sockaddr_un, sun_path))
    return "unix@" + std::string(reinterpret_cast<const sockaddr_un*>(address)->sun_path);
  if (address->sa_family == AF_INET || address->sa_family == AF_INET6)  // both have the port at the same offset
    return "tcp@" + std::to_string(ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port));
  return "";
}

void remember_socket(int file, const std::string& name) {
  if (!name.empty() && matches(name)) remember(file, {name, true, false, 0});
}

// Standard I/O: the C library's buffers bypass these functions, so streams of chosen files get custom ones that use
// them.
std::mutex& streams_lock = *new std::mutex;
std::map<FILE*, int>& streams = *new std::map<FILE*, int>;

int file_of(void* cookie) { return static_cast<int>(reinterpret_cast<intptr_t>(cookie)); }
ssize_t write_all(void* cookie, const char* data, size_t bytes) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::write(file_of(cookie), data + done, bytes - done);
    if (n <= 0) break;
    done += static_cast<size_t>(n);
  }
  return static_cast<ssize_t>(done);
}
ssize_t read_some(void* cookie, char* to, size_t bytes) { return ::read(file_of(cookie), to, bytes); }
int seek(void* cookie, off64_t* offset, int from) {
  const off64_t at = ::lseek64(file_of(cookie), *offset, from);
  if (at < 0) return -1;
  *offset = at;
  return 0;
}
int close_stream(void* cookie) {
  const std::lock_guard<std::mutex> lock(streams_lock);
  for (auto it = streams.begin(); it != streams.end(); ++it)
    if (it->second == file_of(cookie)) {
      streams.erase(it);
      break;
    }
  return ::close(file_of(cookie));
}

FILE* stream_of(int file, const char* mode) {
  FILE* stream = ::fopencookie(reinterpret_cast<void*>(static_cast<intptr_t>(file)), mode,
                               {read_some, write_all, seek, close_stream});
  const std::lock_guard<std::mutex> lock(streams_lock);
  if (stream) streams[stream] = file;
  return stream;
}

int flags_of(const char* mode) {
  const bool both = std::strchr(mode, '+') != nullptr;
  int flags = both ? O_RDWR : mode[0] == 'r' ? O_RDONLY : O_WRONLY;
  if (mode[0] != 'r') flags |= O_CREAT | (mode[0] == 'a' ? O_APPEND : O_TRUNC);
  if (std::strchr(mode, 'x')) flags |= O_EXCL;
  if (std::strchr(mode, 'e')) flags |= O_CLOEXEC;
  return flags;
}

FILE* open_stream(const char* function, const char* path, const char* mode) {
  if (!writes(flags_of(mode)) || !matches(absolute(path)))
    return next<FILE*(const char*, const char*)>(function)(path, mode);
  const int file = open_file(AT_FDCWD, path, flags_of(mode), 0666);
  return file < 0 ? nullptr : stream_of(file, mode);
}

int make_temporary(char* name, int flags) {
  const size_t length = std::strlen(name);
  for (int tries = 0; tries < 1000; ++tries) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    static std::atomic<unsigned> made{0};
    unsigned long number =
        static_cast<unsigned long>(::getpid()) * 2654435761u + made++ * 40503u + static_cast<unsigned long>(tries);
    for (size_t i = length - 6; i < length; ++i, number /= 36) name[i] = letters[number % 36];
    const int file = open_file(AT_FDCWD, name, O_RDWR | O_CREAT | O_EXCL | flags, 0600);
    if (file >= 0 || errno != EEXIST) return file;
  }
  return -1;
}

mode_t mode_of(int flags, va_list& more) { return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; }

}  // namespace

#define OPEN(name)                                      \
  EXPORTED int name(const char* path, int flags, ...) { \
    va_list more;                                       \
    va_start(more, flags);                              \
    const mode_t mode = mode_of(flags, more);           \
    va_end(more);                                       \
    return open_file(AT_FDCWD, path, flags, mode);      \
  }
OPEN(open)
OPEN(open64)
#define OPENAT(name)                                                   \
  EXPORTED int name(int directory, const char* path, int flags, ...) { \
    va_list more;                                                      \
    va_start(more, flags);                                             \
    const mode_t mode = mode_of(flags, more);                          \
    va_end(more);                                                      \
    return open_file(directory, path, flags, mode);                    \
  }
OPENAT(openat)
OPENAT(openat64)
EXPORTED int creat(const char* path, mode_t mode) {
  return open_file(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}
EXPORTED int __open_2(const char* path, int flags) { return open_file(AT_FDCWD, path, flags, 0); }
EXPORTED int __open64_2(const char* path, int flags) { return open_file(AT_FDCWD, path, flags, 0); }
EXPORTED int mkstemp(char* name) { return make_temporary(name, 0); }
EXPORTED int mkstemp64(char* name) { return make_temporary(name, 0); }
EXPORTED int mkostemp(char* name, int flags) { return make_temporary(name, flags); }

EXPORTED int close(int file) {
  const Known* of = known(file);
  const auto system = [&] { return system_call(::syscall(SYS_close, file)); };
  if (!of) return system();
  const Verdict verdict = judge(Call::Close, of->path);
  forget(file);
  int result = system();
  if (verdict.what == Do::Fail) errno = verdict.reason, result = -1;
  if (traces() && !of->socket) trace({Call::Close, verdict.number, result, of->path, of->inode});
  if (verdict.what == Do::Tear) die();
  return result;
}

EXPORTED ssize_t write(int file, const void* data, size_t bytes) {
  const auto system = [&](size_t n) { return static_cast<ssize_t>(::syscall(SYS_write, file, data, n)); };
  const Known* of = known(file);
  return of ? put_out(*of, file, data, bytes, system) : system(bytes);
}
EXPORTED ssize_t writev(int file, const iovec* pieces, int count) {
  const Known* of = known(file);
  if (!of) return static_cast<ssize_t>(::syscall(SYS_writev, file, pieces, count));
  const std::vector<char> all = joined(pieces, static_cast<size_t>(count));
  return put_out(*of, file, all.data(), all.size(),
                 [&](size_t n) { return static_cast<ssize_t>(::syscall(SYS_write, file, all.data(), n)); });
}
EXPORTED ssize_t pwrite(int file, const void* data, size_t bytes, off_t offset) {
  const auto system = [&](size_t n) { return static_cast<ssize_t>(::syscall(SYS_pwrite64, file, data, n, offset)); };
  const Known* of = known(file);
  return of ? put_out(*of, file, data, bytes, system) : system(bytes);
}
EXPORTED ssize_t pwrite64(int file, const void* data, size_t bytes, off64_t offset) {
  return pwrite(file, data, bytes, offset);
}
EXPORTED ssize_t send(int file, const void* data, size_t bytes, int flags) {
  const auto system = [&](size_t n) {
    return static_cast<ssize_t>(::syscall(SYS_sendto, file, data, n, flags, nullptr, 0));
  };
  const Known* of = known(file);
  return of ? put_out(*of, file, data, bytes, system) : system(bytes);
}
EXPORTED ssize_t sendmsg(int file, const msghdr* message, int flags) {
  const Known* of = known(file);
  if (!of) return static_cast<ssize_t>(::syscall(SYS_sendmsg, file, message, flags));
  const std::vector<char> all = joined(message->msg_iov, message->msg_iovlen);
  return put_out(*of, file, all.data(), all.size(), [&](size_t n) {
    if (n == all.size()) return static_cast<ssize_t>(::syscall(SYS_sendmsg, file, message, flags));
    return static_cast<ssize_t>(::syscall(SYS_sendto, file, all.data(), n, flags, nullptr, 0));
  });
}

EXPORTED ssize_t read(int file, void* to, size_t bytes) {
  const auto system = [&](size_t n) { return static_cast<ssize_t>(::syscall(SYS_read, file, to, n)); };
  const Known* of = known(file);
  return of && of->socket ? take_in(*of, bytes, system) : system(bytes);
}
EXPORTED ssize_t recv(int file, void* to, size_t bytes, int flags) {
  const auto system = [&](size_t n) {
    return static_cast<ssize_t>(::syscall(SYS_recvfrom, file, to, n, flags, nullptr, nullptr));
  };
  const Known* of = known(file);
  return of ? take_in(*of, bytes, system) : system(bytes);
}
EXPORTED ssize_t recvmsg(int file, msghdr* message, int flags) {
  const Known* of = known(file);
  const auto system = [&](size_t) { return static_cast<ssize_t>(::syscall(SYS_recvmsg, file, message, flags)); };
  return of ? take_in(*of, 0, system) : system(0);
}

EXPORTED int connect(int file, const sockaddr* address, socklen_t size) {
  remember_socket(file, name_of(address, size));
  return system_call(::syscall(SYS_connect, file, address, size));
}
EXPORTED int accept4(int file, sockaddr* address, socklen_t* size, int flags) {
  const int made = system_call(::syscall(SYS_accept4, file, address, size, flags));
  if (made < 0) return made;
  sockaddr_storage of{};
  socklen_t length = sizeof of;
  if (::syscall(SYS_getsockname, made, &of, &length) == 0)
    remember_socket(made, name_of(reinterpret_cast<sockaddr*>(&of), length));
  return made;
}
EXPORTED int accept(int file, sockaddr* address, socklen_t* size) { return accept4(file, address, size, 0); }

EXPORTED int fsync(int file) {
  return on_file(Call::Sync, file, "", [&] { return system_call(::syscall(SYS_fsync, file)); });
}
EXPORTED int fdatasync(int file) {
  return on_file(Call::Sync, file, "", [&] { return system_call(::syscall(SYS_fdatasync, file)); });
}
EXPORTED int ftruncate(int file, off_t size) noexcept {
  return on_file(Call::Truncate, file, std::to_string(size),
                 [&] { return system_call(::syscall(SYS_ftruncate, file, size)); });
}
EXPORTED int ftruncate64(int file, off64_t size) noexcept { return ftruncate(file, size); }
EXPORTED int truncate(const char* path, off_t size) noexcept {
  return on_path(Call::Truncate, path, std::to_string(size),
                 [&] { return system_call(::syscall(SYS_truncate, path, size)); });
}
EXPORTED int truncate64(const char* path, off64_t size) noexcept { return truncate(path, size); }
EXPORTED int rename(const char* from, const char* to) noexcept {
  const auto system = [&] { return system_call(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0)); };
  return matches(absolute(from)) ? on_path(Call::Rename, from, absolute(to), system) : system();
}
EXPORTED int unlink(const char* path) noexcept {
  return on_path(Call::Remove, path, "", [&] { return system_call(::syscall(SYS_unlinkat, AT_FDCWD, path, 0)); });
}
EXPORTED int rmdir(const char* path) noexcept {
  return on_path(Call::Remove, path, "",
                 [&] { return system_call(::syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR)); });
}
EXPORTED int remove(const char* path) noexcept {
  struct stat state {};
  const bool directory =
      ::syscall(SYS_newfstatat, AT_FDCWD, path, &state, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(state.st_mode);
  return directory ? rmdir(path) : unlink(path);
}
EXPORTED int mkdir(const char* path, mode_t mode) noexcept {
  return on_path(Call::Mkdir, path, "", [&] { return system_call(::syscall(SYS_mkdirat, AT_FDCWD, path, mode)); });
}

EXPORTED FILE* fopen(const char* path, const char* mode) { return open_stream("fopen", path, mode); }
EXPORTED FILE* fopen64(const char* path, const char* mode) { return open_stream("fopen64", path, mode); }
EXPORTED FILE* fdopen(int file, const char* mode) noexcept {
  return known(file) ? stream_of(file, mode) : next<FILE*(int, const char*)>("fdopen")(file, mode);
}
EXPORTED int fileno(FILE* stream) noexcept {
  {
    const std::lock_guard<std::mutex> lock(streams_lock);
    if (const auto it = streams.find(stream); it != streams.end()) return it->second;
  }
  return next<int(FILE*)>("fileno")(stream);
}
