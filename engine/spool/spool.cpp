#include "engine/spool/spool.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>
#include <utility>

#include <fcntl.h>

#include <fmt/format.h>

#include <harmonics/error.hpp>
#include <harmonics/quantity.hpp>

namespace harmonics::engine {

namespace {

constexpr uint64_t kLeastBytes = uint64_t{1} << 20, kLargestSegment = uint64_t{64} << 20,
                   kMostWaiting = uint64_t{8} << 20,
                   kAroundSamples = uint64_t{16} << 10;  // frame headers and barriers: an upper bound

constexpr std::chrono::milliseconds kLookForEnds{100};

}  // namespace

// The producer that reads a spooled stream.
class SpoolProducer final : public Producer {
 public:
  SpoolProducer(Spool& spool, std::shared_ptr<spool::SpooledStream> stream)
      : spool_(spool), stream_(std::move(stream)), sample_(stream_->info().sample_bytes()) {}

  HTensor next() override {
    return read(1, sample_.data()) == 1 ? HTensor(stream_->info().dtype, stream_->info().sample, sample_.data())
                                        : HTensor();
  }
  int64_t read(uint64_t n, void* to) override {
    if (n == 0) return 0;
    if (!reading_) go_to(0);
    return static_cast<int64_t>(stream_->read(n, to));
  }
  std::size_t size() const override { return 0; }
  std::optional<StreamInfo> describe() override { return stream_->info(); }
  bool restore(uint64_t index, const std::string&) override {
    spool_.keeps_ = !spool_.options_.keeps_all;
    go_to(index);
    return true;
  }
  std::string position(uint64_t) override { return "spool"; }
  void durable(uint64_t index) override {
    if (!spool_.options_.keeps_all) stream_->release(index);
  }
  bool cancel() override { return stream_->cancel(), true; }
  bool numbers(uint64_t n, SampleNumber* to) override {
    if (n == 0) return stream_->keep_numbers();
    std::copy(stream_->numbers().end() - static_cast<std::ptrdiff_t>(n), stream_->numbers().end(), to);
    return true;
  }
  std::optional<StreamHealth> health() override {
    StreamHealth health = stream_->health();
    health.wants_durable = spool_.full_;
    health.window_bytes = spool_.options_.most_bytes;
    return health;
  }

 private:
  void go_to(uint64_t index) {
    spool_.begin();
    stream_->go_to(index);
    reading_ = true;
  }

  Spool& spool_;
  std::shared_ptr<spool::SpooledStream> stream_;
  std::vector<std::byte> sample_;
  bool reading_ = false;
};

void Spool::Bell::ring() {
  const std::lock_guard<std::mutex> lock(mutex_);
  rung_ = true;
  changed_.notify_all();
}

void Spool::Bell::stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

bool Spool::Bell::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, kLookForEnds, [this] { return rung_ || stopped_; });
  rung_ = false;
  return !stopped_;
}

Spool::Spool(SpoolOptions options) : options_(std::move(options)) {
  FileCalls& calls = *options_.calls;
  if (options_.most_bytes < kLeastBytes)
    throw Error(ErrorKind::Usage,
                fmt::format("a spool of {} bytes is too small; the minimum is {}", options_.most_bytes, kLeastBytes));
  if (const int reason = make_directories(options_.directory, calls))
    throw Error(ErrorKind::Output,
                fmt::format("'{}' cannot be created: {}", options_.directory, std::strerror(reason)));
  const std::string path = options_.directory + "/lock";
  lock_ = calls.open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock_ < 0) throw Error(ErrorKind::Output, fmt::format("'{}' cannot be written: {}", path, std::strerror(errno)));
  if (calls.lock(lock_) == 0) return;
  const int reason = errno;
  calls.close(lock_);
  if (reason == EWOULDBLOCK)
    throw Error(ErrorKind::Usage, fmt::format("another run uses the spool '{}'", options_.directory))
        .note("use another --spool");
  throw Error(ErrorKind::Output, fmt::format("'{}' cannot be locked: {}", path, std::strerror(reason)));
}

Spool::~Spool() {
  bell_->stop();
  for (auto& [stream, thread] : pumps_) {
    const bool ends = stream->stop();
    if (ends)
      thread.join();
    else
      thread.detach();  // blocked in a read that cannot be interrupted; owns everything it uses
  }
  if (writer_.joinable()) writer_.join();
  options_.calls->close(lock_);
}

std::optional<StreamInfo> Spool::type_of(const std::string& name) const {
  return spool::type_in(options_.directory + "/" + name, *options_.calls);
}

std::shared_ptr<Producer> Spool::add(const std::string& name, const std::string& source,
                                     std::shared_ptr<Producer> upstream) {
  streams_.push_back(std::make_shared<spool::SpooledStream>(name, options_.directory + "/" + name, source,
                                                            std::move(upstream), *options_.calls));
  const auto group =
      std::find_if(groups_.begin(), groups_.end(), [&](const auto& g) { return g[0]->source() == source; });
  if (group != groups_.end())
    group->push_back(streams_.back());
  else
    groups_.push_back({streams_.back()});
  return std::make_shared<SpoolProducer>(*this, streams_.back());
}

void Spool::begin() {
  if (std::exchange(begun_, true)) return;
  for (const auto& group : groups_) recover(group);
  for (const StreamPtr& stream : streams_) {
    stream->on_news = [bell = bell_] { bell->ring(); };
    pumps_.emplace_back(stream, std::thread([stream, most = std::min(kMostWaiting, share())] { stream->pump(most); }));
  }
  writer_ = std::thread([this] { write(); });
}

