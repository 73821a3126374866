// Frame files written by a spool and by `harmonics receive`, read by file:.
#include <catch2/catch.hpp>

#include <random>

#include "producers/file/open.hpp"
#include "tests/streams/under_test.hpp"
#include "wire/frame.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

struct FrameSamples {
  std::vector<uint8_t> images;  // 2 x 3 each
  std::vector<int64_t> labels;
};

FrameSamples frame_samples(uint64_t first, uint32_t n) {
  FrameSamples s;
  for (uint64_t i = first; i < first + n; ++i) {
    for (int k = 0; k < 6; ++k) s.images.push_back(static_cast<uint8_t>(i * 7 + static_cast<uint64_t>(k)));
    s.labels.push_back(static_cast<int64_t>(i) * 100);
  }
  return s;
}

std::string text_of(const wire::Frame& frame) {
  const std::vector<std::byte> bytes = wire::encode(frame).bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string data(uint64_t first, uint32_t n) {
  const FrameSamples s = frame_samples(first, n);
  wire::Frame frame;
  frame.stream = "s", frame.producer = "p", frame.seq = first, frame.count = n;
  frame.tensors = {{"image", DType::U8, Shape{2, 3}, std::as_bytes(std::span(s.images))},
                   {"label", DType::I64, Shape{}, std::as_bytes(std::span(s.labels))}};
  return text_of(frame);
}

std::string barrier(uint64_t before) {
  wire::Frame frame;
  frame.kind = wire::Kind::Barrier;
  frame.stream = "s", frame.producer = "p", frame.seq = before;
  return text_of(frame);
}

std::vector<int64_t> labels_of(Producer& producer) {
  std::vector<int64_t> all(producer.size());
  const int64_t got = producer.read(all.size() + 5, all.data());
  CHECK(got == static_cast<int64_t>(all.size()));
  return all;
}

}  // namespace

TEST_CASE("frames of a file are samples, each tensor selected by its name", "[frames]") {
  const TemporaryFolder folder;
  folder.write("a.hxs", data(0, 3) + data(3, 1) + data(4, 6));
  const auto label = open_file(folder.path("a.hxs"), Options{{"#", "label"}});
  CHECK(label->size() == 10);
  CHECK(labels_of(*label) == frame_samples(0, 10).labels);
  const auto image = open_file(folder.path("a.hxs"), Options{{"#", "image"}, {"part", "0.5-1"}});
  CHECK(image->describe()->sample == Shape{2, 3});
  const std::vector<uint64_t> numbers = {4, 0, 3};
  std::vector<uint8_t> got(18);
  REQUIRE(image->read_at(numbers.data(), 3, got.data()));
  for (size_t i = 0; i < 3; ++i) {
    const auto one = frame_samples(5 + numbers[i], 1).images;
    CHECK(std::equal(one.begin(), one.end(), got.begin() + static_cast<std::ptrdiff_t>(i * 6)));
  }
  REQUIRE(image->seek(1, 2));
  CHECK(*static_cast<const uint8_t*>(image->next().bytes()) == frame_samples(7, 1).images[0]);
  CHECK(refusal([&] { open_file(folder.path("a.hxs"), Options{}); }).find("holds image u8 [2, 3], label i64 []") !=
        std::string::npos);
  CHECK(refusal([&] {
          open_file(folder.path("a.hxs"), Options{{"#", "mask"}});
        }).find("no 'mask'") != std::string::npos);
}

TEST_CASE("a spool's folder is read as one file, up to its last barriers", "[frames]") {
  const TemporaryFolder folder;
  folder.write("00000000000000000000.hxs", barrier(0) + data(0, 4) + barrier(4) + data(4, 2));
  folder.write("00000000000000000004.hxs", barrier(4) + data(4, 3) + barrier(7) + data(7, 9).substr(0, 50));
  folder.write("00000000000000000007.hxs", barrier(7));
  const auto label = open_file(folder.path(""), Options{{"#", "label"}});
  CHECK(labels_of(*label) == frame_samples(0, 7).labels);
  CHECK(refusal([&] {
          open_file(folder.path("00000000000000000007.hxs"), Options{{"#", "label"}});
        }).find("has no samples") != std::string::npos);
}

TEST_CASE("damaged files of frames are refused, or end after the last whole frame", "[frames]") {
  const TemporaryFolder folder;
  const std::string plain = data(0, 3) + data(3, 3),
                    kept = barrier(0) + data(0, 3) + barrier(3) + data(3, 3) + barrier(6);
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    std::string bytes = i % 2 ? plain : kept;
    if (i % 4 < 2)
      bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    else
      bytes.resize(random() % bytes.size());
    folder.write("d.hxs", bytes);
    uint64_t count = 0;
    const std::string what = refusal([&] {
      count = open_file(folder.path("d.hxs"), Options{{"format", "hxs"}, {"#", "label"}})->size();
    });
    if (count)
      CHECK((i % 2 ? count == 3 && i % 4 == 3
                   : count == 3 || count == 6));  // cut between two frames, or before a barrier
    else
      CHECK(!what.empty());
  }
}
