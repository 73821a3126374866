// HTTP and WebSocket over sockets: replies, errors, and no client blocks the others.
#include "tests/engine/serving/served.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/serving/control_socket.hpp"
#include "engine/serving/http_server.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

// A client that sends and receives bytes.
class Wire {
 public:
  explicit Wire(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(port);
    REQUIRE(::connect(socket_, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  }
  ~Wire() { ::close(socket_); }
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  bool say(const std::string& bytes) {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  // Receives until `holds` is true, the peer closes, or the time is over.
  std::string hear(const std::function<bool(const std::string&)>& holds, std::chrono::milliseconds time = 20s) {
    const auto deadline = std::chrono::steady_clock::now() + time;
    while (!closed_ && !holds(heard_)) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
      pollfd ready{socket_, POLLIN, 0};
      if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) <= 0) break;
      char piece[65536];
      const ssize_t n = ::recv(socket_, piece, sizeof piece, 0);
      if (n <= 0)
        closed_ = true;
      else
        heard_.append(piece, static_cast<size_t>(n));
    }
    return heard_;
  }
  std::string to_the_end() {
    return hear([](const std::string&) { return false; });
  }
  // Returns one reply with its body; later bytes stay in the buffer.
  std::string reply() {
    size_t whole = 0;
    hear([&](const std::string& s) {
      const size_t head = s.find("\r\n\r\n"), length = s.find("Content-Length: ");
      if (head == std::string::npos || length == std::string::npos) return false;
      whole = head + 4 + std::stoul(s.substr(length + 16));
      return s.size() >= whole;
    });
    const std::string first = heard_.substr(0, whole);
    heard_.erase(0, whole);
    return first;
  }
  bool closed() const { return closed_; }

 private:
  int socket_;
  std::string heard_;
  bool closed_ = false;
};

std::string request(const std::string& line, const std::string& headers = "", const std::string& body = "") {
  return line + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + headers +
         (body.empty() ? "" : "Content-Length: " + std::to_string(body.size()) + "\r\n") + "\r\n" + body;
}

bool is(const std::string& reply, int status) {
  return reply.rfind("HTTP/1.1 " + std::to_string(status) + " ", 0) == 0;
}

struct Listening : Served {
  explicit Listening(HttpLimits limits = {}) : server(service, parse_listen("127.0.0.1:0"), limits) {}
  bool answers() {
    Wire wire(server.port());
    wire.say(request("GET /healthz"));
    return is(wire.reply(), 200);
  }
  HttpServer server;
};

}  // namespace

TEST_CASE("parse_listen: valid and invalid addresses") {
  CHECK(parse_listen("127.0.0.1:8080").port == 8080);
  CHECK(parse_listen("localhost:0").host == "127.0.0.1");
  CHECK(parse_listen("[::1]:1").loopback);
  CHECK_FALSE(parse_listen("0.0.0.0:1").loopback);
  CHECK_FALSE(parse_listen("[::]:1").loopback);
  for (const char* wrong : {"", "8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:999999",
                            "example.com:80", ":80"})
    CHECK_THAT(message_of([&] { parse_listen(wrong); }), Catch::Contains("is not an address to listen on"));
  Listening first;
  CHECK_THAT(message_of([&] {
               HttpServer(first.service, {"127.0.0.1", first.server.port(), true});
             }),
             Catch::StartsWith("cannot listen on 127.0.0.1:"));
}

