#include "engine/language/page_pool.hpp"

#include <algorithm>

namespace harmonics::engine {

void PagePool::raise_limit(int64_t pages) {
  const std::lock_guard lock(mutex_);
  const auto count = static_cast<size_t>(pages);
  if (count <= pages_.size()) return;
  pages_.resize(count);
  tokens_.resize(count * kRows);
  free_.reserve(count);
  size_t buckets = 16;
  while (buckets < count) buckets *= 2;
  if (buckets <= buckets_.size()) return;
  buckets_.assign(buckets, kNone);
  for (int32_t page = 0; page < unused_; ++page) {
    if (at(page).name == 0) continue;
    int32_t& first = buckets_[bucket(at(page).before, tokens_of(page))];
    at(page).next = first;
    first = page;
  }
}

void PagePool::keep_prefixes(int64_t most) {
  const std::lock_guard lock(mutex_);
  most_kept_ = most;
  while (kept_ > most_kept_) free_.push_back(drop_oldest());
}

std::span<int32_t> PagePool::tokens_of(int32_t page) {
  return std::span(tokens_).subspan(static_cast<size_t>(page) * kRows, kRows);
}

size_t PagePool::bucket(uint64_t before, std::span<const int32_t> tokens) const {
  uint64_t hash = before * 0x9e3779b97f4a7c15u;
  for (const int32_t t : tokens) {
    hash = (hash ^ static_cast<uint32_t>(t)) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return hash & (buckets_.size() - 1);
}

int32_t PagePool::look_up(uint64_t before, std::span<const int32_t> tokens) {
  if (buckets_.empty()) return kNone;
  for (int32_t page = buckets_[bucket(before, tokens)]; page != kNone; page = at(page).next)
    if (at(page).before == before && std::ranges::equal(tokens_of(page), tokens)) return page;
  return kNone;
}

// Unpublishes the page, so that find() no longer returns it.
void PagePool::forget(int32_t page) {
  Page& p = at(page);
  if (p.name == 0) return;
  int32_t* link = &buckets_[bucket(p.before, tokens_of(page))];
  while (*link != page) link = &at(*link).next;
  *link = p.next;
  p.name = 0;
}

// Removes a kept page from the list of pages without a holder.
void PagePool::unlink(int32_t page) {
  Page& p = at(page);
  (p.older == kNone ? oldest_ : at(p.older).newer) = p.newer;
  (p.newer == kNone ? newest_ : at(p.newer).older) = p.older;
  p.older = p.newer = kNone;
  --kept_;
}

int32_t PagePool::drop_oldest() {
  const int32_t page = oldest_;
  unlink(page);
  forget(page);
  return page;
}

int32_t PagePool::take() {
  const std::lock_guard lock(mutex_);
  int32_t page = kNone;
  if (!free_.empty()) {
    page = free_.back();
    free_.pop_back();
  } else if (static_cast<size_t>(unused_) < pages_.size()) {
    page = unused_++;
  } else if (oldest_ != kNone) {
    page = drop_oldest();
  } else {
    return kNone;
  }
  at(page).holders = 1;
  ++held_;
  return page;
}

void PagePool::share(int32_t page) {
  const std::lock_guard lock(mutex_);
  ++at(page).holders;
}

void PagePool::release(int32_t page) {
  const std::lock_guard lock(mutex_);
  Page& p = at(page);
  if (--p.holders > 0) return;
  --held_;
  if (p.name == 0) {
    free_.push_back(page);
    return;
  }
  p.older = newest_;
  p.newer = kNone;
  (newest_ == kNone ? oldest_ : at(newest_).newer) = page;
  newest_ = page;
  ++kept_;
  if (kept_ > most_kept_) free_.push_back(drop_oldest());
}

bool PagePool::withdraw(int32_t page) {
  const std::lock_guard lock(mutex_);
  if (at(page).holders > 1) return false;
  forget(page);
  return true;
}

uint64_t PagePool::publish(int32_t page, uint64_t before, std::span<const int32_t> tokens) {
  const std::lock_guard lock(mutex_);
  if (const int32_t same = look_up(before, tokens); same != kNone) return at(same).name;
  std::ranges::copy(tokens, tokens_of(page).begin());
  int32_t& first = buckets_[bucket(before, tokens)];
  Page& p = at(page);
  p.before = before;
  p.name = ++last_name_;
  p.next = first;
  first = page;
  return p.name;
}

PagePool::Found PagePool::find(uint64_t before, std::span<const int32_t> tokens) {
  const std::lock_guard lock(mutex_);
  const int32_t page = look_up(before, tokens);
  if (page == kNone) return {};
  Page& p = at(page);
  if (p.holders++ == 0) {
    unlink(page);
    ++held_;
  }
  return {page, p.name};
}

int64_t PagePool::limit() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(pages_.size());
}

int64_t PagePool::held() const {
  const std::lock_guard lock(mutex_);
  return held_;
}

int64_t PagePool::kept() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

int64_t PagePool::available() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(pages_.size()) - held_;
}

}  // namespace harmonics::engine
