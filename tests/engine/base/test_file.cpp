#include <catch2/catch.hpp>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <harmonics/error.hpp>

#include "engine/base/file.hpp"
#include "engine/base/scratch_folder.hpp"

using namespace harmonics;
using namespace harmonics::engine;
namespace fs = std::filesystem;

namespace {

// A temporary folder, removed at the end.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "harmonics-file-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path_), fs::directory_iterator()));
  }

 private:
  fs::path path_;
};

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string refusal(ErrorKind kind, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    CHECK(e.kind() == kind);
    return e.what();
  }
  return "nothing";
}

// Fails at the named call with this reason, writes only a few bytes at a time, and is interrupted once.
class Trouble : public FileCalls {
 public:
  explicit Trouble(std::string call = "", int reason = 0, size_t after = 0)
      : call_(std::move(call)), reason_(reason), after_(after) {}
  int open(const char* path, int flags, unsigned mode) override {
    return fails("open") ? -1 : FileCalls::open(path, flags, mode);
  }
  long write(int file, const void* data, size_t bytes) override {
    if (!interrupted_) {
      interrupted_ = true;
      errno = EINTR;
      return -1;
    }
    if (call_ == "write" && written_ >= after_) {
      errno = reason_;
      return reason_ ? -1 : 0;
    }
    const long wrote = FileCalls::write(file, data, std::min<size_t>(bytes, 3));
    written_ += static_cast<size_t>(wrote);
    return wrote;
  }
  int sync(int file) override {
    ++syncs;
    if (call_ == "sync directory" && syncs == 2) return errno = reason_, -1;
    return fails("sync") ? -1 : FileCalls::sync(file);
  }
  int close(int file) override {
    const int closed = FileCalls::close(file);
    return fails("close") ? -1 : closed;
  }
  int rename(const char* from, const char* to) override { return fails("rename") ? -1 : FileCalls::rename(from, to); }
  int syncs = 0;

 private:
  bool fails(const char* call) { return call_ == call && (errno = reason_, true); }
  std::string call_;
  int reason_;
  size_t after_, written_ = 0;
  bool interrupted_ = false;
};

}  // namespace

TEST_CASE("file: is replaced as a whole") {
  const Folder folder;
  const std::string path = folder / "weights";
  write_file_atomically(path, "first");
  CHECK(content(path) == "first");
  const std::string_view pieces[] = {"sec", "", "ond, longer"};
  Trouble slow;  // short writes and an interruption lose no data
  write_file_atomically(path, pieces, slow);
  CHECK(content(path) == "second, longer");
  CHECK(slow.syncs == 2);  // the file, then its directory
  CHECK(folder.entries() == 1);
}

TEST_CASE("file: the old one remains whatever fails, and no temporary file is left") {
  const Folder folder;
  const std::string path = folder / "weights";
  write_file_atomically(path, "former");
  const auto failing = [&](Trouble trouble, ErrorKind kind = ErrorKind::Output) {
    const std::string text = refusal(kind, [&] { write_file_atomically(path, "0123456789", trouble); });
    CHECK(content(path) == "former");
    CHECK(folder.entries() == 1);
    return text;
  };
  const std::string begin = "cannot write '" + path + "': ";
  CHECK(failing(Trouble("write", ENOSPC, 6)) == begin + "No space left on device after 6 bytes");
  CHECK(failing(Trouble("write", EIO), ErrorKind::InputOutput) == begin + "Input/output error after 0 bytes");
  CHECK(failing(Trouble("write", 0, 3)) == begin + "the system accepts no more data after 3 bytes");
  CHECK(failing(Trouble("sync", EIO), ErrorKind::InputOutput) == begin + "Input/output error");
  CHECK(failing(Trouble("close", EDQUOT)) == begin + "Disk quota exceeded");
  CHECK(failing(Trouble("rename", EXDEV)) == begin + "Invalid cross-device link");
  CHECK(failing(Trouble("open", EROFS)) == begin + "Read-only file system");
}

