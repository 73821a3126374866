#include "wire/crc32c.hpp"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace harmonics::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors travel as they lie in memory, which is little-endian");

constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected: the lowest bit is the highest power

using Table = std::array<uint32_t, 256>;

// tables[k][b]: the byte b followed by k zero bytes. Eight of them take eight bytes a turn.
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

// What a number of zero bytes does to a checksum is linear in its bits: a table per byte of the checksum.
template <size_t kZeros> constexpr std::array<Table, 4> make_shift() {
  std::array<uint32_t, 32> column{};
  for (int bit = 0; bit < 32; ++bit) column[bit] = uint32_t{1} << bit;
  for (auto& c : column)
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) ? kPolynomial : 0);  // one zero byte
  for (size_t zeros = 1; zeros < kZeros; zeros *= 2) {
    const auto once = column;
    for (auto& c : column) {
      uint32_t twice = 0;
      for (int bit = 0; bit < 32; ++bit) twice ^= (c >> bit & 1) ? once[bit] : 0;
      c = twice;
    }
  }
  std::array<Table, 4> shift{};
  for (size_t k = 0; k < 4; ++k)
    for (uint32_t b = 0; b < 256; ++b)
      for (int bit = 0; bit < 8; ++bit) shift[k][b] ^= (b >> bit & 1) ? column[8 * k + bit] : 0;
  return shift;
}

// The instruction takes three cycles and can begin every cycle: three stretches at a time, joined afterwards.
template <size_t kStretch> __attribute__((target("sse4.2"))) void three_stretches(const std::byte*& at, size_t& size, uint64_t& crc) {
  static_assert(std::has_single_bit(kStretch));
  static constexpr std::array<Table, 4> kShift = make_shift<kStretch>();
  const auto shifted = [](uint64_t c) {
    return kShift[0][c & 255] ^ kShift[1][c >> 8 & 255] ^ kShift[2][c >> 16 & 255] ^ kShift[3][c >> 24 & 255];
  };
  for (; size >= 3 * kStretch; at += 3 * kStretch, size -= 3 * kStretch) {
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < kStretch; i += 8) {
      crc = _mm_crc32_u64(crc, word_at(at + i));
      second = _mm_crc32_u64(second, word_at(at + kStretch + i));
      third = _mm_crc32_u64(third, word_at(at + 2 * kStretch + i));
    }
    crc = shifted(shifted(crc) ^ second) ^ third;
  }
}

__attribute__((target("sse4.2"))) uint32_t by_instruction(const std::byte* at, size_t size, uint32_t before) {
  uint64_t crc = before;
  three_stretches<1024>(at, size, crc);
  three_stretches<128>(at, size, crc);
  for (; size >= 8; at += 8, size -= 8) crc = _mm_crc32_u64(crc, word_at(at));
  auto rest = static_cast<uint32_t>(crc);
  for (; size > 0; ++at, --size) rest = _mm_crc32_u8(rest, static_cast<uint8_t>(*at));
  return rest;
}

bool has_instruction() {
  static const bool has = __builtin_cpu_supports("sse4.2");
  return has;
}

#else

uint32_t by_instruction(const std::byte* at, size_t size, uint32_t before) { return by_tables(at, size, before); }
bool has_instruction() { return false; }

#endif

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  if (!has_instruction()) return crc32c_portable(bytes, before);
  return ~by_instruction(bytes.data(), bytes.size(), ~before);
}

uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t before) { return ~by_tables(bytes.data(), bytes.size(), ~before); }

bool crc32c_is_native() { return has_instruction(); }

}  // namespace harmonics::wire
