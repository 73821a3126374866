#include "engine/spool/spooled_stream.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include <harmonics/error.hpp>

namespace harmonics::engine::spool {

namespace {

constexpr uint64_t kFrame = uint64_t{1} << 20;

StreamInfo described(const std::string& name, Producer& upstream) {
  std::optional<StreamInfo> info = upstream.describe();
  if (!info)
    throw Error(ErrorKind::Usage,
                fmt::format("stream '{}' does not announce its sample type, so it cannot be spooled", name));
  return *info;
}

}  // namespace

SpooledStream::SpooledStream(std::string name, std::string directory, std::string source,
                             std::shared_ptr<Producer> upstream, FileCalls& calls)
    : name_(std::move(name)),
      directory_(std::move(directory)),
      source_(std::move(source)),
      upstream_(std::move(upstream)),
      calls_(calls),
      info_(described(name_, *upstream_)),
      sample_bytes_(info_.sample_bytes()) {
  if (const int reason = make_directories(directory_, calls_))
    throw Error(ErrorKind::Output, fmt::format("'{}' cannot be created: {}", directory_, std::strerror(reason)));
  for (const auto& [first, path] : segments_in(directory_, calls_)) segments_.push_back({first, first, 0, path});
}

std::optional<SpooledStream::Found> SpooledStream::newest_mark(uint64_t most) const {
  bool damaged = false;
  for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
    if (segment->first > most) continue;
    const Barriers barriers = scan(segment->path, calls_);
    damaged |= !barriers.damage.empty() && !barriers.torn;
    for (auto at = barriers.all.rbegin(); at != barriers.all.rend(); ++at)
      if (at->mark.index <= most) return Found{at->mark, segment->first, at->end, damaged};
  }
  return std::nullopt;
}

// Removes the segments after the mark, and truncates the segment that contains it.
void SpooledStream::cut_back(const Found& from, const std::string& aside, std::vector<std::string>& damages) {
  const auto left_out = [&](const std::string& path, const std::string& damage, const std::string& kept) {
    if (damage.empty() && kept.empty()) return;
    const std::string why =
        damage.empty() ? fmt::format("'{}' extends beyond another stream of {}", path, source_) : damage;
    damages.push_back(why + "; data after it is dropped and requested again" +
                      (kept.empty() ? "" : fmt::format("; the file is kept as '{}'", kept)));
  };
  const auto name_aside = [this](const Segment& segment) { return name_ + "-" + segment_name(segment.first); };
  while (!segments_.empty() && segments_.back().first >= from.mark.index) {
    const Segment& last = segments_.back();
    const Barriers barriers = scan(last.path, calls_);
    const bool holds_samples = !barriers.damage.empty() || !barriers.lost.empty() ||
                               (!barriers.all.empty() && barriers.all.back().mark.index > last.first);
    const bool keeps = !aside.empty() && holds_samples;
    const std::string kept = keeps ? move_aside(last.path, aside, name_aside(last), calls_) : "";
    left_out(last.path, barriers.damage, kept);
    if (!keeps) remove(last.path);
    segments_.pop_back();
  }
  if (segments_.empty()) return;
  Segment& last = segments_.back();
  const Barriers barriers = scan(last.path, calls_);
  // If the mark is the first barrier of the next segment, this one is not truncated.
  const uint64_t size = SegmentReader(last.path, calls_).size();
  last.bytes = from.segment == last.first ? from.bytes : size;
  for (const Lost& lost : barriers.lost) {
    if (lost.first >= from.mark.index) continue;
    lost_.push_back(lost);
    const std::string taken = lost.first == lost.end
                                  ? "no sample is lost"
                                  : fmt::format("samples {} to {} are lost", lost.first, lost.end - 1);
    damages.push_back(fmt::format("{}; {}; data after it is intact", lost.damage, taken));
  }
  if (last.bytes == size) return left_out(last.path, barriers.damage, "");
  const std::string kept = aside.empty() ? "" : copy_aside(last.path, aside, name_aside(last), calls_);
  left_out(last.path, barriers.damage, kept);
  cut(last.path, last.bytes, calls_);
}

