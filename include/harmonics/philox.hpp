// Philox 4x32-10 (Salmon et al., SC'11): counter-based random numbers. All random numbers of Harmonics are generated
// here, keyed by their purpose, so they do not depend on order, threads or resumption.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace harmonics {

inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0], b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

inline uint64_t splitmix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Returns the key of a stream of numbers for a seed.
inline std::array<uint32_t, 2> philox_key(uint64_t seed, uint64_t stream) {
  const uint64_t k = splitmix64(seed ^ splitmix64(stream));
  return {static_cast<uint32_t>(k), static_cast<uint32_t>(k >> 32)};
}

// Uniform in [0, 1) with 24 bits.
inline float unit_float(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

// FNV-1a hash, for streams named by a text.
inline uint64_t stream_of(const char* text, size_t length) {
  uint64_t h = 0xcbf29ce484222325u;
  for (size_t i = 0; i < length; ++i) h = (h ^ static_cast<unsigned char>(text[i])) * 0x100000001b3u;
  return h;
}

// The sequence of one key and counter: 2^34 numbers, a function only of (key, place, draw).
class PhiloxStream {
 public:
  PhiloxStream(std::array<uint32_t, 2> key, uint64_t place, uint32_t part = 0)
      : key_(key), counter_{0, static_cast<uint32_t>(place), static_cast<uint32_t>(place >> 32), part} {}

  uint32_t next() {
    if (used_ == 4) {
      block_ = philox(counter_, key_);
      ++counter_[0];
      used_ = 0;
    }
    return block_[used_++];
  }
  float uniform() { return unit_float(next()); }
  float uniform(float low, float high) { return low + (high - low) * uniform(); }
  // Returns a uniform number below n > 0, without bias (Lemire 2019).
  uint32_t below(uint32_t n) {
    uint64_t m = uint64_t{next()} * n;
    if (static_cast<uint32_t>(m) < n)
      for (const uint32_t least = (0u - n) % n; static_cast<uint32_t>(m) < least;) m = uint64_t{next()} * n;
    return static_cast<uint32_t>(m >> 32);
  }

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_, block_{};
  uint32_t used_ = 4;
};

// Writes the shuffled order of block `block` in epoch `epoch`: a permutation of 0 ... n-1 (Fisher-Yates) that depends
// only on the arguments.
inline void shuffled_order(uint32_t* order, uint32_t n, uint64_t seed, uint64_t epoch, uint64_t block) {
  PhiloxStream random(philox_key(seed, stream_of("shuffle", 7) ^ splitmix64(epoch)), block);
  for (uint32_t i = 0; i < n; ++i) order[i] = i;
  for (uint32_t i = n; i > 1; --i) {
    const uint32_t j = random.below(i), kept = order[j];
    order[j] = order[i - 1];
    order[i - 1] = kept;
  }
}

}  // namespace harmonics
