// Decodes 16-bit floats and stored types to vectors of f32, with the bits of the reference conversion
// (harmonics/element_conversion.hpp).
#pragma once

#include <cstring>

#include <harmonics/element_tables.hpp>

#include "simd.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// ---- vectors of numbers from bytes

HM_INLINE __m128i load_bytes(const char* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }

// Returns vector `i` of the sixteen signed bytes.
template <int i>
HM_INLINE vf floats_of(__m128i bytes) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
#elif defined(__AVX2__)
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8 * i)));
#else
  return _mm_cvtepi32_ps(_mm_cvtepi8_epi32(_mm_srli_si128(bytes, 4 * i)));
#endif
}

// Loads kWidth signed bytes.
HM_INLINE vf load_floats(const char* p) {
#if defined(__AVX512F__)
  return floats_of<0>(load_bytes(p));
#elif defined(__AVX2__)
  return floats_of<0>(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  int32_t four;
  std::memcpy(&four, p, 4);
  return floats_of<0>(_mm_cvtsi32_si128(four));
#endif
}

HM_INLINE uint16_t load_u16(const char* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}

// Loads kWidth numbers of f16.
HM_INLINE vf floats_of_halves(const uint16_t* p) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__AVX2__)
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  const vi h = (vi)_mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const vi magnitude = (h & 0x7fff) << 13;
  // 2^112 corrects the exponent bias, also for subnormal numbers.
  const vi moved = bits(as_float(magnitude) * splat(0x1p112f));
  return as_float((magnitude >= 0x0f800000 ? magnitude | 0x7f800000 : moved) | (h & 0x8000) << 16);
#endif
}

// Returns v, and prevents the compiler from fusing it with the next operation.
HM_INLINE vf rounded(vf v) {
  asm("" : "+v"(v));
  return v;
}

#if defined(__AVX512F__)
// Looks up numbers of a table by the low four bits of each lane.
HM_INLINE vf look_up(__m512i indices, vf table) { return _mm512_permutexvar_ps(indices, table); }
HM_INLINE __m512i widen(__m128i bytes) { return _mm512_cvtepu8_epi32(bytes); }
HM_INLINE __m512i high_bits(__m512i indices) { return _mm512_srli_epi32(indices, 4); }
#endif

// ---- element types: each() passes the kStep numbers from element k of a row, kStepBytes bytes, to f as vectors;
// part() returns the last n numbers

constexpr int kGroup = 16;  // blocks whose scales are converted together
// Base of types whose scales are not converted in groups.
struct NoScales {
  static constexpr bool kScales = false;
  HM_INLINE static void scales(const char*, int64_t, int64_t, float*) {}
};

template <typename Load>
struct Halves : NoScales {
  static constexpr int64_t kStep = kWidth, kStepBytes = 2 * kWidth;
  HM_INLINE static int64_t at(int64_t k) { return 2 * k; }
  template <typename F>
  HM_INLINE static void each(const char* row, int64_t k, float, F f) {
    f(0, Load::of(row + at(k)));
  }
  HM_INLINE static vf part(const char* row, int64_t k, int64_t n) {
    char bytes[2 * kWidth] = {};
    for (int64_t i = 0; i < 2 * n; ++i) bytes[i] = row[2 * k + i];
    return Load::of(bytes);
  }
};
struct LoadBFloat {
  HM_INLINE static vf of(const char* p) {
#if defined(__AVX512F__)
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16);
#elif defined(__AVX2__)
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_bytes(p)), 16);
#else
    return (vf)_mm_slli_epi32(_mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))), 16);
#endif
  }
};
using BFloats = Halves<LoadBFloat>;

struct LoadHalf {
  HM_INLINE static vf of(const char* p) { return floats_of_halves(reinterpret_cast<const uint16_t*>(p)); }
};
using Float16s = Halves<LoadHalf>;

