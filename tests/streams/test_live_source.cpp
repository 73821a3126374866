#include <catch2/catch.hpp>

#include <future>

#include "engine/streams/stream_source.hpp"
#include "tests/message_of.hpp"
#include "tests/streams/live_numbers.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace std::chrono_literals;

namespace {

int64_t number_of(const HTensor& sample) { return *static_cast<const int64_t*>(sample.bytes()); }

}  // namespace

TEST_CASE("a live source continues at a restored position", "[live]") {
  auto producer = std::make_shared<LiveNumbers>(20);
  Source source("x", producer);
  CHECK(source.cannot_seek() == "stream 'x' is live");
  REQUIRE(source.restore(7, "before 7"));
  CHECK(producer->restored == std::vector<std::string>{"before 7"});
  CHECK(source.position() == 7);
  CHECK(source.cannot_seek().empty());
  source.rewind(0);  // as at the start of an epoch
  source.seek(0, 9);
  CHECK(number_of(source.next()) == 9);
  CHECK(source.position() == 10);
  CHECK(source.position_before(8) == "before 8");
  source.durable(8);
  CHECK(producer->durable_until() == std::vector<uint64_t>{8});
}

TEST_CASE("long positions arrive whole, absurdly long ones are refused", "[live]") {
  auto producer = std::make_shared<LiveNumbers>(1);
  const Source source("x", producer);
  producer->padding = std::string(5000, '.');
  CHECK(source.position_before(3) == "before 3" + producer->padding);
  producer->padding = std::string(2 << 20, '.');
  CHECK(message_of([&] { source.position_before(3); }).find("the maximum is 1048576") != std::string::npos);
}

TEST_CASE("a live source is woken from another thread and keeps the earlier samples", "[live]") {
  auto producer = std::make_shared<LiveNumbers>(3);
  Source source("x", producer);
  int64_t got[8] = {};
  auto reading = std::async(std::launch::async, [&] { return source.read(8, got); });
  CHECK(reading.wait_for(50ms) == std::future_status::timeout);
  CHECK(source.cancel());
  REQUIRE(reading.wait_for(100s) == std::future_status::ready);
  CHECK(reading.get() == 3);
  CHECK(got[2] == 2);
  CHECK(!source.next());
}

TEST_CASE("the health of a live source passes through the C contract unchanged", "[live]") {
  auto producer = std::make_shared<LiveNumbers>(0);
  const Source source("x", producer);
  StreamHealth told;
  told.state = StreamHealth::State::Receiving;
  told.senders = 3, told.connected = 2, told.wants_durable = true, told.at_most_once = true;
  told.samples = 11, told.bytes = 12, told.queued_samples = 13, told.queued_bytes = 14, told.window_bytes = 15;
  told.lost = 16, told.duplicates = 17, told.refused = 18, told.resent = 19, told.idle_seconds = 0.5;
  told.last_error = std::string(254, 'x').append("\xc3\xa9");  // would be truncated within a character
  producer->tell(told);
  const std::optional<StreamHealth> health = source.health();
  REQUIRE(health);
  CHECK((health->state == told.state && health->senders == 3 && health->connected == 2 && health->wants_durable &&
         health->at_most_once));
  CHECK((health->samples == 11 && health->bytes == 12 && health->queued_samples == 13 && health->queued_bytes == 14 &&
         health->window_bytes == 15));
  CHECK((health->lost == 16 && health->duplicates == 17 && health->refused == 18 && health->resent == 19 &&
         health->idle_seconds == 0.5));
  CHECK(health->last_error == std::string(254, 'x'));
}

TEST_CASE("a producer of files has no live positions", "[live]") {
  class Three final : public Producer {
   public:
    HTensor next() override { return {}; }
    std::size_t size() const override { return 3; }
    std::optional<StreamInfo> describe() override { return StreamInfo{}; }
  };
  Source source("x", std::make_shared<Three>());
  CHECK_FALSE(source.restore(0, ""));
  CHECK_FALSE(source.cancel());
  CHECK_FALSE(source.health());
}
