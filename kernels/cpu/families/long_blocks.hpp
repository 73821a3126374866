// Decodes GGUF's blocks of 256 to vectors of f32, with the interface of stored_types.hpp.
#pragma once

#include "stored_types.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Blocks of 256 with a scale for each run.
struct LongBlocks : NoScales {
  static constexpr int64_t kStep = 256;
  HM_INLINE static vf part(const char*, int64_t, int64_t) { return vf{}; }
  // Stores sixteen signed bytes multiplied by `scales`.
  HM_INLINE static void scaled(__m128i bytes, const vf* scales, float* to) {
    store(to, floats_of<0>(bytes) * scales[0]);
    if constexpr (kWidth < 16) store(to + kWidth, floats_of<1>(bytes) * scales[1]);
    if constexpr (kWidth < 8) {
      store(to + 2 * kWidth, floats_of<2>(bytes) * scales[2]);
      store(to + 3 * kWidth, floats_of<3>(bytes) * scales[3]);
    }
  }
  HM_INLINE static void scaled(__m128i bytes, float scale, float* to) {
    vf scales[16 / kWidth];
    for (vf& v : scales) v = splat(scale);
    scaled(bytes, scales, to);
  }
};

#if defined(__AVX2__)
// Blocks are first unpacked to bytes, 32 at a time.
HM_INLINE __m256i load_32(const char* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
HM_INLINE void store_32(char* p, __m256i v) { _mm256_store_si256(reinterpret_cast<__m256i*>(p), v); }
HM_INLINE __m256i bits_of_32(__m256i v, int mask) {
  return _mm256_and_si256(v, _mm256_set1_epi8(static_cast<char>(mask)));
}

// Calls f for the vectors of 256 signed bytes, converted by `number`.
template <typename Number, typename F>
HM_INLINE void each_of_bytes(const char* bytes, Number number, F f) {
#pragma GCC unroll 32
  for (int v = 0; v < 256 / kWidth; ++v) f(v, number(v * static_cast<int>(kWidth), load_floats(bytes + v * kWidth)));
}
#endif

HM_INLINE uint32_t load_u32(const char* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}

// q4_k and q5_k begin with eight packed scales and minima of 6 bits.
struct EightPairs : LongBlocks {
  HM_INLINE static void pairs(const char* block, float* to) {
    // From the lanes a, b and c: a & 63, c & 15 | a >> 6 << 4, b & 63, c >> 4 | b >> 6 << 4.
    const __m128i all = load_bytes(block), low = _mm_shuffle_epi32(all, 0xed), high = _mm_shuffle_epi32(all, 0x94);
    const __m128i shifted = _mm_blend_epi16(low, _mm_srli_epi32(low, 4), 0xc0);
    const __m128i packed =
        _mm_or_si128(_mm_and_si128(shifted, _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f)),
                     _mm_and_si128(_mm_srli_epi32(high, 2), _mm_setr_epi32(0, 0x30303030, 0, 0x30303030)));
#if defined(__AVX512F__)
    const __m512 head = _mm512_castps128_ps512(_mm_cvtph_ps(all));
    const vf scales[1] = {
        _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1), head)};
#else
    const vf head = floats_of_halves(reinterpret_cast<const uint16_t*>(block));
    const float scale = head[0], minimum = head[1];
    vf scales[16 / kWidth];
    for (int i = 0; i < 16 / kWidth; ++i)
      scales[i] = choose(lanes() < 8 - i * static_cast<int>(kWidth), splat(scale), splat(minimum));
#endif
    scaled(packed, scales, to);
  }
};

struct Quarters : EightPairs {  // q4_k
  static constexpr int64_t kStepBytes = 144;
  HM_INLINE static int64_t at(int64_t k) { return k / 256 * kStepBytes; }
  template <typename F>
  HM_INLINE static void each(const char* row, int64_t k, float, F f) {
    const char* block = row + at(k);
    alignas(64) float pairs[16];
    EightPairs::pairs(block, pairs);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const char* bytes = block + 16 + 32 * i;
      const vf step = splat(pairs[2 * i]), least = splat(pairs[8 + 2 * i]), next_step = splat(pairs[2 * i + 1]),
               next_least = splat(pairs[9 + 2 * i]);
#if defined(__AVX512F__)
      const vf levels = __builtin_convertvector(lanes(), vf);
      const vf table = rounded(step * levels) - least, next = rounded(next_step * levels) - next_least;
      const __m512i first = widen(load_bytes(bytes)), second = widen(load_bytes(bytes + 16));
      f(4 * i, look_up(first, table));
      f(4 * i + 1, look_up(second, table));
      f(4 * i + 2, look_up(high_bits(first), next));
      f(4 * i + 3, look_up(high_bits(second), next));
#else
      constexpr int kVectors = 32 / kWidth;
      const __m128i low = _mm_set1_epi8(15), first = load_bytes(bytes), second = load_bytes(bytes + 16);
      const auto run = [&](int at, __m128i x, __m128i y, vf s, vf l) __attribute__((always_inline)) {
        const auto number = [&](vf q) __attribute__((always_inline)) { return rounded(s * q) - l; };
        f(at, number(floats_of<0>(x)));
        f(at + 1, number(floats_of<1>(x)));
        if constexpr (kWidth < 8) f(at + 2, number(floats_of<2>(x))), f(at + 3, number(floats_of<3>(x)));
        f(at + kVectors / 2, number(floats_of<0>(y)));
        f(at + kVectors / 2 + 1, number(floats_of<1>(y)));
        if constexpr (kWidth < 8)
          f(at + kVectors / 2 + 2, number(floats_of<2>(y))), f(at + kVectors / 2 + 3, number(floats_of<3>(y)));
      };
      run(2 * kVectors * i, _mm_and_si128(first, low), _mm_and_si128(second, low), step, least);
      run(2 * kVectors * i + kVectors, _mm_and_si128(_mm_srli_epi16(first, 4), low),
          _mm_and_si128(_mm_srli_epi16(second, 4), low), next_step, next_least);
#endif
    }
  }
};

