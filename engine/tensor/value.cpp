#include "engine/tensor/value.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

#include "engine/base/out_of_memory.hpp"

namespace harmonics::engine {

namespace {

constexpr size_t kLine = 64, kHugePage = 2u << 20, kLarge = 4 * kHugePage;

}  // namespace

Storage::Storage(size_t bytes) : bytes_(bytes), owned_(true) {
  const size_t rounded = bytes ? (bytes + kLine - 1) / kLine * kLine : kLine;
  if (bytes < kLarge) {
    data_ = std::aligned_alloc(kLine, rounded);
  } else {
    // Huge pages reduce TLB misses of strided access. Only whole huge pages are requested, so that no memory is wasted.
    if (posix_memalign(&data_, kHugePage, rounded) != 0) data_ = nullptr;  // unlike aligned_alloc, it accepts any size
    if (data_) madvise(data_, rounded / kHugePage * kHugePage, MADV_HUGEPAGE);  // best effort
  }
  if (!data_) throw OutOfMemory(rounded);
  std::memset(data_, 0, rounded);
}

Storage::Storage(void* data, size_t bytes, std::shared_ptr<const void> keep, bool writable)
    : data_(data), bytes_(bytes), keep_(std::move(keep)), owned_(false), writable_(writable) {}

std::shared_ptr<Storage> Storage::reserved(size_t bytes) {
  const size_t length = std::max<size_t>(bytes, 1);
  void* const at = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw OutOfMemory(length);
  const std::shared_ptr<const void> keep(at,
                                         [length](const void* mapped) { ::munmap(const_cast<void*>(mapped), length); });
  return std::make_shared<Storage>(at, bytes, keep, true);
}

Storage::~Storage() {
  if (owned_) std::free(data_);
}

HTensor make_value(const TensorType& type, std::shared_ptr<Storage> storage) {
  auto* v = new hx_value;
  v->type = type;
  v->storage = std::move(storage);
  return HTensor::adopt(v);
}

HTensor make_traced(const TensorType& type, uint64_t generation, ValueId id) {
  auto* v = new hx_value;
  v->type = type;
  v->generation = generation;
  v->id = id;
  return HTensor::adopt(v);
}

HTensor view_of(const TensorType& type, void* data, std::shared_ptr<const void> keep) {
  return make_value(type, std::make_shared<Storage>(data, type.bytes(), std::move(keep), true));
}

}  // namespace harmonics::engine
