#include "engine/language/paged_caches.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <sys/mman.h>

#include <fmt/core.h>

#include "engine/execution/device_memory.hpp"

namespace harmonics::engine {

namespace {

constexpr int64_t kLeastPages = 64;

// Calls copy(page, offset among all bytes, bytes) for each page that contains some of `bytes` bytes.
template <typename Copy>
void for_each_page(std::span<const int32_t> pages, size_t page_bytes, size_t bytes, const Copy& copy) {
  for (size_t i = 0; i * page_bytes < bytes; ++i)
    copy(static_cast<size_t>(pages[i]), i * page_bytes, std::min(page_bytes, bytes - i * page_bytes));
}

hx_place after(const DeviceTensor& tensor, uint64_t bytes) {
  const hx_place place = tensor.place();
  return {place.buffer, place.offset + bytes};
}

}  // namespace

PagedCaches::PagedCaches(const Model& model, std::shared_ptr<DeviceQueue> queue) : queue_(std::move(queue)) {
  EntrySizes sizes;
  sizes.pages = 1;
  sizes.page_rows = sizes.capacity = PagePool::kRows;
  for (const ModelState& state : model.states) memory_.push_back({nullptr, nullptr, state.type(sizes).bytes(), 0});
}

PagedCaches::~PagedCaches() {
  for (const Memory& m : memory_)
    if (m.data) ::munmap(m.data, m.bytes);
}

uint64_t PagedCaches::page_bytes() const {
  uint64_t bytes = 0;
  for (const Memory& m : memory_) bytes += m.page;
  return bytes;
}

bool PagedCaches::reserve(int64_t pages) {
  if (pages <= pages_) return false;
  const int64_t count = queue_ ? pages : std::max({pages, 2 * pages_, kLeastPages});
  for (Memory& m : memory_) {
    const size_t bytes = m.page * static_cast<size_t>(count);
    if (queue_)
      allocate(m, bytes);
    else
      reserve_addresses(m, bytes);
    m.bytes = bytes;
  }
  pages_ = count;
  return true;
}

void PagedCaches::reserve_addresses(Memory& m, size_t bytes) {
  void* const data =
      m.data ? ::mremap(m.data, m.bytes, bytes, MREMAP_MAYMOVE)
             : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED)
    throw Error(ErrorKind::Unavailable,
                fmt::format("the system cannot reserve {} bytes of addresses for keys and values", bytes), {},
                {"give a smaller --context"});
  // Huge pages would allocate megabytes per state for the first tokens.
  ::madvise(data, bytes, MADV_NOHUGEPAGE);
  m.data = data;
}

// Replaces the memory by a larger one with the same pages. New pages are zero, so that a portable body of attention,
// which multiplies masked rows too, never reads a NaN.
void PagedCaches::allocate(Memory& m, size_t bytes) {
  if (m.tensor && m.tensor->bytes() >= bytes) return;  // from an attempt that failed later
  auto larger = std::make_shared<DeviceTensor>(queue_, bytes);
  const auto lock = queue_->lock();
  size_t filled = m.tensor ? m.tensor->bytes() : 0;
  if (filled > 0) queue_->copy(larger->place(), m.tensor->place(), filled);
  const std::vector<std::byte> zeros(m.page);
  const size_t first = filled;
  for (; filled < bytes;) {
    const size_t part = std::min(bytes - filled, std::max(m.page, filled - first));
    if (filled == first)
      queue_->upload(after(*larger, filled), zeros.data(), part);
    else
      queue_->copy(after(*larger, filled), after(*larger, first), part);
    filled += part;
  }
  queue_->synchronize();
  m.tensor = std::move(larger);
}

void PagedCaches::copy_page(int32_t from, int32_t to) {
  const auto lock = queue_ ? queue_->lock() : std::unique_lock<std::recursive_mutex>();
  for (const Memory& m : memory_) {
    const size_t source = m.page * static_cast<size_t>(from), target = m.page * static_cast<size_t>(to);
    auto* const data = static_cast<std::byte*>(m.data);
    if (queue_)
      queue_->copy(after(*m.tensor, target), after(*m.tensor, source), m.page);
    else
      std::memcpy(data + target, data + source, m.page);
  }
}

void PagedCaches::read(size_t state, std::span<const int32_t> pages, void* to, size_t bytes) const {
  const Memory& m = memory_[state];
  const auto lock = queue_ ? queue_->lock() : std::unique_lock<std::recursive_mutex>();
  for_each_page(pages, m.page, bytes, [&](size_t page, size_t at, size_t part) {
    std::byte* const target = static_cast<std::byte*>(to) + at;
    if (queue_)
      queue_->download(target, after(*m.tensor, page * m.page), part);
    else
      std::memcpy(target, static_cast<const std::byte*>(m.data) + page * m.page, part);
  });
  if (queue_) queue_->synchronize();
}

void PagedCaches::write(size_t state, std::span<const int32_t> pages, const void* from, size_t bytes) {
  const Memory& m = memory_[state];
  const auto lock = queue_ ? queue_->lock() : std::unique_lock<std::recursive_mutex>();
  for_each_page(pages, m.page, bytes, [&](size_t page, size_t at, size_t part) {
    const std::byte* const source = static_cast<const std::byte*>(from) + at;
    if (queue_)
      queue_->upload(after(*m.tensor, page * m.page), source, part);
    else
      std::memcpy(static_cast<std::byte*>(m.data) + page * m.page, source, part);
  });
  if (queue_) queue_->synchronize();
}

}  // namespace harmonics::engine