std::vector<std::string> SpooledStream::begin(const Found& from, const std::string& aside) {
  std::vector<std::string> damages;
  const uint64_t index = from.mark.index;
  cut_back(from, aside, damages);
  for (size_t i = 0; i < segments_.size(); ++i) {
    segments_[i].end = i + 1 < segments_.size() ? segments_[i + 1].first : index;
    if (i + 1 < segments_.size()) segments_[i].bytes = SegmentReader(segments_[i].path, calls_).size();
  }
  arrived_ = committed_ = index;
  position_ = from.mark.position;
  has_positions_ = upstream_->restore(index, position_);
  writer_ = std::make_unique<SegmentWriter>(directory_, name_, source_, info_, from.mark, calls_);
  segments_.push_back({index, index, writer_->bytes(), directory_ + "/" + segment_name(index)});
  return damages;
}

void SpooledStream::pump(uint64_t most_waiting) {
  try {
    while (true) {
      const HTensor sample = upstream_->next();
      std::unique_lock<std::mutex> lock(mutex_);
      if (!sample || stopping_) {
        ended_ = true;
        break;
      }
      if (sample.dtype() != info_.dtype || sample.shape() != info_.sample)
        throw Error(ErrorKind::Stream, fmt::format("stream '{}': a sample of shape {} instead of the announced {}",
                                                   name_, sample.shape().str(), info_.sample.str()));
      changed_.wait(lock,
                    [&] { return waiting_.empty() || waiting_.size() + sample_bytes_ <= most_waiting || stopping_; });
      if (keeps_numbers_) {
        waiting_numbers_.emplace_back();
        if (!upstream_->numbers(1, &waiting_numbers_.back()))
          throw Error(ErrorKind::Stream, fmt::format("stream '{}': a sample has no number", name_));
      }
      const auto* bytes = static_cast<const std::byte*>(sample.bytes());
      waiting_.insert(waiting_.end(), bytes, bytes + sample_bytes_);
      ++arrived_;
      const bool first = waiting_.size() == sample_bytes_;
      lock.unlock();
      if (first) on_news();
    }
  } catch (...) {
    const std::lock_guard<std::mutex> lock(mutex_);
    source_failure_ = std::current_exception();
    ended_ = true;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    pumped_ = true;
  }
  changed_.notify_all();
  on_news();
}

uint64_t SpooledStream::arrived() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return arrived_;
}

uint64_t SpooledStream::committed() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return committed_;
}

uint64_t SpooledStream::bytes_waiting() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return waiting_.size();
}

// Returns how many of the samples being written have consecutive numbers, from `first` on.
uint64_t SpooledStream::run_from(uint64_t first, uint64_t most) const {
  if (!keeps_numbers_) return most;
  const SampleNumber from = writing_numbers_[first];
  uint64_t count = 1;
  while (count < most && writing_numbers_[first + count].sender == from.sender &&
         writing_numbers_[first + count].number == from.number + count)
    ++count;
  return count;
}

void SpooledStream::write(uint64_t n) {
  const uint64_t most = std::max<uint64_t>(kFrame / sample_bytes_, 1);
  for (uint64_t done = 0, count = 0; done < n; done += count) {
    count = run_from(done, std::min(most, n - done));
    const std::span<const std::byte> bytes(writing_.data() + done * sample_bytes_, count * sample_bytes_);
    writer_->append({name_, info_.dtype, info_.sample, bytes, wire::classes_told(info_.dtype, info_.classes)},
                    static_cast<uint32_t>(count), keeps_numbers_ ? writing_numbers_[done] : SampleNumber{0, 0});
  }
}

