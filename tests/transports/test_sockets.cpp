// What belongs to sockets alone: cuts, strangers, addresses, files.
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

uint16_t port_of(const Receiving& receiving) { return static_cast<uint16_t>(std::stoi(receiving.address.substr(receiving.address.rfind(':') + 1))); }

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

// Passes bytes on between those who connect to it and `target`, and cuts after a random number of them, `cuts` times.
class Proxy {
 public:
  Proxy(int cuts, uint64_t seed) : cuts_(cuts), random_(seed) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof place;
    REQUIRE(bind(listener_, reinterpret_cast<sockaddr*>(&place), size) == 0);
    REQUIRE(::listen(listener_, 8) == 0);
    REQUIRE(getsockname(listener_, reinterpret_cast<sockaddr*>(&place), &size) == 0);
    port_ = ntohs(place.sin_port);
  }
  ~Proxy() {
    shutdown(listener_, SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    ::close(listener_);
  }
  uint16_t port() const { return port_; }
  int cuts_made() const { return made_; }
  void begin(uint16_t target) {
    thread_ = std::thread([this, target] {
      for (int client; (client = accept(listener_, nullptr, nullptr)) >= 0;) carry(client, connected_to(target));
    });
  }

 private:
  // How many bytes were passed on; 0: the end.
  static size_t pass(int from, int to, size_t most) {
    char bytes[16384];
    const ssize_t n = recv(from, bytes, std::min(sizeof bytes, most), 0);
    if (n <= 0) return 0;
    for (ssize_t at = 0, m; at < n; at += m)
      if ((m = ::send(to, bytes + at, static_cast<size_t>(n - at), MSG_NOSIGNAL)) <= 0) return 0;
    return static_cast<size_t>(n);
  }
  void carry(int a, int b) {
    const bool cut = made_ < cuts_;
    const size_t until = cut ? 1 + random_() % 300000 : ~size_t{0};  // all of them together less than what is sent
    std::thread back([a, b] {
      while (pass(b, a, 16384) > 0) {
      }
      shutdown(a, SHUT_RDWR), shutdown(b, SHUT_RDWR);
    });
    for (size_t passed = 0, n = 1; passed < until && n > 0; passed += n) n = pass(a, b, until - passed);
    if (cut) ++made_;
    shutdown(a, SHUT_RDWR), shutdown(b, SHUT_RDWR);
    back.join();
    ::close(a), ::close(b);
  }

  int listener_ = -1, cuts_;
  uint16_t port_ = 0;
  std::mt19937_64 random_;
  std::atomic<int> made_{0};
  std::thread thread_;
};

}  // namespace

TEST_CASE("a connection that is cut again and again loses nothing") {
  const Deadline deadline;
  const uint64_t seed = 4711;
  INFO("seed " << seed);
  const auto receiving = receive("tcp");
  wire::Inbox& inbox = receiving->inbox();
  Proxy proxy(8, seed);
  proxy.begin(port_of(*receiving));
  const auto sender = sending("tcp", "127.0.0.1:" + std::to_string(proxy.port()), "camera", 0, 4000);
  const int labels = inbox.open("label", kPatience);
  for (int64_t i = 0; i < 4000; ++i) REQUIRE(next_number(inbox, labels) == i);
  CHECK(next_number(inbox, labels) == -1);
  CHECK(sender->end() == "");
  CHECK(proxy.cuts_made() == 8);
}

TEST_CASE("strangers do not disturb a good sender") {
  const Deadline deadline;
  const auto receiving = receive("tcp");
  wire::Inbox& inbox = receiving->inbox();
  std::mt19937_64 random(3);
  std::vector<int> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(connected_to(port_of(*receiving)));
    std::string bytes = i % 2 ? std::string("HXS1\1\0\3\0\0\0\0\0\0\0\0\0\2\0\0\0", 20) : "";
    while (bytes.size() < 200) bytes += static_cast<char>(random());
    REQUIRE(::send(strangers.back(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == 200);
  }
  const auto sender = sending("tcp", receiving->address, "camera", 0, 3000);
  const int labels = inbox.open("label", kPatience);
  for (int64_t i = 0; i < 3000; ++i) REQUIRE(next_number(inbox, labels) == i);
  CHECK(next_number(inbox, labels) == -1);
  CHECK(sender->end() == "");
  CHECK(inbox.health().refused == 20);
  CHECK(inbox.health().last_error.find("byte") == 0);
  for (int s : strangers) ::close(s);
}

TEST_CASE("addresses of sockets, and those beyond this machine") {
  CHECK(tcp_endpoint("[::1]:80").str() == "tcp:[::1]:80");
  CHECK(tcp_endpoint("//localhost:65535").str() == "tcp:127.0.0.1:65535");
  CHECK(tcp_endpoint("0.0.0.0:5555", true).str() == "tcp:0.0.0.0:5555");
  CHECK(message_of([] { tcp_endpoint("0.0.0.0:5555"); }) ==
        "tcp:0.0.0.0:5555 lies beyond this machine, and nothing on the way is encrypted\n"
        "use 127.0.0.1 and a tunnel (ssh -L) between machines, zmq+router: with ?curve=KEYS, or say ?insecure=true (--insecure)");
  CHECK(message_of([] { tcp_endpoint("127.0.0.1:65536"); }) == "tcp:127.0.0.1:65536: '65536' is no port\nwrite tcp:127.0.0.1:5555, or tcp:[::1]:5555");
  for (const char* bad : {"", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", ":5", "//:5"}) CHECK(message_of([&] { tcp_endpoint(bad); }).find("write tcp:") != std::string::npos);
  CHECK(unix_endpoint("/tmp/x").str() == "unix:/tmp/x");
  CHECK(unix_endpoint("///tmp/x").str() == "unix:/tmp/x");
  CHECK(message_of([] { unix_endpoint(""); }).find("a socket's path has 1 to 107 bytes") != std::string::npos);
}

TEST_CASE("a Unix socket is its owner's, and one that was left behind is taken over") {
  const Deadline deadline;
  std::string path;
  {
    const auto receiving = receive("unix");
    path = receiving->address;
    struct stat info {};
    REQUIRE(stat(path.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0600);
    CHECK(message_of([&] { receive("unix", path); }).find("cannot be listened on: Address already in use") != std::string::npos);
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
