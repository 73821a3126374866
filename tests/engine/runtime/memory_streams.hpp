// Streams in memory for tests: a producer of rows, a consumer that stores what it receives, a graph with both bound.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "dsl/load.hpp"
#include "engine/cycle/cycle_runtime.hpp"

namespace harmonics::engine::testing {

template <typename T>
class Rows : public Producer {
 public:
  Rows(Shape sample, std::vector<T> values, int64_t classes = 0) : values_(std::move(values)) {
    info_.dtype = detail::dtype_of<T>::value;
    info_.sample = sample;
    info_.classes = classes;
    info_.size = values_.size() / static_cast<size_t>(sample.count());
  }
  HTensor next() override {
    if (at_ == info_.size) return {};
    if (on_sample) on_sample(at_);
    return HTensor(info_.dtype, info_.sample, values_.data() + at_++ * static_cast<size_t>(info_.sample.count()));
  }
  std::size_t size() const override { return info_.live || hides_size ? 0 : info_.size; }
  bool rewind() override {
    if (info_.live) return false;
    at_ = 0;
    return true;
  }
  std::optional<StreamInfo> describe() override {
    StreamInfo info = info_;
    info.size = size();
    return info;
  }
  std::shared_ptr<Rows> live() {
    info_.live = true;
    return std::make_shared<Rows>(*this);
  }

  std::function<void(size_t)> on_sample;
  bool hides_size = false;

 private:
  std::vector<T> values_;
  StreamInfo info_;
  size_t at_ = 0;
};

class Kept : public Consumer {
 public:
  void push(const HTensor& sample) override {
    const float* p = sample.data<float>();
    values.insert(values.end(), p, p + sample.size());
    ++samples;
  }
  std::vector<float> values;
  size_t samples = 0;
};

inline std::unique_ptr<BoundGraph> graph_of(const std::string& text) {
  return std::make_unique<BoundGraph>(
      make_graph(parse_flow(std::make_shared<SourceText>("test.hmx", text)), Registry::global()));
}

inline void bind_producer(BoundGraph& g, const std::string& name, std::shared_ptr<Producer> producer) {
  g.streams().bind(g.graph(), g.graph().find(name), Source(name, std::move(producer)));
}
template <typename T>
void bind_rows(BoundGraph& g, const std::string& name, Shape sample, std::vector<T> values, int64_t classes = 0) {
  bind_producer(g, name, std::make_shared<Rows<T>>(sample, std::move(values), classes));
}
template <typename T>
void bind_test(BoundGraph& g, const std::string& name, Shape sample, std::vector<T> values, int64_t classes = 0) {
  g.test_streams().bind(g.graph(), g.graph().find(name),
                        Source(name, std::make_shared<Rows<T>>(sample, std::move(values), classes)));
}
inline std::shared_ptr<Kept> keep(BoundGraph& g, const std::string& consumer) {
  auto kept = std::make_shared<Kept>();
  g.bind_consumer(consumer.empty() ? -1 : g.graph().find(consumer), Sink("kept", kept));
  return kept;
}

inline std::vector<float> weights(BoundGraph& g, const std::string& name) {
  const HTensor t = g.store().tensor(name);
  return {t.data<float>(), t.data<float>() + t.size()};
}
inline void set_weights(BoundGraph& g, const std::string& name, const std::vector<float>& values) {
  StoredTensor* t = g.store().find(name);
  if (!t || t->type.shape.count() != static_cast<int64_t>(values.size()))
    throw Error(ErrorKind::Internal, "no such weight " + name);
  g.store().assign(name, HTensor::from(t->type.shape, values));
}
// Returns every weight and running statistic, byte for byte.
inline std::string learned_bytes(BoundGraph& g) {
  std::string s;
  for (const auto& [name, t] : g.store().all())
    if (t.role != Role::moment) s.append(static_cast<const char*>(t.data()), t.type.bytes());
  return s;
}
// Declares the weights of a cycle without running a step.
inline void declare(BoundGraph& g, const std::string& optimizer = "sgd", std::set<int> branches = {}) {
  LoweringOptions o;
  o.optimizer = parse_optimizer(optimizer);
  o.branches = std::move(branches);
  g.lower(o);
}

// Returns numbers in [-1, 1), the same in every call.
inline std::vector<float> numbers(size_t n, uint32_t seed = 1) {
  std::vector<float> v(n);
  for (float& x : v) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(seed >> 8) / static_cast<float>(1 << 23) - 1;
  }
  return v;
}

inline RunSettings settings(int64_t batch = 64) {
  RunSettings s;
  s.batch = batch;
  s.threads = 1;
  return s;
}

}  // namespace harmonics::engine::testing
