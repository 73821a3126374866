// Tests of sockets only: truncated frames, unknown peers, addresses, files.
#include "tests/transports/chaos_world.hpp"
#include "tests/transports/checks.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "plugins/sockets/endpoint.hpp"
#include "tests/message_of.hpp"

using namespace transports;
using namespace harmonics::sockets;

namespace {

uint16_t port_of(const Receiving& receiving) {
  return static_cast<uint16_t>(std::stoi(receiving.address.substr(receiving.address.rfind(':') + 1)));
}

int connected_to(uint16_t port) {
  const int s = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(port);
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(s, reinterpret_cast<sockaddr*>(&place), sizeof place) == 0) return s;
  ::close(s);
  return -1;
}

// Returns a port of this machine whose connections wait to be accepted.
int listening(int most_waiting, uint16_t& port) {
  const int s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof place;
  REQUIRE(bind(s, reinterpret_cast<sockaddr*>(&place), size) == 0);
  REQUIRE(::listen(s, most_waiting) == 0);
  REQUIRE(getsockname(s, reinterpret_cast<sockaddr*>(&place), &size) == 0);
  port = ntohs(place.sin_port);
  return s;
}

}  // namespace

TEST_CASE("sockets: repeatedly cut connections lose nothing") {
  const Deadline deadline;
  ChaosWorld world{"tcp", 4711, {}};
  for (int i = 0; i < 8; ++i)
    world.storms.push_back({{{i % 2 ? Fault::Cut : Fault::Reset, Storm::kBoth}},
                            std::chrono::milliseconds(150),
                            std::chrono::milliseconds(10)});
  const ChaosVerdict verdict = live_through(world);
  INFO(verdict.str());
  CHECK(verdict.error == "");
  CHECK(verdict.counts.cut >= 8);
}

TEST_CASE("sockets: a frame may take longer than a sender waits for an answer") {
  const Deadline deadline;
  const auto receiving = receive("tcp");
  ChaosProxy::Options options;
  options.target = port_of(*receiving);
  options.storms = {{{{Fault::Slow, Storm::kToReceiver}}, std::chrono::milliseconds(0), std::chrono::hours(1)}};
  options.slow = 30000;
  ChaosProxy proxy(std::move(options));
  const int labels = receiving->inbox().open("label", kPatience);
  const auto sender =
      sending("tcp", "127.0.0.1:" + std::to_string(proxy.port()), "camera", 0, 300);  // one frame of 240 KB: 8 s
  for (int64_t i = 0; i < 300; ++i) REQUIRE(next_number(receiving->inbox(), labels) == i);
  CHECK(next_number(receiving->inbox(), labels) == -1);
  CHECK(sender->end() == "");
  CHECK(proxy.counts().connections == 1);
}

TEST_CASE("sockets: a sender connects soon after the receiver accepts again") {
  const Deadline deadline;
  // With a full accept queue, the system drops connection attempts and retries at growing intervals.
  uint16_t port = 0;
  const int listener = listening(0, port);
  std::vector<int> waiting;
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(port);
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (int i = 0; i < 4; ++i) {
    waiting.push_back(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    connect(waiting.back(), reinterpret_cast<sockaddr*>(&place), sizeof place);
  }
  const auto sender = send("tcp", "127.0.0.1:" + std::to_string(port), pictures("camera"));
  std::this_thread::sleep_for(
      std::chrono::milliseconds(20000));  // Linux retries after 19 s, then after 35; before 6.5 after 15, then after 31
  const wire::Time begin = wire::now();
  std::atomic<bool> over{false}, spoke{false};
  Worker door([&] {
    while (!over && !spoke) {
      const int s = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK);
      if (s < 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        continue;
      }
      waiting.push_back(s);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      char bytes[4];
      if (recv(s, bytes, sizeof bytes, 0) == 4 && std::memcmp(bytes, "HXS1", 4) == 0) spoke = true;
    }
  });
  while (!spoke && wire::now() - begin < kPatience) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  over = true;
  CHECK(door.end() == "");
  CHECK(spoke);
  CHECK(wire::now() - begin < std::chrono::seconds(9));  // before the system retries
  for (const int s : waiting) ::close(s);
  ::close(listener);
}

