// Format-aware mutations, in addition to libFuzzer's. A target that includes this and defines LLVMFuzzerCustomMutator
// with mutate() sometimes builds whole documents, with lengths whose product exceeds 2^64 or that exceed the data.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

// Provided by libFuzzer; absent when the corpus is replayed.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size) __attribute__((weak));

namespace harmonics::engine::testing {

class Choices {
 public:
  explicit Choices(unsigned seed) : random_(seed) {}
  uint64_t below(uint64_t n) { return n ? random_() % n : 0; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  template <typename T>
  const T& of(const std::vector<T>& all) {
    return all[below(all.size())];
  }

  // Returns a length whose products with similar ones are 0 or small modulo 2^64, or close to a limit.
  uint64_t length() {
    const uint64_t power = uint64_t{1} << below(64);
    switch (below(4)) {
      case 0:
        return power;
      case 1:
        return power - 1;
      case 2:
        return power + 1;
      default:
        return below(1000);
    }
  }
  std::string number() {
    static const std::vector<std::string> odd = {"0",
                                                 "-0",
                                                 "1",
                                                 "-1",
                                                 "255",
                                                 "256",
                                                 "65536",
                                                 "2147483648",
                                                 "9223372036854775807",
                                                 "-9223372036854775808",
                                                 "18446744073709551615",
                                                 "1e308",
                                                 "1e39",
                                                 "1e-400",
                                                 "0.1",
                                                 "3.4028235e38"};
    return one_in(3) ? of(odd) : std::to_string(below(300));
  }

 private:
  std::mt19937_64 random_;
};

// Rebuilds one input in four with `make`, after `kept` bytes that select options.
template <typename Make>
size_t mutate(uint8_t* data, size_t size, size_t max_size, unsigned seed, size_t kept, Make make) {
  Choices choices(seed);
  if (!choices.one_in(4) || max_size <= kept) return LLVMFuzzerMutate(data, size, max_size);
  for (size_t i = size; i < kept; ++i) data[i] = static_cast<uint8_t>(choices.below(256));
  const std::string made = make(choices, max_size - kept);
  const size_t length = std::min(made.size(), max_size - kept);
  std::memcpy(data + kept, made.data(), length);
  return kept + length;
}

}  // namespace harmonics::engine::testing
