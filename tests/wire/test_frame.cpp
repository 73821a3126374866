// Frames encoded and decoded, and damaged ones.
#include <catch2/catch.hpp>
#include <fmt/format.h>

#include <fstream>
#include <random>
#include <sstream>

#include "tests/message_of.hpp"
#include "tests/wire/raw_frame.hpp"
#include "wire/data_codec.hpp"

using namespace harmonics;
using namespace harmonics::wire;
using namespace harmonics::wire::testing;

namespace {

const DType kTypes[] = {DType::Bool, DType::U8,  DType::I8,  DType::I16,  DType::U16, DType::I32, DType::U32,
                        DType::I64,  DType::U64, DType::F16, DType::BF16, DType::F32, DType::F64};

// Returns a frame whose tensors are views of `memory`.
Frame random_frame(std::mt19937_64& random, std::vector<Bytes>& memory) {
  const auto below = [&](uint64_t n) { return random() % n; };
  Frame frame;
  frame.stream = "stream " + std::to_string(below(1000));
  frame.producer = std::string(1 + below(kMostName), 'p');
  frame.epoch = random();
  frame.seq = below(kMostSeq - 100);
  frame.count = static_cast<uint32_t>(1 + below(9));
  const size_t tensors = 1 + below(5);
  memory.resize(tensors);
  for (size_t i = 0; i < tensors; ++i) {
    TensorPart part{"tensor " + std::to_string(i), kTypes[below(std::size(kTypes))], {}, {}};
    for (uint64_t rank = below(9); rank > 0; --rank) part.sample.push_back(static_cast<int64_t>(1 + below(3)));
    memory[i].resize(frame.count * static_cast<size_t>(part.sample.count()) * element_bytes(part.dtype));
    for (auto& b : memory[i]) b = static_cast<std::byte>(random());
    part.bytes = memory[i];
    frame.tensors.push_back(part);
  }
  return frame;
}

// Reads the bytes "0010  4e 61 …" of the documentation.
Bytes bytes_of_document() {
  std::ifstream file(std::string(HARMONICS_SOURCE_DIR) + "/docs/wire.md");
  Bytes bytes;
  for (std::string line; std::getline(file, line);) {
    if (line.size() < 6 || line.find_first_not_of("0123456789abcdef") != 4 || line.compare(4, 2, "  ") != 0) continue;
    std::istringstream words(line.substr(6, 3 * 16));
    for (unsigned b = 0; words >> std::hex >> b;) bytes.push_back(static_cast<std::byte>(b));
  }
  return bytes;
}

}  // namespace

TEST_CASE("frame: a stored frame keeps the received numbers") {
  Example example;
  CHECK(example.frame.number_of(1).number == example.frame.seq + 1);
  CHECK(example.frame.number_of(1).sender == sender_identity(example.frame.stream, example.frame.producer, 0));
  example.frame.number = 77;
  example.frame.sender = 5;
  const Bytes bytes = encode(example.frame).bytes();
  const Frame back = decode(bytes);
  CHECK(back.number_of(1).number == 78);
  CHECK(back.number_of(1).sender == 5);
  FrameDecoder decoder;  // unusual headers are parsed in full every time
  for (int i = 0; i < 2; ++i) CHECK(decoder.decode(bytes).number_of(0).number == 77);
  CHECK(sender_identity("s", "ab", 0) != sender_identity("sa", "b", 0));
  CHECK(sender_identity("s", "a", 1) != sender_identity("s", "a", 2));
  example.frame.number = kMostSeq + 1;
  CHECK_THROWS_AS(encode(example.frame), Error);
}

TEST_CASE("frame: the documented frame matches byte by byte") {
  const Example example;
  const Bytes bytes = encode(example.frame).bytes();
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i % 16 == 0) text += fmt::format("\n{:04x} ", i);
    text += fmt::format(" {:02x}", static_cast<unsigned>(bytes[i]));
  }
  INFO("the encoder writes:" << text);
  CHECK(bytes == bytes_of_document());
  const Frame back = decode(bytes);
  CHECK(same(back, example.frame));
  CHECK(sample_bytes(back) == 12);
}

TEST_CASE("frame: a plain Protobuf writer gives the same frame") {
  const Message header = Message()
                             .text(1, "digits")
                             .text(2, "camera-1")
                             .number(3, 5)
                             .number(5, 300)
                             .number(6, 2)
                             .message(7, tensor("image", 2, {2, 2}))
                             .message(7, tensor("label", 8, {}));
  const Example example;
  std::string payload(reinterpret_cast<const char*>(example.image.data()), 8);
  payload.append(reinterpret_cast<const char*>(example.label.data()), 16);
  CHECK(same(decode(raw_frame(3, header.bytes(), payload)), example.frame));
  // Fields of later releases are ignored.
  const Message more = Message()
                           .text(1, "digits")
                           .text(2, "camera-1")
                           .number(3, 5)
                           .number(5, 300)
                           .number(6, 2)
                           .number(500, 1)
                           .text(501, "new")
                           .message(7, tensor("image", 2, {2, 2}))
                           .message(7, tensor("label", 8, {}));
  CHECK(same(decode(raw_frame(3, more.bytes(), payload)), example.frame));
}