// Blocks of 32 that begin with an f16 scale.
template <typename Bytes>
struct Blocks {
  static constexpr int64_t kStep = 32, kStepBytes = Bytes::kBlock;
  static constexpr bool kScales = true;
  HM_INLINE static int64_t at(int64_t k) { return k / 32 * Bytes::kBlock; }
  // Converts the scales of `blocks` blocks from element k.
  HM_INLINE static void scales(const char* row, int64_t k, int64_t blocks, float* to) {
    alignas(64) uint16_t halves[kGroup] = {};
    for (int64_t i = 0; i < blocks; ++i) halves[i] = load_u16(row + (k / 32 + i) * Bytes::kBlock);
    for (int i = 0; i < kGroup; i += kWidth) store(to + i, floats_of_halves(halves + i));
  }
  template <typename F>
  HM_INLINE static void each(const char* row, int64_t k, float scale_of_block, F f) {
    const char* block = row + at(k);
    const vf scale = splat(scale_of_block);
#if defined(__AVX512F__)
    if constexpr (Bytes::kTable) {
      const __m512i low = widen(load_bytes(block + 2));
      const vf table = scale * (__builtin_convertvector(lanes(), vf) - 8.0f);
      f(0, look_up(low, table));
      f(1, look_up(high_bits(low), table));
      return;
    }
#endif
    const typename Bytes::Loaded loaded = Bytes::load(block + 2);
    f(0, scale * Bytes::template vector<0>(loaded));
    f(1, scale * Bytes::template vector<1>(loaded));
    if constexpr (kWidth < 16) {
      f(2, scale * Bytes::template vector<2>(loaded));
      f(3, scale * Bytes::template vector<3>(loaded));
    }
    if constexpr (kWidth < 8) {
      f(4, scale * Bytes::template vector<4>(loaded));
      f(5, scale * Bytes::template vector<5>(loaded));
      f(6, scale * Bytes::template vector<6>(loaded));
      f(7, scale * Bytes::template vector<7>(loaded));
    }
  }
  HM_INLINE static vf part(const char*, int64_t, int64_t) { return vf{}; }  // rows are whole blocks
};
struct EightBits {
  static constexpr int64_t kBlock = 34;
  static constexpr bool kTable = false;
  using Loaded = const char*;
  HM_INLINE static Loaded load(const char* p) { return p; }
  template <int i>
  HM_INLINE static vf vector(Loaded p) {
    return load_floats(p + i * kWidth);
  }
};
struct FourBits {
  static constexpr int64_t kBlock = 18;
  static constexpr bool kTable = true;  // sixteen numbers
  struct Loaded {
    __m128i halves[2];
  };
  HM_INLINE static __m128i less_8(__m128i v) {
    return _mm_sub_epi8(_mm_and_si128(v, _mm_set1_epi8(15)), _mm_set1_epi8(8));
  }
  HM_INLINE static Loaded load(const char* p) {
    const __m128i bytes = load_bytes(p);
    return {{less_8(bytes), less_8(_mm_srli_epi16(bytes, 4))}};
  }
  template <int i>
  HM_INLINE static vf vector(const Loaded& loaded) {
    constexpr int kVectors = 16 / kWidth;  // of a half
    return floats_of<i % kVectors>(loaded.halves[i / kVectors]);
  }
};

// Converts the f16 at p.
HM_INLINE float float_of_half(const char* p) {
#if defined(__AVX2__)
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(load_u16(p))));
#else
  const uint16_t halves[4] = {load_u16(p)};
  return floats_of_halves(halves)[0];
#endif
}

// Return the low or high four bits of each byte.
HM_INLINE __m128i low_four(__m128i bytes) { return _mm_and_si128(bytes, _mm_set1_epi8(15)); }
HM_INLINE __m128i high_four(__m128i bytes) { return low_four(_mm_srli_epi16(bytes, 4)); }

// Calls f(at + i, vector i) for the sixteen signed bytes, converted by `number`.
template <typename Number, typename F>
HM_INLINE void sixteen(int at, __m128i bytes, Number number, F f) {
  f(at, number(floats_of<0>(bytes)));
  if constexpr (kWidth < 16) f(at + 1, number(floats_of<1>(bytes)));
  if constexpr (kWidth < 8) {
    f(at + 2, number(floats_of<2>(bytes)));
    f(at + 3, number(floats_of<3>(bytes)));
  }
}

// Blocks of 32 elements of four or five bits. Kind provides the step, the sixteen low and the sixteen high indices of a
// block, and whether a minimum follows the step.
template <typename Kind>
struct ShortBlocks : NoScales {
  static constexpr int64_t kStep = 32, kStepBytes = Kind::kBytes;
  HM_INLINE static int64_t at(int64_t k) { return k / 32 * Kind::kBytes; }
  template <typename F>
  HM_INLINE static void each(const char* row, int64_t k, float, F f) {
    const char* block = row + at(k);
    const __m128i bytes = load_bytes(block + Kind::kIndices);
    const vf step = splat(Kind::step(block)), least = splat(Kind::kLeast ? float_of_half(block + 2) : 0.0f);
    const auto number = [&](vf q) __attribute__((always_inline)) {
      if constexpr (Kind::kLeast)
        return rounded(step * q) + least;
      else
        return step * q;
    };
#if defined(__AVX512F__)
    if constexpr (Kind::kTable) {
      const __m512i indices = widen(bytes);
      const vf table = step * floats_of<0>(Kind::table());
      f(0, look_up(indices, table));
      f(1, look_up(high_bits(indices), table));
      return;
    }
#endif
    sixteen(0, Kind::low(block, bytes), number, f);
    sixteen(16 / kWidth, Kind::high(block, bytes), number, f);
  }
  HM_INLINE static vf part(const char*, int64_t, int64_t) { return vf{}; }  // rows are whole blocks
};