TEST_CASE("http: one connection sends many requests, also pipelined") {
  Listening run;
  run.start();
  Wire wire(run.server.port());
  for (int i = 0; i < 20; ++i) {
    wire.say(request("GET /v1/model"));
    const std::string reply = wire.reply();
    CHECK(is(reply, 200));
    CHECK_THAT(reply, Catch::Contains("\"name\":\"x\""));
  }
  const std::string body = R"({"inputs": {"x": [[1, 2, 3, 4]]}})",
                    predict = request("POST /v1/predict", "Content-Type: application/json\r\n", body);
  wire.say(predict + request("GET /healthz") + predict);
  CHECK_THAT(wire.reply(), Catch::Contains("\"outputs\""));
  CHECK_THAT(wire.reply(), Catch::Contains("\"health\""));
  CHECK_THAT(wire.reply(), Catch::Contains("\"outputs\""));
  wire.say(request("HEAD /healthz"));
  const std::string head = wire.hear([](const std::string& s) { return s.find("\r\n\r\n") != std::string::npos; });
  CHECK(is(head, 200));
  CHECK(head.substr(head.find("\r\n\r\n") + 4).empty());
  Wire expecting(run.server.port());
  expecting.say("POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n");
  CHECK_THAT(expecting.hear([](const std::string& s) { return s.find("\r\n\r\n") != std::string::npos; }),
             Catch::StartsWith("HTTP/1.1 100 Continue"));
  expecting.say(body);
  CHECK_THAT(expecting.hear([](const std::string& s) { return s.find("outputs") != std::string::npos; }),
             Catch::Contains("HTTP/1.1 200 OK"));
}

