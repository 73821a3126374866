// For any bytes from a client of /v1/events, before and after its upgrade and while others listen: each ping is
// answered, a protocol violation closes the connection with the standard's code, the server's output is well-formed,
// and other listeners miss nothing. The server runs without a thread, over socket pairs: no clock, and no dependence on
// timing.
// The first byte selects how the client upgrades, whether a token is required, and whether the buffers are small. The
// events follow one after another.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/serving/http_server.hpp"
#include "tests/fuzz/websocket_frames.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr size_t kMostSaid = 1 << 17;
constexpr int kMostHappens = 100;
constexpr size_t kMostBeats = 20;  // each takes as long as all other events
constexpr auto kLongest = 10s;
constexpr const char* kKeys =
    "Host: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
    "dGhlIHNhbXBsZSBub25jZQ==\r\n";
constexpr const char* kAccepted = "\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

class Input {
 public:
  explicit Input(std::string_view bytes) : bytes_(bytes) {}
  bool is_empty() const { return bytes_.empty(); }
  uint8_t byte() { return bytes_.empty() ? uint8_t{0} : static_cast<uint8_t>(some(1)[0]); }
  std::string some(size_t n) {
    const std::string part(bytes_.substr(0, n));
    bytes_.remove_prefix(part.size());
    return part;
  }

 private:
  std::string_view bytes_;
};

