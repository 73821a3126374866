#include "engine/streams/numbered_join.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/core.h>

namespace harmonics::engine {

namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(5);

}  // namespace

std::string JoinCounts::text() const {
  const std::pair<uint64_t, const char*> rows[] = {
      {dropped, "dropped on the edge"}, {unpaired, "without a partner"}, {late, "late"}, {filled, "filled in"}};
  std::string text;
  for (const auto& [n, word] : rows)
    if (n > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", n, word);
  return text;
}

NumberedJoin::NumberedJoin(const std::vector<Member>& members, JoinRules rules, uint64_t step)
    : rules_(std::move(rules)) {
  for (const Member& m : members) {
    auto lane = std::make_unique<Lane>();
    lane->source = m.source;
    lane->per_group = m.per_group;
    lane->bytes = m.source->sample_bytes();
    lane->capacity = (step + 1) * m.per_group;
    lane->samples.resize(lane->capacity * lane->bytes);
    lane->marks.resize(lane->capacity);
    lane->keys.resize(lane->capacity);
    if (rules_.unpaired == Unpaired::last) lane->last.resize(lane->bytes);
    if (rules_.by_number && !m.source->keep_numbers())
      throw Error(ErrorKind::Usage,
                  fmt::format("stream '{}' cannot be joined by number: its samples have none", m.source->name()), {},
                  {"join=order joins samples in order of arrival"});
    if (m.edge || rules_.late)
      lane->edge = std::make_unique<Edge>(*m.source, m.edge.value_or(EdgeOptions{}), step * m.per_group);
    lanes_.push_back(std::move(lane));
  }
}

void NumberedJoin::restart() {
  for (const auto& lane : lanes_) {
    lane->first = lane->count = 0;
    lane->ended = lane->has_last = lane->greeted = false;
    lane->generation = lane->next_number = lane->n_past = 0;
    lane->next_index = lane->source->position();
  }
  horizon_ = {};
  waits_.reset();
}

void NumberedJoin::set_step(uint64_t step) {
  for (const auto& lane : lanes_) {
    if (lane->edge) lane->edge->set_step(step * lane->per_group);
    lane->capacity = std::max<size_t>(lane->capacity, (step + 1) * lane->per_group);
    lane->samples.resize(lane->capacity * lane->bytes);
    lane->marks.resize(lane->capacity);
    lane->keys.resize(lane->capacity);
  }
}

uint64_t NumberedJoin::reads(size_t member) const {
  const Lane& lane = *lanes_[member];
  return lane.count > 0 ? lane.marks[lane.first].index : lane.next_index;
}

JoinCounts NumberedJoin::counts(size_t member) const {
  const Lane& lane = *lanes_[member];
  return {lane.edge ? lane.edge->dropped() : 0, lane.unpaired.load(std::memory_order_relaxed),
          lane.late.load(std::memory_order_relaxed), lane.filled.load(std::memory_order_relaxed),
          lane.edge ? lane.edge->waiting() : 0};
}

std::optional<std::string> NumberedJoin::take_note() {
  const std::lock_guard<std::mutex> lock(noting_);
  return std::exchange(note_, std::nullopt);
}

uint64_t NumberedJoin::Lane::of_group(const Key& group) const {
  uint64_t n = 0;
  while (n < count && keys[first + n].same_group(group)) ++n;
  return n;
}

// ---- input ----

// Appends up to n samples, with their marks, to the queued ones.
uint64_t NumberedJoin::fetch(Lane& lane, uint64_t n, std::optional<Clock::time_point> until) {
  const size_t at = lane.first + lane.count;
  std::byte* to = lane.samples.data() + at * lane.bytes;
  if (lane.edge) {
    const uint64_t got = lane.edge->read(n, to, lane.marks.data() + at, until);
    lane.ended = got == 0 && lane.edge->ended();
    return got;
  }
  const uint64_t from = lane.source->position(), got = lane.source->read(n, to);
  for (uint64_t i = 0; i < got; ++i)
    lane.marks[at + i] = {from + i, rules_.by_number ? lane.source->numbers()[i] : SampleNumber{from + i, 0}};
  lane.ended = got < n;
  return got;
}

// Reads and admits up to `wanted` samples. Returns false if nothing arrived.
bool NumberedJoin::refill(Lane& lane, uint64_t wanted, std::optional<Clock::time_point> until) {
  if (lane.ended) return false;
  if (lane.first > 0) {
    std::memmove(lane.samples.data(), lane.sample(0), lane.count * lane.bytes);
    std::copy_n(lane.marks.begin() + static_cast<std::ptrdiff_t>(lane.first), lane.count, lane.marks.begin());
    std::copy_n(lane.keys.begin() + static_cast<std::ptrdiff_t>(lane.first), lane.count, lane.keys.begin());
    lane.first = 0;
  }
  const uint64_t got = fetch(lane, std::min<uint64_t>(wanted, lane.capacity - lane.count), until);
  const size_t begin = lane.count;
  for (size_t i = begin; i < begin + got; ++i) {
    lane.next_index = lane.marks[i].index + 1;
    if (!admit(lane, lane.marks[i], lane.keys[lane.count])) {
      lane.late.fetch_add(1, std::memory_order_relaxed);
      if (rules_.on_left_out)
        rules_.on_left_out({*lane.source, "late", lane.marks[i], lane.samples.data() + i * lane.bytes});
      continue;
    }
    if (lane.count != i) {
      std::memcpy(lane.samples.data() + lane.count * lane.bytes, lane.samples.data() + i * lane.bytes, lane.bytes);
      lane.marks[lane.count] = lane.marks[i];
    }
    ++lane.count;
  }
  return got > 0;
}

// Starts a new generation if the sender is new. Returns false if a newer sender has replaced this one.
bool NumberedJoin::take_sender(Lane& lane, uint64_t sender) {
  if (lane.greeted && sender == lane.sender) return true;
  const size_t known = std::min(lane.n_past, lane.past.size());
  if (lane.greeted && std::find(lane.past.begin(), lane.past.begin() + static_cast<std::ptrdiff_t>(known), sender) !=
                          lane.past.begin() + static_cast<std::ptrdiff_t>(known))
    return false;
  if (lane.greeted) {
    lane.past[lane.n_past++ % lane.past.size()] = lane.sender;
    ++lane.generation;
    lane.next_number = 0;
    const std::lock_guard<std::mutex> lock(noting_);
    note_ = fmt::format(
        "stream '{}' has a new sender with new numbering: joining pauses until the other streams have new senders; "
        "name= keeps a sender's numbers across restarts, join=order joins in order of arrival",
        lane.source->name());
  }
  lane.greeted = true;
  lane.sender = sender;
  return true;
}

bool NumberedJoin::admit(Lane& lane, const SampleMark& mark, Key& key) {
  const uint64_t number = rules_.by_number ? mark.number.number : mark.index;
  if (rules_.by_number && !take_sender(lane, mark.number.sender)) return false;
  if (number < lane.next_number) return false;
  lane.next_number = number + 1;
  key = {lane.generation, number / lane.per_group, number % lane.per_group};
  return !key.before_group(horizon_);
}

// ---- grouping ----

const NumberedJoin::Key* NumberedJoin::oldest() const {
  const Key* least = nullptr;
  for (const auto& lane : lanes_)
    if (lane->count > 0 && (!least || lane->head().before_group(*least))) least = &lane->head();
  return least;
}

// Returns whether the queued samples determine which samples of this group the stream has.
bool NumberedJoin::known(const Lane& lane, const Key& group) {
  return lane.has_begun_after(group) || lane.of_group(group) == lane.per_group;
}

// Returns known(), or true if the stream has ended and the run was not cut.
bool NumberedJoin::decided(const Lane& lane, const Key& group) const {
  return known(lane, group) || (lane.ended && lane.count > 0 && !cut_.load(std::memory_order_relaxed));
}

// Reads until the oldest group is decided for every stream. Returns false if a stream has ended.
bool NumberedJoin::gather(uint64_t left) {
  while (true) {
    const Key* group = oldest();
    for (const auto& lane : lanes_)
      if (lane->ended && (lane->count == 0 || !decided(*lane, *group))) return false;
    if (rules_.late) {
      if (await_any(group, left)) return true;
      continue;
    }
    bool all = group != nullptr;
    for (const auto& lane : lanes_) {
      if (group && decided(*lane, *group)) continue;
      all = false;
      // If missing samples are filled in, read no more than necessary.
      const uint64_t wanted = rules_.unpaired == Unpaired::last
                                  ? 1
                                  : left * lane->per_group - std::min(left * lane->per_group - 1, lane->count);
      refill(*lane, wanted, std::nullopt);
      break;  // the oldest group may have changed
    }
    if (all) return true;
  }
}

// Waits for samples of any undecided stream. Returns true if all are decided, or the oldest group has timed out.
bool NumberedJoin::await_any(const Key* group, uint64_t left) {
  const auto now = Clock::now();
  if (group && (!waits_ || !waits_->first.same_group(*group))) waits_ = {*group, now};
  const Key is = group ? *group : Key{};
  Lane* undecided = nullptr;
  for (const auto& lane : lanes_) {
    if (group && decided(*lane, is)) continue;
    if (refill(*lane, left * lane->per_group, now) || lane->ended) return false;
    if (!undecided) undecided = lane.get();
  }
  if (!undecided) return true;
  if (group && now >= waits_->second + *rules_.late) return true;
  refill(*undecided, left * undecided->per_group,
         group ? std::min(now + kPollInterval, waits_->second + *rules_.late) : now + kPollInterval);
  return false;
}

// Returns how many consecutive whole groups all streams have at their heads, at most `most`.
uint64_t NumberedJoin::whole_groups(uint64_t most) const {
  const Key& begin = lanes_.front()->head();
  for (const auto& lane : lanes_) {
    uint64_t i = 0;
    for (; i < lane->count && i < most * lane->per_group; ++i) {
      const Key& key = lane->keys[lane->first + i];
      if (key.generation != begin.generation || key.group != begin.group + i / lane->per_group ||
          key.place != i % lane->per_group)
        break;
    }
    most = std::min(most, i / lane->per_group);
  }
  return most;
}

void NumberedJoin::pop(Lane& lane, uint64_t n) {
  if (n > 0 && !lane.last.empty()) {
    std::memcpy(lane.last.data(), lane.sample(n - 1), lane.bytes);
    lane.has_last = true;
  }
  lane.first += n;
  lane.count -= n;
}

void NumberedJoin::give(uint64_t groups, std::byte* const* to, uint64_t at) {
  Key behind = lanes_.front()->head();
  behind.group += groups;
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = *lanes_[i];
    const uint64_t n = groups * lane.per_group;
    if (to) std::memcpy(to[i] + at * lane.per_group * lane.bytes, lane.sample(0), n * lane.bytes);
    pop(lane, n);
  }
  horizon_ = behind;
}

