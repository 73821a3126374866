#include "engine/language/paged_caches.hpp"

#include <algorithm>
#include <cstring>

#include <sys/mman.h>

#include <fmt/core.h>

namespace harmonics::engine {

namespace {

constexpr int64_t kLeastPages = 64;

}  // namespace

PagedCaches::PagedCaches(const Model& model) {
  EntrySizes sizes;
  sizes.pages = 1;
  sizes.page_rows = sizes.capacity = PagePool::kRows;
  for (const ModelState& state : model.states) memory_.push_back({nullptr, state.type(sizes).bytes(), 0});
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
  const int64_t count = std::max({pages, 2 * pages_, kLeastPages});
  for (Memory& m : memory_) {
    const size_t bytes = m.page * static_cast<size_t>(count);
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
    m.bytes = bytes;
  }
  pages_ = count;
  return true;
}

void PagedCaches::copy_page(int32_t from, int32_t to) {
  for (const Memory& m : memory_) {
    auto* const data = static_cast<std::byte*>(m.data);
    std::memcpy(data + m.page * static_cast<size_t>(to), data + m.page * static_cast<size_t>(from), m.page);
  }
}

}  // namespace harmonics::engine