// The client end of a connection. Non-blocking.
class Client {
 public:
  Client(HttpServer& server, bool narrow) {
    int pair[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "no pair of sockets");
    socket_ = pair[0];
    const int least = 1;  // the system rounds it up to a few KiB
    if (narrow) ::setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
    server.take(pair[1]);
  }
  ~Client() { ::close(socket_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void say(std::string_view bytes) {
    waits_ += bytes;
    flush();
  }
  // Returns false when nothing could be sent.
  bool flush() {
    if (waits_.empty()) return false;
    const ssize_t n = ::send(socket_, waits_.data(), waits_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    said_.append(waits_, 0, n > 0 ? static_cast<size_t>(n) : 0);
    if (n > 0)
      waits_.erase(0, static_cast<size_t>(n));
    else
      waits_.clear();  // the connection is closed
    return n > 0;
  }
  bool hear(size_t most) {
    static char piece[1 << 16];
    const ssize_t n = ::recv(socket_, piece, std::min(most, sizeof piece), MSG_DONTWAIT);
    if (n > 0) heard_.append(piece, static_cast<size_t>(n));
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) ended_ = true;
    return n > 0;
  }
  void end() { ::shutdown(socket_, SHUT_WR); }
  void wait() {
    pollfd ready{socket_, POLLIN, 0};
    ::poll(&ready, 1, 1);
  }

  const std::string& said() const { return said_; }
  const std::string& heard() const { return heard_; }
  bool ended() const { return ended_; }
  // Return the received answer to the upgrade, and the bytes after it.
  std::string_view head() const { return std::string_view(heard_).substr(0, heard_.find("\r\n\r\n") + 4); }
  std::string_view frames() const { return std::string_view(heard_).substr(head().size()); }
  bool listens() const { return heard_.rfind("HTTP/1.1 101 ", 0) == 0 && heard_.find("\r\n\r\n") != std::string::npos; }

 private:
  int socket_;
  std::string waits_, said_, heard_;
  bool ended_ = false;
};

// The events that a listener received.
struct Told {
  std::map<std::string, size_t> kinds;
  std::vector<std::string> pongs;
  std::vector<uint64_t> numbers;
  std::optional<unsigned> close;
};

void hear_event(const std::string& text, Told& told) {
  require(!find_invalid_utf8(text), "a message that is not UTF-8");
  require(text.rfind("{\"kind\":\"", 0) == 0 && text.back() == '}', "a message that is not an event");
  const std::string kind = text.substr(9, text.find('"', 9) - 9);
  const size_t number = text.find("\"number\":");
  require(told.numbers.empty() == (kind == "hello") && number != std::string::npos,
          "an event that stands in the wrong place");
  told.numbers.push_back(std::strtoull(text.c_str() + number + 9, nullptr, 10));
  require(told.numbers.size() == 1 || told.numbers.back() > told.numbers[told.numbers.size() - 2],
          "events whose numbers do not rise");
  ++told.kinds[kind];
}

Told told_by(std::string_view frames) {
  Told told;
  while (const auto f = websocket::take_frame(frames)) {
    require(!told.close, "something behind the close frame");
    require(f->reserved == 0 && !f->masked && f->final && f->is_whole(), "a frame that no server says");
    if (f->code == websocket::kText)
      hear_event(f->payload, told);
    else if (f->code == websocket::kPong)
      told.pongs.push_back(f->payload);
    else
      require(f->code == websocket::kClose, "a frame that is neither event nor answer");
    if (f->code != websocket::kClose) continue;
    require(f->payload.size() != 1, "a close frame with half a code");
    told.close = f->payload.empty()
                     ? 0
                     : static_cast<unsigned char>(f->payload[0]) * 256u + static_cast<unsigned char>(f->payload[1]);
  }
  require(frames.empty(), "a frame without its end");
  return told;
}

Predictor& predictor() {
  static Predictor one{PredictorSettings{}};  // without a run: predicts nothing
  return one;
}

// A finished run, so that requests to it take no time. Its service has a thread, which is slower to create than
// everything else, so it is reused; its events are new for each input.
struct Run {
  explicit Run(bool loopback) : service({"secret-token", loopback, false}, *control, predictor()) {}
  std::optional<RunControl> control{std::in_place, "g"};
  Service service;
};
Run& run_of(bool loopback) {
  static Run alone(true), reached(false);
  Run& run = loopback ? alone : reached;
  run.control.emplace("g").begin({});
  run.control->end(true);
  return run;
}

HttpLimits limits() {
  HttpLimits l;
  l.connections = l.listeners = 2;
  return l;
}

class World {
 public:
  explicit World(Input input)
      : input_(input),
        how_(input_.byte()),
        run_(run_of(!(how_ & 8))),
        server_(run_.service, limits()),
        witness_(server_, false),
        client_(server_, how_ & 16) {}

  void run() {
    witness_.say(std::string("GET /v1/events?every=0.05&token=secret-token HTTP/1.1\r\n") + kKeys + "\r\n");
    settle(witness_);
    require(witness_.listens(), "who says all that is needed may not listen");
    upgrade();
    for (int n = 0; n < kMostHappens && !input_.is_empty() && client_.said().size() < kMostSaid; ++n) happens();
    settle(client_);
    check_client();
    finish();
    check_others();
  }

 private:
  void settle(Client& client) {
    for (bool goes_on = true; goes_on;) {
      goes_on = client.flush();
      server_.work(now_);
      while (client.hear(1 << 16)) goes_on = true;
    }
  }

  void upgrade() {
    const int kind = how_ % 4;
    if (kind == 3)
      client_.say(input_.some(input_.byte() * 4u));
    else if (kind == 2)
      client_.say(std::string("GET /v1/events HTTP/1.1\r\nSec-WebSocket-Extensions: permessage-deflate; "
                              "client_max_window_bits\r\nSec-WebSocket-Protocol: x\r\n") +
                  kKeys + "\r\n");
    else
      client_.say(std::string("GET /v1/events?every=0.05&layers=true") + (kind == 1 ? "&token=secret-token" : "") +
                  " HTTP/1.1\r\n" + kKeys + "\r\n");
    settle(client_);
    listens_ = client_.listens();
    upgraded_ = client_.said().size();
    require(client_.heard().empty() || client_.heard().rfind("HTTP/1.", 0) == 0, "an answer that is not an HTTP");
    if (kind != 3) require(listens_ == (kind == 1 || !(how_ & 8)), "who may listen and who may not");
    if (!listens_ || kind == 3) return;
    require(client_.head().find(kAccepted) != std::string_view::npos &&
                client_.head().find("Sec-WebSocket-Extensions") == std::string_view::npos,
            "an upgrade that agrees to something else");
  }

  void happens() {
    const uint8_t what = input_.byte();
    switch (what % 8) {
      case 0:
      case 1:
      case 2:
        client_.say(frame());
        break;
      case 3:
        client_.say(input_.some(input_.byte()));
        break;
      case 4:
        if (beats_ < kMostBeats) beat(1 + what / 8 % 4);
        return;
      case 5:
        run_.control->note("note", input_.some(input_.byte() % 64));
        break;
      case 6:
        run_.control->leave({0, ++step_, step_, 0, 0.0, -1.0, 0.1}, {});
        break;
      default:
        client_.hear(size_t{64} << what / 8 % 8);
    }
    server_.work(now_);
  }

  // Returns a typical client frame: masked, with a correct length. Missing payload is padded.
  std::string frame() {
    std::string bytes{static_cast<char>(input_.byte() ^ 0x80), static_cast<char>(input_.byte() ^ 0x80)};
    const unsigned coded = bytes[1] & 0x7f;
    const std::string wide = input_.some(coded == 127 ? 8 : coded == 126 ? 2 : 0);
    bytes += wide;
    uint64_t length = wide.empty() ? coded : 0;
    for (const char c : wide) length = length << 8 | static_cast<unsigned char>(c);
    std::string payload = input_.some(std::min<uint64_t>(length, 125));
    payload.resize(std::min<uint64_t>(length, 4096), '.');
    if (bytes[1] & 0x80) {
      constexpr std::string_view kMask = "\x11\x22\x33\x44";
      bytes += kMask;
      for (size_t i = 0; i < payload.size(); ++i) payload[i] = static_cast<char>(payload[i] ^ kMask[i % 4]);
    }
    return bytes + payload;
  }

  void beat(int ticks) {
    now_ += ticks * 50ms;
    server_.work(now_);
    settle(witness_);
    ++beats_;
  }

  // Checks that everything was transferred, and nothing waits in either direction.
  void check_client() {
    if (!client_.listens()) return;
    const Told told = told_by(client_.frames());
    if (!listens_) return;  // an accidental upgrade by other bytes
    const websocket::Owed owed = websocket::judge(std::string_view(client_.said()).substr(upgraded_), limits().message);
    require(told.pongs == owed.pongs, "pings that were not answered, or otherwise");
    require(told.close.has_value() == !owed.close.empty(),
            told.close ? "a connection that was closed without a reason"
                       : "a connection that goes on although its client broke the rules");
    if (told.close)
      require(std::count(owed.close.begin(), owed.close.end(), *told.close) == 1,
              "a connection that was closed with the wrong code");
  }

  void finish() {
    const size_t heard = client_.heard().size();
    client_.end();
    for (const auto deadline = Clock::now() + kLongest; !client_.ended();) {
      settle(client_);
      if (!client_.ended()) client_.wait();
      require(Clock::now() < deadline, "the connection goes on although its client has ended");
    }
    require(!listens_ || client_.heard().size() == heard, "something was said to who has ended");
  }

  void check_others() {
    beat(1);
    require(!witness_.ended(), "another listener was hung up on");
    Told told = told_by(witness_.frames());
    require(told.kinds["status"] == beats_ && told.numbers.back() == told.numbers.size(),
            "another listener missed something");
    require(!told.close && told.pongs.empty(), "another listener was told what is not its own");
    Client next(server_, false);
    next.say(std::string("GET /v1/events?token=secret-token HTTP/1.1\r\n") + kKeys + "\r\n");
    settle(next);
    require(next.listens(), "the place of who is gone is not free again");
  }

  Input input_;
  const uint8_t how_;
  Run& run_;
  HttpServer server_;
  Client witness_, client_;
  bool listens_ = false;
  size_t upgraded_ = 0, beats_ = 0;
  int64_t step_ = 0;
  Clock::time_point now_{};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 0) World(Input({reinterpret_cast<const char*>(data), size})).run();
  return 0;
}
