// Files as the engine needs them: mapped to be read, replaced as a whole when written.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics {

// The calls to the operating system that files take which must survive: results and errno as POSIX says. Tests put a full
// disk or a power cut here.
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

// Names in a directory survive a power cut only once the directory itself is on the disk. 0, or what errno says; file systems
// that know no such call are taken as they are.
int sync_directory(const std::string& directory, FileCalls& calls = FileCalls::system());

// Makes a directory and those it lies in, where they are not there yet, so that their names survive a power cut. 0, or what errno says.
int make_directories(const std::string& path, FileCalls& calls = FileCalls::system());

// How write_file_atomically names a file that is not finished: a process that was killed leaves it behind.
bool is_unfinished_file(std::string_view name);

// A plain file's bytes, read into memory. Throws ErrorKind::NoInput with the reason.
std::string read_plain_file(const std::string& path, FileCalls& calls = FileCalls::system());

// A plain file's bytes, read-only, brought in by the system as they are touched. Shrinking the file while it is mapped
// breaks whoever reads the part that went away.
class MappedFile {
 public:
  // Throws ErrorKind::NoInput when there is no such file, it cannot be read or is no plain file.
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();
  const void* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  MappedFile(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  void* data_;
  size_t bytes_;
};

}  // namespace harmonics
