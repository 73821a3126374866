// Source and Sink: the engine's handles on producers and consumers.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <harmonics/function.hpp>

namespace harmonics::engine {

// Returns "u8[28, 28]", or "i64" for a scalar.
std::string sample_type_text(DType dtype, const Shape& shape);

class Source;
// Called for a source that is open and has no first sample yet. The returned object is destroyed when the source has
// one or fails; until then other threads may call health().
using AwaitedSource = std::function<std::shared_ptr<void>(const Source&)>;

// Wraps a producer object and its C table, with a name for errors. The sample type is always known: if the producer has
// no describe(), the first sample is read and buffered. Every sample is checked against the type. Not thread-safe,
// except where noted.
class Source {
 public:
  // Takes ownership of `object`. `owner` keeps alive what `table` and `object` need, such as a plugin's library.
  Source(std::string name, const hx_producer_vt* table, void* object, std::shared_ptr<const void> owner = nullptr);
  Source(std::string name, std::shared_ptr<Producer> producer);
  // Creates a producer with `factory` for the path of an address.
  static Source open(std::string name, const hx_producer_factory_vt& factory, void* self, const std::string& path,
                     const hx_attributes& options, std::shared_ptr<const void> owner = nullptr,
                     const AwaitedSource& awaited = {});
  Source(Source&&) noexcept;
  Source& operator=(Source&&) noexcept;
  ~Source();

  const std::string& name() const { return name_; }
  const StreamInfo& info() const { return info_; }
  size_t sample_bytes() const { return sample_bytes_; }
  // Returns whether the producer described its samples; otherwise the type is that of the first sample.
  bool described() const { return described_; }

  // Returns the next sample; empty at the end of a pass.
  HTensor next();
  // Reads up to n samples, back to back; fewer only at the end of a pass.
  uint64_t read(uint64_t n, void* to);
  // Returns whether samples can be read by number.
  bool can_read_at() const { return can_read_at_; }
  // Reads the samples of these numbers, each below info().size, back to back. Does not change position().
  void read_at(const uint64_t* numbers, uint64_t n, void* to);
  // Skips up to n samples; returns their number.
  uint64_t skip(uint64_t n);
  // Moves back to the first sample for this epoch; throws if the producer cannot. Does nothing before the first
  // sample.
  void rewind(uint64_t epoch);
  // Moves to sample `index` of this epoch's pass, at most its length, by the producer's seek() or else by rewind() and
  // skip().
  void seek(uint64_t epoch, uint64_t index);
  // Returns whether samples can be read only once: the source is live, or reported that it cannot rewind.
  bool once() const { return info_.live || once_; }
  // Returns the reason why this source cannot seek, or "" if it can. Must be called before the first sample is read.
  std::string cannot_seek();
  // Number of the next sample within its pass.
  uint64_t position() const { return position_; }
  // Returns whether samples have numbers of their senders. If so, numbers() then returns those of the last next() or
  // read(). Must be called before the first sample is read.
  bool keep_numbers();
  const std::vector<SampleNumber>& numbers() const { return numbers_; }

  // ---- live sources: their samples are numbered across restarts (hx_producer_vt, contract 1.1) ----
  // Continues at sample `index`, with the position that position_before(index) returned. Must be called before the
  // first sample is read, and promises later calls of durable(). Returns false if the source has no positions.
  bool restore(uint64_t index, const std::string& position);
  // The functions below may be called from any thread while another function runs.
  std::string position_before(uint64_t index) const;
  void durable(uint64_t index) const;
  // Wakes a blocked reader, which receives the samples already present and then the end. Returns false if the source
  // does not support this.
  bool cancel() const;
  std::optional<StreamHealth> health() const;

 private:
  struct Taken {};
  Source(Taken, std::string name, const hx_producer_vt* table, void* object, std::shared_ptr<const void> owner);

  std::string who() const;
  void learn_type();
  void describe();
  void look_at_first();
  uint64_t announced_size() const;
  hx_status pull(hx_value** out);
  uint64_t read_one_by_one(uint64_t n, std::byte* to);
  void fetch_numbers(uint64_t n);
  void check_type(const HTensor& sample) const;
  [[noreturn]] void fail() const;

  std::string name_;
  const hx_producer_vt* table_ = nullptr;
  void* object_ = nullptr;
  std::shared_ptr<const void> owner_;
  StreamInfo info_;
  size_t sample_bytes_ = 0;
  HTensor first_;  // read for its type, not yet returned
  bool described_ = false, reads_ = false, can_read_at_ = false, touched_ = false, ended_ = false;
  bool once_ = false;
  bool restored_ = false;  // live, and continued at an earlier position
  bool keeps_numbers_ = false;
  std::vector<SampleNumber> numbers_;
  uint64_t position_ = 0;
  std::vector<std::byte> dropped_;  // scratch buffer of skip()
};

// Wraps a consumer object and its C table.
class Sink {
 public:
  Sink(std::string name, const hx_consumer_vt* table, void* object, std::shared_ptr<const void> owner = nullptr);
  Sink(std::string name, std::shared_ptr<Consumer> consumer);
  static Sink open(std::string name, const hx_consumer_factory_vt& factory, void* self, const std::string& path,
                   const hx_attributes& options, std::shared_ptr<const void> owner = nullptr);
  Sink(Sink&&) noexcept;
  Sink& operator=(Sink&&) noexcept;
  ~Sink();

  const std::string& name() const { return name_; }
  uint64_t position() const { return position_; }  // samples consumed

  void push(const HTensor& sample);
  // Pushes n samples of this type, back to back.
  void push(DType dtype, const Shape& sample, uint64_t n, const void* data);
  void finish();

 private:
  [[noreturn]] void fail() const;

  std::string name_;
  const hx_consumer_vt* table_;
  void* object_;
  std::shared_ptr<const void> owner_;
  uint64_t position_ = 0;
};

}  // namespace harmonics::engine
