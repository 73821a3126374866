// Frames from a hostile or faulty sender are rejected with the offset, the value found and a remedy, in bounded time
// and memory.
#include <catch2/catch.hpp>

#include <atomic>
#include <cstdlib>
#include <new>
#include <random>

#include "tests/message_of.hpp"
#include "tests/wire/raw_frame.hpp"

using namespace harmonics;
using namespace harmonics::wire;
using namespace harmonics::wire::testing;

// Sanitizers replace the allocator.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define HM_COUNTS_MEMORY

namespace {
std::atomic<size_t> asked_for{0};
}

void* operator new(size_t size) {
  asked_for += size;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
#endif

namespace {

Message names() { return Message().text(1, "s").text(2, "p"); }
Message data(uint64_t count) { return names().number(6, count); }

std::string refusal(const Bytes& frame) {
  return message_of([&] { decode(frame); });
}
std::string refusal(const Message& header, const std::string& payload = "") {
  return refusal(raw_frame(3, header.bytes(), payload));
}
std::string control(uint16_t kind, const Message& header, const std::string& payload = "") {
  return refusal(raw_frame(kind, header.bytes(), payload));
}

// Replaces one number of the prefix.
template <typename T>
std::string with(size_t at, T value) {
  Bytes frame = encode(Example().frame).bytes();
  put(frame, at, value);
  seal(frame);
  return refusal(frame);
}

}  // namespace

TEST_CASE("refusals: false prefixes are rejected before anything is read") {
  CHECK(with(0, uint32_t{0x47455400}) ==
        "byte 0 of the frame: 0x47455400, but a frame begins with 0x31535848 (\"HXS1\")\nuse HXS/1: see docs/wire.md");
  CHECK(with(0, uint32_t{0x74616566}) ==
        "byte 0 of the frame: the text 'feat', but a frame begins with 0x31535848 (\"HXS1\"); other formats are "
        "named: format=csv, format=jsonl\n"
        "use HXS/1: see docs/wire.md");
  CHECK(with(4, uint16_t{2}) ==
        "byte 4 of the frame: version 2, but this program reads version 1\nuse releases with the same version");
  CHECK(with(6, uint16_t{13}) == "byte 6 of the frame: there is no kind 13 of frames\nuse a kind of docs/wire.md");
  CHECK(with(6, uint16_t{0}) == "byte 6 of the frame: there is no kind 0 of frames\nuse a kind of docs/wire.md");
  CHECK(with(8, uint32_t{0xFFFFFFFF}) ==
        "byte 8 of the frame: a header of 4294967295 bytes is announced, the limit is 32768\n"
        "use fewer tensors or shorter names");
  CHECK(with(12, uint64_t{8} << 30) ==
        "byte 12 of the frame: a payload of 8589934592 bytes is announced, frames have at most 16777216\n"
        "send fewer samples in a frame, or let the receiver accept larger ones");
  CHECK(with(12, ~uint64_t{0}).find("18446744073709551615 bytes is announced") != std::string::npos);
  CHECK(with(12, uint64_t{16} << 20).find("at most 16777216") != std::string::npos);  // the header adds to it
  CHECK(with(12, uint64_t{23}) ==
        "byte 8 of the frame: lengths of a frame of 103 bytes, but there are 104\nsend whole frames");
  CHECK(message_of([] { read_prefix({}); }) ==
        "byte 0 of the frame: the end, but a frame begins with 24 bytes\nsend whole frames");
}

TEST_CASE("refusals: a damaged frame is reported as such") {
  Bytes frame = encode(Example().frame).bytes();
  frame.back() ^= std::byte{1};
  const std::string text = refusal(frame);
  CHECK(text.find("byte 20 of the frame: the checksum 0x") == 0);
  CHECK(text.find("send it again") != std::string::npos);
}

TEST_CASE("refusals: invalid and incomplete headers are rejected") {
  CHECK(refusal(raw_frame(3, "\xff\xff\xff")) ==
        "header, 3 bytes from byte 24: not a Protobuf message of hxs.proto\nwrite it with code generated from "
        "hxs.proto; texts are UTF-8");
  CHECK(control(7, Message().text(1, "\xff\xfe").text(2, "p")).find("texts are UTF-8") != std::string::npos);
  CHECK(control(7, Message()) == "header, stream: no name\ngive it a name");
  CHECK(control(7, Message().text(1, "s")) == "header, producer: no name\ngive it a name");
  CHECK(control(7, Message().text(1, "s").text(2, std::string(256, 'x'))) ==
        "header, producer: 256 bytes\nit has at most 255 bytes");
  CHECK(control(7, Message().text(1, "a\x1b[2J").text(2, "p")) ==
        "header, stream: the control character 0x1b\nleave control characters out");
  CHECK(control(6, names().text(18, std::string(4097, 'x'))) == "header, text: 4097 bytes\nit has at most 4096 bytes");
  CHECK(control(5, names().number(5, ~uint64_t{0})) ==
        "header, seq: the number 18446744073709551615\nsamples have numbers below 4611686018427387904");
  CHECK(control(4, names().number(14, kMostSeq + 1)).find("header, durable_seq") == 0);
  CHECK(control(1, names().number(15, 3)) ==
        "header, acknowledgement: there is no level 3\nlevels are 1 (received) and 2 (durable)");
  CHECK(control(1, names().number(15, ~uint64_t{0})).find("there is no level -1") != std::string::npos);
  // An unknown code is represented by its text.
  CHECK(decode(raw_frame(12, names().number(17, 99).text(18, "no").bytes())).code == Code::None);
}

TEST_CASE("refusals: impossible samples are rejected") {
  const Message byte = tensor("x", 2, {});
  CHECK(refusal(data(0).message(7, byte)) ==
        "header, count: a DATA frame without samples\nsend at least one sample in a frame");
  CHECK(refusal(data(1)) == "header, tensors: a DATA frame without tensors\nname at least one tensor");
  CHECK(control(4, data(1)) == "header, count: 1 sample in a GRANT frame\nsend samples in DATA frames");
  CHECK(control(4, names().message(7, byte)) ==
        "header, tensors: 1 tensor in a GRANT frame\nonly DATA and HELLO name tensors");
  CHECK(control(4, names(), "abc") ==
        "byte 32 of the frame: 3 bytes more than the tensors of this GRANT frame have\nsend only what the header "
        "describes");
  CHECK(control(1, names().message(7, byte), "a").find("more than the tensors of this HELLO frame") !=
        std::string::npos);
  CHECK(refusal(data(2).number(5, kMostSeq - 1).message(7, byte), "ab")
            .find("header, seq: the number 4611686018427387905") == 0);
  CHECK(refusal(data(1).message(7, byte).message(7, byte), "ab") ==
        "header, tensors[1].name: a second tensor 'x'\ngive every tensor its own name");
  CHECK(refusal(data(1).message(7, tensor("", 2, {})), "a") == "header, tensors[0].name: no name\ngive it a name");
}

TEST_CASE("refusals: impossible classes are rejected") {
  const auto of = [](uint32_t type, uint64_t classes) {
    return data(1).message(7, tensor("x", type, {}).number(4, classes));
  };
  CHECK(decode(raw_frame(3, of(2, 10).bytes(), "a")).tensors[0].classes == 10);
  CHECK(
      refusal(of(2, (1u << 24) + 1), "a") ==
      "header, tensors[0] 'x': 16777217 classes of whole numbers\nonly whole numbers are classes, of at most 16777216");
  CHECK(refusal(of(12, 10), "abcd").find("10 classes of other numbers") != std::string::npos);
  CHECK(refusal(of(1, 2), "a").find("2 classes of other numbers") != std::string::npos);
}

TEST_CASE("refusals: impossible element types and shapes are rejected") {
  CHECK(refusal(data(1).message(7, tensor("x", 0, {})), "a") ==
        "header, tensors[0]: no element type\nset 'type' to a number from 1 to 13, as hxs.proto names them");
  CHECK(refusal(data(1).message(7, tensor("x", 14, {})), "a").find("there is no element type 14") != std::string::npos);
  CHECK(refusal(data(1).message(7, tensor("x", 2, {1, 1, 1, 1, 1, 1, 1, 1, 1})), "a") ==
        "header, tensors[0]: a shape of 9 dimensions\na sample has at most 8 dimensions");
  CHECK(refusal(data(1).message(7, tensor("x", 2, {3, 0})), "a") ==
        "header, tensors[0] 'x': the shape [3, 0]\nevery dimension of a sample is at least 1");
  CHECK(refusal(data(1).message(7, tensor("x", 2, {-1})), "a").find("the shape [-1]") != std::string::npos);
  const int64_t large = int64_t{1} << 32;
  CHECK(refusal(data(1).message(7, tensor("x", 2, {large, large})), "a") ==
        "header, tensors[0] 'x': samples of shape [4294967296, 4294967296], more than the 16777216 bytes a frame may "
        "have\n"
        "send smaller samples, or let the receiver accept larger frames");
  CHECK(refusal(data(1).message(7, tensor("x", 13, {int64_t{1} << 61})), "a").find("more than the 16777216 bytes") !=
        std::string::npos);
}

TEST_CASE("refusals: a payload that differs from the header is rejected") {
  CHECK(refusal(data(2).message(7, tensor("x", 12, {3})), std::string(23, 'a')) ==
        "payload, tensors[0] 'x': 2 samples of 12 bytes cannot fit into the frame, which ends at byte 71\n"
        "announce the number and shape of the samples that are sent");
  CHECK(refusal(data(0xFFFFFFFF).message(7, tensor("x", 2, {1 << 24})), "a")
            .find("4294967295 samples of 16777216 bytes cannot fit into") != std::string::npos);
  CHECK(refusal(data(2).message(7, tensor("x", 12, {3})), std::string(25, 'a')).find("1 byte more than the tensors") !=
        std::string::npos);
  // Padding between tensors, and between header and payload, is zero.
  const Message two = data(1).message(7, tensor("x", 2, {})).message(7, tensor("y", 2, {}));
  CHECK(refusal(two, std::string("a\0\0\0\0\0\0\0b", 9)) == "no error");
  CHECK(refusal(two, std::string("a\0\0\0c\0\0\0b", 9)).find("padding byte 0x63\npad to a multiple of 8 with zeros") !=
        std::string::npos);
  CHECK(refusal(two, "a").find("'y': 1 sample of 1 byte cannot fit into") != std::string::npos);
  Bytes frame = raw_frame(7, names().bytes());
  REQUIRE(frame.size() == 32);
  frame[31] = std::byte{9};
  seal(frame);
  CHECK(refusal(frame).find("byte 31 of the frame: padding byte 0x09") == 0);
}

TEST_CASE("refusals: too many tensors are rejected") {
  Message many = data(1);
  for (int i = 0; i < 65; ++i) many.message(7, tensor(std::to_string(i), 2, {}));
  CHECK(refusal(many, "a") == "header, tensors: 65 tensors\na frame has at most 64");
  Example e;
  e.frame.tensors.resize(65, e.frame.tensors[0]);
  CHECK(message_of([&] { encode(e.frame); }) == "header, tensors: 65 tensors\na frame has at most 64");
}

#ifdef HM_COUNTS_MEMORY
TEST_CASE("refusals: a rejected frame uses little memory") {
  const auto cost = [](const Bytes& frame) {
    const size_t before = asked_for;
    REQUIRE_THROWS_AS(decode(frame), Error);
    return asked_for - before;
  };
  Bytes announced = encode(Example().frame).bytes();
  put(announced, 12, uint64_t{8} << 30);
  seal(announced);
  CHECK(cost(announced) < 4096);
  // The largest header: full of the smallest tensors, of a long shape, and of one long name.
  std::string tensors, shape("\x3a\xfe\xff\x01\x1a\xfa\xff\x01", 8);
  while (tensors.size() + 2 <= 32768) tensors += std::string("\x3a\x00", 2);
  shape.resize(32768, '\1');
  CHECK(cost(raw_frame(3, tensors)) < (size_t{4} << 20));
  CHECK(cost(raw_frame(3, shape)) < (size_t{1} << 20));
  CHECK(cost(raw_frame(3, Message().text(1, std::string(32700, 'x')).bytes())) < (size_t{1} << 18));
  CHECK(cost(raw_frame(3, data(0xFFFFFFFF).message(7, tensor("x", 2, {1 << 24})).bytes(), "a")) < 16384);
}
#endif

TEST_CASE("refusals: the encoder rejects frames that no decoder accepts") {
  Example e;
  const auto text = [&] { return message_of([&] { encode(e.frame); }); };
  e.frame.tensors[0].bytes = e.frame.tensors[0].bytes.first(7);
  CHECK(text() == "payload, 'image': 7 bytes for 2 samples of shape [2, 2]\ngive 4 bytes a sample");
  e = Example();
  e.frame.tensors[1].name = "image";
  CHECK(text().find("a second tensor 'image'") != std::string::npos);
  e = Example();
  e.frame.stream.clear();
  CHECK(text() == "header, stream: no name\ngive it a name");
  e = Example();
  e.frame.stream = "\xff";
  CHECK(text() == "header, stream: bytes that are not UTF-8\nwrite texts in UTF-8");
  e = Example();
  const std::vector<std::byte> large(16 << 20);
  e.frame.tensors = {{"x", DType::U8, {1 << 23}, large}};
  CHECK(text().find("a payload of 16777216 bytes is announced") != std::string::npos);
}

TEST_CASE("refusals: random bytes are either frames or rejected") {
  std::mt19937_64 random(99);
  const Bytes good = encode(Example().frame).bytes();
  for (int round = 0; round < 20000; ++round) {
    Bytes bytes = good;
    for (uint64_t changes = 1 + random() % 6; changes > 0; --changes)
      bytes[6 + random() % (bytes.size() - 6)] = static_cast<std::byte>(random());
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    if (bytes.size() >= kPrefixBytes) seal(bytes);
    try {
      const Frame frame = decode(bytes);
      REQUIRE(same(decode(encode(frame).bytes()), frame));
    } catch (const Error& e) {
      REQUIRE(!e.notes().empty());
    }
  }
}
