// Every transport with sessions: each sample once and in order, bounded memory, and no endless wait.
#include "tests/transports/checks.hpp"

#include <future>
#include <map>

#include "tests/message_of.hpp"

using namespace transports;

TEST_CASE("lossless: images and labels of one sender arrive together") {
  const Deadline deadline;
  const std::string kind = GENERATE(from_range(lossless()));
  INFO(kind);
  const auto receiving = receive(kind);
  wire::Inbox& inbox = receiving->inbox();
  const auto sender = sending(kind, receiving->address, "camera", 0, 5000);
  const int images = inbox.open("image", kPatience), labels = inbox.open("label", kPatience);
  CHECK(inbox.announced(images).sample == Shape{kSide, kSide});
  CHECK(inbox.announced(labels).dtype == DType::I64);
  for (int64_t i = 0; i < 5000; ++i) {
    const auto image = inbox.next(images), label = inbox.next(labels);
    REQUIRE((image && label));
    REQUIRE(number(image->bytes.bytes) == i);
    REQUIRE(number(label->bytes.bytes) == i);
    REQUIRE(image->bytes.size() == kSide * kSide);
  }
  CHECK(next_number(inbox, images) == -1);
  CHECK(next_number(inbox, labels) == -1);
  CHECK(sender->end() == "");
  const wire::InboxHealth health = inbox.health();
  CHECK(health.state == wire::InboxHealth::Ended);
  CHECK(health.samples == 5000);
  CHECK(health.bytes == 5000 * (kSide * kSide + 8));
  CHECK(health.lost + health.duplicates + health.refused == 0);
}

TEST_CASE("lossless: several senders arrive in their order, read in batches") {
  const Deadline deadline;
  const std::string kind = GENERATE(from_range(lossless()));
  INFO(kind);
  const auto receiving = receive(kind);
  wire::Inbox& inbox = receiving->inbox();
  std::vector<std::unique_ptr<Worker>> senders;
  for (int64_t s = 0; s < 4; ++s)
    senders.push_back(sending(kind, receiving->address, "s" + std::to_string(s), s * 1000000, 2000));
  const int labels = inbox.open("label", kPatience);
  std::map<int64_t, int64_t> next;
  int64_t count = 0;
  while (count < 8000) {
    int64_t batch[64];
    const uint64_t got = inbox.read(labels, 64, reinterpret_cast<std::byte*>(batch));
    for (uint64_t i = 0; i < got; ++i) REQUIRE(batch[i] % 1000000 == next[batch[i] / 1000000]++);
    count += static_cast<int64_t>(got);
    if (got < 64)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));  // the first one may end before the next one comes
  }
  for (const auto& sender : senders) CHECK(sender->end() == "");
  CHECK(next_number(inbox, labels) == -1);
}

TEST_CASE("lossless: a sender may start before its receiver, and restart") {
  const Deadline deadline;
  const std::string kind = GENERATE(from_range(lossless()));
  INFO(kind);
  std::string address;
  address = receive(kind)->address;
  const auto early = sending(kind, address, "camera", 0, 300);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const auto receiving = receive(kind, address);
  wire::Inbox& inbox = receiving->inbox();
  const int labels = inbox.open("label", kPatience);
  for (int64_t i = 0; i < 300; ++i) REQUIRE(next_number(inbox, labels) == i);
  CHECK(early->end() == "");
  {  // disconnects without an END
    const auto second = send(kind, address, pictures("camera"));
    push_pictures(second->outbox(), 300, 200);
    for (int64_t i = 300; i < 500; ++i) REQUIRE(next_number_of_any(inbox, labels) == i);
  }
  const auto third = sending(kind, address, "camera", 500, 200);
  for (int64_t i = 500; i < 700; ++i) REQUIRE(next_number(inbox, labels) == i);
  CHECK(next_number(inbox, labels) == -1);
  CHECK(third->end() == "");
}

