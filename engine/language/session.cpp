#include <algorithm>
#include <cstring>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/execution/device_memory.hpp"
#include "engine/language/decoder.hpp"

namespace harmonics::engine {

namespace {

size_t pages_for(int64_t positions) { return static_cast<size_t>((positions + PagePool::kRows - 1) / PagePool::kRows); }

// A cache on a device, which owns the host memory that it mirrors.
struct MirroredCache {
  std::shared_ptr<Storage> host;
  DeviceTensor tensor;
  MirroredCache(const std::shared_ptr<DeviceQueue>& queue, std::shared_ptr<Storage> storage)
      : host(std::move(storage)), tensor(queue, host->data(), host->bytes()) {}
};
std::shared_ptr<DeviceTensor> mirror_of(const std::shared_ptr<DeviceQueue>& queue, std::shared_ptr<Storage> cache) {
  const auto both = std::make_shared<MirroredCache>(queue, std::move(cache));
  return {both, &both->tensor};
}

// Copies the first `rows` of every run along `axis` into a larger tensor.
void copy_rows(const Storage& from, const TensorType& type, Storage& to, const TensorType& larger, uint32_t axis,
               int64_t rows) {
  int64_t outer = 1;
  for (uint32_t i = 0; i < axis; ++i) outer *= type.shape[i];
  const size_t row = type.bytes() / static_cast<size_t>(outer * type.shape[axis]);
  const size_t stride = row * static_cast<size_t>(type.shape[axis]),
               wide = row * static_cast<size_t>(larger.shape[axis]);
  for (int64_t i = 0; i < outer; ++i)
    std::memcpy(static_cast<std::byte*>(to.data()) + static_cast<size_t>(i) * wide,
                static_cast<const std::byte*>(from.data()) + static_cast<size_t>(i) * stride,
                row * static_cast<size_t>(rows));
}

}  // namespace

Session::Session(Decoder& decoder, int64_t context, bool whole)
    : decoder_(decoder), context_(context > 0 ? context : decoder.model().context) {
  if (context_ < 1)
    throw Error(ErrorKind::Usage, "the model does not say how many tokens it was trained for", {},
                {"give the maximum number of tokens of a sequence: --context N"});
  scores_.resize(static_cast<size_t>(decoder.model().vocabulary));
  if (decoder_.caches_) {
    pages_.reserve(pages_for(context_) + 1);
    names_.reserve(pages_for(context_) + 1);
  }
  grow(whole ? context_ : 1);
  decoder_.session_opened(context_);
  if (whole && !reserve(context_)) {
    decoder_.session_closed(context_);
    throw decoder_.caches_full();
  }
}

Session::~Session() {
  drop_pages(0);
  if (!decoder_.caches_) decoder_.capacity_changed(capacity_, 0);
  decoder_.session_closed(context_);
}

std::unique_ptr<Session> Session::fork() const {
  auto other = std::make_unique<Session>(decoder_, context_);
  other->grow(capacity_);
  other->tokens_.assign(tokens_.begin(), tokens_.end());
  other->scores_ = scores_;
  if (!decoder_.caches_) return other;
  other->computed_ = computed_;
  other->names_.assign(names_.begin(), names_.end());
  for (size_t i = 0; i < pages_for(computed_); ++i) {
    decoder_.caches_->pool().share(pages_[i]);
    other->pages_.push_back(pages_[i]);
  }
  return other;
}

void Session::grow(int64_t least) {
  int64_t capacity = std::max(Decoder::kLeastCapacity, capacity_);
  while (capacity < least) capacity *= 2;
  capacity = std::min(capacity, context_);
  if (capacity == capacity_) return;
  tokens_.reserve(static_cast<size_t>(capacity));
  if (decoder_.caches_) {
    capacity_ = capacity;
    return;
  }
  const auto& states = decoder_.model().states;
  std::vector<std::shared_ptr<Storage>> caches;
  std::vector<std::shared_ptr<DeviceTensor>> mirrors;
  for (size_t i = 0; i < states.size(); ++i) {
    const TensorType type = states[i].type({1, 1, capacity});
    caches.push_back(std::make_shared<Storage>(type.bytes()));
    if (decoder_.queue_) mirrors.push_back(mirror_of(decoder_.queue_, caches.back()));
    if (computed_ == 0) continue;
    if (decoder_.queue_) mirrors_[i]->fetch();
    const TensorType old = states[i].type({1, 1, capacity_});
    copy_rows(*caches_[i], old, *caches[i], type, states[i].growing_axis, computed_);
  }
  caches_ = std::move(caches);
  mirrors_ = std::move(mirrors);
  decoder_.capacity_changed(capacity_, capacity);
  capacity_ = capacity;
}

// Releases the last pages first. Pages released first are reused first, and a page is useless without those before it.
void Session::drop_pages(size_t first) {
  while (pages_.size() > first) {
    decoder_.caches_->pool().release(pages_.back());
    pages_.pop_back();
  }
  names_.resize(std::min(names_.size(), first));
}

void Session::keep(int64_t length) {
  if (length < 0 || length > this->length())
    throw Error(ErrorKind::Usage,
                fmt::format("a sequence of {} cannot be shortened to {}", quantity(tokens_.size(), "token"), length));
  tokens_.resize(static_cast<size_t>(length));
  computed_ = std::min(computed_, length);
  if (length == 0) all_scores_ = {};  // as many as 64 times the vocabulary
  if (!decoder_.caches_) return;
  drop_pages(pages_for(computed_));
  names_.resize(std::min(names_.size(), static_cast<size_t>(computed_ / PagePool::kRows)));
}

void Session::release() {
  computed_ = 0;
  drop_pages(0);
}

// Replaces the computed part of `ids` by pages that contain more of them, up to `most` tokens. The computed part of the
// sequence must be a prefix of `ids`.
void Session::adopt_pages(std::span<const int32_t> ids, int64_t most) {
  if (!decoder_.caches_) return;
  PagePool& pool = decoder_.caches_->pool();
  for (auto page = static_cast<size_t>(computed_ / PagePool::kRows);; ++page) {
    const int64_t from = static_cast<int64_t>(page) * PagePool::kRows, to = from + PagePool::kRows;
    if (to > most) return;
    const PagePool::Found found =
        pool.find(page == 0 ? PagePool::kNoPrefix : names_[page - 1],
                  ids.subspan(static_cast<size_t>(from), static_cast<size_t>(PagePool::kRows)));
    if (found.page == PagePool::kNone) return;
    drop_pages(page);
    pages_.push_back(found.page);
    names_.push_back(found.name);
    computed_ = to;
  }
}

int64_t Session::begin(std::span<const int32_t> ids, int64_t most) {
  if (ids.empty()) throw Error(ErrorKind::Usage, "a sequence begins with at least one token");
  if (static_cast<int64_t>(ids.size()) > context_)
    throw Error(ErrorKind::Usage,
                fmt::format("the sequence would have {} tokens, but its context holds {}", ids.size(), context_));
  most = std::min(most, static_cast<int64_t>(ids.size()) - 1);
  const auto here = static_cast<size_t>(std::min(most, computed_));
  size_t common = 0;
  while (common < here && tokens_[common] == ids[common]) ++common;
  keep(static_cast<int64_t>(common));
  adopt_pages(ids, most);
  grow(computed_ + 1);
  tokens_.assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(computed_));
  return computed_;
}

