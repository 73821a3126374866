#include "engine/spool/salvage.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include <fcntl.h>

#include <fmt/format.h>

#include <harmonics/error.hpp>

#include "engine/spool/segment.hpp"

namespace harmonics::engine::spool {

namespace {

constexpr std::string_view kMagic = "HXS1";
constexpr uint64_t kMostSearched = uint64_t{128} << 20, kMostChecked = 4 * kMostSearched, kPiece = uint64_t{1} << 20;

[[noreturn]] void fail_aside(const std::string& path, const char* what) {
  throw Error(ErrorKind::InputOutput, fmt::format("'{}' {}: {}", path, what, std::strerror(errno)))
      .note("damaged spool files are kept there: free disk space, or make the folder writable");
}

class OpenFile {
 public:
  OpenFile(const std::string& path, int flags, FileCalls& calls)
      : calls_(calls), file_(calls.open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (file_ < 0) fail_aside(path, "cannot be opened");
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() { calls_.close(file_); }
  int number() const { return file_; }

 private:
  FileCalls& calls_;
  int file_;
};

// Reads up to `bytes` bytes; fewer at the end of the file.
size_t read_some(int file, std::byte* to, size_t bytes, const std::string& path, FileCalls& calls) {
  size_t got = 0;
  while (got < bytes) {
    const long n = calls.read(file, to + got, bytes - got);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_aside(path, "cannot be read");
    if (n == 0) break;
    got += static_cast<size_t>(n);
  }
  return got;
}

std::vector<std::byte> part_of_file(const std::string& path, uint64_t from, uint64_t bytes, FileCalls& calls) {
  const OpenFile file(path, O_RDONLY, calls);
  std::vector<std::byte> part(std::min(kPiece, std::max(from, uint64_t{1})));
  for (uint64_t skipped = 0; skipped < from;) {
    const size_t got =
        read_some(file.number(), part.data(), std::min<uint64_t>(part.size(), from - skipped), path, calls);
    if (got == 0) return {};
    skipped += got;
  }
  part.resize(bytes);
  part.resize(read_some(file.number(), part.data(), part.size(), path, calls));
  return part;
}

// Searches a part of a file for frames.
class FrameSearch {
 public:
  FrameSearch(std::span<const std::byte> bytes, const Break& damaged) : bytes_(bytes), damaged_(damaged) {}

  // Returns the end of the frame that may begin here.
  std::optional<uint64_t> end_of(uint64_t at) const {
    if (bytes_.size() - at < wire::kPrefixBytes) return std::nullopt;
    try {
      const uint64_t size = wire::read_prefix(bytes_.subspan(at), limits()).frame_bytes();
      return size <= bytes_.size() - at ? std::optional(at + size) : std::nullopt;
    } catch (const Error&) {
      return std::nullopt;
    }
  }
  // Returns whether a whole frame of the stream begins here and is followed by the end or another frame.
  bool is_whole(uint64_t at) {
    const auto end = end_of(at);
    if (!end || (checked_ += *end - at) > kMostChecked) return false;
    try {
      const wire::Frame frame = wire::decode(bytes_.subspan(at, *end - at), limits());
      const bool ours =
          damaged_.stream.empty() || (frame.stream == damaged_.stream && frame.producer == damaged_.source);
      const bool known =
          frame.kind == wire::Kind::Hello || frame.kind == wire::Kind::Data || frame.kind == wire::Kind::Barrier;
      return ours && known && frame.seq >= damaged_.next &&
             (*end == bytes_.size() || bytes_.size() - *end < wire::kPrefixBytes || begins(*end));
    } catch (const Error&) {
      return false;
    }
  }
  std::optional<uint64_t> from(uint64_t at) {
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()), bytes_.size());
    for (at = text.find(kMagic, at); at != std::string_view::npos && checked_ <= kMostChecked;
         at = text.find(kMagic, at + 1))
      if (is_whole(at)) return at;
    return std::nullopt;
  }

 private:
  bool begins(uint64_t at) const { return std::memcmp(bytes_.data() + at, kMagic.data(), kMagic.size()) == 0; }

  std::span<const std::byte> bytes_;
  const Break& damaged_;
  uint64_t checked_ = 0;
};

std::string free_place(const std::string& aside, const std::string& name, FileCalls& calls) {
  if (const int reason = make_directories(aside, calls)) errno = reason, fail_aside(aside, "cannot be created");
  std::vector<std::string> taken;
  if (calls.list(aside.c_str(), taken) != 0) fail_aside(aside, "cannot be read");
  const auto is_free = [&](const std::string& wanted) {
    return std::find(taken.begin(), taken.end(), wanted) == taken.end();
  };
  std::string wanted = name;
  for (size_t n = 2; !is_free(wanted); ++n) wanted = fmt::format("{}.{}", name, n);
  return aside + "/" + wanted;
}

void settle(const std::string& aside, FileCalls& calls) {
  if (const int reason = sync_directory(aside, calls)) errno = reason, fail_aside(aside, "cannot be synced to disk");
}

}  // namespace

std::optional<uint64_t> whole_frame_behind(const std::string& path, const Break& damaged, FileCalls& calls) {
  if (damaged.until <= damaged.at) return std::nullopt;
  const std::vector<std::byte> bytes =
      part_of_file(path, damaged.at, std::min(damaged.until - damaged.at, kMostSearched), calls);
  if (bytes.empty()) return std::nullopt;
  FrameSearch search(bytes, damaged);
  if (const auto end = search.end_of(0)) {
    if (*end == damaged.until - damaged.at) return std::nullopt;  // the last frame
    if (search.is_whole(*end)) return damaged.at + *end;
  }
  const auto found = search.from(1);
  return found ? std::optional(damaged.at + *found) : std::nullopt;
}

std::string move_aside(const std::string& path, const std::string& aside, const std::string& name, FileCalls& calls) {
  const std::string place = free_place(aside, name, calls);
  if (calls.rename(path.c_str(), place.c_str()) != 0) fail_aside(path, "cannot be renamed");
  settle(aside, calls);
  return place;
}

std::string copy_aside(const std::string& path, const std::string& aside, const std::string& name, FileCalls& calls) {
  const std::string place = free_place(aside, name, calls);
  const OpenFile from(path, O_RDONLY, calls), to(place, O_WRONLY | O_CREAT | O_EXCL, calls);
  std::vector<std::byte> piece(kPiece);
  while (const size_t got = read_some(from.number(), piece.data(), piece.size(), path, calls))
    for (size_t done = 0; done < got;) {
      const long n = calls.write(to.number(), piece.data() + done, got - done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail_aside(place, "cannot be written");
      done += static_cast<size_t>(n);
    }
  if (calls.sync(to.number()) != 0) fail_aside(place, "cannot be synced to disk");
  settle(aside, calls);
  return place;
}

}  // namespace harmonics::engine::spool
