// Requests from web pages of other origins.
#include <catch2/catch.hpp>

#include <algorithm>

#include <harmonics/error.hpp>

#include "engine/serving/cross_origin.hpp"
#include "engine/serving/http_server.hpp"
#include "engine/serving/service.hpp"
#include "tests/engine/serving/text_client.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

// Checks origin and token as all services do.
struct Guarded : HttpHandler {
  void handle(ServiceRequest request, Answer answer) override {
    if (auto refused = Service::refuse(settings, request, false)) return answer(*refused);
    answer({200, "text/plain", "hello", {}});
  }
  const std::string& known_paths() const override { return paths; }
  ServiceSettings settings{"a-secret-token", true, false};
  std::string paths = "/";
};

ServiceReply reply_for_page(HttpHandler& handler, const std::string& origin, const std::string& method = "GET",
                            const std::string& token = "") {
  ServiceRequest request;
  request.method = method;
  request.path = "/";
  request.host = "127.0.0.1:8080";
  request.origin = origin;
  if (!token.empty()) request.authorization = "Bearer " + token;
  ServiceReply reply;
  handler.handle(std::move(request), [&](ServiceReply r) { reply = std::move(r); });
  return reply;
}

std::string header_of(const ServiceReply& reply, const std::string& name) {
  for (const auto& [key, value] : reply.headers)
    if (key == name) return value;
  return "";
}

}  // namespace

TEST_CASE("cross origin: pages of the named origins are answered, others are refused") {
  Guarded guarded;
  const std::string chat = "https://chat.example.org";
  CrossOrigin named(guarded, {chat, "app://obsidian.md"}), all(guarded, {"*"}), none(guarded, {});
  for (HttpHandler* handler : {static_cast<HttpHandler*>(&named), static_cast<HttpHandler*>(&all)}) {
    const ServiceReply reply = reply_for_page(*handler, chat);
    CHECK(reply.status == 200);
    CHECK(reply.body == "hello");
    CHECK(header_of(reply, "Access-Control-Allow-Origin") == chat);
    CHECK(header_of(reply, "Vary") == "Origin");
  }
  CHECK(reply_for_page(named, "app://obsidian.md").status == 200);
  CHECK(reply_for_page(all, "https://other.example.org").status == 200);
  for (const char* other : {"https://other.example.org", "http://chat.example.org", "https://chat.example.org.evil.org",
                            "https://chat.example.org:8443", "null"}) {
    const ServiceReply refused = reply_for_page(named, other);
    CHECK(refused.status == 403);
    CHECK(header_of(refused, "Access-Control-Allow-Origin").empty());
  }
  CHECK(reply_for_page(none, chat).status == 403);
  // Requests of programs, and of the server's own page.
  CHECK(reply_for_page(named, "").headers.empty());
  CHECK(reply_for_page(named, "http://127.0.0.1:8080").status == 200);
}

TEST_CASE("cross origin: an allowed origin does not replace the token") {
  Guarded guarded;
  guarded.settings.token_for_all = true;
  CrossOrigin all(guarded, {"*"});
  const ServiceReply refused = reply_for_page(all, "https://chat.example.org");
  CHECK(refused.status == 401);
  CHECK(header_of(refused, "Access-Control-Allow-Origin") == "https://chat.example.org");  // the page may read why
  CHECK(reply_for_page(all, "https://chat.example.org", "GET", "a-secret-token").status == 200);
  const ServiceReply asked =
      reply_for_page(all, "https://chat.example.org", "OPTIONS");  // browsers send no token with it
  CHECK(asked.status == 204);
  CHECK(header_of(asked, "Access-Control-Allow-Methods").find("POST") != std::string::npos);
  CHECK(header_of(asked, "Access-Control-Allow-Headers").find("Authorization") != std::string::npos);
}

