// NumberedJoin: joins streams by sample number, when streams may have gaps or be late.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>

#include "engine/flow/unpaired.hpp"
#include "engine/streams/edge.hpp"

namespace harmonics::engine {

// A sample left out of the join, for a dead-letter store.
struct LeftOut {
  const Source& source;
  const char* why;  // "unpaired", "late"
  const SampleMark& mark;
  const std::byte* bytes;
};

struct JoinRules {
  bool by_number = false;  // by the senders' numbers; else by order of arrival
  Unpaired unpaired = Unpaired::drop;
  std::optional<std::chrono::milliseconds> late;  // maximum wait for the other samples of a group; empty: no limit
  std::function<void(const LeftOut&)> on_left_out = nullptr;
};

// Counts of one stream since the beginning of the run.
struct JoinCounts {
  uint64_t dropped = 0;   // dropped by its edge for newer samples
  uint64_t unpaired = 0;  // without a partner
  uint64_t late = 0;      // arrived after its group was settled, duplicate, or from a replaced sender
  uint64_t filled = 0;    // missing samples replaced by the previous one
  uint64_t waiting = 0;   // queued in its edge

  std::string text() const;  // "12 dropped, 3 without a partner, 1 late, 4 filled in"; empty if there are none
};

// Joins samples by group: the sample of number n belongs to group n / per_group. Numbers increase within a stream, so a
// sample is known to be missing once its stream has delivered a larger number. When a sender restarts its numbering,
// its stream waits until the others restart theirs. Allocates in the constructor and in set_step. Not thread-safe,
// except functions marked [any thread].
class NumberedJoin {
 public:
  struct Member {
    Source* source;
    uint64_t per_group;
    std::optional<EdgeOptions> edge;
  };
  // `step`: groups that one step takes. Throws ErrorKind::Usage if `by_number` is set and a source has no numbers.
  NumberedJoin(const std::vector<Member>& members, JoinRules rules, uint64_t step);

  // Resets the join after the sources were repositioned.
  void restart();
  // Sets the number of groups that one step takes. Allocates.
  void set_step(uint64_t step);
  // Reads up to n groups, those of member i into to[i]; a null `to` drops them. Fewer only if a stream has ended.
  uint64_t read(uint64_t n, std::byte* const* to);
  // [any thread] Marks the run as cut: samples after the early end of a source do not count as missing.
  void cut() { cut_.store(true, std::memory_order_relaxed); }
  // Returns the position of the first sample of a member that the next group may need.
  uint64_t reads(size_t member) const;
  uint64_t waiting(size_t member) const { return lanes_[member]->count; }
  JoinCounts counts(size_t member) const;  // [any thread]
  // [any thread] Returns, once, a note for the user that a new sender has replaced another.
  std::optional<std::string> take_note();

 private:
  using Clock = Edge::Clock;
  struct Key {
    uint64_t generation = 0, group = 0, place = 0;  // of the sender; of the sample's group; within the group
    bool same_group(const Key& o) const { return generation == o.generation && group == o.group; }
    bool before_group(const Key& o) const {
      return generation != o.generation ? generation < o.generation : group < o.group;
    }
  };
  struct Lane {
    Source* source = nullptr;
    uint64_t per_group = 1;
    size_t bytes = 0, capacity = 0;
    std::unique_ptr<Edge> edge;
    std::vector<std::byte> samples, last;  // queued samples; the last one used, to fill gaps
    std::vector<SampleMark> marks;
    std::vector<Key> keys;
    size_t first = 0, count = 0;
    bool ended = false, has_last = false, greeted = false;
    uint64_t sender = 0, generation = 0, next_index = 0, next_number = 0;
    std::array<uint64_t, 16> past{};  // previous senders
    size_t n_past = 0;
    std::atomic<uint64_t> unpaired{0}, late{0}, filled{0};

    const Key& head() const { return keys[first]; }
    const std::byte* sample(size_t i) const { return samples.data() + (first + i) * bytes; }
    uint64_t of_group(const Key& group) const;  // number of queued samples of this group
    bool has_begun_after(const Key& group) const { return count > 0 && group.before_group(keys[first + count - 1]); }
  };

  bool refill(Lane& lane, uint64_t wanted, std::optional<Clock::time_point> until);
  uint64_t fetch(Lane& lane, uint64_t n, std::optional<Clock::time_point> until);
  bool admit(Lane& lane, const SampleMark& mark, Key& key);
  bool take_sender(Lane& lane, uint64_t sender);
  bool gather(uint64_t left);
  bool await_any(const Key* oldest, uint64_t left);
  static bool known(const Lane& lane, const Key& group);
  bool decided(const Lane& lane, const Key& group) const;
  const Key* oldest() const;
  uint64_t whole_groups(uint64_t most) const;
  void give(uint64_t groups, std::byte* const* to, uint64_t at);
  bool settle(std::byte* const* to, uint64_t at);
  bool can_fill(const Key& group) const;
  void fill(const Key& group, std::byte* const* to, uint64_t at);
  void leave_out(const Key& group);
  void pop(Lane& lane, uint64_t n);
  [[noreturn]] void refuse(const Key& group) const;

  JoinRules rules_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::atomic<bool> cut_{false};
  Key horizon_{};                                           // groups before it are settled
  std::optional<std::pair<Key, Clock::time_point>> waits_;  // oldest group, and since when it is incomplete
  std::mutex noting_;
  std::optional<std::string> note_;
};

}  // namespace harmonics::engine
