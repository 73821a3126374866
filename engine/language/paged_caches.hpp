// PagedCaches: the memory of the pages of a PagePool, one array of pages per state of a model.
#pragma once

#include <memory>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "engine/language/page_pool.hpp"
#include "engine/model/model.hpp"

namespace harmonics::engine {

class DeviceQueue;  // engine/execution/device_memory.hpp
class DeviceTensor;

// In host memory, addresses are reserved for pages() pages; the system allocates memory when a page is first written.
// On a device with its own memory, all pages() pages are allocated. Plans depend on pages() and must be compiled again
// when it grows.
class PagedCaches {
 public:
  // `queue`: of the device with its own memory; null: host memory.
  PagedCaches(const Model& model, std::shared_ptr<DeviceQueue> queue);
  ~PagedCaches();
  PagedCaches(const PagedCaches&) = delete;
  PagedCaches& operator=(const PagedCaches&) = delete;

  PagePool& pool() { return pool_; }
  const PagePool& pool() const { return pool_; }
  int64_t pages() const { return pages_; }
  // Returns the bytes of all states for one page.
  uint64_t page_bytes() const;
  // Return the address of the pages of a state, by Model::states, or their tensor on the device.
  void* address(size_t state) const { return memory_[state].data; }
  const std::shared_ptr<DeviceTensor>& tensor(size_t state) const { return memory_[state].tensor; }
  // Reserves at least `pages` pages. Without a device, at least doubles their number. Returns whether pages() has
  // grown; then, and also after an error, old addresses and tensors are invalid. Requires an exclusive lock of
  // `moving`. Throws ErrorKind::Unavailable, or ErrorKind::Device for a device without memory.
  bool reserve(int64_t pages);
  void copy_page(int32_t from, int32_t to);
  // Copy the first `bytes` bytes of a state in these pages.
  void read(size_t state, std::span<const int32_t> pages, void* to, size_t bytes) const;
  void write(size_t state, std::span<const int32_t> pages, const void* from, size_t bytes);

  // Locked shared by all users of addresses and tensors.
  std::shared_mutex moving;

 private:
  struct Memory {
    void* data = nullptr;
    std::shared_ptr<DeviceTensor> tensor;
    size_t page = 0, bytes = 0;  // bytes per page; bytes of all pages
  };
  void reserve_addresses(Memory& m, size_t bytes);
  void allocate(Memory& m, size_t bytes);

  PagePool pool_;
  std::shared_ptr<DeviceQueue> queue_;
  std::vector<Memory> memory_;
  int64_t pages_ = 0;
};

}  // namespace harmonics::engine
