// Segments: the files of a spooled stream. One holds the frames of docs/wire.md back to back: a BARRIER, then groups of DATA and the
// BARRIER that closes them. What lies behind the last whole barrier was never promised and does not count.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/base/file.hpp"
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

// What a frame in a file may be: larger than on a connection, since a group is written as it comes.
wire::Limits limits();

class SegmentWriter {
 public:
  // A new file; none of this name may be there. Throws ErrorKind::InputOutput, as all below.
  SegmentWriter(const std::string& directory, std::string stream, std::string source, const Mark& begin, FileCalls& calls);
  SegmentWriter(const SegmentWriter&) = delete;
  SegmentWriter& operator=(const SegmentWriter&) = delete;
  ~SegmentWriter();

  // Samples of one type, back to back, that follow those before. `number`: of the first, where they are kept; the others follow it.
  void append(const wire::TensorPart& samples, uint32_t count, SampleNumber number = {0, 0});
  // Everything appended before is followed by a barrier, and on the disk when this returns.
  void commit(const std::string& position);

  uint64_t first() const { return first_; }
  uint64_t next() const { return next_; }
  uint64_t bytes() const { return bytes_; }

 private:
  void write(const wire::Frame& frame);
  void barrier(const std::string& position);
  void sync();
  [[noreturn]] void fail(const char* what) const;

  std::string path_, stream_, source_;
  FileCalls& calls_;
  int file_ = -1;
  uint64_t first_, next_, bytes_ = 0;
};

// Reads a segment from its beginning, frame by frame.
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
  // The next frame that lies wholly within the first `until` bytes; empty: there is none (yet). Throws ErrorKind::Stream with the place
  // of a damaged one, ErrorKind::InputOutput when the disk fails.
  std::optional<Entry> next(uint64_t until);
  uint64_t at() const { return at_; }  // where the next frame begins
  uint64_t size();

 private:
  std::string path_;
  FileCalls& calls_;
  int file_ = -1;
  wire::FrameReader reader_;
  uint64_t at_ = 0, read_ = 0;
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
  std::string damage;  // empty: the file ends with a barrier
};
Barriers scan(const std::string& path, FileCalls& calls);

}  // namespace harmonics::spool
