// All servers of a run at once, with a hand-written trainer instead of a cycle, for the thread sanitizer.
#include <catch2/catch.hpp>

#include <atomic>
#include <condition_variable>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/cycle/run_control.hpp"
#include "engine/cycle/snapshot.hpp"
#include "engine/serving/control_socket.hpp"
#include "engine/serving/http_server.hpp"
#include "engine/serving/predictor.hpp"
#include "engine/serving/service.hpp"
#include "tests/engine/runtime/memory_streams.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
using namespace std::chrono_literals;

namespace {

// A trainer whose steps set every weight to the step's number.
class ByHand {
 public:
  ByHand() : graph_(graph_of("harmonic line { producer x {4}; layer o {2}; cycle { x -> o; } }")), control_("line") {
    bind_rows(*graph_, "x", {4}, numbers(16));
    LoweringOptions o;
    o.mode = Mode::infer;
    o.wanted = graph_->results(0);
    graph_->lower(o);
    for (const auto& [name, t] : graph_->store().all()) graph_->store().will_change(name);  // in set()
    set(0);
    snapshots_ = std::make_shared<Snapshots>(graph_->store(), WeightsVersion{0, 0});
    snapshots_->attach(boundary_);
    predictor_.serve(graph_->model(0), 0, graph_->compile_options(settings(1)), snapshots_);
    RunScene scene;
    scene.trains = true;
    scene.metrics = {"loss"};
    scene.stop = [this] { over_ = true; };
    control_.begin(std::move(scene));
    thread_ = std::thread([this] { train(); });
  }
  ~ByHand() {
    over_ = true;
    thread_.join();
    snapshots_->detach();
    control_.end(true);
  }
  RunControl& control() { return control_; }
  Predictor& predictor() { return predictor_; }
  Snapshots& snapshots() { return *snapshots_; }

 private:
  void set(int64_t step) {
    for (const auto& [name, t] : graph_->store().all())
      std::fill_n(static_cast<float*>(t.storage->data()), t.type.shape.count(), static_cast<float>(step));
  }
  void train() {
    std::vector<double> values{0};
    for (int64_t step = 1; !over_; ++step) {
      std::unique_lock<std::mutex> lock(boundary_);
      while (!over_ && !control_.enter()) {
        snapshots_->settle();
        lock.unlock();
        control_.wait_while_held();
        lock.lock();
      }
      if (over_) return;
      snapshots_->begin();
      set(step);
      snapshots_->end(step);
      values[0] = 1.0 / static_cast<double>(step);
      control_.leave({0, step, step, 0, 0, -1, 1}, values);
      lock.unlock();
      if (step % 64 == 0) std::this_thread::sleep_for(100us);
    }
  }

  std::unique_ptr<BoundGraph> graph_;
  RunControl control_;
  Predictor predictor_{{500us, 64}};
  std::mutex boundary_;
  std::shared_ptr<Snapshots> snapshots_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

void while_it_runs(std::vector<std::function<void()>> acts, std::chrono::milliseconds time) {
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (auto& act : acts)
    threads.emplace_back([&over, act] {
      while (!over) act();
    });
  std::this_thread::sleep_for(time);
  over = true;
  for (std::thread& t : threads) t.join();
}

}  // namespace

TEST_CASE("threads: every reader gets the weights of one step") {
  ByHand run;
  std::atomic<int> wrong{0}, read{0};
  const auto look = [&] {
    const auto s = run.snapshots().fresh(Snapshots::Clock::now() + 1s);
    for (const auto& [name, t] : s->weights().all())
      for (int64_t i = 0; i < t.type.shape.count(); ++i)
        wrong += static_cast<const float*>(t.storage->data())[i] != static_cast<float>(s->version().step);
    ++read;
  };
  while_it_runs({look, look, [&] { run.snapshots().newest(); },
                 [&] {
                   run.control().pause(), std::this_thread::sleep_for(2ms), run.control().resume(),
                       std::this_thread::sleep_for(2ms);
                 }},
                400ms);
  CHECK(wrong == 0);
  CHECK(read > 3);
}

TEST_CASE("threads: predictions during training are of one step") {
  ByHand run;
  std::atomic<int> wrong{0}, answered{0}, refused{0};
  const auto ask = [&] {
    std::mutex mutex;
    std::condition_variable done;
    bool got = false;
    const std::vector<float> ones(4 * 9, 1);
    std::vector<std::byte> bytes(ones.size() * sizeof(float));
    std::memcpy(bytes.data(), ones.data(), bytes.size());
    try {
      run.predictor().ask(run.predictor().ports(), 9, {bytes}, [&](const Prediction* p, const Error*) {
        if (p) {
          const auto* y = reinterpret_cast<const float*>(p->outputs[0].data());
          for (int i = 0; i < 18; ++i)
            wrong += y[i] != 5 * static_cast<float>(p->version.step);  // four ones and the bias
          ++answered;
        }
        const std::lock_guard<std::mutex> lock(mutex);
        got = true;
        done.notify_one();
      });
    } catch (const Error&) {
      ++refused;
      return;
    }
    std::unique_lock<std::mutex> lock(mutex);
    done.wait_for(lock, 20s, [&] { return got; });
  };
  while_it_runs({ask, ask, ask, [&] { run.predictor().report(), std::this_thread::sleep_for(1ms); }}, 400ms);
  CHECK(wrong == 0);
  CHECK(answered > 3);
  CHECK(refused == 0);
}

TEST_CASE("threads: HTTP, events and the control socket at once") {
  ByHand run;
  Service service({"secret-token", true, false}, run.control(), run.predictor());
  char folder[] = "/tmp/harmonics-threads-XXXXXX";
  REQUIRE(::mkdtemp(folder));
  const std::string path = std::string(folder) + "/s";
  std::atomic<int> heard{0}, controlled{0}, streamed{0};
  {
    HttpServer server(service, {"127.0.0.1", 0, true});
    ControlSocket socket(service, path);
    const auto http = [&](const std::string& request, std::atomic<int>& count, const char* wanted) {
      const int s = ::socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in at{};
      at.sin_family = AF_INET;
      at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      at.sin_port = htons(server.port());
      const timeval limit{5, 0};
      ::setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
      std::string all;
      char piece[4096];
      if (::connect(s, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0 &&
          ::send(s, request.data(), request.size(), MSG_NOSIGNAL) > 0)
        for (ssize_t n = 0; all.find(wanted) == std::string::npos && (n = ::recv(s, piece, sizeof piece, 0)) > 0;)
          all.append(piece, static_cast<size_t>(n));
      ::close(s);
      count += all.find(wanted) != std::string::npos;
    };
    const std::string body = R"({"inputs": {"x": [[1, 1, 1, 1]]}})";
    const std::string predict =
        "POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body;
    const std::string events =
        "GET /v1/events?every=0.05 HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: "
        "websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    while_it_runs({[&] { http(predict, heard, "\"outputs\""); },
                   [&] {
                     http("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", heard,
                          "harmonics_steps_total");
                   },
                   [&] { http(events, streamed, "\"dropped\""); },
                   [&] {
                     try {
                       ControlClient client(path);
                       client.say(controlled % 2 ? R"({"do": "resume"})" : R"({"do": "pause"})");
                       client.hear(10);
                       ++controlled;
                     } catch (const Error&) {
                     }
                   },
                   [&] { run.control().note("note", "text"), std::this_thread::sleep_for(1ms); }},
                  500ms);
  }
  CHECK(heard > 3);
  CHECK(streamed > 0);
  CHECK(controlled > 1);
  ::rmdir(folder);
}