std::span<const int32_t> Session::missing() {
  if (computed_ < length()) adopt_pages(tokens_, length());
  return std::span<const int32_t>(tokens_).subspan(static_cast<size_t>(computed_));
}

// Copies the last, partly filled page, which is written next, if another session shares it. Returns false if there is
// no page for the copy.
bool Session::own_last_page() {
  if (computed_ % PagePool::kRows == 0) return true;
  PagePool& pool = decoder_.caches_->pool();
  int32_t& page = pages_[static_cast<size_t>(computed_ / PagePool::kRows)];
  if (pool.withdraw(page)) return true;
  const int32_t own = decoder_.take_page();
  if (own == PagePool::kNone) return false;
  {
    const std::shared_lock lock(decoder_.caches_->moving);
    decoder_.caches_->copy_page(page, own);
  }
  pool.release(std::exchange(page, own));
  return true;
}

bool Session::reserve(int64_t length) {
  length = std::min(length, context_);
  grow(length);
  if (!decoder_.caches_ || length <= computed_) return true;
  const size_t before = pages_.size();
  while (pages_.size() < pages_for(length)) {
    const int32_t page = decoder_.take_page();
    if (page == PagePool::kNone) break;
    pages_.push_back(page);
  }
  if (pages_.size() >= pages_for(length) && own_last_page()) return true;
  for (; pages_.size() > before; pages_.pop_back()) decoder_.caches_->pool().release(pages_.back());
  return false;
}

uint64_t Session::cache_bytes() const {
  if (decoder_.caches_) return pages_.size() * decoder_.caches_->page_bytes();
  uint64_t bytes = 0;
  for (const auto& cache : caches_) bytes += cache->bytes();
  return bytes;
}

void Session::expect(std::span<const int32_t> tokens) const {
  if (tokens.empty()) throw Error(ErrorKind::Usage, "a sequence is continued by at least one token");
  const int64_t vocabulary = decoder_.model().vocabulary;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocabulary)
      throw Error(ErrorKind::Usage, fmt::format("token {} at place {} is outside the model's vocabulary of {}",
                                                tokens[i], i, vocabulary));
  const auto count = static_cast<int64_t>(tokens.size());
  if (count > context_ - length())
    throw Error(ErrorKind::Usage,
                fmt::format("the sequence would have {} tokens, but its context holds {}", length() + count, context_));
}

// Called after a step: appends `tokens` and marks `computed` more tokens as computed. Publishes full pages.
void Session::advance(std::span<const int32_t> tokens, int64_t computed) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  computed_ += computed;
  if (!decoder_.caches_) return;
  const std::span<const int32_t> all = tokens_;
  for (size_t page = names_.size(); static_cast<int64_t>(page + 1) * PagePool::kRows <= computed_; ++page)
    names_.push_back(decoder_.caches_->pool().publish(
        pages_[page], page == 0 ? PagePool::kNoPrefix : names_[page - 1],
        all.subspan(page * static_cast<size_t>(PagePool::kRows), static_cast<size_t>(PagePool::kRows))));
}

std::span<const float> Session::append(std::span<const int32_t> tokens) {
  expect(tokens);
  StepPart part{this};
  part.missing = static_cast<int64_t>(missing().size());
  if (part.missing > 0) decoder_.step({&part, 1});
  part = {this, tokens};
  decoder_.step({&part, 1});
  return part.scores;
}

std::span<const float> Session::append_all(std::span<const int32_t> tokens) {
  expect(tokens);
  StepPart part{this};
  part.missing = static_cast<int64_t>(missing().size());
  if (part.missing > 0) decoder_.step({&part, 1});
  part = {this, tokens, StepPart::all};
  decoder_.step({&part, 1});
  return part.scores;
}

}  // namespace harmonics::engine
