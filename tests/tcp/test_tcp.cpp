// Samples from other processes over loopback: in order, each once, whatever happens to connections and to strangers.
#include <catch2/catch.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <random>
#include <thread>

#include "plugins/tcp/listener.hpp"
#include "plugins/tcp/sender.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::tcp;

namespace {

constexpr auto kPatience = std::chrono::seconds(20);
constexpr uint64_t kSide = 28;

// A process that learns the port from a pipe; it begins before this one has threads.
class Child {
 public:
  explicit Child(const std::function<void(uint16_t)>& body) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      uint16_t port = 0;
      int code = 3;
      try {
        if (read(ends[0], &port, sizeof port) == sizeof port) body(port), code = 0;
      } catch (const std::exception& e) {
        std::fprintf(stderr, "sender: %s\n", e.what());
      }
      _exit(code);
    }
    ::close(ends[0]);
    port_ = ends[1];
  }
  ~Child() {
    ::close(port_);
    if (pid_ > 0) kill(), wait();
  }
  void begin(uint16_t port) const { REQUIRE(write(port_, &port, sizeof port) == sizeof port); }
  void kill() const { ::kill(pid_, SIGKILL); }
  int wait() {
    int status = 0;
    waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = 0;
  int port_ = -1;
};

// Pictures of `kSide` squared whose first bytes are the sample's number, and labels that are it.
void send_pictures(uint16_t port, const std::string& name, int64_t first, int64_t count, bool end = true) {
  SenderOptions options;
  options.producer = name;
  options.tensors = {{"image", DType::U8, {kSide, kSide}, {}}, {"label", DType::I64, {}, {}}};
  options.patience = kPatience;
  Sender sender({"127.0.0.1", port}, options);
  std::vector<std::byte> image(kSide * kSide);
  for (int64_t i = first; i < first + count; ++i) {
    std::memcpy(image.data(), &i, sizeof i);
    sender.push({image, std::as_bytes(std::span(&i, 1))});
  }
  if (end) sender.finish();
  while (!end) pause();
}

std::shared_ptr<Listener> listen() { return Listener::at({"127.0.0.1", 0}); }

