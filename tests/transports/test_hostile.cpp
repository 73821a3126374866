// Faulty and malicious senders are rejected, told why, and counted, while other senders continue.
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "tests/message_of.hpp"
#include "tests/transports/raw_peers.hpp"

using namespace transports;
using namespace wire::testing;

namespace {

std::vector<std::string> all_kinds() {
  std::vector<std::string> kinds = lossless();
  for (const std::string& kind : at_most_once()) kinds.push_back(kind);
  return kinds;
}

Message named(const std::string& producer) {
  return Message().text(1, "samples").text(2, producer).number(3, 1).number(4, 1);
}
Bytes hello(const Message& fields) { return raw_frame(1, fields.bytes()); }
Bytes data(const Message& fields, const std::string& payload) { return raw_frame(3, fields.bytes(), payload); }
template <typename T>
Bytes with(Bytes frame, size_t at, T value) {
  put(frame, at, value);
  seal(frame);
  return frame;
}

struct MalformedFrame {
  const char* name;
  Bytes frame;
  const char* answer;  // part of the answer
};
// Returns inputs that are not frames.
std::vector<MalformedFrame> malformed_frames() {
  const Bytes good = hello(named("liar").message(7, tensor("label", 8, {})));
  Bytes flipped = good;
  flipped[30] ^= std::byte{4};
  const int64_t large = int64_t{1} << 32;
  return {
      {"no frame", Bytes(200, std::byte{'x'}), "but a frame begins with"},
      {"another version", with(good, 4, uint16_t{2}), "version 2"},
      {"a kind that does not exist", with(good, 6, uint16_t{77}), "there is no kind 77"},
      {"a header of 4 GiB", with(good, 8, ~uint32_t{0}), "a header of 4294967295 bytes is announced"},
      {"a payload of 8 GiB", with(good, 12, uint64_t{8} << 30), "a payload of 8589934592 bytes is announced"},
      {"a payload without end", with(good, 12, ~uint64_t{0}), "bytes is announced"},
      {"a flipped bit", flipped, "the checksum 0x"},
      {"a header that is none", raw_frame(1, "\xff\xff\xff"), "not a Protobuf message"},
      {"a name of control characters", hello(Message().text(1, "samples").text(2, "a\x1b[2J")),
       "the control character 0x1b"},
      {"samples without tensors", data(named("liar").number(6, 1), ""), "a DATA frame without tensors"},
      {"an element type that does not exist",
       data(named("liar").number(6, 1).message(7, tensor("label", 99, {})), "12345678"), "there is no element type 99"},
      {"shapes beyond all bounds",
       data(named("liar").number(6, 1).message(7, tensor("label", 8, {large, large})), "12345678"),
       "more than the 16777216 bytes"},
      {"fewer bytes than announced",
       data(named("liar").number(6, 3).message(7, tensor("label", 8, {})), std::string(16, 'a')),
       "cannot fit into the frame"},
      {"more bytes than announced",
       data(named("liar").number(6, 1).message(7, tensor("label", 8, {})), std::string(16, 'a')),
       "more than the tensors"},
  };
}

uint64_t resident() {
  std::ifstream statm("/proc/self/statm");
  uint64_t size = 0, pages = 0;
  statm >> size >> pages;
  return pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace

TEST_CASE("hostile: malformed frames are rejected, counted and answered while other senders continue") {
  const Deadline deadline;
  const std::string kind = GENERATE(from_range(all_kinds()));
  INFO(kind);
  const auto receiving = receive(kind);
  wire::Inbox& inbox = receiving->inbox();
  HealthySender healthy(kind, *receiving);
  REQUIRE(healthy.goes_on(kPatience));
  [[maybe_unused]] const uint64_t memory = resident();
  for (const MalformedFrame& malformed : malformed_frames()) {
    INFO(malformed.name);
    const uint64_t before = inbox.health().refused;
    const auto liar = raw_peer(kind, receiving->address);
    REQUIRE(liar->say(malformed.frame));
    if (answers(kind)) {
      const auto answer = liar->answer();
      REQUIRE(answer);
      CHECK(answer->kind == wire::Kind::Error);
      CHECK(answer->code == wire::Code::Malformed);
      CHECK(answer->text.find(malformed.answer) != std::string::npos);
    }
    if (auto* const socket = dynamic_cast<RawPeer*>(liar.get())) CHECK(socket->is_closed_within(60));
    for (int i = 0; i < 6000 && inbox.health().refused == before; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK(inbox.health().refused == before + 1);
    CHECK(inbox.health().last_error.find(malformed.answer) != std::string::npos);
  }
  CHECK(healthy.goes_on());
  CHECK(healthy.end() == "");
  CHECK(inbox.health().lost == 0);
#ifndef __SANITIZE_ADDRESS__
  CHECK(resident() < memory + (64u << 20));
#endif
}

TEST_CASE("hostile: frames that violate the protocol are answered while other senders continue") {
  const Deadline deadline;
  const std::string kind = GENERATE(from_range(lossless()));
  INFO(kind);
  wire::InboxOptions options;
  options.window_samples = 64;
  const auto receiving = receive(kind, "", options);
  wire::Inbox& inbox = receiving->inbox();
  HealthySender healthy(kind, *receiving);
  REQUIRE(healthy.goes_on(kPatience));
  const auto answer_to = [&](Peer& from, const Bytes& frame) {
    REQUIRE(from.say(frame));
    const auto answer = from.answer();
    REQUIRE(answer);
    return *answer;
  };
  const Message wanted =
      named("odd").number(15, 1).message(7, tensor("image", 2, {kSide, kSide})).message(7, tensor("label", 8, {}));
  const auto odd = raw_peer(kind, receiving->address);
  // Samples before a HELLO.
  const std::string sample(kSide * kSide + 8, '\x7f');
  const Message one =
      named("odd").number(6, 1).message(7, tensor("image", 2, {kSide, kSide})).message(7, tensor("label", 8, {}));
  wire::Frame answer = answer_to(*odd, data(one, sample));
  CHECK(answer.kind == wire::Kind::Nack);
  CHECK(answer.code == wire::Code::NoSession);
  // A HELLO without tensors, and one with other tensors.
  answer = answer_to(*odd, hello(named("odd").number(15, 1)));
  CHECK(answer.code == wire::Code::Tensors);
  answer = answer_to(*odd, hello(named("odd")
                                     .number(15, 1)
                                     .message(7, tensor("image", 12, {kSide, kSide}))
                                     .message(7, tensor("label", 8, {}))));
  CHECK(answer.kind == wire::Kind::Error);
  CHECK(answer.text.find("expected image u8 [28, 28], label i64 [], got image f32 [28, 28], label i64 []") !=
        std::string::npos);
  // More samples than granted.
  answer = answer_to(*odd, hello(wanted));
  REQUIRE(answer.kind == wire::Kind::Welcome);
  for (uint64_t i = 0; i < 400; ++i) odd->say(data(Message(one).number(5, i), sample));
  while (answer.kind != wire::Kind::Nack) {
    const auto next = odd->answer();
    REQUIRE(next);
    answer = *next;
  }
  CHECK(answer.code == wire::Code::Credit);
  CHECK(answer.text.find("exceeds the granted credit") != std::string::npos);
  // Samples of other types than announced in HELLO.
  answer = answer_to(*odd, hello(Message(wanted).number(4, 2)));
  while (answer.kind != wire::Kind::Welcome) answer = odd->answer().value();
  const uint64_t next = answer.seq;
  do {  // until earlier samples are read, and there is room for one more
    answer =
        answer_to(*odd, data(named("odd").number(5, next).number(6, 1).message(7, tensor("label", 12, {})), "abcd"));
    while (answer.kind == wire::Kind::Grant) answer = odd->answer().value();
  } while (answer.kind == wire::Kind::Nack && answer.code == wire::Code::Credit);
  CHECK(answer.kind == wire::Kind::Error);
  CHECK(answer.text.find("got label f32 []") != std::string::npos);
  CHECK(inbox.health().refused >= 4);
  CHECK(healthy.goes_on());
  CHECK(healthy.end() == "");
}

TEST_CASE("hostile: a peer that uses another's name does not get its answers") {
  const Deadline deadline;
  const std::string kind = GENERATE(from_range(lossless()));
  INFO(kind);
  const auto receiving = receive(kind);
  HealthySender healthy(kind, *receiving);
  REQUIRE(healthy.goes_on(kPatience));
  std::atomic<bool> over{false};
  const auto thief = raw_peer(kind, receiving->address);
  Worker thefts([&] {
    const Message earlier = Message(named("good"))
                                .number(15, 1)
                                .message(7, tensor("image", 2, {kSide, kSide}))
                                .message(7, tensor("label", 8, {}));
    while (!over) {
      thief->say(raw_frame(7, named("good").bytes()));
      thief->say(hello(earlier));
      for (int i = 0; i < 2; ++i)
        if (const auto answer = thief->answer(); answer && answer->epoch != 1)
          throw std::runtime_error("it got the other's answer");
    }
  });
  for (int i = 0; i < 10; ++i) CHECK(healthy.goes_on());
  over = true;
  CHECK(thefts.end() == "");
  CHECK(healthy.end() == "");
}

TEST_CASE("hostile: floods of garbage do not disturb another sender") {
  const Deadline deadline;
  const std::string kind = GENERATE(from_range(all_kinds()));
  INFO(kind);
  const auto receiving = receive(kind);
  wire::Inbox& inbox = receiving->inbox();
  HealthySender healthy(kind, *receiving);
  REQUIRE(healthy.goes_on(kPatience));
  [[maybe_unused]] const uint64_t memory = resident();
  std::atomic<bool> over{false};
  std::atomic<uint64_t> said{0};
  Worker flood([&] {
    const Bytes frame = with(hello(named("flood")), 6, uint16_t{77});
    while (!over) {
      const auto source = raw_peer(kind, receiving->address);
      for (int i = 0; i < 2000 && !over && source->say(frame); ++i) ++said;
    }
  });
  const auto flooded = [&] { return said > 100 && inbox.health().refused > 10; };
  for (int i = 0; i < 10 || (!flooded() && i < 1000); ++i) REQUIRE(healthy.goes_on());
  CHECK(flooded());
  over = true;
  CHECK(flood.end() == "");
#ifndef __SANITIZE_ADDRESS__
  CHECK(resident() < memory + (128u << 20));  // including the memory for the flooding peers
#endif
  CHECK(healthy.end() == "");
  CHECK(inbox.health().lost == 0);
}

TEST_CASE("hostile: silent connections in all slots give way to a sender") {
  const Deadline deadline;
  const std::string kind = GENERATE("tcp", "unix");
  INFO(kind);
  const auto receiving = receive(kind);
  std::vector<std::unique_ptr<RawPeer>> silent;
  for (int i = 0; i < 400; ++i) silent.push_back(std::make_unique<RawPeer>(kind, receiving->address));
  HealthySender healthy(kind, *receiving);
  CHECK(healthy.goes_on());
  // A few connections were closed for it, before the timeout of silent ones.
  const auto closed = std::count_if(silent.begin(), silent.end(), [](const auto& s) { return s->is_closed_within(0); });
  CHECK(closed < 300);
  CHECK(healthy.end() == "");
}

TEST_CASE("hostile: senders of other tensors are rejected with both layouts while others continue") {
  const Deadline deadline;
  const std::string kind = GENERATE(from_range(lossless()));
  INFO(kind);
  const auto receiving = receive(kind);
  wire::Inbox& inbox = receiving->inbox();
  const int labels = inbox.open("label", kPatience);
  const auto good = sending(kind, receiving->address, "good", 0, 3000);
  REQUIRE(next_number(inbox, labels) == 0);
  const auto refusal = [&](std::vector<wire::TensorPart> tensors,
                           wire::Acknowledgement acknowledgement = wire::Acknowledgement::Received) {
    wire::OutboxOptions options = pictures("other " + std::to_string(tensors.size()));
    options.tensors = std::move(tensors);
    options.acknowledgement = acknowledgement;
    const auto sender = send(kind, receiving->address, options);
    return message_of([&] { sender->outbox().next_seq(); });
  };
  CHECK(refusal({{"image", DType::F32, {kSide, kSide}, {}}, {"label", DType::I64, {}, {}}})
            .find("expected image u8 [28, 28], label i64 [], got image f32 [28, 28], label i64 []") !=
        std::string::npos);
  CHECK(refusal({{"label", DType::I64, {}, {}}}).find("expected image u8 [28, 28], label i64 [], got label i64 []") !=
        std::string::npos);
  CHECK(refusal(pictures("").tensors, wire::Acknowledgement::Durable).find("the receiver writes nothing to disk") !=
        std::string::npos);
  CHECK(inbox.health().refused >= 3);
  for (int64_t i = 1; i < 3000; ++i) REQUIRE(next_number(inbox, labels) == i);
  CHECK(good->end() == "");
  CHECK(inbox.health().lost == 0);
}

TEST_CASE("hostile: surplus senders wait for a slot in order of arrival") {
  const Deadline deadline;
  const std::string kind = GENERATE(from_range(lossless()));
  INFO(kind);
  wire::InboxOptions options;
  options.most_senders = 2;
  const auto receiving = receive(kind, "", options);
  wire::Inbox& inbox = receiving->inbox();
  const int labels = inbox.open("label", kPatience);
  auto one = send(kind, receiving->address, pictures("one"));
  const auto two = send(kind, receiving->address, pictures("two"));
  push_pictures(one->outbox(), 0, 10);
  REQUIRE(next_number(inbox, labels) == 0);
  two->outbox().next_seq();
  const auto three = send(kind, receiving->address, pictures("three"));
  Worker third([&] {
    push_pictures(three->outbox(), 20, 10);
    three->outbox().finish();
  });
  for (int64_t i = 1; i < 10; ++i) REQUIRE(next_number(inbox, labels) == i);
  push_pictures(two->outbox(), 10, 10);
  for (int64_t i = 10; i < 20; ++i) REQUIRE(next_number(inbox, labels) == i);
  CHECK(inbox.health().samples == 20);
  CHECK(inbox.health().refused == 0);
  one->outbox().finish();
  one.reset();
  for (int64_t i = 20; i < 30; ++i) REQUIRE(next_number_of_any(inbox, labels) == i);
  CHECK(third.end() == "");
}

TEST_CASE("hostile: connections that only say HELLO under many names take no slot and do not delay the end") {
  const Deadline deadline;
  const std::string kind = GENERATE(from_range(lossless()));
  INFO(kind);
  const auto receiving = receive(kind);
  wire::Inbox& inbox = receiving->inbox();
  for (int connection = 0; connection < 3; ++connection) {
    const auto ghost = raw_peer(kind, receiving->address);
    for (int i = 0; i < 300; ++i)
      ghost->say(hello(named("ghost " + std::to_string(connection) + " " + std::to_string(i))
                           .number(15, 1)
                           .message(7, tensor("image", 2, {kSide, kSide}))
                           .message(7, tensor("label", 8, {}))));
    while (const auto answer = ghost->answer())
      if (answer->kind == wire::Kind::Error &&
          answer->text == "16 senders of this connection have not sent a sample yet")
        break;
  }
  const int labels = inbox.open("label", kPatience);
  const auto good = sending(kind, receiving->address, "good", 0, 1000);
  for (int64_t i = 0; i < 1000; ++i) REQUIRE(next_number(inbox, labels) == i);
  CHECK(next_number(inbox, labels) == -1);  // the end
  CHECK(good->end() == "");
}

TEST_CASE("hostile: incomplete frames of all connections share one memory limit") {
  const Deadline deadline;
  const std::string kind = GENERATE("tcp", "unix");
  INFO(kind);
  const auto receiving = receive(kind);
  HealthySender healthy(kind, *receiving);
  REQUIRE(healthy.goes_on(kPatience));
  Bytes begun = data(Message(), std::string(15u << 20, '\0'));
  begun.resize(12u << 20);
  [[maybe_unused]] const uint64_t memory = resident();
  const auto peer_of = [&] { return std::make_unique<RawPeer>(kind, receiving->address); };
  std::vector<std::unique_ptr<RawPeer>> ungreeted, greeted;
  for (int i = 0; i < 20; ++i) {
    ungreeted.push_back(peer_of());
    ungreeted.back()->say(begun);
  }
  for (const auto& s : ungreeted) CHECK(s->is_closed_within(60));
  for (int i = 0; i < 40; ++i) {
    greeted.push_back(peer_of());
    REQUIRE(greeted.back()->say(hello(named("slow " + std::to_string(i))
                                          .number(15, 1)
                                          .message(7, tensor("image", 2, {kSide, kSide}))
                                          .message(7, tensor("label", 8, {})))));
    REQUIRE(greeted.back()->answer());
    greeted.back()->say(begun);
  }
  CHECK(healthy.goes_on());
#ifndef __SANITIZE_ADDRESS__
  CHECK(resident() < memory + (256u << 20));
#endif
  CHECK(healthy.end() == "");
}

namespace {

double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

// Limits the process to its current number of descriptors.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit now = before_;
    const int next = ::dup(0);
    now.rlim_cur = static_cast<rlim_t>(next);
    setrlimit(RLIMIT_NOFILE, &now);
    ::close(next);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace

TEST_CASE("hostile: a receiver without descriptors is idle, and accepts senders when descriptors are free") {
  const Deadline deadline;
  const std::string kind = GENERATE(from_range(lossless()));
  INFO(kind);
  const auto receiving = receive(kind);
  std::vector<int> sockets;
  for (int i = 0; i < 8; ++i)
    sockets.push_back(::socket(kind == "unix" ? AF_UNIX : AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
  {
    const NoDescriptors none;
    for (const int s : sockets) RawPeer::connect_to(s, kind, receiving->address);
    const double before = processor_seconds();
    std::this_thread::sleep_for(std::chrono::seconds(2));
    CHECK(processor_seconds() - before < 1);  // polling would take two
  }
  for (const int s : sockets) ::close(s);
  HealthySender healthy(kind, *receiving);
  CHECK(healthy.goes_on());
  CHECK(healthy.end() == "");
}

TEST_CASE("hostile: connections with a stalled frame are closed") {
  const Deadline deadline;
  const std::string begun("HXS1\1\0\3\0", 8);
  struct Place {
    std::unique_ptr<Receiving> receiving;
    std::unique_ptr<HealthySender> healthy;
    std::vector<std::unique_ptr<RawPeer>> slow;
  };
  std::map<std::string, Place> places;
  for (const std::string kind : {"tcp", "unix"}) {
    Place& place = places[kind];
    place.receiving = receive(kind);
    place.healthy = std::make_unique<HealthySender>(kind, *place.receiving);
    REQUIRE(place.healthy->goes_on(kPatience));
    for (int i = 0; i < 51; ++i) {
      place.slow.push_back(std::make_unique<RawPeer>(kind, place.receiving->address));
      RawPeer& s = *place.slow.back();
      if (i == 50) {  // this one says HELLO first
        REQUIRE(s.say(hello(named("polite")
                                .number(15, 1)
                                .message(7, tensor("image", 2, {kSide, kSide}))
                                .message(7, tensor("label", 8, {})))));
        REQUIRE(s.answer().value().kind == wire::Kind::Welcome);
      }
      REQUIRE(s.say(begun));
    }
  }
  for (auto& [kind, place] : places) {
    INFO(kind);
    for (const auto& s : place.slow) CHECK(s->is_closed_within(100));  // although nothing is wrong yet
    CHECK(place.healthy->goes_on());
    CHECK(place.healthy->end() == "");
  }
}
