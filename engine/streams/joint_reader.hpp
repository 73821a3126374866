// JointReader: reads several sources together, as batches of joint samples.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/streams/numbered_join.hpp"

namespace harmonics::engine {

// A source to join. A joint sample holds `per_group` consecutive samples of it: 1, unless ratios group samples.
struct JointMember {
  Source* source = nullptr;
  uint64_t per_group = 1;
  std::optional<EdgeOptions> edge =
      std::nullopt;  // policy of a live stream for samples that arrive too fast; empty: the source queues them
};

// Options of joint samples, applied in this order: skip, take, shard, repeat, shuffle, batch.
struct JointOptions {
  uint64_t batch = 64;
  uint64_t shuffle = 0;  // block size; 0 and 1: no shuffling
  uint64_t seed = 0;     // of the shuffle
  uint64_t skip = 0;
  uint64_t take = 0;  // 0: all
  uint64_t shard = 0, shards = 1;
  uint64_t repeat = 1;  // passes in one epoch
  std::optional<JoinRules> join =
      std::nullopt;  // rules if samples may be missing; empty: none is missing, and samples are joined by order
  bool refuse_unequal = false;  // throw if lengths differ; otherwise a pass ends with the shortest stream
  bool whole_batches = false;   // drop the last batch of an epoch if it is short
  bool passes_differ = false;   // samples change from pass to pass, so repeated passes cannot be read by number
};

// Samples of one stream left over by a pass, because another stream ended first or a group was incomplete.
struct LeftOver {
  std::string producer;
  uint64_t samples = 0;
  std::string text;  // "producer 'x' had 2 samples left over at the end of a pass: 'y' ended after 58"
};

// Joins sources by order, or through a NumberedJoin if samples may be missing. All members share the permutation of a
// shuffled block, a function of (seed, epoch, block). Allocates in the constructor, not while reading. Not thread-safe,
// except functions marked [any thread].
class JointReader {
 public:
  // With refuse_unequal, throws if finite members differ in length by a joint sample or more. The sources must outlive
  // the reader.
  JointReader(std::vector<JointMember> members, const JointOptions& options);

  size_t members() const { return members_.size(); }
  const Source& source(size_t member) const { return *members_[member].source; }
  const JointOptions& options() const { return options_; }
  // Bytes of one joint sample of this member.
  size_t bytes(size_t member) const { return bytes_[member]; }
  // Joint samples in one epoch; 0: unbounded or unknown.
  uint64_t size() const { return options_.whole_batches ? size_ - size_ % options_.batch : size_; }

  // Starts an epoch: moves to the first sample, with this epoch's permutation. Required before every epoch, except
  // before epoch 0 if it is the first.
  void begin(uint64_t epoch);
  // Starts an epoch at the members' next samples instead of their first: for streams that can be read only once. skip=
  // drops samples before the first epoch only.
  void go_on();
  // Whether a member is live, so that an epoch can start only at its next samples.
  bool live() const;
  // Moves to joint sample `index` of an epoch. If samples are shuffled, reads up to one block again. If passes are
  // repeated and their length is unknown, reads everything before `index` again.
  void seek(uint64_t epoch, uint64_t index);
  // Sets the batch size in joint samples. Allocates if samples may be missing.
  void set_batch(uint64_t batch);
  // Reads the next options().batch joint samples, one contiguous buffer per member in `to`. Returns their number: fewer
  // only at the end of the epoch, 0 after it.
  uint64_t read(void* const* to);
  uint64_t read(uint64_t n, void* const* to);

  // Returns the number of the first sample of a member that is needed to continue from position(). Defined only if
  // passes are not repeated.
  uint64_t reads(size_t member) const;
  // Returns whether a NumberedJoin joins the members. The caller of seek() must then reposition sources that keep their
  // positions. counts() and take_note() may be called from any thread.
  bool joins_by_number() const { return join_ != nullptr; }
  // [any thread] Must be called before cancelling sources, so that their early end does not count as missing samples
  // (see NumberedJoin).
  void cut() {
    cut_.store(true);
    if (join_) join_->cut();
  }
  bool was_cut() const { return cut_.load(); }  // [any thread]
  JoinCounts counts(size_t member) const { return join_ ? join_->counts(member) : JoinCounts{}; }
  std::optional<std::string> take_note() { return join_ ? join_->take_note() : std::nullopt; }

  // Returns a message about differences in length that are known before reading; empty if there are none.
  std::optional<std::string> unequal_lengths() const;
  uint64_t epoch() const { return epoch_; }
  uint64_t position() const { return position_; }  // joint samples returned in this epoch
  // Number of samples of a member that the last pass could not use: an incomplete group at the end, or samples beyond
  // the end of the shortest stream (of a stream of unknown length, those already read).
  uint64_t left_over(size_t member) const { return left_over_[member]; }
  // Returns the samples left over by the last pass, for reports.
  std::vector<LeftOver> left_over() const;

 private:
  void check_lengths() const;
  uint64_t common_groups() const;
  bool takes_within(uint64_t groups) const;
  void count_left_over(uint64_t groups);
  void count();
  void allocate_blocks();
  uint64_t read_ordered(uint64_t n);
  uint64_t read_shuffled(uint64_t n, void* const* to);
  uint64_t read_by_number(uint64_t n, void* const* to);
  void take_numbers(const JointMember& member, uint64_t n);
  uint64_t read_pass(uint64_t n);
  uint64_t read_groups(uint64_t n);
  uint64_t drop_groups(uint64_t n);
  uint64_t end_of_pass();
  void start_pass(uint64_t given);
  uint64_t place_of(uint64_t given) const;
  bool next_pass();
  void seek_ordered(uint64_t index);
  void read_away(uint64_t index);
  bool fill_block();
  uint64_t join_groups(uint64_t n, std::byte* const* to);

  std::vector<JointMember> members_;
  JointOptions options_;
  std::vector<size_t> bytes_;
  std::vector<uint64_t> left_over_, got_;
  std::vector<uint64_t> begun_;  // by member: samples before those that pass_position_ counts
  uint64_t size_ = 0, epoch_ = 0, position_ = 0;
  size_t shortest_ = 0;   // the member that ended the last pass
  bool counted_ = false;  // a member's length determines size_; otherwise only take= does
  uint64_t pass_ = 0, pass_position_ = 0, pass_given_ = 0;  // the position includes skipped samples and those
                                                            // of other shards
  bool pass_ended_ = false;

  std::atomic<bool> cut_{false};
  std::unique_ptr<NumberedJoin> join_;
  std::vector<uint64_t> block_reads_;  // with join_: reads() at the beginning of the block
  std::vector<std::byte*> write_;      // destination of each member's next joint sample
  // Shuffling: a block of samples is buffered and returned in permuted order. If every source can be read by number,
  // only the permutation is stored.
  bool by_number_ = false;
  std::vector<std::vector<std::byte>> blocks_;  // per member
  std::vector<uint32_t> order_;
  std::vector<uint64_t> numbers_;
  uint64_t most_per_group_ = 1;
  uint64_t block_first_ = 0;  // first joint sample of the block
  uint64_t block_ = 0, block_size_ = 0, block_at_ = 0;
};

}  // namespace harmonics::engine