int64_t number(const Received& received) {
  int64_t value = 0;
  std::memcpy(&value, received.bytes.data(), sizeof value);
  return value;
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

TEST_CASE("pictures and labels of another process, side by side") {
  Child child([](uint16_t port) { send_pictures(port, "camera", 0, 5000); });
  const auto listener = listen();
  child.begin(listener->port());
  const int images = listener->open("image", kPatience), labels = listener->open("label", kPatience);
  CHECK(listener->announced(images).sample == Shape{kSide, kSide});
  CHECK(listener->announced(labels).dtype == DType::I64);
  for (int64_t i = 0; i < 5000; ++i) {
    const auto image = listener->next(images), label = listener->next(labels);
    REQUIRE((image && label));
    REQUIRE(number(*image) == i);
    REQUIRE(number(*label) == i);
    REQUIRE(image->bytes.size() == kSide * kSide);
  }
  CHECK(!listener->next(images));
  CHECK(!listener->next(labels));
  CHECK(child.wait() == 0);
}

TEST_CASE("two senders at once, each in order") {
  Child one([](uint16_t port) { send_pictures(port, "one", 0, 2000); }), two([](uint16_t port) { send_pictures(port, "two", 100000, 2000); });
  const auto listener = listen();
  one.begin(listener->port()), two.begin(listener->port());
  const int labels = listener->open("label", kPatience);
  std::map<bool, int64_t> next{{false, 0}, {true, 100000}};
  int64_t count = 0;
  // One may have ended before the other has come.
  for (; count < 4000; ++count) {
    auto label = listener->next(labels);
    while (!label) std::this_thread::sleep_for(std::chrono::milliseconds(10)), label = listener->next(labels);
    REQUIRE(number(*label) == next[number(*label) >= 100000]++);
  }
  CHECK(one.wait() == 0);
  CHECK(two.wait() == 0);
}

TEST_CASE("a connection that is cut again and again loses nothing") {
  const uint64_t seed = 4711;
  INFO("seed " << seed);
  Child child([](uint16_t port) { send_pictures(port, "camera", 0, 4000); });
  const auto listener = listen();
  Proxy proxy(8, seed);
  proxy.begin(listener->port());
  child.begin(proxy.port());
  const int labels = listener->open("label", kPatience);
  for (int64_t i = 0; i < 4000; ++i) {
    const auto label = listener->next(labels);
    REQUIRE(label);
    REQUIRE(number(*label) == i);
  }
  CHECK(!listener->next(labels));
  CHECK(child.wait() == 0);
  CHECK(proxy.cuts_made() == 8);
}

TEST_CASE("a sender that is killed is followed by its next incarnation") {
  Child first([](uint16_t port) { send_pictures(port, "camera", 0, 500, false); });
  Child second([](uint16_t port) { send_pictures(port, "camera", 10000, 500); });
  const auto listener = listen();
  first.begin(listener->port());
  const int labels = listener->open("label", kPatience);
  for (int64_t i = 0; i < 500; ++i) REQUIRE(number(*listener->next(labels)) == i);
  first.kill();
  second.begin(listener->port());
  for (int64_t i = 0; i < 500; ++i) REQUIRE(number(*listener->next(labels)) == 10000 + i);
  CHECK(!listener->next(labels));
  CHECK(second.wait() == 0);
}

TEST_CASE("strangers do not disturb a good sender") {
  Child child([](uint16_t port) { send_pictures(port, "camera", 0, 3000); });
  const auto listener = listen();
  std::mt19937_64 random(3);
  std::vector<int> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(connected_to(listener->port()));
    std::string bytes = i % 2 ? std::string("HXS1\1\0\3\0\0\0\0\0\0\0\0\0\2\0\0\0", 20) : "";
    while (bytes.size() < 200) bytes += static_cast<char>(random());
    REQUIRE(::send(strangers.back(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == 200);
  }
  child.begin(listener->port());
  const int labels = listener->open("label", kPatience);
  for (int64_t i = 0; i < 3000; ++i) REQUIRE(number(*listener->next(labels)) == i);
  CHECK(!listener->next(labels));
  CHECK(child.wait() == 0);
  for (int s : strangers) ::close(s);
}

TEST_CASE("a reader that does not read holds its sender back") {
  Child child([](uint16_t port) { send_pictures(port, "camera", 0, 100000); });
  const auto listener = listen();
  child.begin(listener->port());
  const int labels = listener->open("label", kPatience);
  for (int64_t i = 0; i < 10; ++i) REQUIRE(number(*listener->next(labels)) == i);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // longer than pings take
  for (int64_t i = 10; i < 20000; ++i) REQUIRE(number(*listener->next(labels)) == i);
}

TEST_CASE("addresses beyond this machine are refused, and silence ends") {
  CHECK(parse_endpoint("[::1]:80").str() == "tcp:[::1]:80");
  CHECK(parse_endpoint("localhost:65535").str() == "tcp:127.0.0.1:65535");
  CHECK(message_of([] { parse_endpoint("0.0.0.0:5555"); }) ==
        "tcp:0.0.0.0:5555 lies beyond this machine, and nothing on the way is encrypted\nuse 127.0.0.1, and a tunnel (ssh -L) between machines");
  CHECK(message_of([] { parse_endpoint("127.0.0.1:65536"); }) == "tcp:127.0.0.1:65536: '65536' is no port\nwrite tcp:127.0.0.1:5555, or tcp:[::1]:5555");
  for (const char* bad : {"", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", ":5"}) CHECK(message_of([&] { parse_endpoint(bad); }).find("write tcp:") != std::string::npos);
  const auto listener = listen();
  CHECK(message_of([&] { listener->open("", std::chrono::milliseconds(50)); }).find("nobody has begun to send in 0 s") != std::string::npos);
  SenderOptions options;
  options.producer = "p";
  options.tensors = {{"x", DType::U8, {}, {}}};
  options.patience = std::chrono::milliseconds(300);
  Sender sender({"127.0.0.1", 1}, options);
  CHECK(message_of([&] { sender.finish(); }).find("tcp:127.0.0.1:1: nobody listens there") == 0);
}
