// The page's files, as served by the program.
#include "tests/engine/serving/served.hpp"

#include <set>

#include "engine/serving/control_socket.hpp"
#include "engine/serving/page.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

// Returns the quoted names that end in one of these suffixes, such as "./chart.js".
std::set<std::string> named_in(const std::string& text) {
  std::set<std::string> names;
  for (size_t at = 0; (at = text.find('"', at)) != std::string::npos; ++at) {
    std::string name = text.substr(at + 1, text.find('"', at + 1) - at - 1);
    if (name.starts_with("./")) name.erase(0, 2);
    const bool file = name.ends_with(".js") || name.ends_with(".css") || name.ends_with(".svg");
    if (file && name.find_first_of(" \n") == std::string::npos) names.insert(name);
  }
  return names;
}

std::string header(const ServiceReply& reply, const std::string& name) {
  for (const auto& [key, value] : reply.headers)
    if (key == name) return value;
  return "";
}

}  // namespace

TEST_CASE("page: is complete, loads nothing from other origins, and has no inline code") {
  std::set<std::string> there, named{"index.html", "docs.html", "chat.html"};
  for (unsigned i = 0; i < kPageFileCount; ++i) {
    const std::string name = kPageFiles[i].name, text = kPageFiles[i].text;
    INFO(name);
    there.insert(name);
    named.merge(named_in(text));
    for (size_t at = text.find("://"); at != std::string::npos; at = text.find("://", at + 1)) {
      const std::string around = text.substr(at < 80 ? 0 : at - 80, 120);
      CHECK((around.find("http://www.w3.org/2000/svg") != std::string::npos ||
             around.find("${location.host}") != std::string::npos));
    }
    for (const char* word : {"innerHTML", "eval(", "document.write", " style=\"", " onclick", "new Function"})
      CHECK(text.find(word) == std::string::npos);
  }
  CHECK(there == named);
}

TEST_CASE("page: needs no token, unlike the data it shows") {
  Served run;
  CHECK(call(run.service, get("/")).status == 404);
  put_page(run.service);
  const ServiceReply page = call(run.service, get("/"));
  CHECK(page.status == 200);
  CHECK(page.content_type == "text/html; charset=utf-8");
  CHECK(header(page, "Content-Security-Policy").starts_with("default-src 'none'; script-src 'self'; "));
  CHECK(header(page, "Content-Security-Policy").find("unsafe") == std::string::npos);
  CHECK(call(run.service, get("/page.css")).content_type == "text/css; charset=utf-8");
  CHECK(call(run.service, get("/page.js")).content_type == "text/javascript; charset=utf-8");
  CHECK(call(run.service, get("/nothing.js")).status == 404);
  CHECK(call(run.service, post("/", "")).status == 405);
}

TEST_CASE("control socket: returns the reply to a GET request as a line") {
  Served run;
  run.start();
  const std::string path = "get-" + std::to_string(::getpid()) + ".sock";
  ControlSocket socket(run.service, path);
  ControlClient client(path);
  const auto ask = [&](const std::string& message) {
    client.say(message);
    return client.hear(30);
  };
  CHECK(ask(R"({"do": "get", "path": "/v1/history"})").starts_with(R"({"version":1,"names":[)"));
  CHECK(ask(R"({"do": "get", "path": "/v1/log?after=0"})").starts_with(R"({"version":1,"lines":[)"));
  CHECK(ask(R"({"do": "get", "path": "/v1/nothing"})").starts_with(R"({"code":404,"error":)"));
  CHECK(ask(R"({"do": "get", "path": "/v1/log?after=x"})").starts_with(R"({"code":400,"error":)"));
  CHECK(ask(R"({"do": "get", "path": "/v1/%zz"})").find("is malformed") != std::string::npos);
  CHECK(ask(R"({"do": "get", "path": "/metrics"})").find("'get' has no 'path'") != std::string::npos);
  CHECK(ask(R"({"do": "get"})").find("'get' has no 'path'") != std::string::npos);
  CHECK(ask(R"({"do": "status", "path": "/v1/log"})").find("has no field") != std::string::npos);
  CHECK(call(run.service, post("/v1/control", R"({"do": "get", "path": "/v1/log"})")).status != 200);
}