TEST_CASE("file: a failed directory sync is reported, an unsupported one is not") {
  const Folder folder;
  const std::string path = folder / "weights";
  Trouble broken("sync directory", EIO);
  CHECK(refusal(ErrorKind::InputOutput, [&] { write_file_atomically(path, "new", broken); }) ==
        "'" + path +
            "' was written, but its directory cannot be synced: Input/output error; a power cut may still restore the "
            "previous file");
  CHECK(content(path) == "new");
  Trouble unknown("sync directory", EINVAL);
  write_file_atomically(path, "newer", unknown);
  CHECK(content(path) == "newer");
}

TEST_CASE("file: permissions are kept and symbolic links followed") {
  const Folder folder;
  const std::string path = folder / "weights", link = folder / "latest";
  write_file_atomically(path, "one");
  ::chmod(path.c_str(), 0640);
  fs::create_symlink("weights", link);
  write_file_atomically(link, "two");
  CHECK(fs::is_symlink(link));
  CHECK(content(path) == "two");
  struct stat state {};
  ::stat(path.c_str(), &state);
  CHECK((state.st_mode & 07777) == 0640);
}

TEST_CASE("file: only regular files are written and mapped") {
  const Folder folder;
  const std::string here = folder / ".", missing = folder / "none/weights";
  CHECK(refusal(ErrorKind::Output, [&] { write_file_atomically("/dev/null", "x"); }) ==
        "cannot write '/dev/null': it exists and is not a plain file");
  CHECK(refusal(ErrorKind::Output, [&] { write_file_atomically(here, "x"); }) ==
        "cannot write '" + here + "': it is a folder");
  CHECK(refusal(ErrorKind::Output, [&] { write_file_atomically(missing, "x"); }) ==
        "cannot write '" + missing + "': No such file or directory");
  CHECK(refusal(ErrorKind::NoInput, [&] { MappedFile::open(here); }) == "cannot read '" + here + "': it is a folder");
  CHECK(refusal(ErrorKind::NoInput, [&] { MappedFile::open(missing); }) ==
        "cannot read '" + missing + "': No such file or directory");
  const std::string pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(refusal(ErrorKind::NoInput, [&] { MappedFile::open(pipe); }) ==
        "cannot read '" + pipe + "': it is not a plain file");
}

TEST_CASE("file: a mapped file shows its bytes, even if empty") {
  const Folder folder;
  write_file_atomically(folder / "a", "bytes");
  const auto file = MappedFile::open(folder / "a");
  REQUIRE(file->bytes() == 5);
  CHECK(std::memcmp(file->data(), "bytes", 5) == 0);
  write_file_atomically(folder / "a", "replaced");  // the mapping keeps the old content
  CHECK(std::memcmp(file->data(), "bytes", 5) == 0);
  write_file_atomically(folder / "empty", "");
  CHECK(MappedFile::open(folder / "empty")->bytes() == 0);
}

TEST_CASE("file: a regular file is read whole in reads of any size, others are refused") {
  class Pieces : public FileCalls {
   public:
    long read(int file, void* to, size_t bytes) override {
      if (++calls == 2) return errno = EINTR, -1;
      if (broken && calls == 4) return errno = EIO, -1;
      return FileCalls::read(file, to, std::min<size_t>(bytes, 3));
    }
    int calls = 0;
    bool broken = false;
  };
  const Folder folder;
  write_file_atomically(folder / "f", "0123456789");
  write_file_atomically(folder / "empty", "");
  Pieces pieces;
  CHECK(read_plain_file(folder / "f", pieces) == "0123456789");
  CHECK(read_plain_file(folder / "empty").empty());
  Pieces broken;
  broken.broken = true;
  CHECK(refusal(ErrorKind::InputOutput, [&] { read_plain_file(folder / "f", broken); }) ==
        "cannot read '" + (folder / "f") + "': Input/output error");
  CHECK(refusal(ErrorKind::NoInput, [&] { read_plain_file(folder / "none"); }) ==
        "cannot read '" + (folder / "none") + "': No such file or directory");
  CHECK(refusal(ErrorKind::NoInput, [&] { read_plain_file(folder / ""); }) ==
        "cannot read '" + (folder / "") + "': it is a folder");
}

