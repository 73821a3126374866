// Training on one thread while HTTP requests arrive: their latency, and their cost for training. Every iteration trains
// the same number of steps without requests as with them, so that other load on the machine affects both.
#include <algorithm>
#include <atomic>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include "dsl/load.hpp"
#include "engine/cycle/cycle_runtime.hpp"
#include "engine/cycle/run_control.hpp"
#include "engine/serving/http_server.hpp"
#include "engine/serving/predictor.hpp"
#include "engine/serving/service.hpp"

namespace harmonics::engine::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSteps = 1500, kBatch = 64, kSamples = 4096, kPixels = 784;
constexpr size_t kConnections = 16;

const char kFlow[] = R"(harmonic digits {
  producer x {784};
  producer y;
  layer hidden {196};
  layer output {10};
  cycle { x -(relu)-> hidden -> output; output <-(cross_entropy)- y; }
})";

template <typename T>
class Memory : public Producer {
 public:
  Memory(Shape sample, int64_t classes) {
    info_.dtype = detail::dtype_of<T>::value;
    info_.sample = sample;
    info_.classes = classes;
    info_.size = kSamples;
    uint32_t seed = 1;
    for (int64_t i = 0; i < kSamples * sample.count(); ++i) {
      seed = seed * 1664525u + 1013904223u;
      values_.push_back(static_cast<T>(classes > 0 ? (seed >> 8) % static_cast<uint32_t>(classes)
                                                   : static_cast<float>(seed >> 8) / static_cast<float>(1 << 24)));
    }
  }
  HTensor next() override { return {}; }
  size_t size() const override { return kSamples; }
  bool rewind() override { return at_ = 0, true; }
  std::optional<StreamInfo> describe() override { return info_; }
  int64_t read(uint64_t n, void* to) override {
    const auto each = static_cast<size_t>(info_.sample.count());
    const uint64_t got = std::min<uint64_t>(n, kSamples - at_);
    std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(at_ * each), got * each, static_cast<T*>(to));
    at_ += got;
    return static_cast<int64_t>(got);
  }

 private:
  StreamInfo info_;
  std::vector<T> values_;
  uint64_t at_ = 0;
};

std::unique_ptr<BoundGraph> digits() {
  auto g = std::make_unique<BoundGraph>(
      make_graph(parse_flow(std::make_shared<SourceText>("digits.hmx", kFlow)), Registry::global()));
  const auto bind = [&](const char* name, std::shared_ptr<Producer> p) {
    g->streams().bind(g->graph(), g->graph().find(name), Source(name, std::move(p)));
  };
  bind("x", std::make_shared<Memory<float>>(Shape{kPixels}, 0));
  bind("y", std::make_shared<Memory<int64_t>>(Shape{}, 10));
  return g;
}

double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Sends requests at fixed times, whether earlier ones were answered or not. Latency is measured from the scheduled
// time.
class Load {
 public:
  Load(uint16_t port, double per_second) : thread_([this, port, per_second] { run(port, per_second); }) {}
  std::vector<double> end() {
    over_ = true;
    thread_.join();
    std::sort(seconds_.begin(), seconds_.end());
    return std::move(seconds_);
  }

 private:
  struct Connection {
    int socket = -1;
    bool waits = false;
    Clock::time_point due;
    std::string heard;
  };

  static std::string request() {
    std::string body = R"({"inputs":{"x":[[0)";
    for (int64_t i = 1; i < kPixels; ++i) body += fmt::format(",{:.3f}", static_cast<double>(i % 100) / 100);
    body += "]]}}";
    return fmt::format(
        "POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
        "{}\r\n\r\n{}",
        body.size(), body);
  }

  void run(uint16_t port, double per_second) {
    const std::string text = request();
    std::vector<Connection> connections(kConnections);
    for (Connection& c : connections) {
      c.socket = ::socket(AF_INET, SOCK_STREAM, 0);
      sockaddr_in at{};
      at.sin_family = AF_INET;
      at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      at.sin_port = htons(port);
      if (::connect(c.socket, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0)
        throw Error(ErrorKind::Unavailable, "the server is not there");
    }
    const auto apart = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(1 / per_second));
    auto next = Clock::now();
    std::deque<Clock::time_point> due;
    size_t waiting = 0;
    while (!over_ || waiting > 0) {
      const auto now = Clock::now();
      for (; !over_ && next <= now; next += apart) due.push_back(next);
      for (Connection& c : connections) {
        if (c.waits || due.empty()) continue;
        c.due = due.front();
        due.pop_front();
        c.waits = true;
        ++waiting;
        if (::send(c.socket, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size()))
          throw Error(ErrorKind::Unavailable, "the server is gone");
      }
      std::vector<pollfd> ready;
      for (const Connection& c : connections) ready.push_back({c.socket, static_cast<short>(c.waits ? POLLIN : 0), 0});
      const timespec pause{
          0, std::clamp<long>(static_cast<long>(std::chrono::nanoseconds(next - Clock::now()).count()), 1000, 5000000)};
      if (::ppoll(ready.data(), ready.size(), &pause, nullptr) <= 0) continue;
      for (size_t i = 0; i < connections.size(); ++i)
        if (ready[i].revents) waiting -= hear(connections[i]);
    }
    for (Connection& c : connections) ::close(c.socket);
  }

