#include "program_files.hpp"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace harmonics::kernels {

namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'H', 'X', 'C', 'L', 'B', 'I', 'N', '1'};

struct Header {
  char magic[8];
  uint64_t key, bytes, sum;
};

// FNV-1a hash.
uint64_t sum_of(const std::string& text, uint64_t h = 0xcbf29ce484222325u) {
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h;
}

std::string cache_folder(const std::string& device) {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache && cache[0] == '/') return std::string(cache) + "/harmonics/" + device;
  return home && home[0] == '/' ? std::string(home) + "/.cache/harmonics/" + device : "";
}

struct Contents {
  std::string key, binary;
};

class OpenFile {
 public:
  OpenFile(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0600)) {}
  ~OpenFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  explicit operator bool() const { return fd_ >= 0; }

  // Returns whether only this user and root can write the file: a device runs what it contains.
  bool is_own() const {
    struct stat s {};
    if (::fstat(fd_, &s) != 0 || !S_ISREG(s.st_mode) || (s.st_uid != ::geteuid() && s.st_uid != 0)) return false;
    return !(s.st_mode & S_IWOTH) && (!(s.st_mode & S_IWGRP) || s.st_gid == ::getegid());
  }
  std::optional<std::string> read() const {
    std::string all;
    char piece[1 << 16];
    for (ssize_t n = 0; (n = ::read(fd_, piece, sizeof piece)) != 0;) {
      if (n < 0 && errno != EINTR) return std::nullopt;
      if (n > 0) all.append(piece, static_cast<size_t>(n));
    }
    return all;
  }
  bool write(const std::string& text) {
    for (size_t at = 0; at < text.size();) {
      const ssize_t n = ::write(fd_, text.data() + at, text.size() - at);
      if (n < 0 && errno != EINTR) return false;
      if (n > 0) at += static_cast<size_t>(n);
    }
    return true;
  }

 private:
  int fd_;
};

std::optional<Contents> contents_of(const std::string& path) {
  const OpenFile file(path, O_RDONLY | O_NONBLOCK);  // a pipe in its place does not block
  if (!file || !file.is_own()) return std::nullopt;
  const std::optional<std::string> read = file.read();
  if (!read) return std::nullopt;
  const std::string& all = *read;
  Header h{};
  if (all.size() < sizeof h) return std::nullopt;
  std::memcpy(&h, all.data(), sizeof h);
  const uint64_t rest = all.size() - sizeof h;
  if (std::memcmp(h.magic, kMagic, sizeof kMagic) != 0 || h.key > rest || h.bytes != rest - h.key) return std::nullopt;
  Contents contents{all.substr(sizeof h, h.key), all.substr(sizeof h + h.key)};
  if (sum_of(contents.binary) != h.sum) return std::nullopt;
  return contents;
}

}  // namespace

ProgramFile::ProgramFile(const std::string& device, const std::vector<std::string>& made_from) {
  for (const std::string& text : made_from) key_ += text + '\0';
  const std::string folder = cache_folder(device);
  if (folder.empty()) return;
  char name[40];
  std::snprintf(name, sizeof name, "/%016llx.bin", static_cast<unsigned long long>(sum_of(key_)));
  path_ = folder + name;
}

std::optional<std::string> ProgramFile::read() const {
  if (path_.empty()) return std::nullopt;
  std::optional<Contents> contents = contents_of(path_);
  // Compares the whole key, since hashes can collide.
  if (!contents || contents->key != key_) return std::nullopt;
  return std::move(contents->binary);
}

std::optional<std::vector<std::string>> ProgramFile::made_from(const std::string& path) {
  const std::optional<Contents> contents = contents_of(path);
  if (!contents) return std::nullopt;
  std::vector<std::string> texts;
  for (size_t at = 0; at < contents->key.size(); at += texts.back().size() + 1)
    texts.push_back(contents->key.c_str() + at);
  return texts;
}

void ProgramFile::write(const std::string& binary) const {
  if (path_.empty()) return;
  std::error_code ignored;
  fs::create_directories(fs::path(path_).parent_path(), ignored);
  Header h{{}, key_.size(), binary.size(), sum_of(binary)};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  const std::string beside = path_ + "." + std::to_string(::getpid());
  fs::remove(beside, ignored);  // of a process that was killed
  OpenFile file(beside, O_WRONLY | O_CREAT | O_EXCL);
  if (!file) return;
  if (file.write(std::string(reinterpret_cast<const char*>(&h), sizeof h)) && file.write(key_) && file.write(binary))
    fs::rename(beside, path_, ignored);
  else
    fs::remove(beside, ignored);
}

}  // namespace harmonics::kernels
