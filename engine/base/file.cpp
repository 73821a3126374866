#include "engine/base/file.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <new>
#include <utility>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <harmonics/error.hpp>

#include "engine/base/nearest_file.hpp"

namespace harmonics::engine {

namespace {

// Repeats a call that a signal interrupted before it had any effect, for example on a network file system.
template <typename Call>
auto uninterrupted(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

}  // namespace

int FileCalls::open(const char* path, int flags, unsigned mode) {
  return uninterrupted([&] { return ::open(path, flags, mode); });
}
long FileCalls::read(int file, void* to, size_t bytes) { return ::read(file, to, bytes); }
long long FileCalls::size(int file) {
  struct stat state {};
  if (::fstat(file, &state) != 0) return -1;
  if (S_ISREG(state.st_mode)) return state.st_size;
  errno = EINVAL;
  return -1;
}
long FileCalls::write(int file, const void* data, size_t bytes) { return ::write(file, data, bytes); }
int FileCalls::sync(int file) {
  return uninterrupted([&] { return ::fsync(file); });
}
int FileCalls::truncate(int file, size_t bytes) {
  return uninterrupted([&] { return ::ftruncate(file, static_cast<off_t>(bytes)); });
}
int FileCalls::close(int file) { return ::close(file); }
int FileCalls::rename(const char* from, const char* to) { return std::rename(from, to); }
int FileCalls::remove(const char* path) { return ::unlink(path); }
int FileCalls::make_directory(const char* path) { return ::mkdir(path, 0777); }
int FileCalls::lock(int file) { return ::flock(file, LOCK_EX | LOCK_NB); }
int FileCalls::list(const char* directory, std::vector<std::string>& names) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(directory), &::closedir);
  if (!open) return -1;
  errno = 0;
  while (const dirent* entry = ::readdir(open.get())) names.emplace_back(entry->d_name);
  return errno == 0 ? 0 : -1;
}

FileCalls& FileCalls::system() {
  static FileCalls calls;
  return calls;
}

namespace {

constexpr std::string_view kAside = ".harmonics-", kAsideEnd = ".tmp";
constexpr int kMostNames = 1 << 16;

// Held while this process creates and locks a temporary file: until then the file looks like a left one.
std::mutex creating;

}  // namespace

class FileReplacement::State {
 public:
  State(const std::string& path, FileCalls& calls) : calls_(calls), given_(path), path_(path) {
    struct stat former {};
    if (::stat(path.c_str(), &former) == 0) {
      if (S_ISDIR(former.st_mode))
        throw Error(ErrorKind::Output, "cannot write '" + given_ + "': it is a folder", {}, {"name a file in it"});
      if (!S_ISREG(former.st_mode)) fail("it exists and is not a plain file");
      mode_ = static_cast<int>(former.st_mode & 07777);
      follow_link();
    }
    const size_t slash = path_.rfind('/');
    directory_ = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
    create((slash == std::string::npos ? "" : directory_) + std::string(kAside) + std::to_string(::getpid()) + "-");
    if (file_ < 0) fail_by_system();
    exists_ = true;
    // Restores the old file's permissions despite the umask. On failure the new file has fewer permissions, not more.
    if (mode_ >= 0) (void)::fchmod(file_, static_cast<mode_t>(mode_));
  }

  ~State() {
    if (file_ >= 0) calls_.close(file_);
    if (exists_) calls_.remove(aside_.c_str());
  }

  void append(std::string_view bytes) {
    pieces_.add(bytes, [this](std::string_view piece) { write(piece); });
  }

  void sync() {
    pieces_.flush([this](std::string_view piece) { write(piece); });
    if (!synced_ && calls_.sync(file_) != 0) fail_by_system();
    synced_ = true;
  }

  void finish() {
    sync();
    const int closed = calls_.close(file_);
    file_ = -1;
    if (closed != 0) fail_by_system();
    if (calls_.rename(aside_.c_str(), path_.c_str()) != 0) fail_by_system();
    exists_ = false;
    if (const int reason = sync_directory(directory_, calls_))
      throw Error(kind_of_failure(reason, ErrorKind::Output),
                  "'" + given_ + "' was written, but its directory cannot be synced: " + std::strerror(reason) +
                      "; a power cut may still restore the previous file");
  }

  State(const State&) = delete;
  State& operator=(const State&) = delete;

 private:
  // Takes the first unused name: an earlier process with the same number may have left files. In a container every
  // process may have the number 1.
  void create(const std::string& beginning) {
    static std::atomic<unsigned> number{0};
    const std::lock_guard lock(creating);
    for (int tried = 0; tried == 0 || (file_ < 0 && errno == EEXIST && tried < kMostNames); ++tried) {
      aside_ = beginning + std::to_string(number++) + std::string(kAsideEnd);
      file_ = calls_.open(aside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                          mode_ < 0 ? 0666u : static_cast<unsigned>(mode_));
    }
    const int reason = errno;
    if (file_ >= 0) calls_.lock(file_);  // see remove_unfinished_files(); not all file systems have locks
    errno = reason;
  }