struct SixBits : LongBlocks {  // q6_k
  static constexpr int64_t kStepBytes = 210;
  HM_INLINE static int64_t at(int64_t k) { return k / 256 * kStepBytes; }
  template <typename F>
  HM_INLINE static void each(const char* row, int64_t k, float, F f) {
    const char* block = row + at(k);
    alignas(64) float steps[16];
    scaled(load_bytes(block + 192), float_of_half(block + 208), steps);
#if defined(__AVX2__)
    alignas(64) char bytes[256];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m256i first = load_32(block + 64 * half), second = load_32(block + 64 * half + 32),
                    high = load_32(block + 128 + 32 * half);
      const auto put = [&](int at, __m256i nibbles, __m256i pairs) __attribute__((always_inline)) {
        store_32(
            bytes + 128 * half + at,
            _mm256_sub_epi8(_mm256_or_si256(bits_of_32(nibbles, 15), bits_of_32(pairs, 48)), _mm256_set1_epi8(32)));
      };
      put(0, first, _mm256_slli_epi16(high, 4));
      put(32, second, _mm256_slli_epi16(high, 2));
      put(64, _mm256_srli_epi16(first, 4), high);
      put(96, _mm256_srli_epi16(second, 4), _mm256_srli_epi16(high, 2));
    }
    each_of_bytes(
        bytes, [&](int at, vf q) __attribute__((always_inline)) { return splat(steps[at / 16]) * q; }, f);
#else
    const __m128i four = _mm_set1_epi8(15), two = _mm_set1_epi8(3), middle = _mm_set1_epi8(32);
    constexpr int kVectors = 16 / kWidth;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const int upper = i / 8, quarter = i % 8 / 2, part = i % 2;
      const __m128i low = load_bytes(block + 64 * upper + quarter % 2 * 32 + 16 * part),
                    high = load_bytes(block + 128 + 32 * upper + 16 * part);
      const __m128i nibbles = _mm_and_si128(quarter < 2 ? low : _mm_srli_epi16(low, 4), four),
                    pairs = _mm_slli_epi16(_mm_and_si128(_mm_srli_epi16(high, 2 * quarter), two), 4);
      const __m128i bytes = _mm_sub_epi8(_mm_or_si128(nibbles, pairs), middle);
      const vf step = splat(steps[i]);
      sixteen(
          kVectors * i, bytes, [&](vf q) __attribute__((always_inline)) { return step * q; }, f);
    }
#endif
  }
};

struct FiveAndMinima : EightPairs {  // q5_k
  static constexpr int64_t kStepBytes = 176;
  HM_INLINE static int64_t at(int64_t k) { return k / 256 * kStepBytes; }
  template <typename F>
  HM_INLINE static void each(const char* row, int64_t k, float, F f) {
    const char* block = row + at(k);
    alignas(64) float pairs[16];
    EightPairs::pairs(block, pairs);
#if defined(__AVX2__)
    alignas(64) char bytes[256];
    const __m256i high = load_32(block + 16);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const __m256i low = load_32(block + 48 + 32 * i);
      const auto fifth = [&](int run) __attribute__((always_inline)) {
        return bits_of_32(run < 4 ? _mm256_slli_epi16(high, 4 - run) : _mm256_srli_epi16(high, run - 4), 16);
      };
      store_32(bytes + 64 * i, _mm256_or_si256(bits_of_32(low, 15), fifth(2 * i)));
      store_32(bytes + 64 * i + 32, _mm256_or_si256(bits_of_32(_mm256_srli_epi16(low, 4), 15), fifth(2 * i + 1)));
    }
    each_of_bytes(
        bytes,
        [&](int at, vf q)
            __attribute__((always_inline)) { return rounded(splat(pairs[at / 32]) * q) - splat(pairs[8 + at / 32]); },
        f);
#else
    constexpr int kVectors = 16 / kWidth;
#pragma GCC unroll 8
    for (int run = 0; run < 8; ++run) {
      const vf step = splat(pairs[run]), least = splat(pairs[8 + run]);
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const __m128i low = load_bytes(block + 48 + run / 2 * 32 + 16 * half),
                      high = _mm_srli_epi16(load_bytes(block + 16 + 16 * half), run);
        const __m128i fifth = _mm_slli_epi16(_mm_and_si128(high, _mm_set1_epi8(1)), 4);
        sixteen(
            kVectors * (2 * run + half), _mm_or_si128(run % 2 ? high_four(low) : low_four(low), fifth),
            [&](vf q) __attribute__((always_inline)) { return rounded(step * q) - least; }, f);
      }
    }
