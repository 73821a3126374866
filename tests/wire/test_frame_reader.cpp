// Frames from a stream in arbitrary pieces, and announced sizes without data.
#include <catch2/catch.hpp>

#include <random>

#include "tests/message_of.hpp"
#include "tests/wire/raw_frame.hpp"
#include "wire/frame_reader.hpp"

using namespace harmonics;
using namespace harmonics::wire;
using namespace harmonics::wire::testing;

TEST_CASE("frame reader: frames are found however the stream is cut") {
  std::mt19937_64 random(5);
  for (int round = 0; round < 50; ++round) {
    std::vector<Bytes> sent;
    Bytes stream;
    for (int i = 0; i < 20; ++i) {
      std::vector<std::byte> payload(1 + random() % (i % 5 == 0 ? 300000 : 3000));
      for (auto& b : payload) b = static_cast<std::byte>(random());
      Frame frame;
      frame.stream = "s", frame.producer = "p", frame.count = 1;
      frame.tensors = {{"x", DType::U8, {static_cast<int64_t>(payload.size())}, payload}};
      sent.push_back(encode(frame).bytes());
      stream.insert(stream.end(), sent.back().begin(), sent.back().end());
    }
    FrameReader reader;
    size_t given = 0;
    for (size_t at = 0; at < stream.size();) {
      const std::span<std::byte> room = reader.room();
      REQUIRE(!room.empty());
      const size_t n =
          std::min({room.size(), stream.size() - at, static_cast<size_t>(1 + random() % (round % 2 ? 50 : 100000))});
      std::memcpy(room.data(), stream.data() + at, n);
      reader.arrived(n);
      at += n;
      while (const auto frame = reader.next()) {
        REQUIRE(given < sent.size());
        REQUIRE(Bytes(frame.bytes.begin(), frame.bytes.end()) == sent[given++]);
      }
      if (round % 2 && at > 300000) at = stream.size(), given = sent.size();  // byte by byte would be too slow
    }
    REQUIRE(given == sent.size());
  }
}

TEST_CASE("frame reader: an announced size takes memory only as bytes arrive") {
  Bytes frame = encode(Example().frame).bytes();
  put(frame, 12, uint64_t{15} << 20);
  FrameReader reader;
  for (size_t at = 0; at < frame.size(); ++at) {
    const auto room = reader.room();
    CHECK(room.size() <= 64u << 10);
    room[0] = frame[at];
    reader.arrived(1);
    REQUIRE(!reader.next());
  }
  put(frame, 12, uint64_t{17} << 20);
  FrameReader strict;
  std::memcpy(strict.room().data(), frame.data(), frame.size());
  strict.arrived(frame.size());
  CHECK(message_of([&] { strict.next(); }).find("a payload of 17825792 bytes is announced") != std::string::npos);
}
