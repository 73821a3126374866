// Producers (sources of samples) and consumers (sinks of results).
#pragma once

#include <memory>
#include <optional>

#include <harmonics/element_type.hpp>
#include <harmonics/quantity.hpp>
#include <harmonics/tensor.hpp>

namespace harmonics {

// Type and number of a stream's samples, known before the first sample is read.
struct StreamInfo {
  DType dtype = DType::F32;
  Shape sample;                // of one sample
  uint64_t size = 0;           // samples in one pass; 0: unbounded
  int64_t classes = 0;         // integer samples: number of classes or tokens; 0: unknown
  uint32_t position_axes = 0;  // 1: the first axis of a sample is a sequence
  bool live = false;
  std::vector<std::string> symbols;  // text: the symbol of each index
  std::string notes;                 // notes for users, one per line, such as missing cells

  size_t sample_bytes() const { return tensor_bytes(dtype, sample); }
};

// Health of a live source; counts are per process.
struct StreamHealth {
  enum class State : uint32_t {
    Waiting = HX_STREAM_WAITING,
    Receiving = HX_STREAM_RECEIVING,
    Ended = HX_STREAM_ENDED,
    Failed = HX_STREAM_FAILED
  };
  State state = State::Waiting;
  uint32_t senders = 0, connected = 0;  // ever seen; currently connected
  bool wants_durable = false;           // senders' buffers are full until durable() is called
  bool at_most_once = false;            // samples lost in transit are not resent
  uint64_t samples = 0, bytes = 0;      // received
  uint64_t queued_samples = 0, queued_bytes = 0, window_bytes = 0;  // received but not consumed; their limit
  uint64_t lost = 0, duplicates = 0, refused = 0, resent = 0;
  double idle_seconds = 0;  // since the last arrival
  std::string last_error;
};

// Key for joining samples of live streams. The numbers of a sender increase. `sender` identifies a sender, and each of
// its incarnations that restarts the numbering; it is the same in every process.
using SampleNumber = hx_sample_number;

// A source of samples. Never called concurrently, except for functions marked [any thread].
class Producer {
 public:
  // Returns the next sample, or an empty tensor at the end of a pass.
  virtual HTensor next() = 0;
  // Returns the number of samples in one pass; 0: unbounded.
  virtual std::size_t size() const = 0;
  // Rewinds to the first sample; false: unsupported (the host may cache samples). If passes differ: to the next pass.
  virtual bool rewind() { return false; }
  // Returns the type of the samples; nullopt: the host inspects the first sample.
  virtual std::optional<StreamInfo> describe() { return std::nullopt; }
  // Optional fast path, with describe(): writes up to n samples contiguously to `to`. Returns their number, fewer than
  // n only at the end of a pass. -1: unsupported.
  virtual int64_t read(uint64_t n, void* to) {
    (void)n, (void)to;
    return -1;
  }
  // Optional, with describe() and identical passes: writes the samples with these indices contiguously to `to`. The
  // read position is unchanged. False: unsupported. n = 0 queries support. Shuffling then needs no memory for blocks.
  virtual bool read_at(const uint64_t* numbers, uint64_t n, void* to) {
    (void)numbers, (void)n, (void)to;
    return false;
  }
  // Seeks to sample `index` of pass `epoch`, both from 0, independent of earlier reads. False: unsupported. Override it
  // for speed; required if passes differ.
  virtual bool seek(uint64_t epoch, uint64_t index) {
    (void)epoch;
    if (!rewind()) return false;
    for (uint64_t i = 0; i < index; ++i)
      if (!next())
        throw Error(ErrorKind::Stream,
                    "cannot resume at sample " + std::to_string(index) + ": the pass has " + quantity(i, "sample"));
    return true;
  }

  // The following functions are for live sources. Their samples are numbered from 0 in output order, across restarts.

  // Resumes before sample `index` from the text that position(index) returned in any process; "" with index 0: from the
  // beginning. Called once, before the first sample, by hosts with checkpoints or a spool, which then call durable().
  // False: the source has no positions. If it is not called, the host stores no samples.
  virtual bool restore(uint64_t index, const std::string& position) {
    (void)index, (void)position;
    return false;
  }
  // [any thread] Returns the text for restore before sample `index`, which is between the last durable() and the newest
  // sample.
  virtual std::string position(uint64_t index) {
    (void)index;
    return {};
  }
  // [any thread] Declares that samples before `index` are never requested again, even if the process ends. Must not
  // block.
  virtual void durable(uint64_t index) { (void)index; }
  // [any thread] Makes current and later calls of next() and read() return the available samples and then the end.
  // False: unsupported.
  virtual bool cancel() { return false; }
  virtual std::optional<StreamHealth> health() { return std::nullopt; }  // [any thread]
  // Returns the sender's numbers of the last n samples of the last next() or read(), in their order. False: none. n = 0
  // queries support before the first sample.
  virtual bool numbers(uint64_t n, SampleNumber* to) {
    (void)n, (void)to;
    return false;
  }
  virtual ~Producer() = default;
};

// A sink of samples (without batch axis). Never called concurrently.
class Consumer {
 public:
  virtual void push(const HTensor& sample) = 0;
  virtual void finish() {}  // after the last sample
  virtual ~Consumer() = default;
};

}  // namespace harmonics
