// hx_value, the object of a tensor handle: either stored elements, or a value of a program being traced.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "engine/tensor/type.hpp"

namespace harmonics::engine {

// Memory of a tensor: owned and 64-byte aligned, or external and kept alive by `keep`.
class Storage {
 public:
  explicit Storage(size_t bytes);  // zeroed
  Storage(void* data, size_t bytes, std::shared_ptr<const void> keep, bool writable);
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  ~Storage();
  // Reserves address space without memory, for plans that do not run. Pages read as zeros and take memory when written.
  static std::shared_ptr<Storage> reserved(size_t bytes);
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool writable() const { return writable_; }
  // Returns false for external memory, which others may change.
  bool owned() const { return owned_; }

 private:
  void* data_;
  size_t bytes_;
  std::shared_ptr<const void> keep_;
  bool owned_, writable_ = true;
};

using ValueId = uint32_t;

}  // namespace harmonics::engine

struct hx_value {
  std::atomic<uint32_t> references{1};
  harmonics::engine::TensorType type;
  std::shared_ptr<harmonics::engine::Storage> storage;  // null: traced
  // A traced value is valid while the tracer of this generation is open on the thread that created it.
  uint64_t generation = 0;
  harmonics::engine::ValueId id = 0;

  bool traced() const { return storage == nullptr; }
};

namespace harmonics::engine {

HTensor make_value(const TensorType& type, std::shared_ptr<Storage> storage);
HTensor make_traced(const TensorType& type, uint64_t generation, ValueId id);
// Returns a writable tensor over external memory, such as an arena. `keep` may be null if the memory outlives it.
HTensor view_of(const TensorType& type, void* data, std::shared_ptr<const void> keep = nullptr);
inline TensorType type_of(const HTensor& t) { return t.raw()->type; }
inline std::vector<TensorType> types_of(const std::vector<HTensor>& values) {
  std::vector<TensorType> types;
  for (const HTensor& v : values) types.push_back(type_of(v));
  return types;
}

}  // namespace harmonics::engine
