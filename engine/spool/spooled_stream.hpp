// SpooledStream: one live stream on its way through the disk: what has arrived and is not yet safe, its segments, and
// who reads them.
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

namespace harmonics::spool {

// One mutex for what its source, its writer and its reader share. The source's thread holds this object, and outlives
// the spool when the source cannot be woken.
class SpooledStream {
 public:
  SpooledStream(std::string name, std::string directory, std::string source, std::shared_ptr<Producer> upstream,
                FileCalls& calls);

  const std::string& name() const { return name_; }
  const std::string& source() const { return source_; }
  const StreamInfo& info() const { return info_; }

  // ---- recovery, before anything else ----
  // The marks on the disk at or below `most`, newest first, none when nothing of this stream is there.
  struct Found {
    Mark mark;
    uint64_t segment;  // the first sample of the one it stands in
    uint64_t bytes;    // of that which are good
    bool damaged;      // it, or one behind it, is damaged otherwise than a crash leaves it
  };
  std::optional<Found> newest_mark(uint64_t most) const;
  bool is_empty() const { return segments_.empty(); }
  // The numbers of its samples go to the disk with them from now on; false: they have none. Before begin().
  bool keep_numbers() { return keeps_numbers_ = upstream_->numbers(0, nullptr); }
  // The first sample of its oldest segment; 0: there is none.
  uint64_t oldest() const { return segments_.empty() ? 0 : segments_.front().first; }
  // What lies behind the mark goes, and a new segment begins there. `aside`: a folder that keeps the files which are
  // cut or go; "": nobody needs them. Returns what was found damaged, for people.
  std::vector<std::string> begin(const Found& from, const std::string& aside);

  // ---- the source's thread ----
  // Takes samples until the source ends, fails or stop() is called; at most so many bytes wait to be committed, or one
  // sample.
  void pump(uint64_t most_waiting);

  // ---- the writer's thread ----
  uint64_t arrived();  // samples, over restarts
  uint64_t committed();
  // Writes the samples up to `level` and brings them to the disk, in a new segment when the last has `segment_bytes`.
  void commit(uint64_t level, uint64_t segment_bytes);
  // Tells the source what is on the disk.
  void tell_durable();
  // Is the source's thread over, with all it brought on the disk, and that not told?
  bool is_ending();
  // Brings to the disk that the source says it has ended: it hears so by tell_durable(), as of a sample.
  void commit_end();
  // read() says so from now on.
  void tell_end();
  uint64_t bytes_waiting();

  // ---- the reader's thread ----
  void go_to(uint64_t index);
  uint64_t read(uint64_t n, void* to);
  // Of those that the last read() gave.
  const std::vector<SampleNumber>& numbers() const { return numbers_; }

  // ---- any thread ----
  uint64_t bytes_on_disk();
  // Removes segments of which nothing at or behind `index` is left.
  void release(uint64_t index);
  void cancel();
  // From now on read() gives what is safe and then fails so.
  void fail(std::exception_ptr why);
  // The source's thread ends; false: it cannot be woken.
  bool stop();
  StreamHealth health();

  // Called when samples arrived or were released, and when the source has ended.
  std::function<void()> on_news;

 private:
  struct Segment {
    uint64_t first = 0, end = 0;  // sample numbers
    uint64_t bytes = 0;           // on the disk and good
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
  std::vector<std::byte> waiting_;             // arrived, not committed
  std::vector<SampleNumber> waiting_numbers_;  // of these, where they are kept
  uint64_t arrived_ = 0, committed_ = 0;
  std::deque<Segment> segments_;  // oldest first; the last is being written
  std::vector<Lost> lost_;        // of what was looked at when it was recovered
  bool ended_ = false, cancelled_ = false, stopping_ = false;
  bool pumped_ = false;    // the source's thread is over
  bool end_told_ = false;  // who reads may hear that it has ended: the source has heard that this is safe
  std::exception_ptr failure_, source_failure_;  // of the disk; of the source, after its last sample

  // Of the writer alone.
  std::unique_ptr<SegmentWriter> writer_;
  std::vector<std::byte> writing_;
  std::vector<SampleNumber> writing_numbers_;
  std::string position_;  // of the last commit

  // Of the reader alone.
  uint64_t at_ = 0;
  std::unique_ptr<SegmentReader> reading_;
  uint64_t reading_first_ = 0;
  std::optional<SegmentReader::Entry> frame_;
  std::vector<SampleNumber> numbers_;
};

}  // namespace harmonics::spool