TEST_CASE("sockets: a sender that is accepted but never answered fails after its patience") {
  const Deadline deadline;
  uint16_t port = 0;
  const int listener = listening(16, port);
  wire::OutboxOptions options = pictures("camera");
  options.patience = std::chrono::seconds(1);
  const auto sender = send("tcp", "127.0.0.1:" + std::to_string(port), options);
  CHECK(message_of([&] {
          sender->outbox().next_seq();
        }).find("the peer accepted the connection but sent no reply for 1 s") != std::string::npos);
  ::close(listener);
}

TEST_CASE("sockets: garbage from unknown peers does not disturb another sender") {
  const Deadline deadline;
  const auto receiving = receive("tcp");
  wire::Inbox& inbox = receiving->inbox();
  std::mt19937_64 random(3);
  std::vector<int> peers;
  for (int i = 0; i < 20; ++i) {
    peers.push_back(connected_to(port_of(*receiving)));
    std::string bytes = i % 2 ? std::string("HXS1\1\0\3\0\0\0\0\0\0\0\0\0\2\0\0\0", 20) : "";
    while (bytes.size() < 200) bytes += static_cast<char>(random());
    REQUIRE(::send(peers.back(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == 200);
  }
  const auto sender = sending("tcp", receiving->address, "camera", 0, 3000);
  const int labels = inbox.open("label", kPatience);
  for (int64_t i = 0; i < 3000; ++i) REQUIRE(next_number(inbox, labels) == i);
  CHECK(next_number(inbox, labels) == -1);
  CHECK(sender->end() == "");
  CHECK(inbox.health().refused == 20);
  CHECK(inbox.health().last_error.find("byte") == 0);
  for (int s : peers) ::close(s);
}

TEST_CASE("sockets: addresses are checked, also those of other machines") {
  CHECK(tcp_endpoint("[::1]:80").str() == "tcp:[::1]:80");
  CHECK(tcp_endpoint("//localhost:65535").str() == "tcp:127.0.0.1:65535");
  CHECK(tcp_endpoint("0.0.0.0:5555", true).str() == "tcp:0.0.0.0:5555");
  CHECK(message_of([] { tcp_endpoint("0.0.0.0:5555"); }) ==
        "tcp:0.0.0.0:5555 is not local, and the traffic can be read and forged\n"
        "use 127.0.0.1 and a tunnel (ssh -L) between machines, zmq+router: with ?curve=KEYS, or ?insecure=true "
        "(--insecure) if the address is protected otherwise");
  CHECK(message_of([] { tcp_endpoint("127.0.0.1:65536"); }) ==
        "tcp:127.0.0.1:65536: '65536' is not a port\nwrite tcp:127.0.0.1:5555, or tcp:[::1]:5555");
  for (const char* bad : {"", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", ":5", "//:5"})
    CHECK(message_of([&] { tcp_endpoint(bad); }).find("write tcp:") != std::string::npos);
  CHECK(unix_endpoint("/tmp/x").str() == "unix:/tmp/x");
  CHECK(unix_endpoint("///tmp/x").str() == "unix:/tmp/x");
  CHECK(message_of([] { unix_endpoint(""); }).find("a socket's path has 1 to 107 bytes") != std::string::npos);
}

TEST_CASE("sockets: a Unix socket belongs to its owner, and a stale one is replaced") {
  const Deadline deadline;
  std::string path;
  {
    const auto receiving = receive("unix");
    path = receiving->address;
    struct stat info {};
    REQUIRE(stat(path.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0600);
    CHECK(message_of([&] { receive("unix", path); }).find("cannot be listened on: Address already in use") !=
          std::string::npos);
    CHECK(message_of([&] { receive("unix", path + ".none/socket"); }).find("make its folder first") !=
          std::string::npos);
  }
  CHECK(access(path.c_str(), F_OK) != 0);
  const int left = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un place{};
  place.sun_family = AF_UNIX;
  std::strcpy(place.sun_path, path.c_str());
  REQUIRE(bind(left, reinterpret_cast<sockaddr*>(&place), sizeof place) == 0);
  ::close(left);
  CHECK(receive("unix", path)->address == path);
}
