// Samples in plain formats over sockets: many, silent and slow senders do not disturb another one.
#include <catch2/catch.hpp>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "plugins/sockets/listener.hpp"

using namespace harmonics;

namespace {

class PlainStranger {
 public:
  explicit PlainStranger(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un place{};
    place.sun_family = AF_UNIX;
    path.copy(place.sun_path, sizeof place.sun_path - 1);
    connected_ = ::connect(socket_, reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0;
  }
  ~PlainStranger() { ::close(socket_); }
  PlainStranger(const PlainStranger&) = delete;
  bool is_connected() const { return connected_; }
  // Returns false when the other end has closed.
  bool send(const std::string& bytes) const {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t n = ::send(socket_, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
      if (n <= 0) return false;
      at += static_cast<size_t>(n);
    }
    return true;
  }

 private:
  int socket_;
  bool connected_;
};

struct PlainListener {
  PlainListener() {
    char name[] = "/tmp/harmonics-plain-XXXXXX";
    REQUIRE(mkdtemp(name));
    folder = name;
    plain::FeedOptions options;
    options.where = "unix:" + path();
    options.endless = true;
    listener = std::make_unique<sockets::Listener>(sockets::unix_endpoint(path()), std::move(options));
    plain::Asked asked;
    asked.type = "f32:1";
    reader = listener->inbox().open(listener->feed().choose(asked), std::chrono::seconds(30));
    listener->feed().begin();
  }
  ~PlainListener() {
    listener.reset();
    ::rmdir(folder.c_str());
  }
  std::string path() const { return folder + "/socket"; }
  float next() {
    const auto sample = listener->inbox().next(reader);
    REQUIRE(sample);
    float value = 0;
    std::memcpy(&value, sample->bytes.bytes.data(), sizeof value);
    return value;
  }

  std::string folder;
  std::unique_ptr<sockets::Listener> listener;
  int reader = 0;
};

}  // namespace

TEST_CASE("plain sockets: samples arrive beside three hundred silent connections") {
  PlainListener l;
  std::vector<std::unique_ptr<PlainStranger>> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(std::make_unique<PlainStranger>(l.path()));
  const PlainStranger good(l.path());
  REQUIRE(good.is_connected());
  CHECK(good.send("[1.5]\n"));
  CHECK(l.next() == 1.5f);
  silent.clear();
  CHECK(good.send("[2.5]\n"));
  CHECK(l.next() == 2.5f);
}

TEST_CASE("plain sockets: incomplete samples take bounded memory, the connection with most is dropped") {
  PlainListener l;
  const std::string piece(1u << 20, ' ');
  std::vector<std::unique_ptr<PlainStranger>> slow;
  bool dropped = false;
  for (int i = 0; i < 12 && !dropped; ++i) {
    slow.push_back(std::make_unique<PlainStranger>(l.path()));
    for (int n = 0; n < 15 && !dropped; ++n) dropped = !slow.back()->send(piece);
    dropped = dropped || l.listener->feed().connected() < slow.size();
    if (const std::string& error = l.listener->feed().last_error(); !error.empty()) dropped = true;
  }
  const PlainStranger good(l.path());
  CHECK(good.send("[1.5]\n"));
  CHECK(l.next() == 1.5f);
  CHECK(dropped);
  CHECK(l.listener->feed().last_error().find("bytes of unfinished samples are buffered") != std::string::npos);
}

TEST_CASE("plain sockets: unreadable lines are rejected one by one on every connection") {
  PlainListener l;
  const PlainStranger bad(l.path()), good(l.path());
  CHECK(bad.send("not json\n[[[[\n"));
  CHECK(bad.send("[3.5]\n"));  // lines are rejected one by one
  CHECK(l.next() == 3.5f);
  CHECK(good.send("[1.5]\n"));
  CHECK(l.next() == 1.5f);
  CHECK(l.listener->inbox().health().refused == 2);
}
