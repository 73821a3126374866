// PagedCaches: the memory behind a PagePool: of each state of a model one array of pages.
#pragma once

#include <memory>
#include <shared_mutex>
#include <string>
#include <vector>

#include "engine/language/page_pool.hpp"
#include "engine/model/model.hpp"

namespace harmonics::engine {

// Addresses are reserved for pages() pages; the system gives memory when a page is first written. Plans are made for
// that number of pages, and must be made again when it grows.
class PagedCaches {
 public:
  explicit PagedCaches(const Model& model);
  ~PagedCaches();
  PagedCaches(const PagedCaches&) = delete;
  PagedCaches& operator=(const PagedCaches&) = delete;

  PagePool& pool() { return pool_; }
  const PagePool& pool() const { return pool_; }
  int64_t pages() const { return pages_; }
  // Bytes of all states for one page.
  uint64_t page_bytes() const;
  size_t page_bytes(size_t state) const { return memory_[state].page; }
  // By Model::states.
  void* address(size_t state) const { return memory_[state].data; }
  // Reserves addresses for at least so many pages, at least doubling. Throws ErrorKind::Unavailable. Nothing may use
  // the old addresses: hold `moving` alone. Returns whether they changed.
  bool reserve(int64_t pages);
  void copy_page(int32_t from, int32_t to);

  // Held by everything that uses addresses.
  std::shared_mutex moving;

 private:
  struct Memory {
    void* data = nullptr;
    size_t page = 0, bytes = 0;  // of a page; of all
  };
  PagePool pool_;
  std::vector<Memory> memory_;
  int64_t pages_ = 0;
};

}  // namespace harmonics::engine
