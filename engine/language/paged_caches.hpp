// PagedCaches: the memory of the pages of a PagePool, one array of pages per state of a model.
#pragma once

#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "engine/language/page_pool.hpp"
#include "engine/model/model.hpp"

namespace harmonics::engine {

// Addresses are reserved for pages() pages; the system allocates memory when a page is first written. Plans depend on
// pages() and must be compiled again when it grows.
class PagedCaches {
 public:
  explicit PagedCaches(const Model& model);
  ~PagedCaches();
  PagedCaches(const PagedCaches&) = delete;
  PagedCaches& operator=(const PagedCaches&) = delete;

  PagePool& pool() { return pool_; }
  const PagePool& pool() const { return pool_; }
  int64_t pages() const { return pages_; }
  // Returns the bytes of all states for one page.
  uint64_t page_bytes() const;
  size_t page_bytes(size_t state) const { return memory_[state].page; }
  // Returns the address of the pages of a state, by Model::states.
  void* address(size_t state) const { return memory_[state].data; }
  // Reserves addresses for at least `pages` pages, at least doubling their number. Returns whether pages() has grown;
  // then old addresses are invalid. Requires an exclusive lock of `moving`. Throws ErrorKind::Unavailable.
  bool reserve(int64_t pages);
  void copy_page(int32_t from, int32_t to);

  // Locked shared by all users of addresses.
  std::shared_mutex moving;

 private:
  struct Memory {
    void* data = nullptr;
    size_t page = 0, bytes = 0;  // bytes per page; bytes of all pages
  };
  PagePool pool_;
  std::vector<Memory> memory_;
  int64_t pages_ = 0;
};

}  // namespace harmonics::engine