// Recovers all streams of a source to the last sample that every one of them has on disk.
void Spool::recover(const std::vector<StreamPtr>& group) {
  std::vector<spool::SpooledStream::Found> found(group.size());
  uint64_t level = std::numeric_limits<uint64_t>::max(), highest = 0;
  for (bool moved = true; std::exchange(moved, false);)
    for (size_t i = 0; i < group.size(); ++i) {
      const auto mark = group[i]->newest_mark(level);
      if (!mark && group[i]->oldest() > 0)
        throw Error(
            ErrorKind::Stream,
            fmt::format("the spool of '{}' begins at sample {} and cannot be aligned with the other streams of {}",
                        group[i]->name(), group[i]->oldest(), group[i]->source()))
            .note("part of the spool is missing: start a new run with another --spool");
      found[i] = mark.value_or(spool::SpooledStream::Found{{}, 0, 0, !group[i]->is_empty()});
      highest = std::max(highest, found[i].mark.index);
      if (found[i].mark.index < level) moved = true, level = found[i].mark.index;
    }
  if (highest > 0 && std::any_of(group.begin(), group.end(), [](const StreamPtr& s) { return s->is_empty(); }))
    throw Error(ErrorKind::Usage, fmt::format("the spool '{}' has {} for some streams of {} and none for others",
                                              options_.directory, quantity(highest, "sample"), group[0]->source()))
        .note("it belongs to another flow: use another --spool");
  // Data torn by a crash was never acknowledged. Data damaged otherwise may have been, together with the same samples
  // of the other streams.
  const bool damaged = std::any_of(found.begin(), found.end(), [](const auto& f) { return f.damaged; });
  for (size_t i = 0; i < group.size(); ++i)
    for (const std::string& damage : group[i]->begin(found[i], damaged ? options_.directory + "/damaged" : ""))
      if (options_.on_note) options_.on_note(damage);
}

void Spool::write() {
  try {
    while (bell_->wait())
      while (commit_groups()) {
      }
  } catch (...) {
    for (const StreamPtr& stream : streams_) stream->fail(std::current_exception());
  }
}

// Commits, for every source, the samples that have arrived on all of its streams, and the ends of streams. Returns
// false if there was nothing to commit.
bool Spool::commit_groups() {
  const bool ends = commit_ends();
  std::vector<StreamPtr> committed;
  for (const auto& group : groups_) {
    const uint64_t level = level_of(group);
    if (level == group[0]->committed()) continue;
    uint64_t bytes = 0;
    for (const StreamPtr& stream : group) {
      const uint64_t waiting = stream->bytes_waiting();
      bytes += waiting + waiting / 16 + kAroundSamples;
    }
    if (!wait_for_room(bytes)) return false;
    for (const StreamPtr& stream : group) stream->commit(level, std::min(kLargestSegment, share()));
    committed.insert(committed.end(), group.begin(), group.end());
  }
  for (const StreamPtr& stream : committed) stream->tell_durable();
  return ends || !committed.empty();
}

uint64_t Spool::level_of(const std::vector<StreamPtr>& group) {
  uint64_t level = std::numeric_limits<uint64_t>::max();
  for (const StreamPtr& stream : group) level = std::min(level, stream->arrived());
  return level;
}

// A sender retains its end, like a sample, until it is acknowledged as durable. If no sample follows that would carry
// the acknowledgement, because the stream has ended or other senders are silent, the end is committed separately.
bool Spool::commit_ends() {
  bool any = false;
  for (const auto& group : groups_) {
    if (level_of(group) != group[0]->committed()) continue;
    const bool over = std::any_of(group.begin(), group.end(), [](const StreamPtr& s) { return s->is_ending(); });
    if (!over && group[0]->committed() == 0) continue;
    bool news = over;
    for (const StreamPtr& stream : group) news |= stream->commit_end();
    if (!news) continue;
    for (const StreamPtr& stream : group) stream->tell_durable();
    if (!over) continue;
    for (const StreamPtr& stream : group) stream->tell_end();
    any = true;
  }
  return any;
}

// Limit per stream for its waiting samples and for its newest segment, neither of which can be released. All streams
// together then leave room for older segments.
uint64_t Spool::share() const { return options_.most_bytes / (8 * streams_.size()); }

uint64_t Spool::bytes_on_disk() const {
  uint64_t bytes = 0;
  for (const StreamPtr& stream : streams_) bytes += stream->bytes_on_disk();
  return bytes;
}

// Returns false if the spool is being closed.
bool Spool::wait_for_room(uint64_t bytes) {
  while (bytes_on_disk() + bytes > options_.most_bytes) {
    if (!keeps_)
      throw Error(ErrorKind::InputOutput,
                  fmt::format("the spool '{}' is full: it holds {} bytes", options_.directory, options_.most_bytes))
          .note(options_.keeps_all
                    ? "--spool-keep keeps all files: raise --spool-limit"
                    : "files are removed once a checkpoint covers them: add --checkpoint DIR, or raise --spool-limit");
    full_ = true;
    if (!bell_->wait()) return false;
    commit_ends();  // otherwise a reader that waits for the end of another source would never write a checkpoint
  }
  full_ = false;
  return true;
}

}  // namespace harmonics::engine
