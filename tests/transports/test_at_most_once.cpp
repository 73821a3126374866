// Transports without answers: order, no duplicates, and a count of losses.
#include "tests/transports/checks.hpp"

#ifdef HARMONICS_WITH_ZMQ

using namespace transports;

TEST_CASE("one way: samples and the end arrive in order") {
  const Deadline deadline;
  const std::string kind = GENERATE(from_range(at_most_once()));
  INFO(kind);
  const auto receiving = receive(kind);
  wire::Inbox& inbox = receiving->inbox();
  const int labels = inbox.open("label", kPatience);
  const auto sender = sending(kind, receiving->address, "camera", 0, 5000);
  for (int64_t i = 0; i < 5000; ++i) REQUIRE(next_number(inbox, labels) == i);
  CHECK(next_number(inbox, labels) == -1);
  CHECK(sender->end() == "");
  CHECK(inbox.health().lost == 0);
  CHECK(!inbox.restore(labels, 0, ""));
}

TEST_CASE("one way: a slow reader's losses are counted in bounded memory") {
  const Deadline deadline;
  wire::InboxOptions options;
  options.window_bytes = 1u << 20;
  const auto receiving = receive("zmq+sub", "", options);
  wire::Inbox& inbox = receiving->inbox();
  const int images = inbox.open("image", kPatience);
  std::atomic<bool> burst{false}, over{false};
  std::atomic<int64_t> pushed{300000};
  Worker sender([&] {
    // libzmq limits its queues by number of messages. With one image per message, queues and TCP buffers (at most 40
    // MB) are smaller than the burst.
    wire::OutboxOptions one_a_message = pictures("camera");
    one_a_message.batch_bytes = 1024;
    const auto sending = send("zmq+sub", receiving->address, one_a_message);
    push_pictures(sending->outbox(), 0, 300000);
    burst = true;
    for (; !over; ++pushed)
      push_picture(sending->outbox(), pushed), std::this_thread::sleep_for(std::chrono::milliseconds(1));
    sending->outbox().finish();
  });
  REQUIRE(next_number(inbox, images) == 0);
  while (!burst) {
    CHECK(inbox.health().queued_bytes <= (1u << 20) + (256u << 10));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  int64_t last = 0, came = 1;
  for (int64_t n; (n = next_number(inbox, images)) >= 0; last = n, ++came) {
    REQUIRE(n > last);
    over = n >= 300000;
  }
  CHECK(sender.end() == "");
  CHECK(came < pushed);  // images after the burst arrive, too
  CHECK(inbox.health().lost == static_cast<uint64_t>(pushed - came));
}

#endif