TEST_CASE("http: too large or too slow requests are refused while others are answered") {
  HttpLimits limits;
  limits.body = 1000;
  limits.request = 300ms;
  limits.idle = 600ms;
  Listening run(limits);
  run.start();
  Wire large(run.server.port());
  large.say("POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000000000\r\n\r\n");
  CHECK(is(large.to_the_end(), 413));
  Wire longer(run.server.port());
  longer.say(request("POST /v1/predict", "", std::string(1001, 'x')));
  CHECK(is(longer.to_the_end(), 413));
  Wire chunks(run.server.port());
  chunks.say("POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 30 && chunks.say("40\r\n" + std::string(64, 'x') + "\r\n"); ++i) {
  }
  CHECK(is(chunks.to_the_end(), 413));
  Wire header(run.server.port());
  header.say("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + std::string(40000, 'x'));
  CHECK(is(header.to_the_end(), 431));
  Wire cookies(run.server.port());
  cookies.say(request("GET /healthz", "Cookie: " + std::string(30000, 'x') + "\r\n"));
  CHECK(is(cookies.reply(), 200));
  Wire slow(run.server.port());
  std::thread drip([&] {
    for (int i = 0; i < 60 && !slow.closed() && slow.say("G"); ++i) std::this_thread::sleep_for(20ms);
  });
  CHECK(run.answers());
  const std::string said = slow.to_the_end();
  CHECK((said.empty() || is(said, 400)));
  drip.join();
  Wire body(run.server.port());
  body.say("POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 500\r\n\r\n{");
  CHECK(body.to_the_end().empty());
  CHECK(body.closed());
  Wire silent(run.server.port());
  silent.to_the_end();
  CHECK(silent.closed());
  CHECK(run.answers());
}

TEST_CASE("http: input that is not HTTP is refused") {
  Listening run;
  run.start();
  for (const std::string& bytes : std::vector<std::string>{
           "\r\n\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", std::string(64, '\0'), std::string(300, '\xff'),
           "HXS1\x01\x00\x03\x00", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
           "POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
           "POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
           "POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFFF\r\n",
           "GET /%zz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "GET http://[ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
           "GET / HTTP/1.1\r\n\r\n"}) {
    Wire wire(run.server.port());
    wire.say(bytes);
    const std::string reply =
        wire.hear([](const std::string& s) { return s.find("\r\n\r\n") != std::string::npos; }, 2s);
    INFO(bytes << " -> " << reply.substr(0, 200));
    CHECK((reply.empty() || reply.rfind("HTTP/1.", 0) == 0));
    CHECK_FALSE(is(reply, 200));
  }
  CHECK(run.answers());
  {
    Wire gone(run.server.port());
    gone.say(request("POST /v1/predict", "", R"({"inputs": {"x": [[1, 2, 3, 4]]}})"));
  }  // without waiting for the answer
  CHECK(run.answers());
}

TEST_CASE("http: connections beyond the limit are refused with a message") {
  HttpLimits limits;
  limits.connections = 4;
  Listening run(limits);
  run.start();
  std::vector<std::unique_ptr<Wire>> open;
  for (int i = 0; i < 4; ++i) {
    open.push_back(std::make_unique<Wire>(run.server.port()));
    open.back()->say(
        "POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\nContent-Length: 500\r\n\r\n");
    CHECK_THAT(open.back()->hear([](const std::string& s) { return s.find("\r\n\r\n") != std::string::npos; }),
               Catch::StartsWith("HTTP/1.1 100 "));
  }
  Wire more(run.server.port());
  CHECK(is(more.to_the_end(), 503));
  open.pop_back();
  CHECK(await([&] { return run.answers(); }));
}

TEST_CASE("http: the oldest idle connection is closed for a new one") {
  HttpLimits limits;
  limits.connections = 4;
  Listening run(limits);
  run.start();
  Wire between(run.server.port());
  between.say(request("GET /healthz"));
  CHECK(is(between.reply(), 200));
  std::vector<std::unique_ptr<Wire>> silent;
  for (int i = 0; i < 3; ++i) silent.push_back(std::make_unique<Wire>(run.server.port()));
  for (int i = 0; i < 3; ++i) {
    Wire asks(run.server.port());
    asks.say(request("GET /healthz"));
    CHECK(is(asks.reply(), 200));
    silent[static_cast<size_t>(i)]->to_the_end();
    CHECK(silent[static_cast<size_t>(i)]->closed());
    silent.push_back(std::make_unique<Wire>(run.server.port()));
    CHECK(run.answers());
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their allocators retain freed memory
TEST_CASE("http: memory of large bodies is returned to the system") {
  Listening run;
  run.start();
  const auto resident = [] {
    std::ifstream statm("/proc/self/statm");
    size_t all = 0, pages = 0;
    statm >> all >> pages;
    return pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  };
  std::string body = R"({"inputs": {"x": [)";
  while (body.size() < (size_t{7} << 20)) body += "[1,2,3,4],";
  body += "[1,2,3,4]]}}";  // more samples than one request may have
  CHECK(run.answers());
  const size_t before = resident();
  {
    std::vector<std::unique_ptr<Wire>> many;
    for (int i = 0; i < 8; ++i) many.push_back(std::make_unique<Wire>(run.server.port()));
    for (auto& wire : many) REQUIRE(wire->say(request("POST /v1/predict", "Content-Type: application/json\r\n", body)));
    for (auto& wire : many) CHECK(is(wire->reply(), 400));
  }
  CHECK(await([&] { return resident() < before + (size_t{32} << 20); }));
}
#endif

TEST_CASE("http: events over a WebSocket") {
  HttpLimits limits;
  limits.listeners = 1;
  Listening run(limits);
  run.start();
  Wire plain(run.server.port());
  plain.say(request("GET /v1/events"));
  CHECK(is(plain.reply(), 426));
  const std::string upgrade =
      "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
      "dGhlIHNhbXBsZSBub25jZQ==\r\n";
  Wire foreign(run.server.port());
  foreign.say(request("GET /v1/events", upgrade + "Origin: http://attacker.example\r\n"));
  CHECK(is(foreign.reply(), 403));
  Wire wrong(run.server.port());
  wrong.say(request("GET /v1/events?every=0", upgrade));
  Wire wire(run.server.port());
  wire.say(request("GET /v1/events?every=0.05", upgrade));
  const auto has = [](const char* part) {
    return [part](const std::string& s) { return s.find(part) != std::string::npos; };
  };
  CHECK_THAT(wire.hear(has("\"hello\"")), Catch::StartsWith("HTTP/1.1 101 Switching Protocols"));
  CHECK_THAT(wire.hear(has("\"dropped\"")), Catch::Contains("\"status\""));
  Wire second(run.server.port());
  second.say(request("GET /v1/events", upgrade));
  CHECK(is(second.reply(), 503));
  // A message above the limit, masked as from a client, ends the connection but not the run.
  wire.say(std::string("\x81\xfe\x08\x00", 4) + std::string(4 + 2048, '\0'));
  wire.to_the_end();
  CHECK(wire.closed());
  CHECK(run.answers());
}

TEST_CASE("http: a WebSocket client that violates the protocol is closed with its code, others continue") {
  Listening run;
  run.start();
  const std::string upgrade = request("GET /v1/events?every=0.05",
                                      "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: "
                                      "13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n");
  const auto has = [](const std::string& part) {
    return [part](const std::string& s) { return s.find(part) != std::string::npos; };
  };
  // Masked with zeros, so the payload is unchanged.
  const auto frame = [](unsigned char first, const std::string& payload) {
    std::string bytes{static_cast<char>(first)};
    if (payload.size() < 126)
      bytes += static_cast<char>(0x80 | payload.size());
    else
      bytes += {'\xfe', static_cast<char>(payload.size() >> 8), static_cast<char>(payload.size() & 0xff)};
    return bytes + std::string(4, '\0') + payload;
  };
  const auto closed_with = [](int code) {
    return std::string{'\x88', '\x02', static_cast<char>(code >> 8), static_cast<char>(code & 0xff)};
  };
  Wire beside(run.server.port());
  beside.say(upgrade);
  beside.hear(has("\"hello\""));
  struct Row {
    std::string what, said;
    int code;
  };
  for (const Row& row :
       {Row{"a message that is too large", frame(0x81, std::string(2048, 'x')), 1009},
        Row{"a message whose parts are too large together",
            frame(0x01, std::string(1000, 'x')) + frame(0x80, std::string(25, 'x')), 1009},
        Row{"a text that is not UTF-8", frame(0x81, "\xc0\xaf"), 1007},
        Row{"a text whose empty end comes too early", frame(0x01, "\xe2\x82") + frame(0x80, ""), 1007},
        Row{"a bit that nobody agreed on", frame(0xc1, "x"), 1002}, Row{"no mask", std::string("\x81\x01x"), 1002},
        Row{"half a control frame", frame(0x09, "x"), 1002}, Row{"an end without a beginning", frame(0x80, "x"), 1002},
        Row{"a close frame of one byte", frame(0x88, "x"), 1002}, Row{"a farewell", frame(0x88, "\x03\xe9"), 1001}}) {
    INFO(row.what);
    Wire wire(run.server.port());
    wire.say(upgrade);
    wire.hear(has("\"hello\""));
    wire.say(frame(0x89, "are you there") + row.said);
    const std::string heard = wire.hear([&](const std::string& s) { return s.ends_with(closed_with(row.code)); });
    CHECK(heard.find("\x8a\x0d"
                     "are you there") != std::string::npos);
    CHECK(heard.ends_with(closed_with(row.code)));
    wire.say(frame(0x88, ""));
    CHECK(wire.to_the_end() == heard);
    CHECK(wire.closed());
  }
  Wire early(run.server.port());
  early.say(upgrade + frame(0x89, "x"));
  CHECK_THAT(early.to_the_end(),
             Catch::StartsWith("HTTP/1.1 400 ") && Catch::Contains("data follows an upgrade request"));
  run.control.note("note", "what the others missed nothing of");
  beside.hear(has("what the others missed nothing of"));
  CHECK_FALSE(beside.closed());
}

TEST_CASE("http: a server without a thread does its work when work() is called") {
  Served run;
  run.start();
  int pair[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  const auto hear = [&] {
    char piece[4096];
    const ssize_t n = ::recv(pair[0], piece, sizeof piece, MSG_DONTWAIT);
    return std::string(piece, n > 0 ? static_cast<size_t>(n) : 0);
  };
  {
    HttpServer server(run.service, HttpLimits{});
    server.take(pair[1]);
    const std::string asked = request("GET /healthz");
    REQUIRE(::send(pair[0], asked.data(), asked.size(), 0) == static_cast<ssize_t>(asked.size()));
    CHECK(hear().empty());
    server.work(std::chrono::steady_clock::now());
    CHECK_THAT(hear(), Catch::StartsWith("HTTP/1.1 200 OK"));
  }
  char piece[1];
  CHECK(::recv(pair[0], piece, sizeof piece, MSG_DONTWAIT) == 0);
  ::close(pair[0]);
}

TEST_CASE("http: a server ends with clients of all kinds") {
  Listening run;
  run.start();
  auto server = std::make_unique<HttpServer>(run.service, parse_listen("127.0.0.1:0"));
  Wire idle(server->port()), half(server->port()), events(server->port()), asking(server->port());
  half.say("GET /hea");
  events.say(request("GET /v1/events",
                     "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
                     "dGhlIHNhbXBsZSBub25jZQ==\r\n"));
  events.hear([](const std::string& s) { return s.find("hello") != std::string::npos; });
  asking.say(request("POST /v1/predict", "", R"({"inputs": {"x": [[1, 2, 3, 4]]}})"));
  const auto begun = std::chrono::steady_clock::now();
  server.reset();
  CHECK(std::chrono::steady_clock::now() - begun < 9s);  // silent clients have a longer limit
  idle.to_the_end();
  CHECK(idle.closed());
}

TEST_CASE("control socket: belongs to its owner and exchanges lines") {
  Served run;
  run.start();
  char folder[] = "/tmp/harmonics-control-XXXXXX";
  REQUIRE(::mkdtemp(folder));
  const std::string path = std::string(folder) + "/run.sock";
  {
    ControlSocket socket(run.service, path);
    struct stat info {};
    REQUIRE(::stat(path.c_str(), &info) == 0);
    CHECK((info.st_mode & 0777) == 0600);
    CHECK_THAT(message_of([&] { ControlSocket(run.service, path); }), Catch::StartsWith("another run listens on"));
    ControlClient client(path);
    client.say(R"({"do": "pause"})");
    CHECK_THAT(client.hear(20), Catch::Contains("\"state\":\"paused\""));
    client.say("nonsense");
    CHECK_THAT(client.hear(20), Catch::StartsWith("{\"error\":"));
    client.say("{\"do\": \"status\"}\n{\"do\": \"resume\"}");
    CHECK_THAT(client.hear(20), Catch::StartsWith("{\"done\":\"status\""));
    CHECK_THAT(client.hear(20), Catch::StartsWith("{\"done\":\"resume\""));
    ControlClient follower(path);
    follower.say(R"({"do": "events"})");
    CHECK_THAT(follower.hear(20), Catch::Contains("\"hello\""));
    CHECK_THAT(follower.hear(20), Catch::Contains("\"kind\""));
    ControlClient endless(path);
    endless.say(std::string(5000, 'x'));
    CHECK_THAT(endless.hear(20), Catch::StartsWith("{\"error\":"));
    {
      const auto descriptors = [] { return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}); };
      const auto open = descriptors();
      for (int i = 0; i < 3; ++i) ControlClient(path).say(R"({"do": "status"})");
      CHECK(await([&] { return descriptors() <= open; }));  // no client connects after them
    }
    // Clients beyond the limit wait until others disconnect.
    std::vector<std::unique_ptr<ControlClient>> many;
    for (size_t i = 0; i < 100; ++i) {
      many.push_back(std::make_unique<ControlClient>(path));
      many.back()->say(R"({"do": "status"})");
    }
    for (auto& c : many) {
      CHECK_THAT(c->hear(100), Catch::StartsWith("{\"done\":\"status\""));
      c.reset();
    }
  }
  CHECK(::access(path.c_str(), F_OK) != 0);
  CHECK_THAT(message_of([&] { ControlClient{path}; }), Catch::StartsWith("no run answers on"));
  // A socket left by a killed run is replaced; a file that is not a socket is kept.
  {
    const int left = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    path.copy(at.sun_path, sizeof at.sun_path - 1);
    REQUIRE(::bind(left, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
    ::close(left);
    ControlSocket socket(run.service, path);
    ControlClient{path}.say(R"({"do": "status"})");
  }
  const std::string file = std::string(folder) + "/file";
  std::ofstream(file) << "mine";
  CHECK_THAT(message_of([&] { ControlSocket(run.service, file); }), Catch::Contains("is not a socket"));
  ::unlink(file.c_str());
  ::rmdir(folder);
}
