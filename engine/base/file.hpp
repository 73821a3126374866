// Files as the engine needs them: mapped to be read, replaced as a whole when written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <harmonics/file_mapping.hpp>

namespace harmonics {

// The calls to the operating system that files take which must survive: results and errno as POSIX says. Tests put a
// full disk or a power cut here.
class FileCalls {
 public:
  virtual ~FileCalls() = default;
  virtual int open(const char* path, int flags, unsigned mode);
  virtual long read(int file, void* to, size_t bytes);
  virtual long long size(int file);  // of a plain file; -1 with EINVAL: it is none
  virtual long write(int file, const void* data, size_t bytes);
  virtual int sync(int file);
  virtual int truncate(int file, size_t bytes);
  virtual int close(int file);
  virtual int rename(const char* from, const char* to);
  virtual int remove(const char* path);
  virtual int make_directory(const char* path);
  virtual int lock(int file);  // for this process alone, until it is closed; EWOULDBLOCK: another has it
  virtual int list(const char* directory, std::vector<std::string>& names);
  static FileCalls& system();
};

// Writes the pieces one after the other to a new file beside `path`, syncs it, and puts it in path's place: whoever
// opens `path`, even after a crash, finds the former content or all of the new. Keeps the former file's permissions and
// follows a symbolic link. Throws ErrorKind::Output with the reason; then nothing is left behind and the former file
// stands.
void write_file_atomically(const std::string& path, std::span<const std::string_view> pieces,
                           FileCalls& calls = FileCalls::system());
void write_file_atomically(const std::string& path, std::string_view bytes, FileCalls& calls = FileCalls::system());

// Names in a directory survive a power cut only once the directory itself is on the disk. 0, or what errno says; file
// systems that know no such call are taken as they are.
int sync_directory(const std::string& directory, FileCalls& calls = FileCalls::system());

// Makes a directory and those it lies in, where they are not there yet, so that their names survive a power cut. 0, or
// what errno says.
int make_directories(const std::string& path, FileCalls& calls = FileCalls::system());

// How write_file_atomically names a file that is not finished: a process that was killed leaves it behind.
bool is_unfinished_file(std::string_view name);

// Looks at a file's first bytes before memory is taken for all of them: how many it must see to judge (not more than it
// has seen: it is content), or throws what is wrong with a file of this size that begins so.
using JudgeBeginning = std::function<uint64_t(std::string_view first, uint64_t size)>;

// A plain file's bytes, read into memory. Throws ErrorKind::NoInput with the reason, also when memory has no room for
// them.
std::string read_plain_file(const std::string& path, FileCalls& calls = FileCalls::system(),
                            const JudgeBeginning& judge = {});

// A plain file's bytes, read-only, brought in by the system as they are touched. What is read may be zeros when the
// file becomes shorter meanwhile: read_whole() of <harmonics/file_mapping.hpp> notices.
class MappedFile {
 public:
  // Throws ErrorKind::NoInput when there is no such file, it cannot be read or is no plain file.
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  const void* data() const { return mapping_.data(); }
  size_t bytes() const { return mapping_.bytes(); }
  // Throws ErrorKind::InputOutput when something that was read went away.
  void expect_whole() const;

 private:
  MappedFile(std::string path, FileMapping mapping) : path_(std::move(path)), mapping_(std::move(mapping)) {}
  std::string path_;
  FileMapping mapping_;
};

}  // namespace harmonics