TEST_CASE("frame: every kind survives encoding and decoding") {
  for (Kind kind : {Kind::Hello, Kind::Welcome, Kind::Grant, Kind::Resume, Kind::Nack, Kind::Ping, Kind::Pong,
                    Kind::End, Kind::Bye, Kind::Error}) {
    Frame frame;
    frame.kind = kind;
    frame.stream = "s";
    frame.producer = "a sender of \xc3\xbc";
    frame.epoch = ~uint64_t{0};
    frame.session = 3;
    frame.seq = kMostSeq;
    frame.limit_seq = 1, frame.limit_bytes = ~uint64_t{0}, frame.received_seq = kMostSeq, frame.durable_seq = 128;
    frame.acknowledgement = Acknowledgement::Durable;
    frame.max_frame_bytes = 1 << 20;
    frame.code = Code::Tensors;
    frame.text = "one line\nand another";
    frame.fresh = kind == Kind::Hello, frame.blocked = kind == Kind::Ping;
    if (kind == Kind::Hello) frame.tensors = {{"image", DType::F16, {28, 28}, {}}, {"label", DType::I32, {}, {}, 10}};
    INFO(kind_name(kind));
    const Bytes bytes = encode(frame).bytes();
    CHECK(read_prefix(bytes).kind == kind);
    CHECK(same(decode(bytes), frame));
  }
}

TEST_CASE("frame: random tensors of every type survive, without copies") {
  const uint64_t seed = 20240611;
  std::mt19937_64 random(seed);
  for (int round = 0; round < 2000; ++round) {
    INFO("seed " << seed << ", round " << round);
    std::vector<Bytes> memory;
    const Frame frame = random_frame(random, memory);
    const Encoded encoded = encode(frame);
    // Payloads are not copied: each tensor is one of the pieces.
    for (const TensorPart& part : frame.tensors) {
      bool found = false;
      for (const auto& piece : encoded.pieces())
        found |= piece.data() == part.bytes.data() && piece.size() == part.bytes.size();
      REQUIRE(found);
    }
    const Bytes bytes = encoded.bytes();
    REQUIRE(bytes.size() == encoded.size());
    REQUIRE(read_prefix(bytes).frame_bytes() == bytes.size());
    const Frame back = decode(bytes);
    REQUIRE(same(back, frame));
    for (const TensorPart& part : back.tensors) REQUIRE((part.bytes.data() - bytes.data()) % 8 == 0);
    REQUIRE(encode(back).bytes() == bytes);
  }
}

TEST_CASE("frame: every damaged byte is detected") {
  const Bytes good = encode(Example().frame).bytes();
  for (size_t at = 0; at < good.size(); ++at)
    for (int flip = 1; flip < 256; ++flip) {
      Bytes bad = good;
      bad[at] ^= static_cast<std::byte>(flip);
      INFO("byte " << at << " xor " << flip);
      REQUIRE_THROWS_AS(decode(bad), Error);
    }
}

TEST_CASE("frame: truncated and overlong frames are rejected") {
  Bytes bytes = encode(Example().frame).bytes();
  for (size_t size = 0; size < bytes.size(); ++size) REQUIRE_THROWS_AS(decode(std::span(bytes).first(size)), Error);
  bytes.push_back(std::byte{0});
  REQUIRE_THROWS_AS(decode(bytes), Error);
}

TEST_CASE("frame: the fast path for repeated frames equals the general one") {
  const Example example;
  const DataEncoder encoder(example.frame);
  FrameDecoder decoder;
  for (const uint64_t seq :
       {uint64_t{0}, uint64_t{1}, uint64_t{127}, uint64_t{128}, uint64_t{300}, uint64_t{1} << 35, kMostSeq - 2}) {
    Frame frame = example.frame;
    frame.seq = seq;
    const Bytes whole = encode(frame).bytes();
    const uint64_t payload = read_prefix(whole).payload_bytes;
    Bytes memory(encoder.most_head_bytes() + payload);
    std::byte* const at = memory.data() + encoder.most_head_bytes();
    std::memcpy(at, whole.data() + whole.size() - payload, payload);
    const size_t head = encoder.write_head(seq, frame.count, at, payload);
    CHECK(Bytes(at - head, at + payload) == whole);
    CHECK(same(decoder.decode(whole), frame));
  }
  Frame other = example.frame;
  other.producer = "another";
  CHECK(same(decoder.decode(encode(other).bytes()), other));
  CHECK(same(decoder.decode(encode(example.frame).bytes()), example.frame));
  // Both paths reject the same frames, with the same message.
  std::mt19937_64 random(9);
  const Bytes good = encode(example.frame).bytes();
  for (int i = 0; i < 3000; ++i) {
    Bytes bad = good;
    bad[kPrefixBytes + random() % (bad.size() - kPrefixBytes)] ^= static_cast<std::byte>(1 + random() % 255);
    const uint32_t crc = crc32c(std::span(bad).subspan(kPrefixBytes), crc32c(std::span(bad).first(20)));
    std::memcpy(bad.data() + 20, &crc, sizeof crc);
    std::optional<Frame> slow, fast;
    const std::string slow_message = message_of([&] { slow = decode(bad); }),
                      fast_message = message_of([&] { fast = decoder.decode(bad); });
    REQUIRE(slow_message == fast_message);
    REQUIRE(slow.has_value() == fast.has_value());
    if (slow) REQUIRE(same(*slow, *fast));
    decoder.decode(good);
  }
}
