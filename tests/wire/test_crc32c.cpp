// Compares checksums with RFC 3720, and every implementation with the definition.
#include <catch2/catch.hpp>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "wire/crc32c.hpp"

using namespace harmonics::wire;

namespace {

std::vector<std::byte> of(std::initializer_list<int> bytes) {
  std::vector<std::byte> all;
  for (int b : bytes) all.push_back(static_cast<std::byte>(b));
  return all;
}
std::span<const std::byte> of(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

std::vector<std::byte> random_bytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> all(size);
  for (auto& b : all) b = static_cast<std::byte>(random());
  return all;
}

// Computes bit by bit, as in the definition.
uint32_t slow(std::span<const std::byte> bytes) {
  uint32_t crc = ~0u;
  for (std::byte b : bytes) {
    crc ^= static_cast<uint32_t>(b);
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ ((crc & 1) ? 0x82F63B78u : 0);
  }
  return ~crc;
}

}  // namespace

TEST_CASE("crc32c: checksums equal those of RFC 3720") {
  std::vector<std::byte> up, down;
  for (int i = 0; i < 32; ++i) up.push_back(static_cast<std::byte>(i)), down.push_back(static_cast<std::byte>(31 - i));
  const std::vector<std::byte> read_command =
      of({0x01, 0xC0, 0, 0,    0, 0, 0, 0,    0,    0, 0, 0, 0, 0, 0, 0, 0x14, 0, 0, 0, 0, 0, 0x04, 0,
          0,    0,    0, 0x14, 0, 0, 0, 0x18, 0x28, 0, 0, 0, 0, 0, 0, 0, 0x02, 0, 0, 0, 0, 0, 0,    0});
  for (const auto& [name, sum] : crc32c_ways()) {
    INFO(name);
    CHECK(sum(std::vector<std::byte>(32, std::byte{0}), 0) == 0x8A9136AA);
    CHECK(sum(std::vector<std::byte>(32, std::byte{0xFF}), 0) == 0x62A8AB43);
    CHECK(sum(up, 0) == 0x46DD794E);
    CHECK(sum(down, 0) == 0x113FDB5C);
    CHECK(sum(read_command, 0) == 0xD9963A56);
    CHECK(sum(of("123456789"), 0) == 0xE3069283);
    CHECK(sum({}, 0) == 0);
  }
}

TEST_CASE("crc32c: all implementations agree at every length and offset") {
  const auto bytes = random_bytes(3 * 1024 * 3 + 600, 7);
  const std::span<const std::byte> all(bytes);
  for (size_t size = 0; size < all.size(); size += size < 1300 ? 1 : 61)
    for (size_t from : {size_t{0}, size % 9}) {
      const auto part = all.subspan(std::min(from, all.size() - size), size);
      const uint32_t right = slow(part);
      for (const auto& [name, sum] : crc32c_ways()) {
        INFO(name << ": " << size << " bytes from " << from);
        REQUIRE(sum(part, 0) == right);
      }
    }
}

TEST_CASE("crc32c: a checksum can be continued") {
  const auto bytes = random_bytes(5000, 9);
  const std::span<const std::byte> all(bytes);
  const uint32_t whole = slow(all);
  for (size_t cut = 0; cut <= all.size(); cut += 37)
    for (const auto& [name, sum] : crc32c_ways()) {
      INFO(name << ", cut at " << cut);
      REQUIRE(sum(all.subspan(cut), sum(all.first(cut), 0)) == whole);
    }
}

#if defined(__x86_64__)
TEST_CASE("crc32c: the processor's instructions are used") {
  const size_t wanted = !__builtin_cpu_supports("sse4.2")                                           ? 1
                        : !__builtin_cpu_supports("pclmul")                                         ? 2
                        : __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512f") ? 4
                                                                                                    : 3;
  CHECK(crc32c_ways().size() == wanted);
  CHECK(crc32c(of("123456789")) == 0xE3069283);
}
#endif
