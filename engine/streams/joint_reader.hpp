// JointReader: several sources read in step, as batches of joint samples.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/streams/numbered_join.hpp"

namespace harmonics {

// A joint sample holds `per_group` consecutive samples of this source (p of p/q; 1 in lock step).
struct JointMember {
  Source* source = nullptr;
  uint64_t per_group = 1;
  std::optional<EdgeOptions> edge =
      std::nullopt;  // what becomes of a live stream's samples that come too fast; empty: its source holds them
};

// What acts on joint samples, in this order: skip, take, shard, repeat, shuffle, batch.
struct JointOptions {
  uint64_t batch = 64;
  uint64_t shuffle = 0;  // block size; 0 and 1: as they come
  uint64_t seed = 0;     // of the shuffle
  uint64_t skip = 0;
  uint64_t take = 0;  // 0: all
  uint64_t shard = 0, shards = 1;
  uint64_t repeat = 1;  // passes in one epoch
  std::optional<JoinRules> join =
      std::nullopt;  // samples may be missing; empty: every sample is there, and they belong together as they come
  bool refuse_unequal = false;  // streams of different length; else a pass ends with the shortest
  bool whole_batches = false;   // the last batch of an epoch is left out where it is short
  bool passes_differ = false;   // a member's samples change from pass to pass: those of several are not read by number
};

// What a pass left of one stream, because another ended before it or a group was not complete.
struct LeftOver {
  std::string producer;
  uint64_t samples = 0;
  std::string text;  // "producer 'x' had 2 samples left over at the end of a pass: 'y' ended after 58"
};

// Joins sources by order, or by number where samples may be missing. The permutation of a shuffled block is one for all
// members, a function of (seed, epoch, block). Allocates while constructed, not while reading. One thread at a time.
class JointReader {
 public:
  // With refuse_unequal, throws when finite members differ in length by a whole joint sample or more. The sources must
  // outlive the reader.
  JointReader(std::vector<JointMember> members, const JointOptions& options);

  size_t members() const { return members_.size(); }
  const Source& source(size_t member) const { return *members_[member].source; }
  const JointOptions& options() const { return options_; }
  // Bytes of one joint sample of this member.
  size_t bytes(size_t member) const { return bytes_[member]; }
  // Joint samples in one epoch; 0: unbounded or unknown.
  uint64_t size() const { return options_.whole_batches ? size_ - size_ % options_.batch : size_; }

  // Starts an epoch: back to the first sample, with this epoch's permutation. Needed before every epoch but the first
  // when that is epoch 0.
  void begin(uint64_t epoch);
  // To joint sample `index` of an epoch: what follows is what follows after that many were read. Reads one block again
  // at most where samples are shuffled, and what lies before where passes are repeated and their length is not known.
  void seek(uint64_t epoch, uint64_t index);
  // From now on batches have so many joint samples. Allocates where samples may be missing.
  void set_batch(uint64_t batch);
  // The next options().batch joint samples, member by member into `to`; fewer only at the end of the epoch, 0 after it.
  uint64_t read(void* const* to);
  uint64_t read(uint64_t n, void* const* to);

  // Of a member: how many of its samples lie before the first that is needed to go on from position(), where passes are
  // not repeated.
  uint64_t reads(size_t member) const;
  // Joined by number: sources that keep their positions are to be taken there by who seeks. counts() and take_note()
  // may be called from any thread.
  bool joins_by_number() const { return join_ != nullptr; }
  // [any thread] Call before cancelling sources: they end early because the run does (see NumberedJoin).
  void cut() {
    cut_.store(true);
    if (join_) join_->cut();
  }
  bool was_cut() const { return cut_.load(); }  // [any thread]
  JoinCounts counts(size_t member) const { return join_ ? join_->counts(member) : JoinCounts{}; }
  std::optional<std::string> take_note() { return join_ ? join_->take_note() : std::nullopt; }

  // What is known of members of different length before a sample is read, for people; empty: nothing.
  std::optional<std::string> unequal_lengths() const;
  uint64_t epoch() const { return epoch_; }
  uint64_t position() const { return position_; }  // joint samples given in this epoch
  // Samples of a member that the last pass could not use: an incomplete group at its end, what a longer stream has
  // beyond the end of the shortest, or what one of unknown length had already given then.
  uint64_t left_over(size_t member) const { return left_over_[member]; }
  // The samples of the streams that the last pass left over, for reports.
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
  uint64_t size_ = 0, epoch_ = 0, position_ = 0;
  size_t shortest_ = 0;   // the member with which the last pass ended
  bool counted_ = false;  // a member says how long a pass is; else size_ is what take allows at most
  uint64_t pass_ = 0, pass_position_ = 0, pass_given_ = 0;  // position counts skipped and other shards' samples too
  bool pass_ended_ = false;

  std::atomic<bool> cut_{false};
  std::unique_ptr<NumberedJoin> join_;
  std::vector<uint64_t> block_reads_;  // joined by number: reads() at the beginning of the block
  std::vector<std::byte*> write_;      // where read_* put the next joint sample of each member
  // Shuffling: blocks of samples are kept and given in another order; where every source can be read by number, only
  // the order is.
  bool by_number_ = false;
  std::vector<std::vector<std::byte>> blocks_;  // per member
  std::vector<uint32_t> order_;
  std::vector<uint64_t> numbers_;
  uint64_t most_per_group_ = 1;
  uint64_t block_first_ = 0;  // its first joint sample in this epoch
  uint64_t block_ = 0, block_size_ = 0, block_at_ = 0;
};

}  // namespace harmonics
