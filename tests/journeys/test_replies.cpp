// Clients of a run against servers with endless or arbitrary answers.
#include "tests/journeys/shell.hpp"

#include <atomic>
#include <thread>

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

using namespace journeys;

namespace {

// Answers every connection in turn: sends `begins`, then `goes_on` until the client closes.
class Answering {
 public:
  Answering(std::string path, std::string begins, std::string goes_on)
      : begins_(std::move(begins)), goes_on_(std::move(goes_on)) {
    if (path.empty()) {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      listen(address);
      socklen_t size = sizeof address;
      REQUIRE(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
      where_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    } else {
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      path.copy(address.sun_path, sizeof address.sun_path - 1);
      listen(address);
      where_ = path;
    }
    thread_ = std::thread([this] { serve(); });
  }
  ~Answering() {
    over_ = true;
    thread_.join();
    ::close(socket_);
  }
  Answering(const Answering&) = delete;
  Answering& operator=(const Answering&) = delete;
  const std::string& where() const { return where_; }

 private:
  template <typename Address>
  void listen(const Address& address) {
    socket_ = ::socket(reinterpret_cast<const sockaddr&>(address).sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(socket_, 8) == 0);
  }
  bool send(int client, const std::string& bytes) const {
    for (size_t at = 0; at < bytes.size() && !over_;) {
      const ssize_t n = ::send(client, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n > 0) {
        at += static_cast<size_t>(n);
        continue;
      }
      if (errno != EAGAIN && errno != EINTR) return false;
      pollfd ready{client, POLLOUT, 0};
      ::poll(&ready, 1, 100);
    }
    return !over_;
  }
  void serve() const {
    while (!over_) {
      pollfd ready{socket_, POLLIN, 0};
      if (::poll(&ready, 1, 100) <= 0) continue;
      const int client = ::accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
      if (client < 0) continue;
      char request[4096];
      (void)::recv(client, request, sizeof request, 0);
      bool there = send(client, begins_);
      while (there && !goes_on_.empty()) there = send(client, goes_on_);
      ::shutdown(client, SHUT_RDWR);
      ::close(client);
    }
  }

  std::string begins_, goes_on_, where_;
  int socket_ = -1;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

const std::string kGood = "HTTP/1.1 200 OK\r\n\r\n";

}  // namespace

TEST_CASE("replies: an endless answer is refused at a limit") {
  Folder f;
  const std::string piece(65536, ' ');
  for (const bool socket : {false, true})
    for (const std::string& begins :
         socket ? std::vector<std::string>{""} : std::vector<std::string>{kGood, "HTTP/1.1 200 OK\r\nX: "}) {
      const Answering server(socket ? f / "sock" : "", begins, piece);
      for (const char* use : {"top $W --once", "tap $W x", "ctl $W status"}) {
        const Result r = harmonics_in("W='" + server.where() + "';", use);
        CHECK(r.code == 69);
        CHECK(has(r.err, begins == kGood || socket ? "more than 32 MiB" : "a header of more than 64 KiB"));
      }
    }
  const Answering events(f / "events", "{}\n", piece);
  CHECK(harmonics("ctl " + (f / "events") + " events").code == 69);
}

TEST_CASE("replies: top and ctl show nulls as such, and no control characters") {
  const std::string status =
      R"("graph":"g\u001b[2J","state":"r\u001b[5m","health":"h\r",")"
      R"(step":null,"samples":null,"seconds":null,"loss":1,"notes":1,"lines":[{"seconds":null,"level":"note",")"
      R"(text":"t\u001b[7m"}],)"
      R"("checkpoint":{"path":"p\u001b]0;x\u0007","seconds_ago":null,"step":null},"layers":[{"name":"l\u001b[2J"}],)"
      R"("streams":[{"name":"s\u009b2J","state":"\u001b[5m","health":"\u001b[7m",")"
      R"(lag_seconds":1e300,"queued_samples":1e300,"last_error":"e\u001b"}])";
  const Answering server("", kGood + "{" + status + ",\"status\":{" + status + "}}\n", "");
  for (const char* use : {"top $W --once", "top $W --json", "ctl $W status", "ctl $W status --json"}) {
    const Result r = harmonics_in("W='" + server.where() + "';", use);
    CHECK(r.code == 0);
    CHECK(r.out.find_first_of("\x1b\r\x07\x7f") == std::string::npos);
    CHECK_FALSE(has(r.out, "\xc2\x9b"));
    CHECK_FALSE(has(r.out, "922337203685477"));
    CHECK_FALSE(has(r.out, " -"));
  }
}