struct FourAndLeast {  // q4_1
  static constexpr int64_t kBytes = 20, kIndices = 4;
  static constexpr bool kLeast = true, kTable = false;
  HM_INLINE static float step(const char* block) { return float_of_half(block); }
  HM_INLINE static __m128i low(const char*, __m128i bytes) { return low_four(bytes); }
  HM_INLINE static __m128i high(const char*, __m128i bytes) { return high_four(bytes); }
};

// Returns 16 in each byte whose bit is set.
HM_INLINE __m128i fifth_bits(uint16_t flags) {
  const __m128i spread = _mm_shuffle_epi8(_mm_cvtsi32_si128(flags),
                                          _mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1)),
                own = _mm_setr_epi8(1, 2, 4, 8, 16, 32, 64, -128, 1, 2, 4, 8, 16, 32, 64, -128);
  return _mm_and_si128(_mm_cmpeq_epi8(_mm_and_si128(spread, own), own), _mm_set1_epi8(16));
}

struct FiveBits {  // q5_0
  static constexpr int64_t kBytes = 22, kIndices = 6;
  static constexpr bool kLeast = false, kTable = false;
  HM_INLINE static float step(const char* block) { return float_of_half(block); }
  HM_INLINE static __m128i low(const char* block, __m128i bytes) {
    return _mm_sub_epi8(_mm_or_si128(low_four(bytes), fifth_bits(load_u16(block + 2))), _mm_set1_epi8(16));
  }
  HM_INLINE static __m128i high(const char* block, __m128i bytes) {
    return _mm_sub_epi8(_mm_or_si128(high_four(bytes), fifth_bits(load_u16(block + 4))), _mm_set1_epi8(16));
  }
};

struct FiveAndLeast {  // q5_1
  static constexpr int64_t kBytes = 24, kIndices = 8;
  static constexpr bool kLeast = true, kTable = false;
  HM_INLINE static float step(const char* block) { return float_of_half(block); }
  HM_INLINE static __m128i low(const char* block, __m128i bytes) {
    return _mm_or_si128(low_four(bytes), fifth_bits(load_u16(block + 4)));
  }
  HM_INLINE static __m128i high(const char* block, __m128i bytes) {
    return _mm_or_si128(high_four(bytes), fifth_bits(load_u16(block + 6)));
  }
};

HM_INLINE __m128i uneven_steps() {
  return _mm_setr_epi8(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
}
HM_INLINE __m128i half_steps() { return _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12); }

struct UnevenFour {  // iq4_nl
  static constexpr int64_t kBytes = 18, kIndices = 2;
  static constexpr bool kLeast = false, kTable = true;
  HM_INLINE static __m128i table() { return uneven_steps(); }
  HM_INLINE static float step(const char* block) { return float_of_half(block); }
  HM_INLINE static __m128i low(const char*, __m128i bytes) { return _mm_shuffle_epi8(uneven_steps(), low_four(bytes)); }
  HM_INLINE static __m128i high(const char*, __m128i bytes) {
    return _mm_shuffle_epi8(uneven_steps(), high_four(bytes));
  }
};

// Returns half of the power of two with the exponent byte of mxfp4.
HM_INLINE float half_power(char exponent) {
  const auto e = static_cast<uint8_t>(exponent);
  const uint32_t number = e == 255 ? 0x7fc00000u : e < 2 ? 0x00200000u << e : (e - 1u) << 23;
  float power;
  std::memcpy(&power, &number, sizeof power);
  return power;
}

struct HalfStepFour {  // mxfp4
  static constexpr int64_t kBytes = 17, kIndices = 1;
  static constexpr bool kLeast = false, kTable = true;
  HM_INLINE static __m128i table() { return half_steps(); }
  HM_INLINE static float step(const char* block) { return half_power(block[0]); }
  HM_INLINE static __m128i low(const char*, __m128i bytes) { return _mm_shuffle_epi8(half_steps(), low_four(bytes)); }
  HM_INLINE static __m128i high(const char*, __m128i bytes) { return _mm_shuffle_epi8(half_steps(), high_four(bytes)); }
};

// ---- elements of one byte or half a byte, without scales

// Loads kBytes bytes, padded with zeros.
template <int64_t kBytes>
HM_INLINE __m128i load_few(const char* p) {
  if constexpr (kBytes == 16) {
    return load_bytes(p);
  } else if constexpr (kBytes == 8) {
    return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
  } else {
    int32_t number = 0;
    std::memcpy(&number, p, kBytes);
    return _mm_cvtsi32_si128(number);
  }
}

