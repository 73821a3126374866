// Segments: the files of a spooled stream. One holds the frames of docs/wire.md back to back: a HELLO that says what
// the samples are, a BARRIER, then groups of DATA and the BARRIER that closes them. What lies behind the last whole
// barrier was never promised and does not count.
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

namespace harmonics::spool {

// A sample and a position of the source from which that sample, and what follows it, can be had again.
struct Mark {
  uint64_t index = 0;
  std::string position;
};

// "00000000000000000123.hxs": its first sample has number 123.
std::string segment_name(uint64_t first);
std::optional<uint64_t> segment_first(const std::string& name);
// The paths of a stream's segments, by their first samples. Throws ErrorKind::InputOutput.
std::map<uint64_t, std::string> segments_in(const std::string& directory, FileCalls& calls);
// What the newest of them that says so says its samples are; none: there is none, or an earlier version wrote them.
std::optional<StreamInfo> type_in(const std::string& directory, FileCalls& calls);

// What a frame in a file may be: larger than on a connection, since a group is written as it comes.
wire::Limits limits();

class SegmentWriter {
 public:
  // A new file; none of this name may be there. Throws ErrorKind::InputOutput, as all below.
  SegmentWriter(const std::string& directory, std::string stream, std::string source, const StreamInfo& info,
                const Mark& begin, FileCalls& calls);
  SegmentWriter(const SegmentWriter&) = delete;
  SegmentWriter& operator=(const SegmentWriter&) = delete;
  ~SegmentWriter();

  // Samples of one type, back to back, that follow those before. `number`: of the first, where they are kept; the
  // others follow it.
  void append(const wire::TensorPart& samples, uint32_t count, SampleNumber number = {0, 0});
  // Everything appended before is followed by a barrier, and on the disk when this returns.
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

// Samples that a damage in a file has taken; none where it is a barrier that is damaged.
struct Lost {
  std::string path;
  std::string damage;           // with file and byte
  uint64_t first = 0, end = 0;  // samples
  bool is_part_of_needed(uint64_t from) const { return first < end && end > from; }
};

// Reads a segment from its beginning, frame by frame, and passes over what is damaged when whole frames follow it.
class SegmentReader {
 public:
  SegmentReader(std::string path, FileCalls& calls);
  SegmentReader(const SegmentReader&) = delete;
  SegmentReader& operator=(const SegmentReader&) = delete;
  ~SegmentReader();

  struct Entry {
    wire::OwnedBytes bytes;  // what the frame's tensors point into
    wire::Frame frame;
  };
  // The next frame that lies wholly within the first `until` bytes; empty: there is none (yet). Throws
  // ErrorKind::Stream with the place of a damaged one that nothing whole follows, ErrorKind::InputOutput when the disk
  // fails.
  std::optional<Entry> next(uint64_t until);
  // What was passed over before the frame that next() gave last; empty: nothing.
  const std::optional<Lost>& passed_over() const { return passed_over_; }
  uint64_t at() const { return at_; }  // where the next frame begins
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
  Break break_;      // of the frames read so far
  bool is_ordered_;  // a segment by its name: its samples follow one another
  std::optional<Lost> passed_over_;
};

// Cuts a segment to its first `bytes`, on the disk when this returns. Throws ErrorKind::InputOutput.
void cut(const std::string& path, uint64_t bytes, FileCalls& calls);

// The mark of a barrier.
Mark mark_of(const wire::Frame& frame);

// The whole barriers of a segment, in order, and how far its good part reaches; a damaged tail ends it.
struct Barriers {
  struct At {
    Mark mark;
    uint64_t end;  // of the barrier in the file
  };
  std::vector<At> all;
  std::vector<Lost> lost;  // what is damaged, with whole frames behind it
  std::string damage;      // of the end; empty: the file ends with a whole frame
  bool torn = false;       // the damage is that the file ends within a frame, as a crash leaves it
};
Barriers scan(const std::string& path, FileCalls& calls);

}  // namespace harmonics::spool