  size_t hear(Connection& c) {
    char piece[4096];
    const ssize_t n = ::recv(c.socket, piece, sizeof piece, 0);
    if (n <= 0) throw Error(ErrorKind::Unavailable, "the server is gone");
    c.heard.append(piece, static_cast<size_t>(n));
    if (c.heard.back() != '\n' || c.heard.find("\r\n\r\n{") == std::string::npos) return 0;
    if (c.heard.rfind("HTTP/1.1 200", 0) == 0)
      seconds_.push_back(std::chrono::duration<double>(Clock::now() - c.due).count());
    c.heard.clear();
    c.waits = false;
    return 1;
  }

  std::vector<double> seconds_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

RunSettings settings(int64_t steps) {
  RunSettings s;
  s.batch = kBatch;
  s.threads = 1;
  s.steps = steps;
  return s;
}

struct Trained {
  double processor = 0, wall = 0;  // seconds of the training thread
  std::vector<double> answers;
};

// Excludes the warm-up steps, in which threads, caches and requests reach a steady state.
Trained train(double per_second, int64_t steps) {
  auto g = digits();
  const RunSettings s = settings(steps + steps / 5);
  CycleRuntime runtime(*g, 0, s);
  RunControl control("digits");
  Predictor predictor;
  Service service({"not-needed", true, false}, control, predictor);
  std::unique_ptr<HttpServer> server;
  std::unique_ptr<Load> load;
  Trained result;
  if (per_second > 0) {
    runtime.set_control(&control);
    runtime.keep_snapshots([&](const std::shared_ptr<Snapshots>& snapshots) {
      predictor.serve(g->model(0), 0, g->compile_options(s), snapshots);
      server = std::make_unique<HttpServer>(service, ListenAddress{"127.0.0.1", 0, true});
      load = std::make_unique<Load>(server->port(), per_second);
    });
  }
  Clock::time_point begun;
  double before = 0;
  runtime.on_step(steps / 5, [&](const StepReport& r) {
    if (r.step == steps / 5) begun = Clock::now(), before = processor_seconds();
    if (r.step != steps + steps / 5) return;
    result.processor = processor_seconds() - before;
    result.wall = std::chrono::duration<double>(Clock::now() - begun).count();
  });
  runtime.run();
  if (load) result.answers = load->end();
  return result;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

void serving(benchmark::State& state, double per_second) {
  std::vector<double> processor, wall, p50, p99, answered;
  train(0, 50);
  for (auto _ : state) {
    const Trained alone = train(0, kSteps), served = train(per_second, kSteps);
    processor.push_back(served.processor / alone.processor - 1);
    wall.push_back(served.wall / alone.wall - 1);
    if (served.answers.empty()) return state.SkipWithError("nothing was answered");
    const auto at = [&](double share) {
      return 1e3 * served.answers[static_cast<size_t>(share * static_cast<double>(served.answers.size() - 1))];
    };
    p50.push_back(at(0.5));
    p99.push_back(at(0.99));
    answered.push_back(static_cast<double>(served.answers.size()));
  }
  state.counters["p50_ms"] = median(p50);
  state.counters["p99_ms"] = median(p99);
  state.counters["answered"] = median(answered);
  state.counters["slower_cpu_%"] = 100 * median(processor);
  state.counters["slower_wall_%"] = 100 * median(wall);
}

}  // namespace

}  // namespace harmonics::engine::bench

int main(int argc, char** argv) {
  for (const double per_second : {100.0, 1000.0})
    benchmark::RegisterBenchmark(
        fmt::format("serving/mlp_train/requests:{:.0f}/threads:1", per_second).c_str(),
        [per_second](benchmark::State& state) { harmonics::engine::bench::serving(state, per_second); })
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
