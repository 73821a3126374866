#include "engine/spool/segment.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include <fcntl.h>

#include <fmt/format.h>

#include <harmonics/error.hpp>

namespace harmonics::spool {

namespace {

constexpr size_t kDigits = 20;
constexpr const char* kPosition = "position";

[[noreturn]] void fail_at(const std::string& path, const char* what) {
  throw Error(ErrorKind::InputOutput, fmt::format("'{}' {}: {}", path, what, std::strerror(errno))).note("free space on the disk, or let --spool name another one");
}

}  // namespace

std::string segment_name(uint64_t first) { return fmt::format("{:020}.hxs", first); }

std::optional<uint64_t> segment_first(const std::string& name) {
  uint64_t first = 0;
  if (name.size() != kDigits + 4 || name.compare(kDigits, 4, ".hxs") != 0) return std::nullopt;
  const auto [end, error] = std::from_chars(name.data(), name.data() + kDigits, first);
  return error == std::errc() && end == name.data() + kDigits ? std::optional(first) : std::nullopt;
}

wire::Limits limits() {
  wire::Limits limits;
  limits.frame_bytes = uint64_t{1} << 30;
  return limits;
}

SegmentWriter::SegmentWriter(const std::string& directory, std::string stream, std::string source, const Mark& begin, FileCalls& calls)
    : path_(directory + "/" + segment_name(begin.index)), stream_(std::move(stream)), source_(std::move(source)), calls_(calls), first_(begin.index),
      next_(begin.index) {
  file_ = calls_.open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) fail("cannot be made");
  barrier(begin.position);
  sync();
  if (const int reason = sync_directory(directory, calls_)) errno = reason, fail("cannot be kept in its directory");
}

SegmentWriter::~SegmentWriter() {
  if (file_ >= 0) calls_.close(file_);
}

void SegmentWriter::fail(const char* what) const { fail_at(path_, what); }

void SegmentWriter::append(const wire::TensorPart& samples, uint32_t count, SampleNumber number) {
  wire::Frame frame;
  frame.kind = wire::Kind::Data;
  frame.count = count;
  frame.tensors = {samples};
  frame.number = number.number;
  frame.sender = number.sender;
  write(frame);
  next_ += count;
}

void SegmentWriter::commit(const std::string& position) {
  barrier(position);
  sync();
}

void SegmentWriter::barrier(const std::string& position) {
  wire::Frame frame;
  frame.kind = wire::Kind::Barrier;
  if (!position.empty()) {
    frame.count = 1;
    frame.tensors = {{kPosition, DType::U8, Shape{static_cast<int64_t>(position.size())}, std::as_bytes(std::span(position))}};
  }
  write(frame);
}

void SegmentWriter::write(const wire::Frame& frame) {
  wire::Frame whole = frame;
  whole.stream = stream_;
  whole.producer = source_;
  whole.seq = next_;
  const wire::Encoded encoded = wire::encode(whole, limits());
  for (std::span<const std::byte> piece : encoded.pieces())
    while (!piece.empty()) {
      const long n = calls_.write(file_, piece.data(), piece.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail("cannot be written");
      piece = piece.subspan(static_cast<size_t>(n));
    }
  bytes_ += encoded.size();
}

void SegmentWriter::sync() {
  if (calls_.sync(file_) != 0) fail("cannot be brought to the disk");
}

SegmentReader::SegmentReader(std::string path, FileCalls& calls) : path_(std::move(path)), calls_(calls), reader_(limits()) {
  file_ = calls_.open(path_.c_str(), O_RDONLY | O_CLOEXEC, 0);
  if (file_ < 0) fail_at(path_, "cannot be opened");
}

SegmentReader::~SegmentReader() {
  if (file_ >= 0) calls_.close(file_);
}

uint64_t SegmentReader::size() {
  const long long size = calls_.size(file_);
  if (size < 0) fail_at(path_, "does not say how long it is");
  return static_cast<uint64_t>(size);
}

std::optional<SegmentReader::Entry> SegmentReader::next(uint64_t until) {
  try {
    while (true) {
      if (auto bytes = reader_.next()) {
        Entry entry{bytes, wire::decode(bytes.bytes, limits())};
        at_ += bytes.bytes.size();
        return entry;
      }
      const auto room = reader_.room();
      const size_t wanted = std::min<uint64_t>(room.size(), until - std::min(until, read_));
      if (wanted == 0) return std::nullopt;
      const long n = calls_.read(file_, room.data(), wanted);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail_at(path_, "cannot be read");
      if (n == 0) return std::nullopt;
      reader_.arrived(static_cast<size_t>(n));
      read_ += static_cast<uint64_t>(n);
    }
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Stream) throw;
    throw Error(ErrorKind::Stream, fmt::format("'{}', frame at byte {}: {}", path_, at_, e.what()));
  }
}

void cut(const std::string& path, uint64_t bytes, FileCalls& calls) {
  const int file = calls.open(path.c_str(), O_WRONLY | O_CLOEXEC, 0);
  if (file < 0) fail_at(path, "cannot be opened");
  const bool done = calls.truncate(file, bytes) == 0 && calls.sync(file) == 0;
  const int reason = errno;
  calls.close(file);
  errno = reason;
  if (!done) fail_at(path, "cannot be cut to what of it is whole");
}

Mark mark_of(const wire::Frame& frame) {
  Mark mark{frame.seq, ""};
  for (const wire::TensorPart& part : frame.tensors)
    if (part.name == kPosition) mark.position.assign(reinterpret_cast<const char*>(part.bytes.data()), part.bytes.size());
  return mark;
}

Barriers scan(const std::string& path, FileCalls& calls) {
  Barriers barriers;
  SegmentReader reader(path, calls);
  const uint64_t size = reader.size();
  uint64_t next = 0;
  try {
    while (const auto entry = reader.next(size)) {
      const wire::Frame& frame = entry->frame;
      if (!barriers.all.empty() && frame.seq != next)
        throw Error(ErrorKind::Stream, fmt::format("'{}': sample {} follows sample {}", path, frame.seq, next));
      next = frame.seq + (frame.kind == wire::Kind::Data ? frame.count : 0);
      if (frame.kind == wire::Kind::Barrier) barriers.all.push_back({mark_of(frame), reader.at()});
    }
    if (reader.at() < size) barriers.damage = fmt::format("'{}' ends within a frame, at byte {} of {}", path, reader.at(), size);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Stream) throw;
    barriers.damage = e.what();
  }
  return barriers;
}

}  // namespace harmonics::spool
