#include "wire/crc32c.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace harmonics::wire {
namespace {

static_assert(std::endian::native == std::endian::little,
              "tensors are sent as they are in memory, which must be little-endian");

constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected: the lowest bit is the highest power

using Table = std::array<uint32_t, 256>;

// tables[k][b]: the CRC of byte b followed by k zero bytes. Eight tables process eight bytes per iteration.
constexpr std::array<Table, 8> make_tables() {
  std::array<Table, 8> tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (uint32_t b = 0; b < 256; ++b) tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 255];
  return tables;
}
constexpr std::array<Table, 8> kTables = make_tables();

uint64_t word_at(const std::byte* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

uint32_t by_tables(const std::byte* at, size_t size, uint32_t crc) {
  for (; size >= 8; at += 8, size -= 8) {
    const uint64_t word = word_at(at) ^ crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 255];
  }
  for (; size > 0; ++at, --size) crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint32_t>(*at)) & 255];
  return crc;
}

#if defined(__x86_64__)

// Folding: the preceding bytes are multiplied by x to the power of their distance, modulo the polynomial, so that
// many bytes are processed at once (Gopal and others, "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
// Instruction", Intel 2009). In the reflected bit order a product of two words is one power too low, and a 32-bit
// constant in the low half of a word is 32 powers too high: hence 31 and 33.
constexpr int64_t power_of_x(int n) {
  uint32_t power = uint32_t{1} << 31;
  for (; n > 0; --n) power = (power >> 1) ^ ((power & 1) ? kPolynomial : 0);
  return power;
}
// The constants for the first and second word of 16 bytes, over a distance in bits.
template <int kBits>
constexpr int64_t kFirst = power_of_x(kBits + 31);
template <int kBits>
constexpr int64_t kSecond = power_of_x(kBits - 33);

#define HARMONICS_INSTRUCTION __attribute__((target("sse4.2")))
#define HARMONICS_FOLDING __attribute__((target("sse4.2,pclmul")))
#define HARMONICS_WIDE_FOLDING __attribute__((target("sse4.2,pclmul,avx512f,vpclmulqdq")))

HARMONICS_INSTRUCTION uint32_t by_instruction(const std::byte* at, size_t size, uint32_t before) {
  uint64_t crc = before;
  for (; size >= 8; at += 8, size -= 8) crc = _mm_crc32_u64(crc, word_at(at));
  auto rest = static_cast<uint32_t>(crc);
  for (; size > 0; ++at, --size) rest = _mm_crc32_u8(rest, static_cast<uint8_t>(*at));
  return rest;
}

HARMONICS_FOLDING __m128i load(const std::byte* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }
template <int kBits>
HARMONICS_FOLDING __m128i fold(__m128i far, __m128i near) {
  const __m128i by = _mm_set_epi64x(kSecond<kBits>, kFirst<kBits>);
  return _mm_xor_si128(near, _mm_xor_si128(_mm_clmulepi64_si128(far, by, 0x00), _mm_clmulepi64_si128(far, by, 0x11)));
}
// `last` represents all bytes before `at`.
HARMONICS_FOLDING uint32_t finish(__m128i last, const std::byte* at, size_t size) {
  const uint64_t first = _mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(last)));
  return by_instruction(at, size,
                        static_cast<uint32_t>(_mm_crc32_u64(first, static_cast<uint64_t>(_mm_extract_epi64(last, 1)))));
}

HARMONICS_FOLDING uint32_t by_folding(const std::byte* at, size_t size, uint32_t before) {
  constexpr size_t kTurn = 64;
  if (size < 2 * kTurn) return by_instruction(at, size, before);
  __m128i v0 = _mm_xor_si128(load(at), _mm_cvtsi32_si128(static_cast<int>(before))), v1 = load(at + 16),
          v2 = load(at + 32), v3 = load(at + 48);
  for (at += kTurn, size -= kTurn; size >= kTurn; at += kTurn, size -= kTurn) {
    v0 = fold<512>(v0, load(at)), v1 = fold<512>(v1, load(at + 16));
    v2 = fold<512>(v2, load(at + 32)), v3 = fold<512>(v3, load(at + 48));
  }
  return finish(fold<128>(fold<128>(fold<128>(v0, v1), v2), v3), at, size);
}

HARMONICS_WIDE_FOLDING __m512i load_wide(const std::byte* at) { return _mm512_loadu_si512(at); }
template <int kBits>
HARMONICS_WIDE_FOLDING __m512i fold_wide(__m512i far, __m512i near) {
  constexpr int kXorOfThree = 0x96;
  const __m512i by = _mm512_set4_epi64(kSecond<kBits>, kFirst<kBits>, kSecond<kBits>, kFirst<kBits>);
  return _mm512_ternarylogic_epi64(near, _mm512_clmulepi64_epi128(far, by, 0x00),
                                   _mm512_clmulepi64_epi128(far, by, 0x11), kXorOfThree);
}

HARMONICS_WIDE_FOLDING uint32_t by_wide_folding(const std::byte* at, size_t size, uint32_t before) {
  constexpr size_t kTurn = 256;
  if (size < 2 * kTurn) return by_folding(at, size, before);
  const __m512i begun = _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(before)));
  __m512i v0 = _mm512_xor_si512(load_wide(at), begun), v1 = load_wide(at + 64), v2 = load_wide(at + 128),
          v3 = load_wide(at + 192);
  for (at += kTurn, size -= kTurn; size >= kTurn; at += kTurn, size -= kTurn) {
    v0 = fold_wide<2048>(v0, load_wide(at)), v1 = fold_wide<2048>(v1, load_wide(at + 64));
    v2 = fold_wide<2048>(v2, load_wide(at + 128)), v3 = fold_wide<2048>(v3, load_wide(at + 192));
  }
  alignas(64) std::byte last[64];
  _mm512_store_si512(last, fold_wide<512>(fold_wide<512>(fold_wide<512>(v0, v1), v2), v3));
  const __m128i l0 = load(last), l1 = load(last + 16), l2 = load(last + 32), l3 = load(last + 48);
  return finish(fold<128>(fold<128>(fold<128>(l0, l1), l2), l3), at, size);
}

#endif

template <uint32_t (*kSum)(const std::byte* at, size_t size, uint32_t before)>
uint32_t checksum(std::span<const std::byte> bytes, uint32_t before) {
  return ~kSum(bytes.data(), bytes.size(), ~before);
}

std::vector<Crc32cWay> ways() {
  std::vector<Crc32cWay> ways{{"tables", checksum<by_tables>}};
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("sse4.2")) return ways;
  ways.push_back({"instruction", checksum<by_instruction>});
  if (!__builtin_cpu_supports("pclmul")) return ways;
  ways.push_back({"folding", checksum<by_folding>});
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq"))
    ways.push_back({"wide folding", checksum<by_wide_folding>});
#endif
  return ways;
}

}  // namespace

std::span<const Crc32cWay> crc32c_ways() {
  static const std::vector<Crc32cWay> all = ways();
  return all;
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  static const auto sum = crc32c_ways().back().sum;
  return sum(bytes, before);
}

}  // namespace harmonics::wire