TEST_CASE("cross origin: the permission of a browser has no body") {
  Guarded guarded;
  CrossOrigin named(guarded, {"https://chat.example.org"});
  HttpServer server(named, parse_listen("127.0.0.1:0"));
  TextClient client(server.port());
  client.send(
      "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: https://chat.example.org\r\n"
      "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: content-type\r\n\r\n"
      "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: https://chat.example.org\r\nConnection: close\r\n\r\n");
  const std::string heard = client.hear([](const std::string&) { return false; });
  const size_t second = heard.find("HTTP/1.1 200 OK\r\n");
  REQUIRE(second != std::string::npos);
  const std::string first = heard.substr(0, second);
  CHECK(first.find("HTTP/1.1 204 No Content\r\n") == 0);
  CHECK(first.find("Access-Control-Allow-Origin: https://chat.example.org\r\n") != std::string::npos);
  CHECK(first.find("Content-Length") == std::string::npos);
  CHECK(first.find("\r\n\r\n") == first.size() - 4);
  CHECK(heard.find("Access-Control-Allow-Origin: https://chat.example.org\r\n", second) != std::string::npos);
}

TEST_CASE("cross origin: a page can read refusals that the server makes below the routes") {
  Guarded guarded;
  const std::string chat = "https://chat.example.org", allowed = "Access-Control-Allow-Origin: ";
  CrossOrigin named(guarded, {chat, "app://obsidian.md"}), single(guarded, {chat}), all(guarded, {"*", chat});
  HttpLimits small;
  small.body = 100;
  const auto heard_after = [&](CrossOrigin& handler, const std::string& bytes) {
    HttpServer server(handler, parse_listen("127.0.0.1:0"), small);
    TextClient client(server.port());
    client.send(bytes);
    return client.hear([](const std::string&) { return false; });
  };
  const std::string begin = "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n", large = "Content-Length: 101\r\n\r\n",
                    long_header = "X: " + std::string(40000, 'x');
  const auto from = [](const std::string& origin) { return "Origin: " + origin + "\r\n"; };
  const std::string read = heard_after(named, begin + from("app://obsidian.md") + large);
  CHECK(read.find("HTTP/1.1 413 ") == 0);
  CHECK(read.find(allowed + "app://obsidian.md\r\n") != std::string::npos);
  CHECK(heard_after(named, begin + from("https://evil.example.org") + large).find(allowed) == std::string::npos);
  CHECK(heard_after(named, "POST /%zz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + from(chat) + "Content-Length: 0\r\n\r\n")
            .find(allowed + chat + "\r\n") != std::string::npos);
  const std::string too_long = heard_after(named, begin + from(chat) + long_header);
  CHECK(too_long.find("HTTP/1.1 431 ") == 0);
  CHECK(too_long.find(allowed + chat + "\r\n") != std::string::npos);
  // The origin is not known where its field was not read.
  CHECK(heard_after(single, begin + long_header).find(allowed + chat + "\r\n") != std::string::npos);
  CHECK(heard_after(all, begin + long_header).find(allowed + "*\r\n") != std::string::npos);
  CHECK(heard_after(named, begin + long_header).find(allowed) == std::string::npos);
  small.connections = 1;
  HttpServer server(single, parse_listen("127.0.0.1:0"), small);
  TextClient busy(server.port());  // until its body has come
  busy.send(begin + "Expect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  busy.hear([](const std::string& s) { return s.ends_with("\r\n\r\n"); });
  const std::string full = TextClient(server.port()).hear([](const std::string&) { return false; });
  CHECK(full.find("HTTP/1.1 503 ") == 0);
  CHECK(full.find(allowed + chat + "\r\n") != std::string::npos);
}

TEST_CASE("cross origin: texts that are no origin are refused") {
  for (const char* good : {"*", "https://chat.example.org", "http://localhost:3000", "app://obsidian.md"})
    CHECK_NOTHROW(check_origin(good));
  for (const char* bad : {"", "chat.example.org", "https://", "://host", "https://a/", "https://a/b",
                          "https://*.example.org", "https://a, https://b", "https://user@a", "https://a?b"})
    CHECK_THROWS_AS(check_origin(bad), Error);
}
