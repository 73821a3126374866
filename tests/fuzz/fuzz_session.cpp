// For any bytes from a client, the server closes the connection after the client does, its output is well-formed, and
// the next client gets an answer. The first byte selects HTTP, WebSocket frames after an upgrade, or lines to the
// control socket; the second selects the size of the pieces. Uses socket pairs and a socket in a private folder, no
// network.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/serving/control_socket.hpp"
#include "engine/serving/http_server.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

constexpr size_t kMostBytes = 1 << 16, kMostPieces = 64;
constexpr std::chrono::seconds kLongest{10};

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

struct Folder {
  std::string path = "/tmp/harmonics-fuzz-XXXXXX";
  Folder() { require(::mkdtemp(path.data()) != nullptr, "no folder"); }
  ~Folder() { ::rmdir(path.c_str()); }
};

// A run that has not started: everything except predictions is answered.
struct Endpoints {
  RunControl control{"g"};
  Predictor predictor{PredictorSettings{}};
  Service service{{"secret-token", true, false}, control, predictor};
  HttpServer server{service, {"127.0.0.1", 0, true}};
  Folder folder;
  ControlSocket socket{service, folder.path + "/run.sock"};

  int http() {
    int pair[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "no pair of sockets");
    server.take(pair[1]);
    return pair[0];
  }
  int lines() {
    const int client = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    socket.path().copy(at.sun_path, sizeof at.sun_path - 1);
    require(::connect(client, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0, "the control socket takes nobody");
    return client;
  }
};

// Sends the bytes and waits for the head of the answer, and for the bytes that came with it.
std::string ask(int socket, std::string_view bytes) {
  require(::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()),
          "a request that is not taken");
  std::string heard;
  for (const auto deadline = std::chrono::steady_clock::now() + kLongest;
       heard.find("\r\n\r\n") == std::string::npos;) {
    require(std::chrono::steady_clock::now() < deadline, "a request that is not answered");
    pollfd ready{socket, POLLIN, 0};
    if (::poll(&ready, 1, 1000) <= 0) continue;
    char part[4096];
    const ssize_t n = ::recv(socket, part, sizeof part, 0);
    require(n > 0, "a request that is hung up on");
    heard.append(part, static_cast<size_t>(n));
  }
  return heard;
}

// Sends the bytes in pieces and closes this end. Returns `heard` and the answer until the other end closes, too.
std::string converse(int socket, std::string_view bytes, size_t piece, std::string heard = {}) {
  bool ended = false;
  size_t pieces = 0;
  for (const auto deadline = std::chrono::steady_clock::now() + kLongest;;) {
    if (bytes.empty() && !ended) ::shutdown(socket, SHUT_WR), ended = true;
    pollfd ready{socket, static_cast<short>(POLLIN | (ended ? 0 : POLLOUT)), 0};
    ::poll(&ready, 1, 1000);
    require(std::chrono::steady_clock::now() < deadline, "the connection goes on although its client has ended");
    if (ready.revents & POLLOUT) {
      const size_t n = piece == 0 || pieces++ >= kMostPieces ? bytes.size() : std::min(piece, bytes.size());
      const ssize_t said = ::send(socket, bytes.data(), n, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (said < 0 && errno != EAGAIN && errno != EINTR) bytes = {};  // the server stops reading
      if (said > 0) bytes.remove_prefix(static_cast<size_t>(said));
    }
    if (!(ready.revents & (POLLIN | POLLHUP | POLLERR))) continue;
    char part[4096];
    const ssize_t n = ::recv(socket, part, sizeof part, MSG_DONTWAIT);
    if (n > 0) heard.append(part, static_cast<size_t>(n));
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) break;
  }
  ::close(socket);
  return heard;
}

// Checks the server's frames: final, unmasked, without extensions; the last one may be truncated.
void check_frames(std::string_view bytes) {
  while (bytes.size() >= 2) {
    const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
    const unsigned code = at(0) & 0x0f, coded = at(1) & 0x7f;
    require((at(0) & 0x70) == 0 && (at(1) & 0x80) == 0, "a frame with bits that nobody agreed on");
    require(code <= 1 || (code >= 8 && code <= 10), "a frame that is neither text nor control");
    const size_t head = coded == 127 ? 10 : coded == 126 ? 4 : 2;
    if (bytes.size() < head) return;
    size_t size = coded >= 126 ? 0 : coded;
    for (size_t i = 2; i < head; ++i) size = size << 8 | at(i);
    if (bytes.size() - head < size) return;
    if (code == 1) require(bytes.substr(head, 9) == "{\"kind\":\"", "a message that is not an event");
    bytes.remove_prefix(head + size);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Endpoints endpoints;
  if (size < 2) return 0;
  const std::string_view said(reinterpret_cast<const char*>(data + 2), std::min(size - 2, kMostBytes));
  const size_t piece = data[1];
  if (data[0] % 3 == 0) {
    const std::string heard = converse(endpoints.http(), said, piece);
    require(heard.empty() || heard.rfind("HTTP/1.", 0) == 0, "an answer that is not an HTTP");
  } else if (data[0] % 3 == 1) {
    const std::string upgrade =
        "GET /v1/events?every=0.05 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: "
        "websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    const int client = endpoints.http();
    const std::string heard = converse(client, said, piece, ask(client, upgrade));
    require(heard.rfind("HTTP/1.1 101 ", 0) == 0, "an upgrade that is refused");
    check_frames(std::string_view(heard).substr(heard.find("\r\n\r\n") + 4));
  } else {
    const std::string heard = converse(endpoints.lines(), said, piece);
    if (said.find("events") == std::string_view::npos)
      require(heard.empty() || heard.back() == '\n', "an answer that is not a line");
  }
  require(
      converse(endpoints.http(), "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 0).rfind("HTTP/1.1 200 ", 0) == 0,
      "others are not answered any more");
  return 0;
}
