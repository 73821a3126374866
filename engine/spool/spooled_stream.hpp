// SpooledStream: one live stream passing through the disk. Owns its uncommitted samples, its segments and its reader.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <harmonics/stream.hpp>

#include "engine/spool/segment.hpp"

namespace harmonics::engine::spool {

// One mutex guards the state shared by the source, writer and reader threads. The source's thread shares ownership of
// this object, because it outlives the spool if the source's read cannot be interrupted.
class SpooledStream {
 public:
  SpooledStream(std::string name, std::string directory, std::string source, std::shared_ptr<Producer> upstream,
                FileCalls& calls);

  const std::string& name() const { return name_; }
  const std::string& source() const { return source_; }
  const StreamInfo& info() const { return info_; }

  // ---- recovery, before anything else ----
  // Returns the newest mark on disk at or below `most`; none if the stream has nothing on disk.
  struct Found {
    Mark mark;
    uint64_t segment;  // first sample of the segment that contains it
    uint64_t bytes;    // valid bytes of that segment
    bool damaged;      // this segment or a later one is damaged in a way that a crash does not explain
  };
  std::optional<Found> newest_mark(uint64_t most) const;
  bool is_empty() const { return segments_.empty(); }
  // Enables writing sample numbers to disk with the samples. Returns false if samples have none. Must be called before
  // begin().
  bool keep_numbers() { return keeps_numbers_ = upstream_->numbers(0, nullptr); }
  // The first sample of the oldest segment, or 0 if there is none.
  uint64_t oldest() const { return segments_.empty() ? 0 : segments_.front().first; }
  // Discards data after the mark and begins a new segment there. `aside`: folder that receives copies of truncated and
  // removed files; "": none. Returns descriptions of the damage found.
  std::vector<std::string> begin(const Found& from, const std::string& aside);

  // ---- the source's thread ----
  // Reads samples until the source ends or fails, or stop() is called. Buffers at most `most_waiting` uncommitted
  // bytes, but at least one sample.
  void pump(uint64_t most_waiting);

  // ---- the writer's thread ----
  uint64_t arrived();  // samples, counted across restarts
  uint64_t committed();
  // Writes the samples up to `level` to disk. Starts a new segment if the last one has reached `segment_bytes`.
  void commit(uint64_t level, uint64_t segment_bytes);
  // Acknowledges to the source the samples that are on disk.
  void tell_durable();
  // Returns whether the source's thread has ended, all its samples are on disk, and tell_end() was not called yet.
  bool is_ending();
  // Writes the source's end to disk; tell_durable() acknowledges it to the source like a sample.
  bool commit_end();
  // Makes later calls of read() report the end.
  void tell_end();
  uint64_t bytes_waiting();

  // ---- the reader's thread ----
  void go_to(uint64_t index);
  uint64_t read(uint64_t n, void* to);
  // The numbers of the samples of the last read().
  const std::vector<SampleNumber>& numbers() const { return numbers_; }

  // ---- any thread ----
  uint64_t bytes_on_disk();
  // Removes segments whose samples all precede `index`.
  void release(uint64_t index);
  void cancel();
  // Makes later calls of read() return the samples on disk and then throw this error.
  void fail(std::exception_ptr why);
  // Ends the source's thread. Returns false if its read cannot be interrupted.
  bool stop();
  StreamHealth health();

  // Called when samples arrive or are released, and when the source ends.
  std::function<void()> on_news;

 private:
  struct Segment {
    uint64_t first = 0, end = 0;  // sample numbers
    uint64_t bytes = 0;           // on disk and valid
    std::string path;
  };
  void write(uint64_t n);
  uint64_t run_from(uint64_t first, uint64_t most) const;
  void open_segment();
  void find_frame();
  void remove(const std::string& path) const;
  void cut_back(const Found& from, const std::string& aside, std::vector<std::string>& damages);
  [[noreturn]] void refuse(const Lost& lost, uint64_t wanted) const;

  std::string name_, directory_, source_;
  std::shared_ptr<Producer> upstream_;
  FileCalls& calls_;
  StreamInfo info_;
  size_t sample_bytes_;
  bool has_positions_ = false, keeps_numbers_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::byte> waiting_;             // arrived, not yet committed
  std::vector<SampleNumber> waiting_numbers_;  // their numbers, if kept
  uint64_t arrived_ = 0, committed_ = 0;
  std::deque<Segment> segments_;  // oldest first; the last is being written
  std::vector<Lost> lost_;        // losses found during recovery
  bool ended_ = false, cancelled_ = false, stopping_ = false;
  bool pumped_ = false;                          // the source's thread has ended
  bool end_told_ = false;                        // the end was acknowledged to the source, so the reader may see it
  std::exception_ptr failure_, source_failure_;  // error of the disk; error of the source, after its last sample

  // Used only by the writer.
  std::unique_ptr<SegmentWriter> writer_;
  std::vector<std::byte> writing_;
  std::vector<SampleNumber> writing_numbers_;
  std::string position_;  // as of the last commit

  // Used only by the reader.
  uint64_t at_ = 0;
  std::unique_ptr<SegmentReader> reading_;
  uint64_t reading_first_ = 0;
  std::optional<SegmentReader::Entry> frame_;
  std::vector<SampleNumber> numbers_;
};

}  // namespace harmonics::engine::spool
