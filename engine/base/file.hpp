// File access of the engine: files are mapped for reading and replaced as a whole when written.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <harmonics/file_mapping.hpp>

namespace harmonics::engine {

// System calls for durable files, with results and errno as in POSIX. Tests override them to inject a full disk or a
// power cut.
class FileCalls {
 public:
  virtual ~FileCalls() = default;
  virtual int open(const char* path, int flags, unsigned mode);
  virtual long read(int file, void* to, size_t bytes);
  virtual long long size(int file);  // of a regular file; -1 with EINVAL for others
  virtual long write(int file, const void* data, size_t bytes);
  virtual int sync(int file);
  virtual int truncate(int file, size_t bytes);
  virtual int close(int file);
  virtual int rename(const char* from, const char* to);
  virtual int remove(const char* path);
  virtual int make_directory(const char* path);
  virtual int lock(int file);  // exclusive until closed; EWOULDBLOCK: held by another process
  virtual int list(const char* directory, std::vector<std::string>& names);
  static FileCalls& system();
};

// Gathers the bytes of a new file for calls write(piece) whose pieces begin and end at multiples of 2 MiB, except the
// last. The page cache can keep such pieces in huge pages, which mappings of the file then read faster.
class GatheredPieces {
 public:
  template <typename Write>
  void add(std::string_view bytes, const Write& write) {
    while (!bytes.empty()) {
      const bool direct = waiting_.empty() && bytes.size() >= kPiece;
      const size_t used = direct ? bytes.size() / kPiece * kPiece : std::min(bytes.size(), kPiece - waiting_.size());
      if (direct)
        write(bytes.substr(0, used));
      else if (waiting_.append(bytes.substr(0, used)); waiting_.size() == kPiece)
        flush(write);
      bytes.remove_prefix(used);
    }
  }
  template <typename Write>
  void flush(const Write& write) {
    if (!waiting_.empty()) write(std::string_view(waiting_));
    waiting_.clear();
  }

 private:
  static constexpr size_t kPiece = size_t{2} << 20;
  std::string waiting_;
};

// Writes a new file beside `path`, which finish() syncs and renames to `path`. Without finish() the old file is
// unchanged and the new one is removed. Throws the errors of write_file_atomically().
class FileReplacement {
 public:
  explicit FileReplacement(const std::string& path, FileCalls& calls = FileCalls::system());
  FileReplacement(FileReplacement&&) noexcept;
  ~FileReplacement();
  void append(std::string_view bytes);
  void sync();  // optional: reports a full disk before finish()
  void finish();

 private:
  class State;
  std::unique_ptr<State> state_;
};

// Writes the pieces in order to a new file beside `path`, syncs it, and renames it to `path`. Readers find either the
// old content or all of the new, even after a crash. Keeps the old file's permissions and follows a symbolic link.
// Throws ErrorKind::Output with the reason. Then no temporary file remains and the old file is unchanged.
void write_file_atomically(const std::string& path, std::span<const std::string_view> pieces,
                           FileCalls& calls = FileCalls::system());
void write_file_atomically(const std::string& path, std::string_view bytes, FileCalls& calls = FileCalls::system());
// Writes the pieces that `next` returns, up to an empty one. A piece must be valid until the next call.
void write_file_atomically(const std::string& path, const std::function<std::string_view()>& next,
                           FileCalls& calls = FileCalls::system());

// Syncs a directory, so that the names in it survive a power cut. Returns 0 or errno. Succeeds on file systems that
// cannot sync directories.
int sync_directory(const std::string& directory, FileCalls& calls = FileCalls::system());

// Creates a directory and its missing parents so that their names survive a power cut. Returns 0 or errno.
int make_directories(const std::string& path, FileCalls& calls = FileCalls::system());

// Returns whether the name is that of a temporary file of write_file_atomically(). Killed processes leave such files.
bool is_unfinished_file(std::string_view name);
// Removes the temporary files in a folder that killed processes of this machine have left, also those with the number
// of this process. Files of processes that run remain, also of processes in containers: they hold a lock.
void remove_unfinished_files(const std::string& folder);

// Checks the first bytes of a file before memory for the whole file is allocated. Returns how many bytes it needs; a
// number up to first.size() accepts the file. Throws to reject a file of this size with this beginning.
using LengthRule = std::function<uint64_t(std::string_view first, uint64_t size)>;

// Reads a regular file into memory. Throws ErrorKind::NoInput with the reason, also when memory is insufficient.
std::string read_plain_file(const std::string& path, FileCalls& calls = FileCalls::system(),
                            const LengthRule& length_rule = {});

// The bytes of a regular file, mapped read-only and paged in on access. If the file is truncated while it is mapped,
// reads may return zeros; read_whole() of <harmonics/file_mapping.hpp> detects this.
class MappedFile {
 public:
  // Maps a file. Throws ErrorKind::NoInput if it is missing, cannot be read or is not a regular file.
  static std::shared_ptr<const MappedFile> open(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  const void* data() const { return mapping_.data(); }
  size_t bytes() const { return mapping_.bytes(); }
  // Throws ErrorKind::InputOutput if a part that was read is lost, because the file was truncated or its device failed.
  void expect_whole() const;
  bool is_lost() const { return mapping_.lost(); }
  // Identifies the content: files with equal stamps have equal bytes. "" if the file changed so recently that a further
  // change may leave its timestamp the same.
  const std::string& stamp() const { return stamp_; }
  // Releases the memory of all whole pages in this range of the mapping. A later access reads them from the file again.
  void let_go(const void* from, size_t bytes) const;

 private:
  MappedFile(std::string path, FileMapping mapping, std::string stamp)
      : path_(std::move(path)), stamp_(std::move(stamp)), mapping_(std::move(mapping)) {}
  std::string path_, stamp_;
  FileMapping mapping_;
};

}  // namespace harmonics::engine