void SpooledStream::commit(uint64_t level, uint64_t segment_bytes) {
  uint64_t n = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    n = level - committed_;
    if (n == 0) return;
    const auto end = waiting_.begin() + static_cast<std::ptrdiff_t>(n * sample_bytes_);
    writing_.assign(waiting_.begin(), end);
    waiting_.erase(waiting_.begin(), end);
    if (keeps_numbers_) {
      const auto last = waiting_numbers_.begin() + static_cast<std::ptrdiff_t>(n);
      writing_numbers_.assign(waiting_numbers_.begin(), last);
      waiting_numbers_.erase(waiting_numbers_.begin(), last);
    }
  }
  changed_.notify_all();
  if (writer_->bytes() >= segment_bytes) {
    writer_ =
        std::make_unique<SegmentWriter>(directory_, name_, source_, info_, Mark{writer_->next(), position_}, calls_);
    const std::lock_guard<std::mutex> lock(mutex_);
    segments_.push_back(
        {writer_->first(), writer_->first(), writer_->bytes(), directory_ + "/" + segment_name(writer_->first())});
  }
  write(n);
  if (has_positions_) position_ = upstream_->position(level);
  writer_->commit(position_);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    committed_ = level;
    segments_.back().end = level;
    segments_.back().bytes = writer_->bytes();
  }
  changed_.notify_all();
}

void SpooledStream::tell_durable() {
  if (has_positions_) upstream_->durable(committed());
}

bool SpooledStream::is_ending() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return pumped_ && arrived_ == committed_ && !end_told_;
}

bool SpooledStream::commit_end() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!has_positions_ || stopping_ || source_failure_) return false;
  }
  const std::string position = upstream_->position(committed());
  if (position == position_) return false;  // the end was committed with the last samples
  position_ = position;
  writer_->commit(position_);
  const std::lock_guard<std::mutex> lock(mutex_);
  segments_.back().bytes = writer_->bytes();
  return true;
}

void SpooledStream::tell_end() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    end_told_ = true;
  }
  changed_.notify_all();
}

void SpooledStream::go_to(uint64_t index) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (index < segments_.front().first)
    throw Error(ErrorKind::Stream, fmt::format("the spool of '{}' begins at sample {}, but the run needs sample {}",
                                               name_, segments_.front().first, index))
        .note("resume from the checkpoint that covers it (--resume), or use another --spool");
  if (index > committed_)
    throw Error(ErrorKind::Stream, fmt::format("the spool of '{}' ends before sample {}, but the run needs sample {}",
                                               name_, committed_, index))
        .note("checkpoint and spool belong to different runs, or part of the spool is missing");
  for (const Lost& lost : lost_)
    if (lost.is_part_of_needed(index)) refuse(lost, index);
  at_ = index;
}

void SpooledStream::refuse(const Lost& lost, uint64_t wanted) const {
  throw Error(
      ErrorKind::Stream,
      fmt::format("the spool of '{}' is damaged: {}; samples {} to {} are lost, but the run needs samples from {} on",
                  name_, lost.damage, std::max(lost.first, wanted), lost.end - 1, wanted))
      .note(
          "restore an intact copy of the file, or start a new run with another --spool and --weights of the last "
          "checkpoint; senders still have samples not acknowledged as durable");
}

// Opens the segment that contains sample at_.
void SpooledStream::open_segment() {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto after = std::upper_bound(segments_.begin(), segments_.end(), at_,
                                      [](uint64_t at, const Segment& s) { return at < s.first; });
  const Segment segment = *std::prev(after);
  if (reading_ && reading_first_ == segment.first) return;
  lock.unlock();
  reading_ = std::make_unique<SegmentReader>(segment.path, calls_);
  reading_first_ = segment.first;
  frame_.reset();
}