TEST_CASE("file: the unfinished file of a killed process is recognized by its name") {
  CHECK(is_unfinished_file(".harmonics-12-0.tmp"));
  for (const char* name :
       {"", ".harmonics-.tmp.bak", ".tmp", "harmonics-12-0.tmp", "checkpoint-000001-step-5.safetensors"})
    CHECK_FALSE(is_unfinished_file(name));
}

TEST_CASE("file: saving succeeds beside unfinished files of an earlier process with the same process ID") {
  const Folder folder;
  // In a container every run may have the number 1.
  for (int number = 0; number < 2000; ++number)
    std::ofstream(folder / (".harmonics-" + std::to_string(::getpid()) + "-" + std::to_string(number) + ".tmp"))
        << "part";
  write_file_atomically(folder / "f", "new");
  CHECK(read_plain_file(folder / "f") == "new");
}

TEST_CASE("file: the unfinished files of dead processes are removed, those of running ones remain") {
  const Folder folder;
  const pid_t dead = ::fork(), running = dead == 0 ? 0 : ::getppid();
  if (dead == 0) ::_exit(0);
  REQUIRE(::waitpid(dead, nullptr, 0) == dead);
  const auto left = [&](pid_t process, const std::string& number) {
    const std::string path = folder / (".harmonics-" + std::to_string(process) + "-" + number + ".tmp");
    std::ofstream(path) << "part";
    return path;
  };
  const std::string gone = left(dead, "0"), locked = left(dead, "1"), former = left(::getpid(), "1000000"),
                    own = left(running, "0"), other = folder / ".harmonics-try.tmp";
  std::ofstream(other) << "part";
  // A container has other numbers of processes: there the lock shows that one still writes.
  const int file = ::open(locked.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(::flock(file, LOCK_EX | LOCK_NB) == 0);
  remove_unfinished_files(folder / "");
  CHECK_FALSE(fs::exists(gone));
  CHECK_FALSE(fs::exists(former));  // unlocked, so its process has ended, although the process ID is this one's
  for (const std::string& kept : {locked, own, other}) CHECK(fs::exists(kept));
  ::close(file);
  remove_unfinished_files(folder / "");
  CHECK_FALSE(fs::exists(locked));
  // A file that is being written holds its lock.
  FileReplacement replacement(folder / "new");
  remove_unfinished_files(folder / "");
  int locks = 0;
  for (const auto& entry : fs::directory_iterator(folder / "")) {
    if (entry.path() == own || entry.path() == other) continue;
    const int writing = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    locks += ::flock(writing, LOCK_EX | LOCK_NB) != 0;
    ::close(writing);
  }
  CHECK(locks == 1);
  replacement.finish();
  CHECK(fs::exists(folder / "new"));
}

TEST_CASE("scratch folder: it is new, belongs to this user only, and is removed with its files") {
  std::string path;
  {
    const ScratchFolder folder, other;
    path = folder.path();
    CHECK(path != other.path());
    struct stat state {};
    REQUIRE(::stat(path.c_str(), &state) == 0);
    CHECK((state.st_mode & 07777) == 0700);
    std::ofstream(path + "/file") << "x";
    CHECK(std::filesystem::exists(path + "/file"));
  }
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("file: bytes are written in pieces of 2 MiB at multiples of 2 MiB, in order") {
  constexpr size_t kPiece = size_t{2} << 20;
  std::string all(3 * kPiece + 700, '\0');
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<char>(i * 2654435761u >> 13);
  for (const size_t step : {size_t{100'000}, kPiece - 1, kPiece, kPiece + 5, 2 * kPiece + 1, all.size()}) {
    INFO("added " << step << " bytes at a time");
    GatheredPieces pieces;
    std::string written;
    const auto write = [&](std::string_view piece) {
      CHECK(written.size() % kPiece == 0);
      written += piece;
    };
    for (size_t at = 0; at < all.size(); at += step) pieces.add(std::string_view(all).substr(at, step), write);
    CHECK(written.size() == 3 * kPiece);
    pieces.flush(write);
    pieces.flush(write);
    CHECK(written == all);
  }
}
