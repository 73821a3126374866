// A file's bytes for fuzzing: AddressSanitizer detects reads beyond them.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include "producers/file/array.hpp"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HM_ADDRESS_SANITIZER
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define HM_ADDRESS_SANITIZER
#endif

#ifdef HM_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#define HM_POISON(place, size) __asan_poison_memory_region(place, size)
#define HM_UNPOISON(place, size) __asan_unpoison_memory_region(place, size)
#else
#define HM_POISON(place, size) (void)(place), (void)(size)
#define HM_UNPOISON(place, size) (void)(place), (void)(size)
#endif

namespace harmonics::engine::testing {

class GuardedBytes {
 public:
  GuardedBytes(const char* name, const uint8_t* data, size_t size) : file_(FileBytes::copy(name, data, size)) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    rest_ = (page - size % page) % page;
    HM_POISON(file_->data() + size, rest_);
  }
  ~GuardedBytes() { HM_UNPOISON(file_->data() + file_->size(), rest_); }
  const FileBytesPtr& file() const { return file_; }

 private:
  FileBytesPtr file_;
  size_t rest_;
};

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

// Checks that the layout is inside its bytes, and reads all of it in order.
inline void read_everything(const ArrayLayout& layout) {
  require(layout.count > 0, "an array without samples");
  const size_t bytes = tensor_bytes(layout.dtype, layout.sample);
  require(bytes > 0 && layout.offset <= layout.bytes->size() &&
              layout.count <= (layout.bytes->size() - layout.offset) / bytes,
          "an array beyond its file");
  ArrayProducer producer(layout);
  std::vector<uint8_t> to(bytes * 3);
  uint64_t total = 0;
  for (int64_t got = 3; got == 3; total += static_cast<uint64_t>(got)) got = producer.read(3, to.data());
  require(total == layout.count, "not every sample came");
}

// Reads all samples in order, three at a time, and again by number from last to first; both must agree.
inline std::vector<uint8_t> read_everything(Producer& producer) {
  const std::optional<StreamInfo> info = producer.describe();
  require(info && info->size > 0, "a source without samples");
  const size_t bytes = info->sample_bytes();
  require(bytes > 0, "samples of no bytes");
  std::vector<uint8_t> all, three(bytes * 3), one(bytes);
  for (int64_t got = 3; got == 3;) {
    got = producer.read(3, three.data());
    require(got >= 0 && got <= 3, "a source that cannot be read in blocks");
    all.insert(all.end(), three.begin(), three.begin() + static_cast<std::ptrdiff_t>(bytes) * got);
  }
  require(all.size() == bytes * info->size, "not every sample came");
  for (uint64_t i = info->size; i-- > 0;) {
    require(producer.read_at(&i, 1, one.data()), "a sample that cannot be read by number");
    require(std::memcmp(one.data(), all.data() + i * bytes, bytes) == 0, "a sample that is another by number");
  }
  return all;
}

// Requires every rejection to be an Error with a text; readers may throw nothing else.
inline int refusing(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    require(e.what()[0] != '\0', "a refusal without text");
  }
  return 0;
}

}  // namespace harmonics::engine::testing
