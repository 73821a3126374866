// Senders that are wrong or mean harm: refused, told why, counted, and good ones go on.
#include "tests/transports/checks.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/message_of.hpp"

using namespace transports;

namespace {

int connected_to(const std::string& address) {
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(connect(s, reinterpret_cast<sockaddr*>(&place), sizeof place) == 0);
  return s;
}

}  // namespace

TEST_CASE("senders of something else are refused with both, and others go on") {
  const Deadline deadline;
  const std::string kind = GENERATE(from_range(lossless()));
  INFO(kind);
  const auto receiving = receive(kind);
  wire::Inbox& inbox = receiving->inbox();
  const int labels = inbox.open("label", kPatience);
  const auto good = sending(kind, receiving->address, "good", 0, 3000);
  REQUIRE(next_number(inbox, labels) == 0);
  const auto refusal = [&](std::vector<wire::TensorPart> tensors, wire::Acknowledgement acknowledgement = wire::Acknowledgement::Received) {
    wire::OutboxOptions options = pictures("other " + std::to_string(tensors.size()));
    options.tensors = std::move(tensors);
    options.acknowledgement = acknowledgement;
    const auto sender = send(kind, receiving->address, options);
    return message_of([&] { sender->outbox().next_seq(); });
  };
  CHECK(refusal({{"image", DType::F32, {kSide, kSide}, {}}, {"label", DType::I64, {}, {}}}).find("wanted is image u8 [28, 28], label i64 [], not image f32 [28, 28], label i64 []") !=
        std::string::npos);
  CHECK(refusal({{"label", DType::I64, {}, {}}}).find("wanted is image u8 [28, 28], label i64 [], not label i64 []") != std::string::npos);
  CHECK(refusal(pictures("").tensors, wire::Acknowledgement::Durable).find("nothing is kept on disk here") != std::string::npos);
  CHECK(inbox.health().refused >= 3);
  for (int64_t i = 1; i < 3000; ++i) REQUIRE(next_number(inbox, labels) == i);
  CHECK(good->end() == "");
  CHECK(inbox.health().lost == 0);
}

TEST_CASE("more senders than may be are told, and those who are there go on") {
  const Deadline deadline;
  const std::string kind = GENERATE(from_range(lossless()));
  INFO(kind);
  wire::InboxOptions options;
  options.most_senders = 2;
  const auto receiving = receive(kind, "", options);
  wire::Inbox& inbox = receiving->inbox();
  const int labels = inbox.open("label", kPatience);
  const auto one = send(kind, receiving->address, pictures("one")), two = send(kind, receiving->address, pictures("two"));
  push_pictures(one->outbox(), 0, 10);
  REQUIRE(next_number(inbox, labels) == 0);
  two->outbox().next_seq();
  const auto three = send(kind, receiving->address, pictures("three"));
  CHECK(message_of([&] { three->outbox().next_seq(); }).find("2 senders are there, and no more are taken") != std::string::npos);
  for (int64_t i = 1; i < 10; ++i) REQUIRE(next_number(inbox, labels) == i);
  push_pictures(two->outbox(), 10, 10);
  for (int64_t i = 10; i < 20; ++i) REQUIRE(next_number(inbox, labels) == i);
}

TEST_CASE("who begins a frame and does not go on is left behind") {
  const Deadline deadline;
  const auto receiving = receive("tcp");
  wire::Inbox& inbox = receiving->inbox();
  const int labels = inbox.open("label", kPatience);
  std::vector<int> slow;
  for (int i = 0; i < 50; ++i) {
    slow.push_back(connected_to(receiving->address));
    REQUIRE(::send(slow.back(), "HXS1\1\0\3\0", 8, MSG_NOSIGNAL) == 8);
  }
  const auto good = sending("tcp", receiving->address, "good", 0, 3000);
  for (int64_t i = 0; i < 3000; ++i) REQUIRE(next_number(inbox, labels) == i);
  CHECK(good->end() == "");
  for (const int s : slow) {
    timeval wait{20, 0};
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait);
    char byte = 0;
    CHECK(recv(s, &byte, 1, 0) == 0);  // closed, though nothing was wrong yet
    ::close(s);
  }
}
