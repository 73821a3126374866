// Segments: the files of a spooled stream. A segment holds the frames of docs/wire.md back to back: a HELLO with the
// sample type, a BARRIER, then groups of DATA, each closed by a BARRIER. Data after the last whole barrier was never
// acknowledged and is ignored.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include <harmonics/stream.hpp>

#include "engine/base/file.hpp"
#include "engine/spool/salvage.hpp"
#include "wire/frame.hpp"
#include "wire/frame_reader.hpp"

namespace harmonics::engine::spool {

// A sample number, and a position of the source from which that sample and the following ones can be read again.
struct Mark {
  uint64_t index = 0;
  std::string position;
};

// Returns "00000000000000000123.hxs" for a segment whose first sample has number 123.
std::string segment_name(uint64_t first);
std::optional<uint64_t> segment_first(const std::string& name);
// Returns the paths of a stream's segments by their first samples. Throws ErrorKind::InputOutput.
std::map<uint64_t, std::string> segments_in(const std::string& directory, FileCalls& calls);
// Returns the sample type from the newest segment that contains it, or nothing if none does. Older versions did not
// write it.
std::optional<StreamInfo> type_in(const std::string& directory, FileCalls& calls);

// Returns the limits for frames in a file, which are larger than those of a connection.
wire::Limits limits();

class SegmentWriter {
 public:
  // Creates a file; none of this name may exist. Throws ErrorKind::InputOutput, as do all functions below.
  SegmentWriter(const std::string& directory, std::string stream, std::string source, const StreamInfo& info,
                const Mark& begin, FileCalls& calls);
  SegmentWriter(const SegmentWriter&) = delete;
  SegmentWriter& operator=(const SegmentWriter&) = delete;
  ~SegmentWriter();

  // Appends samples of one type, back to back. `number` is the number of the first, if numbers are kept; the others
  // have consecutive numbers.
  void append(const wire::TensorPart& samples, uint32_t count, SampleNumber number = {0, 0});
  // Writes a barrier after everything appended so far, and returns when it is on disk.
  void commit(const std::string& position);

  uint64_t first() const { return first_; }
  uint64_t next() const { return next_; }
  uint64_t bytes() const { return bytes_; }

 private:
  void write(const wire::Frame& frame);
  void announce(const StreamInfo& info);
  void barrier(const std::string& position);
  void sync();
  [[noreturn]] void fail(const char* what) const;

  std::string path_, stream_, source_;
  FileCalls& calls_;
  int file_ = -1;
  uint64_t first_, next_, bytes_ = 0;
};

// Damage within a file and the samples lost to it. If only a barrier is damaged, first == end.
struct Lost {
  std::string path;
  std::string damage;           // description with file and byte offset
  uint64_t first = 0, end = 0;  // samples
  bool is_part_of_needed(uint64_t from) const { return first < end && end > from; }
};

// Reads a segment from its beginning, frame by frame, and skips damage that is followed by whole frames.
class SegmentReader {
 public:
  SegmentReader(std::string path, FileCalls& calls);
  SegmentReader(const SegmentReader&) = delete;
  SegmentReader& operator=(const SegmentReader&) = delete;
  ~SegmentReader();

  struct Entry {
    wire::OwnedBytes bytes;  // memory that the frame's tensors point into
    wire::Frame frame;
  };
  // Returns the next frame that is complete within the first `until` bytes; empty if there is none yet. Throws
  // ErrorKind::Stream with the location of a damaged frame that no whole frame follows, and ErrorKind::InputOutput on
  // a disk error.
  std::optional<Entry> next(uint64_t until);
  // The damage skipped before the last frame that next() returned; empty if none.
  const std::optional<Lost>& passed_over() const { return passed_over_; }
  uint64_t at() const { return at_; }  // offset of the next frame
  uint64_t size();

 private:
  std::optional<Entry> next_whole(uint64_t until);
  bool pass_over(uint64_t until, const std::string& damage);
  void open_at(uint64_t byte);

  std::string path_;
  FileCalls& calls_;
  int file_ = -1;
  wire::FrameReader reader_;
  uint64_t at_ = 0, read_ = 0;
  Break break_;      // from the frames read so far
  bool is_ordered_;  // the file name is that of a segment: its samples are consecutive
  std::optional<Lost> passed_over_;
};

// Truncates a segment to its first `bytes` bytes and syncs it. Throws ErrorKind::InputOutput.
void cut(const std::string& path, uint64_t bytes, FileCalls& calls);

// Returns the mark of a barrier.
Mark mark_of(const wire::Frame& frame);

// The intact barriers of a segment, in order, up to a damaged tail.
struct Barriers {
  struct At {
    Mark mark;
    uint64_t end;  // end offset of the barrier in the file
  };
  std::vector<At> all;
  std::vector<Lost> lost;  // damage that is followed by whole frames
  std::string damage;      // damage at the end; empty: the file ends with a whole frame
  bool torn = false;       // the file ends within a frame, as after a crash
};
Barriers scan(const std::string& path, FileCalls& calls);

}  // namespace harmonics::engine::spool