HM_INLINE vi integers_of(__m128i bytes) {  // unsigned
#if defined(__AVX512F__)
  return (vi)_mm512_cvtepu8_epi32(bytes);
#elif defined(__AVX2__)
  return (vi)_mm256_cvtepu8_epi32(bytes);
#else
  return (vi)_mm_cvtepu8_epi32(bytes);
#endif
}

template <typename Load>
struct Narrow : NoScales {
  static constexpr int64_t kStep = kWidth, kStepBytes = kWidth / Load::kInByte;
  HM_INLINE static int64_t at(int64_t k) { return k / Load::kInByte; }
  template <typename F>
  HM_INLINE static void each(const char* row, int64_t k, float, F f) {
    f(0, Load::of(load_few<kStepBytes>(row + at(k))));
  }
  HM_INLINE static vf part(const char* row, int64_t k, int64_t n) {
    char bytes[kStepBytes] = {};
    for (int64_t i = 0; i < n / Load::kInByte; ++i) bytes[i] = row[at(k) + i];
    return Load::of(load_few<kStepBytes>(bytes));
  }
};

struct LoadE4M3 {
  static constexpr int64_t kInByte = 1;
  HM_INLINE static vf of(__m128i bytes) {
    const vi v = integers_of(bytes), sign = (v & 0x80) << 24, size = v & 0x7f;
    const vi tiny = bits(__builtin_convertvector(size, vf) * 0x1p-9f), number = (size << 20) + (120 << 23),
             none = splat_int(0x7fc00000);
    return as_float((size == 0x7f ? none : size < 8 ? tiny : number) | sign);
  }
};
struct LoadE5M2 {
  static constexpr int64_t kInByte = 1;
  HM_INLINE static vf of(__m128i bytes) {  // the bytes are the upper halves of f16 numbers
    uint16_t halves[16];
    const __m128i none = _mm_setzero_si128();
    _mm_storeu_si128(reinterpret_cast<__m128i*>(halves), _mm_unpacklo_epi8(none, bytes));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(halves + 8), _mm_unpackhi_epi8(none, bytes));
    return floats_of_halves(halves);
  }
};

template <const float* kNumbers>
struct LoadFourBitCodes {
  static constexpr int64_t kInByte = 2;
  HM_INLINE static vf of(__m128i bytes) {  // the high bits first
    const vi indices = integers_of(_mm_unpacklo_epi8(high_four(bytes), low_four(bytes)));
#if defined(__AVX512F__)
    return look_up((__m512i)indices, load(kNumbers));
#elif defined(__AVX2__)
    const vf low = _mm256_permutevar8x32_ps(load(kNumbers), (__m256i)indices),
             high = _mm256_permutevar8x32_ps(load(kNumbers + 8), (__m256i)indices);
    return choose(indices < 8, low, high);
#else
    vf v;
    for (int i = 0; i < kWidth; ++i) v[i] = kNumbers[indices[i]];
    return v;
#endif
  }
};
using LoadQuantiles = LoadFourBitCodes<detail::normal_quantiles>;
using LoadFourBitFloats = LoadFourBitCodes<detail::four_bit_floats>;

struct LoadFourBitIntegers {  // i4
  static constexpr int64_t kInByte = 2;
  HM_INLINE static vf of(__m128i bytes) {  // the low bits first
    const vi unsigned_numbers = integers_of(_mm_unpacklo_epi8(low_four(bytes), high_four(bytes)));
    return __builtin_convertvector((unsigned_numbers ^ 8) - 8, vf);
  }
};

// ---- blocks: an f32 scale, then 64 of these elements

template <typename Load>
struct ScaledBlocks : NoScales {
  static constexpr int64_t kBytes = kWidth / Load::kInByte;  // of a vector
  static constexpr int64_t kStep = 64, kStepBytes = 4 + 64 / Load::kInByte;
  HM_INLINE static int64_t at(int64_t k) { return k / 64 * kStepBytes; }
  template <typename F>
  HM_INLINE static void each(const char* row, int64_t k, float, F f) {
    const char* block = row + at(k);
    float number;
    std::memcpy(&number, block, sizeof number);
    const vf scale = splat(number);
#pragma GCC unroll 16
    for (int v = 0; v < 64 / kWidth; ++v) f(v, scale * Load::of(load_few<kBytes>(block + 4 + v * kBytes)));
  }
  HM_INLINE static vf part(const char*, int64_t, int64_t) { return vf{}; }  // rows are whole blocks
};

}  // namespace
}  // namespace harmonics::cpu::HM_ISA
