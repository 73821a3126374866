// Headless Chromium with one page, driven over its debugging pipe (descriptors 3 and 4).
#pragma once

#include <chrono>
#include <csignal>
#include <functional>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <boost/json.hpp>

#include "tests/journeys/shell.hpp"

namespace journeys {

class Browser {
 public:
  // Returns whether it is installed, and prints a warning if not.
  static bool there() {
    const bool found = std::system("command -v chromium >/dev/null 2>&1") == 0;
    if (!found) WARN("skipped: there is no chromium");
    return found;
  }

  explicit Browser(const Folder& folder) {
    int to[2], from[2];
    REQUIRE(::pipe2(to, O_CLOEXEC) == 0);
    REQUIRE(::pipe2(from, O_CLOEXEC) == 0);
    const std::string profile = "--user-data-dir=" + (folder / "browser");
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::setpgid(0, 0);
      ::alarm(180);  // ends it even if the test crashes
      const int in = ::fcntl(to[0], F_DUPFD, 10), out = ::fcntl(from[1], F_DUPFD, 10),
                nothing = ::open("/dev/null", O_RDWR);
      for (int i = 0; i < 3; ++i) ::dup2(nothing, i);
      ::dup2(in, 3);
      ::dup2(out, 4);
      ::execlp("chromium", "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
               "--no-first-run", "--disable-extensions", "--remote-debugging-pipe", profile.c_str(), "about:blank",
               nullptr);
      ::_exit(127);
    }
    ::close(to[0]);
    ::close(from[1]);
    to_ = to[1];
    from_ = from[0];
    const boost::json::value target = call("Target.createTarget", {{"url", "about:blank"}});
    session_ = target_session(target.at("targetId").as_string());
    for (const char* domain : {"Runtime", "Log", "Network", "Page"}) call(std::string(domain) + ".enable", {});
  }
  ~Browser() {
    ::close(to_);
    ::close(from_);
    if (pid_ > 0) ::kill(-pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
  }
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  void open(const std::string& url) { call("Page.navigate", {{"url", url}}); }
  void resize(int width, int height) {
    call("Emulation.setDeviceMetricsOverride",
         {{"width", width}, {"height", height}, {"deviceScaleFactor", 1}, {"mobile", width < 700}});
  }

  // Returns the value of an expression, after its promise is fulfilled. Null if it throws while a page loads.
  boost::json::value evaluate(const std::string& expression) {
    const boost::json::value r =
        call("Runtime.evaluate", {{"expression", expression}, {"awaitPromise", true}, {"returnByValue", true}});
    const boost::json::value* value = r.at("result").as_object().if_contains("value");
    return value && !r.as_object().contains("exceptionDetails") ? *value : boost::json::value(nullptr);
  }
  std::string text(const std::string& expression) {
    const boost::json::value v = evaluate(expression);
    return v.is_string() ? std::string(v.get_string()) : boost::json::serialize(v);
  }
  // Returns false if the expression is not true within `seconds`.
  bool await(const std::string& expression, double seconds = 30) {
    const auto deadline = Clock::now() + std::chrono::duration<double>(seconds);
    while (Clock::now() < deadline) {
      if (evaluate("Boolean(" + expression + ")") == boost::json::value(true)) return true;
      ::poll(nullptr, 0, 50);
    }
    UNSCOPED_INFO("not so after " << seconds << " s: " << expression);
    return false;
  }
  void click(const std::string& id) { evaluate("document.getElementById('" + id + "').click()"); }

  std::vector<std::string> requests, complaints;  // requested addresses; console messages

 private:
  using Clock = std::chrono::steady_clock;

  std::string target_session(const boost::json::string& target) {
    return std::string(
        call("Target.attachToTarget", {{"targetId", target}, {"flatten", true}}).at("sessionId").as_string());
  }

  boost::json::value call(const std::string& method, boost::json::object parameters) {
    boost::json::object message{{"id", ++last_}, {"method", method}, {"params", std::move(parameters)}};
    if (!session_.empty()) message["sessionId"] = session_;
    const std::string bytes = boost::json::serialize(message) + '\0';
    REQUIRE(::write(to_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    const auto deadline = Clock::now() + std::chrono::seconds(100);
    for (;;) {
      const boost::json::value answer = hear(deadline);
      if (const boost::json::value* id = answer.as_object().if_contains("id"); id && *id == boost::json::value(last_)) {
        INFO(method << ": " << boost::json::serialize(answer).substr(0, 500));
        REQUIRE(answer.as_object().contains("result"));
        return answer.at("result");
      }
      note(answer.as_object());
    }
  }

  boost::json::value hear(Clock::time_point deadline) {
    size_t end;
    while ((end = heard_.find('\0')) == std::string::npos) {
      pollfd ready{from_, POLLIN, 0};
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      REQUIRE(left > 0);
      if (::poll(&ready, 1, static_cast<int>(left)) <= 0) continue;
      char piece[65536];
      const ssize_t n = ::read(from_, piece, sizeof piece);
      REQUIRE(n > 0);  // otherwise the browser has exited
      heard_.append(piece, static_cast<size_t>(n));
    }
    const boost::json::value message = boost::json::parse(heard_.substr(0, end));
    heard_.erase(0, end + 1);
    return message;
  }

  void note(const boost::json::object& event) {
    const boost::json::value* method = event.if_contains("method");
    if (!method) return;
    const std::string name(method->as_string());
    const boost::json::object& p = event.at("params").as_object();
    if (name == "Network.requestWillBeSent") requests.emplace_back(p.at("request").at("url").as_string());
    if (name == "Network.webSocketCreated") requests.emplace_back(p.at("url").as_string());
    if (name == "Log.entryAdded") complaints.emplace_back(p.at("entry").at("text").as_string());
    if (name == "Runtime.consoleAPICalled" || name == "Runtime.exceptionThrown")
      complaints.emplace_back(boost::json::serialize(p));
  }

  int to_ = -1, from_ = -1, last_ = 0;
  pid_t pid_ = -1;
  std::string session_, heard_;
};

}  // namespace journeys