uint64_t NumberedJoin::read(uint64_t n, std::byte* const* to) {
  uint64_t got = 0;
  while (got < n && gather(n - got)) {
    const bool all = std::all_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane->count > 0; });
    if (const uint64_t whole = all ? whole_groups(n - got) : 0; whole > 0) {
      give(whole, to, got);
      got += whole;
    } else if (settle(to, got)) {
      ++got;
    }
  }
  return got;
}

// ---- missing samples ----

// Fills in or drops the oldest group, which is incomplete. Returns true if its missing samples were filled in.
bool NumberedJoin::settle(std::byte* const* to, uint64_t at) {
  const Key group = *oldest();
  if (rules_.unpaired == Unpaired::stop || rules_.unpaired == Unpaired::refuse) refuse(group);
  const bool fills = rules_.unpaired == Unpaired::last && can_fill(group);
  if (fills)
    fill(group, to, at);
  else
    leave_out(group);
  horizon_ = group;
  ++horizon_.group;
  return fills;
}

bool NumberedJoin::can_fill(const Key& group) const {
  return std::all_of(lanes_.begin(), lanes_.end(), [&](const auto& lane) {
    return lane->has_last || (lane->of_group(group) > 0 && lane->head().place == 0);
  });
}

void NumberedJoin::fill(const Key& group, std::byte* const* to, uint64_t at) {
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane = *lanes_[i];
    for (uint64_t place = 0; place < lane.per_group; ++place) {
      if (lane.count > 0 && lane.head().same_group(group) && lane.head().place == place)
        pop(lane, 1);
      else
        lane.filled.fetch_add(1, std::memory_order_relaxed);
      if (to) std::memcpy(to[i] + (at * lane.per_group + place) * lane.bytes, lane.last.data(), lane.bytes);
    }
  }
}

void NumberedJoin::leave_out(const Key& group) {
  for (const auto& lane : lanes_) {
    const uint64_t n = lane->of_group(group);
    lane->unpaired.fetch_add(n, std::memory_order_relaxed);
    for (uint64_t k = 0; rules_.on_left_out && k < n; ++k)
      rules_.on_left_out({*lane->source, "unpaired", lane->marks[lane->first + k], lane->sample(k)});
    pop(*lane, n);
  }
}

void NumberedJoin::refuse(const Key& group) const {
  const Lane *has = nullptr, *lacks = nullptr;
  for (const auto& lane : lanes_) (lane->of_group(group) == lane->per_group ? has : lacks) = lane.get();
  const std::string number = std::to_string(group.group * (has ? has->per_group : lacks->per_group));
  throw Error(
      ErrorKind::Stream,
      has ? fmt::format("sample {} of '{}' has no partner in '{}'", number, has->source->name(), lacks->source->name())
          : fmt::format("the group of sample {} of '{}' is incomplete", number, lacks->source->name()),
      {}, {"unpaired=drop drops such samples, unpaired=last repeats the previous sample"});
}

}  // namespace harmonics::engine
