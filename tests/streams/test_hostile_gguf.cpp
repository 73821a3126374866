// Hostile GGUF files are rejected with the offset and the key or tensor, in little memory.
#include <cstring>

#include "formats/gguf.hpp"
#include "tests/message_of.hpp"
#include "tests/streams/allocated.hpp"
#include "tests/streams/under_test.hpp"

using namespace harmonics;
using namespace harmonics::engine::testing;

namespace {

constexpr uint64_t kMebibyte = 1 << 20;
enum GgufNumber : uint32_t { kU8 = 0, kText = 8, kList = 9, kU64 = 10, kTypeF32 = 0, kTypeQ8 = 8 };

// Builds the bytes of a file in order.
class HostileGguf {
 public:
  HostileGguf(uint64_t tensors, uint64_t keys) { number<uint32_t>(3).number(tensors).number(keys); }
  template <typename T>
  HostileGguf& number(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  HostileGguf& name(std::string_view name) {
    number<uint64_t>(name.size());
    bytes_ += name;
    return *this;
  }
  HostileGguf& key(std::string_view key, uint32_t kind) { return name(key).number(kind); }
  HostileGguf& tensor(std::string_view of, const std::vector<uint64_t>& lengths, uint32_t type, uint64_t offset) {
    name(of).number(static_cast<uint32_t>(lengths.size()));
    for (const uint64_t length : lengths) number(length);
    return number(type).number(offset);
  }
  HostileGguf& zeros(size_t count) {
    bytes_.append(count, '\0');
    return *this;
  }
  size_t size() const { return bytes_.size(); }
  operator std::string_view() const { return bytes_; }

 private:
  std::string bytes_ = "GGUF";
};

struct GgufRefusal {
  std::string message;
  uint64_t allocated;  // total bytes, including freed ones
};

GgufRefusal gguf_refusal(std::string_view bytes) {
  const uint64_t before = bytes_allocated();
  const std::string message = message_of([&] { read_gguf(bytes, {"x.gguf", ErrorKind::Weights}); });
  return {message.substr(0, message.find('\n')), bytes_allocated() - before};
}

// Checks that the error names `place` and `what`, and that little more memory is allocated than the file has bytes.
void check_gguf(std::string_view bytes, const std::string& place, const std::string& what) {
  const GgufRefusal refusal = gguf_refusal(bytes);
  INFO(refusal.message);
  CHECK(refusal.message.find("'x.gguf' is not a GGUF file: at byte " + place) == 0);
  CHECK(refusal.message.find(what) != std::string::npos);
  CHECK(refusal.allocated < kMebibyte + bytes.size());
}

constexpr uint64_t kAllOnes = ~uint64_t{0};

}  // namespace

TEST_CASE("hostile gguf: counts that lie") {
  check_gguf(HostileGguf(kAllOnes, 0).zeros(64), "8, ", "18446744073709551615 tensors");
  check_gguf(HostileGguf(0, kAllOnes).zeros(64), "8, ", "18446744073709551615 keys of metadata");
  check_gguf(HostileGguf(0, 4'000).zeros(64), "8, ", "4000 keys of metadata cannot be in the 64 bytes that follow");
  check_gguf(HostileGguf(16'000, 0).zeros(64), "8, ", "16000 tensors cannot be described in the 64 bytes");
  for (const uint64_t items : {kAllOnes, uint64_t{1} << 61, uint64_t{1} << 40})
    for (const uint32_t kind : {kU8, kText, kList, kU64})
      check_gguf(HostileGguf(0, 1).key("a.list", kList).number(kind).number(items).zeros(64), "46, metadata 'a.list': ",
                 "a list of " + std::to_string(items) + " items does not fit into the 64 bytes that follow");
  check_gguf(HostileGguf(0, 1).key("a.text", kText).number(kAllOnes - 3).zeros(64),
             "42, metadata 'a.text': ", "is 18446744073709551612 bytes long, and 64 follow");
  check_gguf(HostileGguf(0, 1).number(uint64_t{1} << 40).zeros(64), "24, ", "a key is 1099511627776 bytes long");
  check_gguf(HostileGguf(1, 0).number(uint64_t{1} << 33).zeros(64), "24, ",
             "the name of a tensor is 8589934592 bytes long");
}

TEST_CASE("hostile gguf: lengths and offsets that overflow") {
  const auto one = [](const std::vector<uint64_t>& lengths, uint32_t type, uint64_t offset) {
    return HostileGguf(1, 0).tensor("w", lengths, type, offset).zeros(256);
  };
  check_gguf(one({uint64_t{1} << 32, uint64_t{1} << 32}, kTypeF32, 0), "53, tensor 'w': ", "its size overflows");
  check_gguf(one({uint64_t{1} << 62}, kTypeF32, 0), "45, tensor 'w': ", "its size overflows");
  check_gguf(one({kAllOnes}, kTypeF32, 0), "45, tensor 'w': ", "its size overflows");
  check_gguf(one({uint64_t{1} << 59}, kTypeQ8, 0), "57, tensor 'w': ", "end beyond the file");
  check_gguf(one({uint64_t{1} << 20, uint64_t{1} << 20, 1, 1}, kTypeF32, 0), "81, tensor 'w': ", "end beyond the file");
  check_gguf(one({33}, kTypeQ8, 0), "45, tensor 'w': ", "rows of 33 elements are not whole blocks of Q8_0");
  check_gguf(one({1}, kTypeF32, kAllOnes - 31), "57, tensor 'w': ", "end beyond the file");
  check_gguf(one({1}, kTypeF32, uint64_t{1} << 63), "57, tensor 'w': ", "end beyond the file");
  check_gguf(one({1}, kTypeF32, 1), "49, tensor 'w': ", "the offset 1 is not a multiple of 32");
  check_gguf(one({1}, 77, 0), "45, tensor 'w': ", "the type 77 is unknown");
  check_gguf(HostileGguf(1, 0).name("w").number<uint32_t>(1'000'000).zeros(256),
             "33, tensor 'w': ", "it has 1000000 axes");
  check_gguf(HostileGguf(0, 1).key("general.alignment", kU64).number(uint64_t{1} << 40).zeros(64), "61, ",
             "general.alignment is 1099511627776");
}

TEST_CASE("hostile gguf: lists in lists") {
  HostileGguf deep(0, 1);
  deep.key("a.list", kList);
  for (int i = 0; i < 100'000; ++i) deep.number<uint32_t>(kList).number<uint64_t>(1);
  check_gguf(deep.zeros(64), "82, metadata 'a.list': ", "lists are nested more than 4 deep");
  HostileGguf wide(0, 1);  // many short keys, then a long one
  wide.key("a.list", kList).number<uint32_t>(kList).number<uint64_t>(100'001);
  for (int i = 0; i < 100'000; ++i) wide.number<uint32_t>(kU8).number<uint64_t>(0);
  wide.number<uint32_t>(kU8).number(kAllOnes);
  check_gguf(wide, "1200058, metadata 'a.list': ", "a list of 18446744073709551615 items");
}

TEST_CASE("hostile gguf: names") {
  const auto key = [](std::string_view name) { return HostileGguf(0, 1).key(name, kU8).zeros(64); };
  check_gguf(key(""), "24, ", "a key is empty");
  check_gguf(key("a\xFF"), "24, ", "a key is not text");
  check_gguf(key("\xC0\xAF"), "24, ", "a key is not text");      // an overlong slash
  check_gguf(key("\xED\xA0\x80"), "24, ", "a key is not text");  // a surrogate
  check_gguf(key(std::string_view("a\0b", 3)), "24, ", "a key is not text");
  check_gguf(HostileGguf(1, 0).tensor("\x80", {1}, kTypeF32, 0).zeros(64), "24, ", "the name of a tensor is not text");
  check_gguf(HostileGguf(0, 2).key("a", kU8).number<uint8_t>(1).key("a", kU8).number<uint8_t>(2).zeros(64),
             "38, metadata 'a': ", "the key occurs twice");
  check_gguf(HostileGguf(2, 0).tensor("w", {1}, kTypeF32, 0).tensor("w", {1}, kTypeF32, 32).zeros(64),
             "57, tensor 'w': ", "the name occurs twice");
  check_gguf(HostileGguf(2, 0).tensor("v", {4}, kTypeF32, 0).tensor("w", {4}, kTypeF32, 0).zeros(64), "96, ",
             "the tensors 'v' and 'w' overlap");
}

TEST_CASE("hostile gguf: the longest tables take less than 64 MB, and longer ones are refused unread") {
  constexpr uint64_t kKeys = 1 << 12, kTensors = 1 << 14, kStep = 40'503;  // coprime to kTensors: a permutation
  const auto table = [](uint64_t tensors, uint64_t keys, bool apart, const std::string& last = "last") {
    HostileGguf file(tensors, keys);
    for (uint64_t i = 0; i < keys; ++i) file.key("k" + std::to_string(i), kU8).number<uint8_t>(0);
    for (uint64_t i = 0; i < tensors; ++i)
      file.tensor(i + 1 == tensors ? last : "t" + std::to_string(i), {1, 1, 1, 1}, kTypeF32,
                  apart && i + 1 < tensors ? i * kStep % kTensors * 32 : 0);
    return file.zeros(64 + (apart ? kTensors * 32 : 0));
  };
  for (const bool apart : {false, true}) {
    const GgufRefusal longest = gguf_refusal(table(kTensors, kKeys, apart));
    CHECK(longest.message.find(apart ? "the tensors 't0' and 'last' overlap" : "the tensors 't0' and 't1' overlap") !=
          std::string::npos);
    CHECK(longest.allocated < 64'000'000);
  }
  const GgufRefusal twice = gguf_refusal(table(kTensors, kKeys, true, "t7"));
  CHECK(twice.message.find("tensor 't7': the name occurs twice") != std::string::npos);
  CHECK(twice.allocated < 64'000'000);
  for (const auto& [tensors, keys] : {std::pair(kTensors + 1, uint64_t{0}), std::pair(uint64_t{0}, kKeys + 1)}) {
    const GgufRefusal longer = gguf_refusal(table(tensors, keys, false));
    CHECK(longer.message.find("at byte 8, " + std::to_string(tensors) + " tensors and " + std::to_string(keys) +
                              " keys of metadata; at most 16384 and 4096 are read") != std::string::npos);
    CHECK(longer.allocated < kMebibyte);
  }
}
