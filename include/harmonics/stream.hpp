// Streams: where samples come from and where results go.
#pragma once

#include <memory>
#include <optional>

#include <harmonics/tensor.hpp>

namespace harmonics {

HARMONICS_FACE inline size_t element_bytes(DType dtype) {
  switch (dtype) {
    case DType::Bool: case DType::U8: case DType::I8: return 1;
    case DType::I16: case DType::U16: case DType::F16: case DType::BF16: return 2;
    case DType::I32: case DType::U32: case DType::F32: return 4;
    case DType::I64: case DType::U64: case DType::F64: return 8;
  }
  throw Error(ErrorKind::Type, "there is no dtype " + std::to_string(static_cast<uint32_t>(dtype)));
}

// The bytes of a tensor; throws where no size_t holds them.
HARMONICS_FACE inline size_t tensor_bytes(DType dtype, const Shape& shape) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(shape.count(), element_bytes(dtype), &bytes))
    throw Error(ErrorKind::Shape, "a tensor of shape " + shape.str() + " has more bytes than an address space");
  return bytes;
}

// What is known of a stream's samples before one was read.
struct StreamInfo {
  DType dtype = DType::F32;
  Shape sample;                 // of one sample
  uint64_t size = 0;            // samples in one pass; 0: unbounded
  int64_t classes = 0;          // integer samples: how many classes or symbols; 0: unknown
  uint32_t position_axes = 0;   // 1: the first axis of a sample is a sequence
  bool live = false;
  std::vector<std::string> symbols;  // text: the symbol of each index
  std::string notes;                 // for people, a line each: what was noticed in the data, such as missing cells

  size_t sample_bytes() const { return tensor_bytes(dtype, sample); }
};

// How a live source is; counts are of this process.
struct StreamHealth {
  enum class State : uint32_t { Waiting = HX_STREAM_WAITING, Receiving = HX_STREAM_RECEIVING, Ended = HX_STREAM_ENDED, Failed = HX_STREAM_FAILED };
  State state = State::Waiting;
  uint32_t senders = 0, connected = 0;  // that came, that are there now
  bool wants_durable = false;           // who sends can keep no more until durable() is called
  bool at_most_once = false;            // what is lost on the way is not sent again
  uint64_t samples = 0, bytes = 0;      // arrived
  uint64_t queued_samples = 0, queued_bytes = 0, window_bytes = 0;  // arrived and not yet given; the most that may be
  uint64_t lost = 0, duplicates = 0, refused = 0, resent = 0;
  double idle_seconds = 0;              // since something arrived
  std::string last_error;
};

// What joins samples of live streams: samples of one sender have growing numbers; `sender` differs between senders, and between
// incarnations of one that begin to number anew, and is the same in every process.
using SampleNumber = hx_sample_number;

// A source of samples. Never called from two threads at once, but for what says [any thread].
class Producer {
 public:
  // The next sample, or an empty tensor at the end of a pass.
  virtual HTensor next() = 0;
  // Samples in one pass; 0: unbounded.
  virtual std::size_t size() const = 0;
  // Back to the first sample; false: this source cannot (the host may cache it). Where passes differ: to the next pass.
  virtual bool rewind() { return false; }
  // What the samples are; empty: the host looks at the first one.
  virtual std::optional<StreamInfo> describe() { return std::nullopt; }
  // Optional fast path when describe() is given: up to n samples back to back into `to`; less only at the end. -1: none.
  virtual int64_t read(uint64_t n, void* to) {
    (void)n, (void)to;
    return -1;
  }
  // Optional, when describe() is given and every pass has the same samples: those of these numbers, back to back into
  // `to`; reading goes on where it stood. False: cannot. n = 0 asks. Shuffling then needs no memory for blocks.
  virtual bool read_at(const uint64_t* numbers, uint64_t n, void* to) {
    (void)numbers, (void)n, (void)to;
    return false;
  }
  // To sample `index` of pass `epoch`, both from 0: the same samples follow whatever was read before. False: cannot. To be
  // overridden where passes differ, and where a sample can be found without reading those before it.
  virtual bool seek(uint64_t epoch, uint64_t index) {
    (void)epoch;
    if (!rewind()) return false;
    for (uint64_t i = 0; i < index; ++i)
      if (!next())
        throw Error(ErrorKind::Stream, "there is no sample " + std::to_string(index) + " to go back to: the pass has " +
                                           std::to_string(i) + " samples");
    return true;
  }

  // The rest is for live sources, whose samples are numbered from 0 in the order they are given, over restarts.

  // Called once, before the first sample, by hosts that keep checkpoints or a spool: durable() will be called. Goes on before
  // sample `index`, where position(index) of this or an earlier process said; "" with index 0: from the beginning. False: this
  // source has no positions. Never called: nothing that is given is kept by anybody.
  virtual bool restore(uint64_t index, const std::string& position) {
    (void)index, (void)position;
    return false;
  }
  // [any thread] Where restore goes on before sample `index`, which lies between the last durable() and what was given.
  virtual std::string position(uint64_t index) {
    (void)index;
    return {};
  }
  // [any thread] The samples before `index` are not asked for again, even if the process ends now. Does not wait.
  virtual void durable(uint64_t index) { (void)index; }
  // [any thread] next and read, waiting now or called later, give what they have and then the end. False: cannot.
  virtual bool cancel() { return false; }
  virtual std::optional<StreamHealth> health() { return std::nullopt; }  // [any thread]
  // Of the last n samples that the last next or read gave, in their order, the numbers that their sender gave them. False: they have
  // none. n = 0 asks whether they do, before the first sample.
  virtual bool numbers(uint64_t n, SampleNumber* to) {
    (void)n, (void)to;
    return false;
  }
  virtual ~Producer() = default;
};

// A sink of samples (without batch axis). Never called from two threads at once.
class Consumer {
 public:
  virtual void push(const HTensor& sample) = 0;
  virtual void finish() {}  // after the last sample
  virtual ~Consumer() = default;
};

}  // namespace harmonics