  void write(std::string_view bytes) {
    synced_ = false;
    while (!bytes.empty()) {
      const long wrote = calls_.write(file_, bytes.data(), bytes.size());
      if (wrote < 0 && errno == EINTR) continue;
      const int reason = errno;
      if (wrote <= 0)
        fail(std::string(wrote < 0 ? std::strerror(reason) : "the system accepts no more data") + " after " +
                 std::to_string(written_) + " bytes",
             wrote < 0 ? reason : 0);
      bytes.remove_prefix(static_cast<size_t>(wrote));
      written_ += static_cast<size_t>(wrote);
    }
  }

  [[noreturn]] void fail(const std::string& why, int reason = 0) const {
    throw Error(kind_of_failure(reason, ErrorKind::Output), "cannot write '" + given_ + "': " + why);
  }
  [[noreturn]] void fail_by_system() const {
    const int reason = errno;
    std::error_code failed;
    const std::filesystem::path folder = std::filesystem::path(given_).parent_path();
    if (reason == ENOENT && !folder.empty() && !std::filesystem::exists(folder, failed))
      throw Error(ErrorKind::Output, "cannot write '" + given_ + "': " + std::strerror(reason), {},
                  {"there is no folder '" + folder.string() + "'; make it first: mkdir -p '" + folder.string() + "'"});
    fail(std::strerror(reason), reason);
  }

  void follow_link() {
    const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path_.c_str(), nullptr), &std::free);
    if (real) path_ = real.get();
  }

  FileCalls& calls_;
  std::string given_, path_, directory_, aside_;
  int mode_ = -1;  // permissions of the old file
  int file_ = -1;
  bool exists_ = false;  // the temporary file exists
  bool synced_ = false;
  GatheredPieces pieces_;
  size_t written_ = 0;
};

FileReplacement::FileReplacement(const std::string& path, FileCalls& calls)
    : state_(std::make_unique<State>(path, calls)) {}
FileReplacement::FileReplacement(FileReplacement&&) noexcept = default;
FileReplacement::~FileReplacement() = default;
void FileReplacement::append(std::string_view bytes) { state_->append(bytes); }
void FileReplacement::sync() { state_->sync(); }
void FileReplacement::finish() { state_->finish(); }

namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& why, int reason = 0) {
  Error e(kind_of_failure(reason, ErrorKind::NoInput), "cannot read '" + path + "': " + why);
  if (const std::string advice = advice_for_missing(path); !advice.empty()) e.note(advice);
  throw e;
}
// Throws the error for a path that names a folder, a pipe or a device.
[[noreturn]] void refuse_special(const std::string& path) {
  std::error_code failed;
  if (std::filesystem::is_directory(path, failed))
    throw Error(ErrorKind::NoInput, "cannot read '" + path + "': it is a folder", {}, {"name a file in it"});
  refuse(path, "it is not a plain file");
}
[[noreturn]] void refuse_by_system(const std::string& path, int reason) { refuse(path, std::strerror(reason), reason); }

}  // namespace

void write_file_atomically(const std::string& path, std::span<const std::string_view> pieces, FileCalls& calls) {
  FileReplacement replacement(path, calls);
  for (const std::string_view piece : pieces) replacement.append(piece);
  replacement.finish();
}

void write_file_atomically(const std::string& path, const std::function<std::string_view()>& next, FileCalls& calls) {
  FileReplacement replacement(path, calls);
  for (std::string_view piece = next(); !piece.empty(); piece = next()) replacement.append(piece);
  replacement.finish();
}

void write_file_atomically(const std::string& path, std::string_view bytes, FileCalls& calls) {
  write_file_atomically(path, std::span(&bytes, 1), calls);
}

int sync_directory(const std::string& directory, FileCalls& calls) {
  const int file = calls.open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  const bool synced = file >= 0 && (calls.sync(file) == 0 || errno == EINVAL);
  const int reason = synced ? 0 : errno;
  if (file >= 0) calls.close(file);
  return reason;
}

int make_directories(const std::string& path, FileCalls& calls) {
  for (size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
    const std::string part = path.substr(0, at);
    if (calls.make_directory(part.c_str()) == 0) {
      // A new name survives a power cut only after its directory is synced.
      const size_t slash = part.rfind('/');
      if (const int reason = sync_directory(slash == std::string::npos ? "." : part.substr(0, slash + 1), calls))
        return reason;
    } else if (errno != EEXIST) {
      return errno;
    }
    if (at == std::string::npos) return 0;
  }
}

bool is_unfinished_file(std::string_view name) {
  return name.size() > kAside.size() + kAsideEnd.size() && name.substr(0, kAside.size()) == kAside &&
         name.substr(name.size() - kAsideEnd.size()) == kAsideEnd;
}

namespace {

// Returns the process in the name of a temporary file, or 0.
pid_t writer_of(std::string_view name) {
  pid_t process = 0;
  const char* const end = name.data() + name.size();
  const auto [last, failed] = std::from_chars(name.data() + kAside.size(), end, process);
  return failed == std::errc() && last != end && *last == '-' && process > 0 ? process : 0;
}

}  // namespace

