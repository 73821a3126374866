// A training run with its servers, in this process.
#pragma once

#include <catch2/catch.hpp>

#include <condition_variable>
#include <functional>
#include <optional>
#include <thread>

#include "engine/cycle/run_control.hpp"
#include "engine/cycle/snapshot.hpp"
#include "engine/serving/predictor.hpp"
#include "engine/serving/service.hpp"
#include "tests/engine/runtime/memory_streams.hpp"

namespace harmonics::engine::testing {

using namespace std::chrono_literals;

inline bool await(const std::function<bool()>& holds) {
  const auto deadline = std::chrono::steady_clock::now() + 100s;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

// y = W x + b, learned; `o` is the output.
constexpr const char* kAffine = R"(harmonic line {
  producer x {4}; producer y {2}; layer o {2};
  cycle { x -> o; o <-(mse)- y; }
})";

struct Affine {
  std::vector<float> weight, bias;
  std::vector<float> operator()(const float* x) const {
    std::vector<float> y;
    for (size_t o = 0; o < 2; ++o) {
      double sum = bias[o];
      for (size_t i = 0; i < 4; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(weight[o * 4 + i]);
      y.push_back(static_cast<float>(sum));
    }
    return y;
  }
};

inline Affine affine_of(BoundGraph& g) { return {weights(g, "x.o.affine.weight"), weights(g, "x.o.affine.bias")}; }

inline std::unique_ptr<BoundGraph> affine_graph() {
  auto g = graph_of(kAffine);
  bind_rows(*g, "x", {4}, numbers(4 * 256));
  bind_rows(*g, "y", {2}, numbers(2 * 256, 7));
  return g;
}

inline std::vector<std::byte> bytes_of(const std::vector<float>& v) {
  const auto* p = reinterpret_cast<const std::byte*>(v.data());
  return {p, p + v.size() * sizeof(float)};
}
inline std::vector<float> floats_of(const std::vector<std::byte>& v) {
  std::vector<float> f(v.size() / sizeof(float));
  std::memcpy(f.data(), v.data(), v.size());
  return f;
}

// A run that continues until stopped, at most one minute.
struct Served {
  explicit Served(ServiceSettings settings = {"secret-token", true, false}, PredictorSettings predicting = {})
      : graph(affine_graph()), control("line"), predictor(predicting), service(settings, control, predictor) {
    RunSettings s = harmonics::engine::testing::settings(16);
    s.epochs = 1 << 30;
    s.seconds = 60;
    s.lr = 0.001;
    runtime.emplace(*graph, 0, s);
    runtime->set_control(&control);
    runtime->keep_snapshots([this, s](const std::shared_ptr<Snapshots>& kept) {
      snapshots = kept;
      predictor.serve(graph->model(0), 0, graph->compile_options(s), kept);
    });
  }
  ~Served() { end(); }
  void start() {
    thread = std::thread([this] { runtime->run(); });
    REQUIRE(await([&] { return control.status().step > 0; }));
  }
  void end() {
    runtime->stop();
    if (thread.joinable()) thread.join();
  }

  std::unique_ptr<BoundGraph> graph;
  RunControl control;
  Predictor predictor;
  Service service;
  std::optional<CycleRuntime> runtime;
  std::shared_ptr<Snapshots> snapshots;  // after the start
  std::thread thread;
};

// Sends a request to the predictor and waits for the answer.
struct Asked {
  std::optional<Prediction> prediction;
  std::string error;
};
inline Asked ask(Predictor& predictor, uint64_t samples, const std::vector<float>& x) {
  Asked asked;
  std::mutex mutex;
  std::condition_variable done;
  bool answered = false;
  predictor.ask(predictor.ports(), samples, {bytes_of(x)}, [&](const Prediction* p, const Error* e) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (p) asked.prediction = *p;
    if (e) asked.error = e->what();
    answered = true;
    done.notify_one();
  });
  std::unique_lock<std::mutex> lock(mutex);
  REQUIRE(done.wait_for(lock, 100s, [&] { return answered; }));
  return asked;
}

inline ServiceReply call(Service& service, ServiceRequest request) {
  std::mutex mutex;
  std::condition_variable done;
  std::optional<ServiceReply> got;
  service.handle(std::move(request), [&](ServiceReply reply) {
    const std::lock_guard<std::mutex> lock(mutex);
    got = std::move(reply);
    done.notify_one();
  });
  std::unique_lock<std::mutex> lock(mutex);
  REQUIRE(done.wait_for(lock, 100s, [&] { return got.has_value(); }));
  return *got;
}

inline ServiceRequest get(const std::string& target) {
  ServiceRequest r;
  REQUIRE(parse_target(target, r));
  r.method = "GET";
  r.host = "127.0.0.1:80";
  return r;
}
inline ServiceRequest post(const std::string& target, const std::string& body,
                           const std::string& type = "application/json") {
  ServiceRequest r = get(target);
  r.method = "POST";
  r.body = body;
  r.content_type = type;
  return r;
}
inline ServiceRequest with_token(ServiceRequest r) {
  r.authorization = "Bearer secret-token";
  return r;
}

}  // namespace harmonics::engine::testing
