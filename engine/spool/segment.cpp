#include "engine/spool/segment.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include <fcntl.h>

#include <fmt/format.h>

#include <harmonics/error.hpp>

namespace harmonics::engine::spool {

namespace {

constexpr size_t kDigits = 20;
constexpr const char* kPosition = "position";
constexpr uint64_t kMostHello = 64u << 10;  // bytes

[[noreturn]] void fail_at(const std::string& path, const char* what) {
  throw Error(ErrorKind::InputOutput, fmt::format("'{}' {}: {}", path, what, std::strerror(errno)))
      .note("free disk space, or use --spool on another disk");
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

std::map<uint64_t, std::string> segments_in(const std::string& directory, FileCalls& calls) {
  std::vector<std::string> names;
  if (calls.list(directory.c_str(), names) != 0)
    throw Error(ErrorKind::InputOutput, fmt::format("'{}' cannot be read: {}", directory, std::strerror(errno)));
  std::map<uint64_t, std::string> segments;
  for (const std::string& name : names)
    if (const auto first = segment_first(name)) segments[*first] = directory + "/" + name;
  return segments;
}

std::optional<StreamInfo> type_in(const std::string& directory, FileCalls& calls) {
  try {
    const std::map<uint64_t, std::string> segments = segments_in(directory, calls);
    for (auto segment = segments.rbegin(); segment != segments.rend(); ++segment) {
      SegmentReader reader(segment->second, calls);
      const auto entry = reader.next(std::min(reader.size(), kMostHello));
      if (!entry || entry->frame.kind != wire::Kind::Hello || entry->frame.tensors.size() != 1) continue;
      const wire::TensorPart& part = entry->frame.tensors[0];
      StreamInfo info;
      info.dtype = part.dtype;
      info.sample = part.sample;
      info.classes = part.classes;
      info.live = true;
      return info;
    }
  } catch (const Error&) {
    // There is no spool yet, or recovery will report the damage.
  }
  return std::nullopt;
}

SegmentWriter::SegmentWriter(const std::string& directory, std::string stream, std::string source,
                             const StreamInfo& info, const Mark& begin, FileCalls& calls)
    : path_(directory + "/" + segment_name(begin.index)),
      stream_(std::move(stream)),
      source_(std::move(source)),
      calls_(calls),
      first_(begin.index),
      next_(begin.index) {
  file_ = calls_.open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) fail("cannot be created");
  announce(info);
  barrier(begin.position);
  sync();
  if (const int reason = sync_directory(directory, calls_)) errno = reason, fail("cannot be synced in its directory");
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

// Writes no HELLO for types that it cannot express; the source then provides the type.
void SegmentWriter::announce(const StreamInfo& info) {
  if (info.position_axes > 0 || !info.symbols.empty()) return;
  wire::Frame frame;
  frame.kind = wire::Kind::Hello;
  frame.tensors = {{stream_, info.dtype, info.sample, {}, wire::classes_told(info.dtype, info.classes)}};
  write(frame);
}

void SegmentWriter::barrier(const std::string& position) {
  wire::Frame frame;
  frame.kind = wire::Kind::Barrier;
  if (!position.empty()) {
    frame.count = 1;
    frame.tensors = {
        {kPosition, DType::U8, Shape{static_cast<int64_t>(position.size())}, std::as_bytes(std::span(position))}};
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
  if (calls_.sync(file_) != 0) fail("cannot be synced to disk");
}

SegmentReader::SegmentReader(std::string path, FileCalls& calls)
    : path_(std::move(path)), calls_(calls), reader_(limits()) {
  const auto first = segment_first(path_.substr(path_.rfind('/') + 1));
  is_ordered_ = first.has_value();
  break_.next = first.value_or(0);
  open_at(0);
}

SegmentReader::~SegmentReader() {
  if (file_ >= 0) calls_.close(file_);
}

uint64_t SegmentReader::size() {
  const long long size = calls_.size(file_);
  if (size < 0) fail_at(path_, "has no readable size");
  return static_cast<uint64_t>(size);
}

void SegmentReader::open_at(uint64_t byte) {
  if (file_ >= 0) calls_.close(file_);
  file_ = calls_.open(path_.c_str(), O_RDONLY | O_CLOEXEC, 0);
  if (file_ < 0) fail_at(path_, "cannot be opened");
  reader_ = wire::FrameReader(limits());
  read_ = 0;
  std::vector<std::byte> skipped(std::min(byte, uint64_t{1} << 20));
  while (read_ < byte) {
    const long n = calls_.read(file_, skipped.data(), std::min<uint64_t>(skipped.size(), byte - read_));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_at(path_, "cannot be read");
    read_ += static_cast<uint64_t>(n);
  }
  at_ = byte;
}

std::optional<SegmentReader::Entry> SegmentReader::next(uint64_t until) {
  passed_over_.reset();
  std::optional<Entry> entry;
  std::string damage;
  try {
    entry = next_whole(until);
    // No frame: either everything up to `until` was read, or a length is damaged, or a crash tore the tail.
    if (!entry && at_ < until && read_ >= until)
      damage = fmt::format("'{}', frame at byte {}: it ends after byte {}", path_, at_, until);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Stream) throw;
    damage = fmt::format("'{}', frame at byte {}: {}", path_, at_, e.what());
    if (!pass_over(until, damage)) throw Error(ErrorKind::Stream, damage);
    entry = next_whole(until);
  }
  if (!entry && !damage.empty() && pass_over(until, damage)) entry = next_whole(until);
  if (!entry) return entry;
  const wire::Frame& frame = entry->frame;
  if (passed_over_) passed_over_->end = frame.seq;
  break_.stream = frame.stream;
  break_.source = frame.producer;
  if (is_ordered_) break_.next = frame.seq + (frame.kind == wire::Kind::Data ? frame.count : 0);
  return entry;
}

bool SegmentReader::pass_over(uint64_t until, const std::string& damage) {
  break_.at = at_;
  break_.until = until;
  const auto whole = whole_frame_behind(path_, break_, calls_);
  if (!whole) return false;
  passed_over_ = Lost{path_, damage, break_.next, break_.next};
  open_at(*whole);
  return true;
}

std::optional<SegmentReader::Entry> SegmentReader::next_whole(uint64_t until) {
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
}

void cut(const std::string& path, uint64_t bytes, FileCalls& calls) {
  const int file = calls.open(path.c_str(), O_WRONLY | O_CLOEXEC, 0);
  if (file < 0) fail_at(path, "cannot be opened");
  const bool done = calls.truncate(file, bytes) == 0 && calls.sync(file) == 0;
  const int reason = errno;
  calls.close(file);
  errno = reason;
  if (!done) fail_at(path, "cannot be truncated to its intact part");
}

Mark mark_of(const wire::Frame& frame) {
  Mark mark{frame.seq, ""};
  for (const wire::TensorPart& part : frame.tensors)
    if (part.name == kPosition)
      mark.position.assign(reinterpret_cast<const char*>(part.bytes.data()), part.bytes.size());
  return mark;
}

Barriers scan(const std::string& path, FileCalls& calls) {
  Barriers barriers;
  SegmentReader reader(path, calls);
  const uint64_t size = reader.size();
  std::optional<uint64_t> next;
  std::optional<size_t> before_loss;  // number of barriers before the last skipped frames
  try {
    while (const auto entry = reader.next(size)) {
      const wire::Frame& frame = entry->frame;
      if (reader.passed_over()) before_loss = barriers.all.size();
      const bool follows = !next || (reader.passed_over() ? frame.seq >= *next : frame.seq == *next);
      if (!follows)
        throw Error(ErrorKind::Stream, fmt::format("'{}': sample {} follows sample {}", path, frame.seq, *next));
      if (reader.passed_over()) barriers.lost.push_back(*reader.passed_over());
      next = frame.seq + (frame.kind == wire::Kind::Data ? frame.count : 0);
      if (frame.kind == wire::Kind::Barrier) barriers.all.push_back({mark_of(frame), reader.at()});
    }
    barriers.torn = reader.at() < size;
    // A power failure may have left the last group partly written, out of order. It is ignored, like a torn tail.
    if (!barriers.torn && before_loss && *before_loss > 0 && *before_loss + 1 == barriers.all.size()) {
      barriers.damage = barriers.lost.back().damage;
      barriers.lost.pop_back();
      barriers.all.pop_back();
    }
    if (barriers.torn)
      barriers.damage = fmt::format("'{}' ends within a frame, at byte {} of {}", path, reader.at(), size);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Stream) throw;
    barriers.damage = e.what();
  }
  return barriers;
}

}  // namespace harmonics::engine::spool
