#include "engine/streams/joint_reader.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>

#include <harmonics/checked.hpp>
#include <harmonics/philox.hpp>
#include <harmonics/quantity.hpp>

namespace harmonics::engine {
namespace {

constexpr uint64_t kMostJointSamples = uint64_t{1} << 62;  // per epoch: steps and samples are counted in int64_t

// Returns "59999 samples", or "100 samples (50 groups of 2)" for a member with groups.
std::string length_text(const JointMember& m, uint64_t samples) {
  std::string text = quantity(samples, "sample");
  if (m.per_group > 1)
    text += " (" + quantity(samples / m.per_group, "group") + " of " + std::to_string(m.per_group) + ")";
  return text;
}

[[noreturn]] void refuse_lengths(const JointMember& ended, uint64_t samples, const JointMember& longer,
                                 uint64_t groups) {
  throw Error(ErrorKind::Stream,
              "stream '" + ended.source->name() + "' ends after " + length_text(ended, samples) + ", '" +
                  longer.source->name() + "' has " + length_text(longer, longer.source->info().size) +
                  ": they do not belong together; bind streams of one length, read fewer with take=" +
                  std::to_string(groups) + ", or leave unpaired=refuse out: a pass then ends with the shortest");
}

}  // namespace

JointReader::JointReader(std::vector<JointMember> members, const JointOptions& options)
    : members_(std::move(members)), options_(options) {
  if (members_.empty()) throw Error(ErrorKind::Internal, "a joint reader needs a source");
  if (options_.batch == 0) throw Error(ErrorKind::Usage, "batch=0 makes empty batches; the minimum is 1");
  if (options_.repeat == 0) throw Error(ErrorKind::Usage, "repeat=0 makes no pass; the minimum is 1");
  if (options_.shard >= options_.shards)
    throw Error(ErrorKind::Usage, "shard=" + std::to_string(options_.shard) + "/" + std::to_string(options_.shards) +
                                      " names a shard that does not exist; shards are counted from 0");
  for (const JointMember& m : members_) {
    size_t bytes = 0;
    if (m.per_group == 0 || __builtin_mul_overflow(m.source->sample_bytes(), m.per_group, &bytes))
      throw Error(ErrorKind::Usage, "stream '" + m.source->name() + "' has " + std::to_string(m.per_group) +
                                        " samples in a joint sample");
    bytes_.push_back(bytes);
  }
  left_over_.resize(members_.size());
  got_.resize(members_.size());
  begun_.resize(members_.size());
  write_.resize(members_.size());
  if (!options_.join && options_.refuse_unequal) check_lengths();
  count();
  by_number_ =
      size_ > 0 && !options_.join && (options_.repeat == 1 || !options_.passes_differ) &&
      std::all_of(members_.begin(), members_.end(), [](const JointMember& m) { return m.source->can_read_at(); });
  if (options_.shuffle > 1) allocate_blocks();
  if (!options_.join) return;
  std::vector<NumberedJoin::Member> joined;
  for (const JointMember& m : members_) joined.push_back({m.source, m.per_group, m.edge});
  join_ = std::make_unique<NumberedJoin>(joined, *options_.join, options_.batch);
  block_reads_.resize(members_.size());
}

void JointReader::check_lengths() const {
  const JointMember* shortest = nullptr;
  const auto groups = [](const JointMember& m) { return m.source->info().size / m.per_group; };
  for (const JointMember& m : members_)
    if (m.source->info().size && (!shortest || groups(m) < groups(*shortest))) shortest = &m;
  if (!shortest || (options_.take && takes_within(groups(*shortest)))) return;
  for (const JointMember& m : members_)
    if (m.source->info().size && groups(m) > groups(*shortest))
      refuse_lengths(*shortest, shortest->source->info().size, m, groups(*shortest));
}

std::optional<std::string> JointReader::unequal_lengths() const {
  const uint64_t common = common_groups();
  if (options_.join || !counted_ || (options_.take && takes_within(common))) return std::nullopt;
  std::string lengths;
  bool differ = false;
  for (const JointMember& m : members_) {
    const uint64_t samples = m.source->info().size;
    if (samples == 0) continue;
    differ = differ || samples / m.per_group > common;
    lengths += (lengths.empty() ? "'" : ", '") + m.source->name() + "' has " + length_text(m, samples);
  }
  if (!differ) return std::nullopt;
  return "streams of different length: " + lengths + "; a pass ends with the shortest";
}

// Returns whether skip= and take= together need no more than `groups` groups.
bool JointReader::takes_within(uint64_t groups) const {
  return options_.skip <= groups && options_.take <= groups - options_.skip;
}

// Returns the number of groups of the shortest member of known length; UINT64_MAX if there is none.
uint64_t JointReader::common_groups() const {
  uint64_t groups = std::numeric_limits<uint64_t>::max();
  for (const JointMember& m : members_)
    if (const uint64_t n = m.source->info().size) groups = std::min(groups, n / m.per_group);
  return groups;
}

void JointReader::count() {
  uint64_t groups = common_groups();
  const bool bounded = counted_ =
      groups != std::numeric_limits<uint64_t>::max() && !options_.join;  // with a join the number of complete groups
                                                                         // is unknown
  if (bounded) groups -= std::min(groups, options_.skip);
  if (options_.take) groups = std::min(groups, options_.take);
  if (!bounded && !options_.take) return;
  groups = groups / options_.shards + (options_.shard < groups % options_.shards ? 1 : 0);
  const std::optional<uint64_t> size = checked_product(groups, options_.repeat);
  if (!size || *size > kMostJointSamples)
    throw Error(ErrorKind::Usage, "repeat=" + std::to_string(options_.repeat) + " of " + std::to_string(groups) +
                                      " joint samples makes an epoch of more than " +
                                      std::to_string(kMostJointSamples) + "; give a smaller repeat=, or more epochs");
  size_ = *size;
}

void JointReader::allocate_blocks() {
  const uint64_t n = size_ ? std::min(options_.shuffle, size_) : options_.shuffle;
  size_t needed = 0, total = 0;
  bool fits = n <= std::numeric_limits<uint32_t>::max();
  for (const size_t bytes : bytes_)
    fits = fits && !__builtin_mul_overflow(bytes, n, &needed) && !__builtin_add_overflow(total, needed, &total);
  try {
    if (!fits) throw std::bad_alloc();
    for (const size_t bytes : bytes_)
      if (!by_number_) blocks_.emplace_back(bytes * n);
    order_.resize(n);
    for (const JointMember& m : members_) most_per_group_ = std::max(most_per_group_, m.per_group);
    if (by_number_) numbers_.resize(std::max<uint64_t>(1, std::min(options_.batch, n)) * most_per_group_);
  } catch (const std::exception&) {
    throw Error(ErrorKind::Usage, "shuffle=" + std::to_string(options_.shuffle) +
                                      " needs more memory than is available" +
                                      (fits ? ": " + std::to_string(total) + " bytes" : "") +
                                      "; give a smaller block, for example shuffle=8192");
  }
}

void JointReader::begin(uint64_t epoch) {
  epoch_ = epoch;
  std::fill(begun_.begin(), begun_.end(), uint64_t{0});
  position_ = pass_ = 0;
  block_ = block_size_ = block_at_ = block_first_ = 0;
  start_pass(0);
}

bool JointReader::live() const {
  return std::any_of(members_.begin(), members_.end(), [](const JointMember& m) { return m.source->info().live; });
}

void JointReader::go_on() {
  const bool first =
      std::all_of(members_.begin(), members_.end(), [](const JointMember& m) { return m.source->position() == 0; });
  ++epoch_;
  position_ = pass_ = pass_given_ = 0;
  block_ = block_size_ = block_at_ = block_first_ = 0;
  pass_position_ = first ? 0 : options_.skip;
  pass_ended_ = false;
  std::fill(left_over_.begin(), left_over_.end(), uint64_t{0});
  for (size_t i = 0; i < members_.size(); ++i)
    begun_[i] = members_[i].source->position() -
                std::min(members_[i].source->position(), pass_position_ * members_[i].per_group);
}

void JointReader::seek(uint64_t epoch, uint64_t index) {
  begin(epoch);
  if (size_ && index > size_)
    throw Error(ErrorKind::Stream,
                "cannot resume at sample " + std::to_string(index) + ": an epoch has " + std::to_string(size_), {},
                {"give the streams of the run that wrote the checkpoint, or start again from its weights"});
  position_ = index;
  if (options_.shuffle < 2) return seek_ordered(index);
  block_ = index / order_.size();
  const uint64_t in_block = index % order_.size(), first = index - in_block;
  if (by_number_)
    block_first_ = first;
  else
    seek_ordered(first);
  if (in_block == 0) return;
  if (!fill_block() || block_size_ < in_block)
    throw Error(ErrorKind::Stream,
                "cannot resume at sample " + std::to_string(index) + ": the epoch has become shorter");
  block_at_ = in_block;
}

// Moves to joint sample `index` of an unshuffled epoch.
void JointReader::seek_ordered(uint64_t index) {
  if (index == 0) return;
  const uint64_t in_pass = options_.repeat == 1 ? std::numeric_limits<uint64_t>::max()
                           : counted_           ? size_ / options_.repeat
                                                : 0;
  if (in_pass == 0) return read_away(index);
  pass_ = std::min(index / in_pass, options_.repeat - 1);
  start_pass(index - pass_ * in_pass);
}

// Returns the position within the pass, in groups, after `given` joint samples were returned.
uint64_t JointReader::place_of(uint64_t given) const {
  return given ? options_.skip + options_.shard + (given - 1) * options_.shards + 1 : 0;
}

uint64_t JointReader::reads(size_t member) const {
  const bool in_block = options_.shuffle > 1 && position_ % order_.size() != 0;
  if (join_) return in_block ? block_reads_[member] : join_->reads(member);
  const uint64_t first = in_block ? position_ - position_ % order_.size() : position_;
  return place_of(first) * members_[member].per_group;
}

// Moves the members to their positions after `given` joint samples of this pass.
void JointReader::start_pass(uint64_t given) {
  pass_given_ = given;
  pass_position_ = place_of(given);
  pass_ended_ = false;
  if (join_) {
    for (const JointMember& m : members_)
      if (!m.source->info().live) m.source->seek(epoch_ * options_.repeat + pass_, 0);
    return join_->restart();
  }
  for (const JointMember& m : members_) m.source->seek(epoch_ * options_.repeat + pass_, pass_position_ * m.per_group);
}

void JointReader::read_away(uint64_t index) {
  std::vector<std::vector<std::byte>> dropped;
  for (const size_t bytes : bytes_) dropped.emplace_back(bytes);
  for (; index > 0; --index) {
    for (size_t i = 0; i < members_.size(); ++i) write_[i] = dropped[i].data();
    if (read_ordered(1) == 0) throw Error(ErrorKind::Stream, "cannot resume: the epoch has become shorter");
  }
}

void JointReader::set_batch(uint64_t batch) {
  options_.batch = batch;
  if (join_) join_->set_step(batch);
}

uint64_t JointReader::read(void* const* to) { return read(options_.batch, to); }

uint64_t JointReader::read(uint64_t n, void* const* to) {
  uint64_t got = 0;
  if (options_.shuffle > 1) {
    got = by_number_ ? read_by_number(n, to) : read_shuffled(n, to);
  } else {
    for (size_t i = 0; i < members_.size(); ++i) write_[i] = static_cast<std::byte*>(to[i]);
    got = read_ordered(n);
  }
  if (options_.whole_batches && got < n) return 0;
  position_ += got;
  return got;
}

uint64_t JointReader::read_shuffled(uint64_t n, void* const* to) {
  for (uint64_t k = 0; k < n; ++k) {
    if (block_at_ == block_size_ && !fill_block()) return k;
    const size_t from = order_[block_at_++];
    for (size_t i = 0; i < members_.size(); ++i)
      std::memcpy(static_cast<std::byte*>(to[i]) + k * bytes_[i], blocks_[i].data() + from * bytes_[i], bytes_[i]);
  }
  return n;
}

uint64_t JointReader::read_by_number(uint64_t n, void* const* to) {
  uint64_t got = 0;
  while (got < n) {
    if (block_at_ == block_size_ && !fill_block()) break;
    const uint64_t now = std::min({n - got, block_size_ - block_at_, numbers_.size() / most_per_group_});
    for (size_t i = 0; i < members_.size(); ++i) {
      take_numbers(members_[i], now);
      members_[i].source->read_at(numbers_.data(), now * members_[i].per_group,
                                  static_cast<std::byte*>(to[i]) + got * bytes_[i]);
    }
    block_at_ += now;
    got += now;
  }
  return got;
}

// Fills numbers_ with the numbers of a member's samples in the next n joint samples of the block.
void JointReader::take_numbers(const JointMember& member, uint64_t n) {
  const uint64_t in_pass = size_ / options_.repeat;
  uint64_t* to = numbers_.data();
  for (uint64_t i = 0; i < n; ++i) {
    const uint64_t sample = (block_first_ + order_[block_at_ + i]) % in_pass;
    const uint64_t group = options_.skip + options_.shard + sample * options_.shards;
    for (uint64_t k = 0; k < member.per_group; ++k) *to++ = group * member.per_group + k;
  }
}

bool JointReader::fill_block() {
  if (by_number_) {
    block_first_ += block_size_;
    block_size_ = std::min<uint64_t>(order_.size(), size_ - block_first_);
    block_at_ = 0;
    const uint64_t common = common_groups();
    if (block_first_ + block_size_ == size_ && (!options_.take || !takes_within(common))) count_left_over(common);
    shuffled_order(order_.data(), static_cast<uint32_t>(block_size_), options_.seed, epoch_, block_++);
    return block_size_ > 0;
  }
  for (size_t i = 0; i < members_.size(); ++i) write_[i] = blocks_[i].data();
  for (size_t i = 0; join_ && i < members_.size(); ++i) block_reads_[i] = join_->reads(i);
  block_size_ = read_ordered(order_.size());
  block_at_ = 0;
  shuffled_order(order_.data(), static_cast<uint32_t>(block_size_), options_.seed, epoch_, block_++);
  return block_size_ > 0;
}

// Reads up to n joint samples, across the passes of this epoch.
uint64_t JointReader::read_ordered(uint64_t n) {
  uint64_t got = 0;
  while (got < n) {
    if (pass_ended_ && !next_pass()) break;
    got += read_pass(n - got);
  }
  return got;
}

bool JointReader::next_pass() {
  if (pass_ + 1 >= options_.repeat || pass_given_ == 0) return false;
  ++pass_;
  start_pass(0);
  return true;
}

// Reads up to n joint samples of this pass, applying skip, take and shard.
uint64_t JointReader::read_pass(uint64_t n) {
  if (pass_position_ < options_.skip) drop_groups(options_.skip - pass_position_);
  if (pass_ended_) return 0;
  const uint64_t index = pass_position_ - options_.skip;
  const uint64_t left = options_.take ? options_.take - index : std::numeric_limits<uint64_t>::max();
  uint64_t got = 0;
  if (options_.shards == 1) {
    got = left ? read_groups(std::min(n, left)) : 0;
  } else {
    const uint64_t others = (options_.shard + options_.shards - index % options_.shards) % options_.shards;
    if (others < left && drop_groups(others) == others) got = read_groups(1);
    if (others >= left) pass_ended_ = true;
  }
  if (options_.take && pass_position_ - options_.skip >= options_.take) pass_ended_ = true;
  pass_given_ += got;
  return got;
}

// Reads up to n groups through the join.
uint64_t JointReader::join_groups(uint64_t n, std::byte* const* to) {
  const uint64_t groups = join_->read(n, to);
  for (size_t i = 0; i < members_.size(); ++i) {
    if (to) write_[i] += groups * bytes_[i];
    if (groups < n) left_over_[i] = join_->waiting(i);
  }
  pass_ended_ = pass_ended_ || groups < n;
  pass_position_ += groups;
  return groups;
}

uint64_t JointReader::read_groups(uint64_t n) {
  if (join_) return join_groups(n, write_.data());
  bool complete = true;
  for (size_t i = 0; i < members_.size(); ++i) {
    const uint64_t wanted = n * members_[i].per_group;
    got_[i] = members_[i].source->read(wanted, write_[i]);
    complete = complete && got_[i] == wanted;
  }
  const uint64_t groups = complete ? n : end_of_pass();
  for (size_t i = 0; i < members_.size(); ++i) write_[i] += groups * bytes_[i];
  pass_position_ += groups;
  return groups;
}

uint64_t JointReader::drop_groups(uint64_t n) {
  if (join_) return join_groups(n, nullptr);
  bool complete = true;
  for (size_t i = 0; i < members_.size(); ++i) {
    const uint64_t wanted = n * members_[i].per_group;
    got_[i] = members_[i].source->skip(wanted);
    complete = complete && got_[i] == wanted;
  }
  const uint64_t groups = complete ? n : end_of_pass();
  pass_position_ += groups;
  return groups;
}

// Ends the pass after a member returned fewer samples than requested. Returns the number of joint samples for which
// all members have data. Throws if a member ended before its announced length, and, if unequal lengths are refused, if
// a finite member is longer by a joint sample or more.
uint64_t JointReader::end_of_pass() {
  pass_ended_ = true;
  shortest_ = 0;
  const auto groups = [&](size_t i) { return got_[i] / members_[i].per_group; };
  for (size_t i = 1; i < members_.size(); ++i)
    if (groups(i) < groups(shortest_)) shortest_ = i;
  const Source& ended = *members_[shortest_].source;
  if (ended.info().size && ended.position() < ended.info().size)
    throw Error(ErrorKind::Stream, "stream '" + ended.name() + "' ended after " +
                                       length_text(members_[shortest_], ended.position()) + ", it had announced " +
                                       std::to_string(ended.info().size));
  const uint64_t given = groups(shortest_);
  count_left_over(pass_position_ + given);
  for (size_t i = 0; options_.refuse_unequal && i < members_.size(); ++i)
    if (left_over_[i] >= members_[i].per_group && members_[i].source->info().size > 0)
      refuse_lengths(members_[shortest_], ended.position(), members_[i], pass_position_ + given);
  return given;
}

// Counts the samples left over by a pass of `groups` groups.
void JointReader::count_left_over(uint64_t groups) {
  for (size_t i = 0; i < members_.size(); ++i) {
    const JointMember& m = members_[i];
    if (by_number_ && m.source->info().size / m.per_group == groups) shortest_ = i;
    const uint64_t has = m.source->info().size ? m.source->info().size : m.source->position();
    left_over_[i] = has - std::min(has, begun_[i] + groups * m.per_group);
  }
}

std::vector<LeftOver> JointReader::left_over() const {
  std::vector<LeftOver> all;
  for (size_t i = 0; i < members_.size(); ++i) {
    const uint64_t n = left_over_[i];
    if (n == 0) continue;
    const JointMember& m = members_[i];
    LeftOver left{
        m.source->name(), n,
        "producer '" + m.source->name() + "' had " + quantity(n, "sample") + " left over at the end of a pass"};
    const Source& ended = *members_[shortest_].source;
    if (!join_ && n >= m.per_group && i != shortest_)
      left.text += ": '" + ended.name() + "' ended after " +
                   std::to_string(ended.info().size ? ended.info().size : ended.position());
    all.push_back(std::move(left));
  }
  return all;
}

}  // namespace harmonics::engine