#endif
  }
};

struct TwoBits : LongBlocks {  // q2_k
  static constexpr int64_t kStepBytes = 84;
  HM_INLINE static int64_t at(int64_t k) { return k / 256 * kStepBytes; }
  template <typename F>
  HM_INLINE static void each(const char* row, int64_t k, float, F f) {
    const char* block = row + at(k);
    const __m128i pairs = load_bytes(block);
    alignas(64) float steps[16], leasts[16];
    scaled(low_four(pairs), float_of_half(block + 80), steps);
    scaled(high_four(pairs), float_of_half(block + 82), leasts);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const int half = i / 8, quarter = i % 8 / 2, part = i % 2;
      const __m128i bytes = load_bytes(block + 16 + 32 * half + 16 * part);
      const vf step = splat(steps[i]), least = splat(leasts[i]);
      sixteen(
          16 / kWidth * i, _mm_and_si128(_mm_srli_epi16(bytes, 2 * quarter), _mm_set1_epi8(3)),
          [&](vf q) __attribute__((always_inline)) { return rounded(step * q) - least; }, f);
    }
  }
};

struct ThreeBits : LongBlocks {  // q3_k
  static constexpr int64_t kStepBytes = 110;
  HM_INLINE static int64_t at(int64_t k) { return k / 256 * kStepBytes; }
  template <typename F>
  HM_INLINE static void each(const char* row, int64_t k, float, F f) {
    const char* block = row + at(k);
    const uint32_t a = load_u32(block + 96), b = load_u32(block + 100), c = load_u32(block + 104), four = 0x0f0f0f0f,
                   two = 0x03030303;
    const __m128i scales = _mm_setr_epi32(static_cast<int>((a & four) | (c & two) << 4),
                                          static_cast<int>((b & four) | (c >> 2 & two) << 4),
                                          static_cast<int>((a >> 4 & four) | (c >> 4 & two) << 4),
                                          static_cast<int>((b >> 4 & four) | (c >> 6 & two) << 4));
    alignas(64) float steps[16];
    scaled(_mm_sub_epi8(scales, _mm_set1_epi8(32)), float_of_half(block + 108), steps);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const int half = i / 8, quarter = i % 8 / 2, part = i % 2;
      const __m128i low = _mm_srli_epi16(load_bytes(block + 32 + 32 * half + 16 * part), 2 * quarter),
                    high = _mm_srli_epi16(load_bytes(block + 16 * part), i / 2);
      const __m128i third = _mm_slli_epi16(_mm_and_si128(high, _mm_set1_epi8(1)), 2);
      const vf step = splat(steps[i]);
      sixteen(
          16 / kWidth * i, _mm_sub_epi8(_mm_or_si128(_mm_and_si128(low, _mm_set1_epi8(3)), third), _mm_set1_epi8(4)),
          [&](vf q) __attribute__((always_inline)) { return step * q; }, f);
    }
  }
};

struct UnevenRuns : LongBlocks {  // iq4_xs
  static constexpr int64_t kStepBytes = 136;
  HM_INLINE static int64_t at(int64_t k) { return k / 256 * kStepBytes; }
  template <typename F>
  HM_INLINE static void each(const char* row, int64_t k, float, F f) {
    const char* block = row + at(k);
    const uint32_t high = load_u16(block + 2), low = load_u32(block + 4);
    const float scale = float_of_half(block);
    constexpr int kVectors = 16 / kWidth;
#pragma GCC unroll 8
    for (int run = 0; run < 8; ++run) {
      const uint32_t index = (low >> 4 * run & 15) | (high >> 2 * run & 3) << 4;
      const vf step = splat(scale * static_cast<float>(static_cast<int>(index) - 32));
      const auto number = [&](vf q) __attribute__((always_inline)) { return step * q; };
      const __m128i bytes = load_bytes(block + 8 + 16 * run);
      sixteen(2 * kVectors * run, _mm_shuffle_epi8(uneven_steps(), low_four(bytes)), number, f);
      sixteen(2 * kVectors * run + kVectors, _mm_shuffle_epi8(uneven_steps(), high_four(bytes)), number, f);
    }
  }
};

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