// Reads the frame that contains sample at_, which is committed.
void SpooledStream::find_frame() {
  open_segment();
  uint64_t until = 0, end = 0;
  std::string path;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Segment& segment : segments_)
      if (segment.first == reading_first_) until = segment.bytes, end = segment.end, path = segment.path;
  }
  while (!frame_ || frame_->frame.kind != wire::Kind::Data || frame_->frame.seq + frame_->frame.count <= at_) {
    try {
      frame_ = reading_->next(until);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Stream) throw;
      refuse({path, e.what(), at_, end}, at_);
    }
    if (!frame_) refuse({path, fmt::format("'{}' ends before sample {}", path, at_), at_, end}, at_);
    if (const auto& lost = reading_->passed_over(); lost && lost->is_part_of_needed(at_)) refuse(*lost, at_);
  }
  const wire::TensorPart& part = frame_->frame.tensors[0];
  if (frame_->frame.seq > at_ || part.dtype != info_.dtype || part.sample != info_.sample)
    throw Error(
        ErrorKind::Stream,
        fmt::format("the spool of '{}' has {} from sample {} on, but the run needs {} of shape {} from sample {}",
                    name_, wire::described(frame_->frame.tensors), frame_->frame.seq, name_, info_.sample.str(), at_))
        .note("it belongs to another run: use another --spool");
}

uint64_t SpooledStream::read(uint64_t n, void* to) {
  auto* out = static_cast<std::byte*>(to);
  numbers_.clear();
  uint64_t got = 0;
  while (got < n) {
    uint64_t committed = 0;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] {
        return at_ < committed_ || cancelled_ || failure_ || end_told_ ||
               (ended_ && arrived_ == committed_ && source_failure_);
      });
      if (at_ >= committed_) {
        if (cancelled_) return got;
        if (failure_) std::rethrow_exception(failure_);
        if (source_failure_) std::rethrow_exception(source_failure_);
        return got;
      }
      committed = committed_;
    }
    find_frame();
    const wire::Frame& frame = frame_->frame;
    const uint64_t first = at_ - frame.seq, count = std::min({frame.count - first, n - got, committed - at_});
    std::memcpy(out + got * sample_bytes_, frame.tensors[0].bytes.data() + first * sample_bytes_,
                count * sample_bytes_);
    got += count;
    if (keeps_numbers_) {
      const SampleNumber from = frame.number_of(first);
      for (uint64_t i = 0; i < count; ++i) numbers_.push_back({from.number + i, from.sender});
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    at_ += count;
  }
  return got;
}

uint64_t SpooledStream::bytes_on_disk() {
  const std::lock_guard<std::mutex> lock(mutex_);
  uint64_t bytes = 0;
  for (const Segment& segment : segments_) bytes += segment.bytes;
  return bytes;
}

void SpooledStream::remove(const std::string& path) const {
  if (calls_.remove(path.c_str()) != 0 && errno != ENOENT)
    throw Error(ErrorKind::InputOutput, fmt::format("'{}' cannot be removed: {}", path, std::strerror(errno)));
}

void SpooledStream::release(uint64_t index) {
  std::vector<std::string> gone;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    while (segments_.size() > 1 && segments_[1].first <= index) {
      gone.push_back(segments_.front().path);
      segments_.pop_front();
    }
  }
  for (const std::string& path : gone) remove(path);
  if (!gone.empty()) on_news();
}

void SpooledStream::cancel() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    cancelled_ = true;
  }
  changed_.notify_all();
}

void SpooledStream::fail(std::exception_ptr why) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_) failure_ = std::move(why);
  }
  changed_.notify_all();
}

bool SpooledStream::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    if (pumped_) return true;
  }
  changed_.notify_all();
  return upstream_->cancel();
}

StreamHealth SpooledStream::health() {
  StreamHealth health = upstream_->health().value_or(StreamHealth{});
  const std::lock_guard<std::mutex> lock(mutex_);
  health.queued_samples = arrived_ - std::min(at_, arrived_);
  health.queued_bytes = health.queued_samples * sample_bytes_;
  health.wants_durable = false;  // the spool acknowledges samples itself
  if (failure_ || source_failure_) health.state = StreamHealth::State::Failed;
  return health;
}

}  // namespace harmonics::engine::spool
