#include <catch2/catch.hpp>

#include "engine/base/byte_count.hpp"

using harmonics::engine::parse_byte_count;

TEST_CASE("byte counts: plain numbers and units of 1024") {
  const uint64_t K = 1024;
  CHECK(parse_byte_count("2000000") == 2000000u);
  for (const char* unit : {"", "i", "iB"}) {
    INFO(unit);
    CHECK(parse_byte_count(std::string("3K") + unit) == 3 * K);
    CHECK(parse_byte_count(std::string("512M") + unit) == 512 * K * K);
    CHECK(parse_byte_count(std::string("4G") + unit) == 4 * K * K * K);
    CHECK(parse_byte_count(std::string("1T") + unit) == K * K * K * K);
  }
  CHECK(parse_byte_count("1048576T") == uint64_t{1} << 60);
}

TEST_CASE("byte counts: other units, zero and too large numbers are refused") {
  for (const char* text :
       {"", "K", "0", "0M", "-1", "1.5G", "4GB", "4g", "4GiBs", "4iB", "4 G", "1048577T", "18446744073709551616"}) {
    INFO(text);
    CHECK_FALSE(parse_byte_count(text));
  }
}