void remove_unfinished_files(const std::string& folder) {
  std::vector<std::string> names;
  FileCalls& calls = FileCalls::system();
  if (calls.list(folder.c_str(), names) != 0) return;
  for (const std::string& name : names) {
    const pid_t process = is_unfinished_file(name) ? writer_of(name) : 0;
    const bool own = process == ::getpid();  // or of an earlier process with the same number
    if (process == 0 || (!own && (::kill(process, 0) == 0 || errno != ESRCH))) continue;
    const std::lock_guard lock(creating);
    const std::string path = folder + "/" + name;
    const int file = calls.open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    if (file < 0) continue;
    if (calls.lock(file) == 0) calls.remove(path.c_str());
    calls.close(file);
  }
}

namespace {

// Reads a regular file into one buffer.
class Reading {
 public:
  Reading(const std::string& path, FileCalls& calls) : path_(path), calls_(calls) {
    file_ = calls_.open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (file_ < 0) refuse_by_system(path, errno);
    const long long size = calls_.size(file_);
    const int reason = errno;
    if (size < 0) calls_.close(file_);
    if (size < 0 && reason == EINVAL) refuse_special(path);
    if (size < 0) refuse_by_system(path, reason);
    size_ = static_cast<uint64_t>(size);
  }
  ~Reading() { calls_.close(file_); }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  uint64_t size() const { return size_; }
  std::string_view bytes() const { return bytes_; }
  std::string take() { return std::move(bytes_); }
  // Reads up to this offset, or less if the file was truncated.
  void read_up_to(uint64_t end) {
    size_t at = bytes_.size();
    grow(std::min(end, size_));
    while (at < bytes_.size()) {
      const long got = calls_.read(file_, bytes_.data() + at, bytes_.size() - at);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) refuse_by_system(path_, errno);
      if (got == 0) break;
      at += static_cast<size_t>(got);
    }
    if (at < bytes_.size()) size_ = at;
    bytes_.resize(at);
  }

 private:
  void grow(uint64_t size) {
    const auto memory =
        static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    try {
      if (size > memory) throw std::bad_alloc();
      bytes_.resize(static_cast<size_t>(size));
    } catch (const std::exception&) {
      refuse(path_, "there is not enough memory for its " + std::to_string(size) + " bytes");
    }
  }

  const std::string& path_;
  FileCalls& calls_;
  int file_ = -1;
  uint64_t size_ = 0;
  std::string bytes_;
};

}  // namespace

std::string read_plain_file(const std::string& path, FileCalls& calls, const LengthRule& length_rule) {
  Reading file(path, calls);
  while (length_rule) {
    const uint64_t wanted = std::min(length_rule(file.bytes(), file.size()), file.size());
    if (wanted <= file.bytes().size()) break;
    file.read_up_to(wanted);
  }
  file.read_up_to(file.size());
  return file.take();
}

namespace {

// Changes within one tick of the file system's clock have equal timestamps.
constexpr long kTickSeconds = 2;

std::string stamp_of_state(const struct stat& s) {
  struct timespec now {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  if (now.tv_sec - std::max(s.st_mtim.tv_sec, s.st_ctim.tv_sec) < kTickSeconds) return "";
  std::string text;
  for (const long long part :
       {static_cast<long long>(s.st_dev), static_cast<long long>(s.st_ino), static_cast<long long>(s.st_size),
        static_cast<long long>(s.st_mtim.tv_sec), static_cast<long long>(s.st_mtim.tv_nsec),
        static_cast<long long>(s.st_ctim.tv_sec), static_cast<long long>(s.st_ctim.tv_nsec)})
    text += std::to_string(part) + " ";
  return text;
}

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::string& path) {
  // Without O_NONBLOCK opening a pipe would wait for a writer.
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) refuse_by_system(path, errno);
  struct stat state {};
  const bool plain = ::fstat(file, &state) == 0 && S_ISREG(state.st_mode);
  const auto bytes = plain ? static_cast<size_t>(state.st_size) : 0;
  FileMapping mapping = bytes ? FileMapping(file, bytes) : FileMapping();
  const int reason = errno;
  ::close(file);
  if (!plain) refuse_special(path);
  if (bytes && !mapping.data()) refuse_by_system(path, reason);
  return std::shared_ptr<const MappedFile>(new MappedFile(path, std::move(mapping), stamp_of_state(state)));
}

void MappedFile::expect_whole() const {
  if (!mapping_.lost()) return;
  throw Error(ErrorKind::InputOutput, "'" + path_ + "' became shorter while it was read, or its device failed", {},
              {"write a new file beside the old one and rename it"});
}

void MappedFile::let_go(const void* from, size_t bytes) const {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(from) + page - 1) / page * page,
             end = (reinterpret_cast<uintptr_t>(from) + bytes) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // best effort
}

}  // namespace harmonics::engine
