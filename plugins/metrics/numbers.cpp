// Metrics over numbers.
#include <cmath>

#include <harmonics/quantity.hpp>

#include "metrics.hpp"

namespace metrics {

using harmonics::Error;
using harmonics::ErrorKind;
using harmonics::Figure;
using harmonics::quantity;

namespace {

// The mean over rows and outputs of a function of prediction and target.
class MeanOver : public Metric {
 public:
  using Pair = double (*)(double difference);
  using End = double (*)(double mean);
  MeanOver(const char* name, Pair pair, End end) : name_(name), pair_(pair), end_(end) {}

  void add(const MetricBatch& b) override {
    const uint64_t n = b.rows * b.outputs;
    for (uint64_t i = 0; i < n; ++i)
      sum_ += pair_(static_cast<double>(b.predictions[i]) - static_cast<double>(b.targets[i]));
    count_ += n;
  }
  void reset() override { sum_ = 0, count_ = 0; }
  std::optional<Bytes> save() const override { return Saved().number(sum_).number(count_).bytes(); }
  void restore(const Bytes& saved) override {
    Taken from(saved);
    from.number(sum_);
    from.number(count_);
    from.end();
  }
  std::vector<Figure> figures() const override {
    return {{name_, count_ ? end_(sum_ / static_cast<double>(count_)) : kUndefined}};
  }

 private:
  const char* name_;
  Pair pair_;
  End end_;
  double sum_ = 0;
  uint64_t count_ = 0;
};

// The coefficient of determination (1 minus the share of unexplained variance), averaged over outputs.
class R2 : public Metric {
 public:
  void add(const MetricBatch& b) override {
    outputs_.resize(b.outputs);
    for (uint64_t i = 0; i < b.rows; ++i) {
      ++rows_;
      for (uint64_t c = 0; c < b.outputs; ++c) {
        Output& o = outputs_[c];
        const double y = b.targets[i * b.outputs + c], residual = y - b.predictions[i * b.outputs + c],
                     step = y - o.mean;
        o.mean += step / static_cast<double>(rows_);
        o.spread += step * (y - o.mean);
        o.residual += residual * residual;
      }
    }
  }
  void reset() override { outputs_.assign(outputs_.size(), {}), rows_ = 0; }
  std::optional<Bytes> save() const override { return Saved().number(rows_).list(outputs_).bytes(); }
  void restore(const Bytes& saved) override {
    std::vector<Output> outputs;
    Taken from(saved);
    from.number(rows_);
    from.list(outputs);
    from.end();
    if (outputs.size() != outputs_.size())
      throw Error(ErrorKind::Weights, "it saw " + quantity(outputs.size(), "number") + " per row, but there are " +
                                          std::to_string(outputs_.size()) + " now");
    outputs_ = std::move(outputs);
  }
  std::vector<Figure> figures() const override {
    if (rows_ < 2) return {{"r2", kUndefined}};
    double sum = 0;
    for (const Output& o : outputs_) sum += o.spread > 0 ? 1 - o.residual / o.spread : o.residual == 0 ? 1 : 0;
    return {{"r2", sum / static_cast<double>(outputs_.size())}};
  }

 private:
  struct Output {
    double mean = 0, spread = 0, residual = 0;
  };
  std::vector<Output> outputs_;
  uint64_t rows_ = 0;
};

}  // namespace

Made make_mae(const Arguments&) {
  return std::make_unique<MeanOver>(
      "mae", [](double d) { return std::abs(d); }, [](double mean) { return mean; });
}
Made make_rmse(const Arguments&) {
  return std::make_unique<MeanOver>(
      "rmse", [](double d) { return d * d; }, [](double mean) { return std::sqrt(mean); });
}
Made make_r2(const Arguments&) { return std::make_unique<R2>(); }

}  // namespace metrics