TEST_CASE("lossless: an idle reader holds its senders back in bounded memory") {
  const Deadline deadline;
  const std::string kind = GENERATE(from_range(lossless()));
  INFO(kind);
  wire::InboxOptions options;
  options.window_bytes = 1u << 20;
  const auto receiving = receive(kind, "", options);
  wire::Inbox& inbox = receiving->inbox();
  std::atomic<int64_t> pushed{0};
  std::atomic<bool> over{false};
  std::vector<std::unique_ptr<Worker>> senders;
  for (int s = 0; s < 3; ++s)
    senders.push_back(std::make_unique<Worker>([&, s] {
      wire::OutboxOptions sender_options = pictures("s" + std::to_string(s));
      sender_options.keep_bytes = 2u << 20;
      const auto sender = send(kind, receiving->address, sender_options);
      for (int64_t i = 0; i < 20000 && !over; ++i) push_picture(sender->outbox(), i), ++pushed;
      sender->outbox().finish();
    }));
  const int labels = inbox.open("label", kPatience);
  for (int64_t i = 0; i < 10; ++i) REQUIRE(next_number(inbox, labels) >= 0);
  int64_t before = -1;
  for (int i = 0; i < 100 && pushed != before; ++i) {
    before = pushed;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  const wire::InboxHealth health = inbox.health();
  // The window, a half and a third of it for later senders, and the one frame that each may send beyond it.
  CHECK(health.queued_bytes > 0);
  CHECK(health.queued_bytes <= (11u << 20) / 6 + 3 * (256u << 10));
  CHECK(pushed < 60000);
  CHECK(health.lost + health.refused == 0);
  over = true;
  for (const auto& sender : senders) {
    while (!sender->is_done()) REQUIRE(next_number(inbox, labels) >= -1);
    CHECK(sender->end() == "");
  }
}

TEST_CASE("lossless: waits end on cancellation, without senders and without a receiver") {
  const Deadline deadline;
  const std::string kind = GENERATE(from_range(lossless()));
  INFO(kind);
  auto receiving = receive(kind);
  wire::Inbox& inbox = receiving->inbox();
  const int reader = inbox.open("", kPatience);
  {
    Worker waiting([&] {
      if (inbox.next(reader)) throw std::runtime_error("a sample");
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(!waiting.is_done());
    inbox.cancel(reader);
    CHECK(waiting.end() == "");
  }
  CHECK(!inbox.next(reader));
  inbox.close(reader);
  const std::string address = receiving->address;
  receiving.reset();
  receiving = receive(kind, address);
  const int other = receiving->inbox().open("", std::chrono::milliseconds(50));
  CHECK(message_of([&] { receiving->inbox().next(other); }).find("no sender started within 0 s") != std::string::npos);
  receiving.reset();
  wire::OutboxOptions options = pictures("p");
  options.patience = std::chrono::milliseconds(300);
  const auto sender = send(kind, address, options);
  CHECK(message_of([&] { sender->outbox().finish(); }).find("no receiver answered") != std::string::npos);
}

TEST_CASE("lossless: a sample arrives within milliseconds when nothing else is in flight") {
  const Deadline deadline;
  const std::string kind = GENERATE(from_range(lossless()));
  INFO(kind);
  const auto receiving = receive(kind);
  wire::Inbox& inbox = receiving->inbox();
  const auto sender = send(kind, receiving->address, pictures("camera"));
  const int labels = inbox.open("label", kPatience);
  push_picture(sender->outbox(), 0);
  REQUIRE(next_number(inbox, labels) == 0);
  // The time that this machine needs to wake a thread and be woken by it. A sample needs a few of those.
  std::promise<void> asked[50], answered[50];
  std::thread other([&] {
    for (int i = 0; i < 50; ++i) asked[i].get_future().wait(), answered[i].set_value();
  });
  std::vector<wire::Time> took, woken;
  for (int64_t i = 1; i <= 50; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    const wire::Time begin = wire::now();
    push_picture(sender->outbox(), i);
    REQUIRE(next_number(inbox, labels) == i);
    const wire::Time came = wire::now();
    asked[i - 1].set_value();
    answered[i - 1].get_future().wait();
    took.push_back(came - begin);
    woken.push_back(wire::now() - came);
  }
  other.join();
  std::sort(took.begin(), took.end());
  std::sort(woken.begin(), woken.end());
  CHECK(took[took.size() / 2] < std::chrono::milliseconds(10) + 8 * woken[woken.size() / 2]);  // shorter than a tick
}
