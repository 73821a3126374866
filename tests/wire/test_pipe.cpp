// Frames through pipes.
#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <thread>

#include "tests/message_of.hpp"
#include "wire/pipe.hpp"

using namespace harmonics;
using namespace harmonics::wire;
using namespace std::chrono_literals;

TEST_CASE("pipe: the writer waits for room in a pipe that does not block") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0);
  constexpr uint64_t kSamples = 500, kBytes = 1000;  // several times what a pipe holds
  {
    OutboxOptions options;
    options.producer = "p";
    options.tensors = {{"x", DType::U8, Shape{kBytes}, {}}};
    PipeWriter writer(ends[1], options);
    auto sent = std::async(std::launch::async, [&] {
      return message_of([&] {
        for (uint64_t i = 0; i < kSamples; ++i) {
          const std::vector<std::byte> sample(kBytes, static_cast<std::byte>(i));
          const std::span<const std::byte> piece(sample);
          writer.outbox().push(std::span(&piece, 1));
        }
        writer.outbox().finish();
      });
    });
    const auto is_full = [&] {
      int held = 0;
      return ::ioctl(ends[0], FIONREAD, &held) == 0 && held > 60'000;
    };
    for (int i = 0; i < 20'000 && !is_full(); ++i) std::this_thread::sleep_for(1ms);
    REQUIRE(is_full());
    PipeReader reader(ends[0], {});
    const int id = reader.inbox().open("x", 100s);
    std::vector<std::byte> all(kSamples * kBytes);
    auto got = std::async(std::launch::async, [&] { return reader.inbox().read(id, kSamples, all.data()); });
    const bool is_sent = sent.wait_for(100s) == std::future_status::ready;
    const std::string message = is_sent ? sent.get() : "no end";
    if (message != "no error" || got.wait_for(100s) != std::future_status::ready) reader.inbox().cancel(id);
    CHECK(message == "no error");
    CHECK(got.get() == kSamples);
    for (uint64_t i = 0; i < kSamples; ++i) REQUIRE(all[i * kBytes] == static_cast<std::byte>(i));
  }
  for (const int end : ends) ::close(end);
}

TEST_CASE("pipe: the whole samples before a damaged end are read before its error") {
  constexpr uint32_t kSamples = 5;
  const std::vector<std::byte> numbers{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}};
  Frame frame;
  frame.kind = Kind::Data;
  frame.stream = "samples", frame.producer = "p";
  frame.epoch = 1;
  frame.count = kSamples;
  frame.tensors = {{"x", DType::U8, Shape(), numbers}};
  std::vector<std::byte> bytes = encode(frame).bytes();
  const std::vector<std::byte> whole = bytes;
  const bool torn = GENERATE(true, false);
  bytes.insert(bytes.end(), whole.begin(), whole.end() - (torn ? 1 : 0));
  if (!torn) bytes.back() ^= std::byte{1};
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  REQUIRE(::write(ends[1], bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  ::close(ends[1]);
  {
    PipeReader reader(ends[0], {});
    const int id = reader.inbox().open("x", 100s);
    const auto has_failed = [&] { return reader.inbox().health().state == InboxHealth::Failed; };
    for (int i = 0; i < 20'000 && !has_failed(); ++i) std::this_thread::sleep_for(1ms);
    REQUIRE(has_failed());
    std::vector<std::byte> got(kSamples);
    CHECK(message_of([&] { reader.inbox().read(id, kSamples, got.data()); }) == "no error");
    CHECK(got == numbers);
    CHECK(message_of([&] {
            reader.inbox().read(id, 1, got.data());
          }).find(torn ? "it ends within a frame" : "checksum") != std::string::npos);
  }
  ::close(ends[0]);
}
