// Metrics over class indices.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <harmonics/quantity.hpp>

#include "metrics.hpp"

namespace metrics {

using harmonics::Error;
using harmonics::ErrorKind;
using harmonics::Figure;
using harmonics::MetricTable;
using harmonics::quantity;

namespace {

constexpr uint64_t kMostClasses = 4096;  // of a table of counts: 128 MiB

double share(double part, double of) { return of > 0 ? part / of : 0; }

bool ends_in(const MetricBatch& b, const char* name) {
  return std::string("harmonics.activations/") + name == b.activation;
}

// The share of rows that satisfy a condition.
class Share : public Metric {
 public:
  void reset() override { right_ = rows_ = 0; }
  std::optional<Bytes> save() const override { return Saved().number(right_).number(rows_).bytes(); }
  void restore(const Bytes& saved) override {
    Taken from(saved);
    from.number(right_);
    from.number(rows_);
    from.end();
  }

 protected:
  void count(bool right) {
    right_ += right;
    ++rows_;
  }
  double value() const { return rows_ ? static_cast<double>(right_) / static_cast<double>(rows_) : kUndefined; }

 private:
  uint64_t right_ = 0, rows_ = 0;
};

class Accuracy : public Share {
 public:
  void add(const MetricBatch& b) override {
    for (uint64_t i = 0; i < b.rows; ++i) count(predicted_class(b, i) == static_cast<uint32_t>(b.labels[i]));
  }
  std::vector<Figure> figures() const override { return {{"accuracy", value()}}; }
};

// Whether the target class is among the k largest outputs. Ties favour lower class indices; NaN is not among them.
class TopK : public Share {
 public:
  explicit TopK(int64_t k) : k_(static_cast<uint64_t>(k)) {}
  void add(const MetricBatch& b) override {
    if (k_ >= b.classes)
      throw Error(ErrorKind::Usage, "the " + std::to_string(k_) + " best of " +
                                        quantity(b.classes, "class", "classes") + " are all of them")
          .note("take a smaller k");
    for (uint64_t i = 0; i < b.rows; ++i) {
      if (b.outputs == 1) {
        count(predicted_class(b, i) == static_cast<uint32_t>(b.labels[i]));
        continue;
      }
      const float* p = b.predictions + i * b.outputs;
      const auto label = static_cast<uint64_t>(b.labels[i]);
      uint64_t before = 0;
      for (uint64_t c = 0; c < b.outputs; ++c) before += p[c] > p[label] || (p[c] == p[label] && c < label);
      count(before < k_ && !std::isnan(p[label]));
    }
  }
  std::vector<Figure> figures() const override { return {{"top" + std::to_string(k_), value()}}; }

 private:
  uint64_t k_;
};

// A table of counts by true and predicted class.
class Counts : public Metric {
 public:
  void add(const MetricBatch& b) override {
    if (classes_ == 0) begin(b.classes);
    for (uint64_t i = 0; i < b.rows; ++i)
      ++cells_[static_cast<uint64_t>(b.labels[i]) * classes_ + predicted_class(b, i)];
  }
  void reset() override { std::fill(cells_.begin(), cells_.end(), 0); }
  std::optional<Bytes> save() const override { return Saved().number(classes_).list(cells_).bytes(); }
  void restore(const Bytes& saved) override {
    uint64_t classes = 0;
    std::vector<uint64_t> cells;
    Taken from(saved);
    from.number(classes);
    from.list(cells);
    from.end();
    if (classes != classes_ || cells.size() != cells_.size())
      throw Error(ErrorKind::Weights, "it counted " + quantity(classes, "class", "classes") + " but there are " +
                                          std::to_string(classes_) + " now");
    cells_ = std::move(cells);
  }

 protected:
  uint64_t classes() const { return classes_; }
  double cell(uint64_t truth, uint64_t prediction) const {
    return static_cast<double>(cells_[truth * classes_ + prediction]);
  }
  const std::vector<uint64_t>& cells() const { return cells_; }

 private:
  void begin(uint64_t classes) {
    if (classes > kMostClasses)
      throw Error(ErrorKind::Usage, "a table of " + quantity(classes, "class", "classes") + " by as many is too large")
          .note("use accuracy or topk; precision, recall, f1 and confusion take up to " + std::to_string(kMostClasses));
    classes_ = classes;
    cells_.assign(classes * classes, 0);
  }

  uint64_t classes_ = 0;
  std::vector<uint64_t> cells_;
};

class Confusion : public Counts {
 public:
  std::vector<Figure> figures() const override { return {}; }
  MetricTable table() const override { return {static_cast<uint32_t>(classes()), {cells().begin(), cells().end()}}; }
};

enum class Average { Macro, Micro, Weighted, None };
Average average_of(const Arguments& a) {
  const std::string text = a.text("average", "macro");
  if (text == "macro") return Average::Macro;
  if (text == "micro") return Average::Micro;
  if (text == "weighted") return Average::Weighted;
  return Average::None;
}

// Rows in which a class was correctly predicted, was predicted, and was the target.
struct OfClass {
  double right = 0, said = 0, meant = 0;
};

// Precision, recall or F1 of each class, averaged over the classes that were predicted or were targets. A division by
// zero gives 0.
class ByClass : public Counts {
 public:
  using Score = double (*)(const OfClass&);
  ByClass(std::string name, Score score, Average average) : name_(std::move(name)), score_(score), average_(average) {}

  std::vector<Figure> figures() const override {
    const std::vector<OfClass> all = by_class();
    std::vector<Figure> each;
    for (size_t c = 0; c < all.size(); ++c) each.push_back({name_ + "." + std::to_string(c), score_(all[c])});
    if (average_ == Average::None) return each;
    const char* suffix = average_ == Average::Micro ? "_micro" : average_ == Average::Weighted ? "_weighted" : "";
    return {{name_ + suffix, averaged(all)}};
  }

 private:
  std::vector<OfClass> by_class() const {
    std::vector<OfClass> all(classes());
    for (size_t truth = 0; truth < all.size(); ++truth)
      for (size_t said = 0; said < all.size(); ++said) {
        const double n = cell(truth, said);
        all[truth].meant += n;
        all[said].said += n;
        if (truth == said) all[truth].right += n;
      }
    return all;
  }
  double averaged(const std::vector<OfClass>& all) const {
    OfClass together;
    double sum = 0, weights = 0;
    for (const OfClass& c : all) {
      together.right += c.right;
      together.said += c.said;
      together.meant += c.meant;
      if (c.said + c.meant == 0) continue;
      const double weight = average_ == Average::Weighted ? c.meant : 1;
      sum += weight * score_(c);
      weights += weight;
    }
    if (weights == 0) return kUndefined;
    return average_ == Average::Micro ? score_(together) : sum / weights;
  }

  std::string name_;
  Score score_;
  Average average_;
};

double precision(const OfClass& c) { return share(c.right, c.said); }
double recall(const OfClass& c) { return share(c.right, c.meant); }
double f1(const OfClass& c) { return share(2 * c.right, c.said + c.meant); }

// Perplexity: the exponential of the mean negative log-probability of the target class.
class Perplexity : public Metric {
 public:
  void add(const MetricBatch& b) override {
    for (uint64_t i = 0; i < b.rows; ++i) sum_ += surprise(b, i);
    rows_ += b.rows;
  }
  void reset() override { sum_ = 0, rows_ = 0; }
  std::optional<Bytes> save() const override { return Saved().number(sum_).number(rows_).bytes(); }
  void restore(const Bytes& saved) override {
    Taken from(saved);
    from.number(sum_);
    from.number(rows_);
    from.end();
  }
  std::vector<Figure> figures() const override {
    return {{"perplexity", rows_ ? std::exp(sum_ / static_cast<double>(rows_)) : kUndefined}};
  }

 private:
  double surprise(const MetricBatch& b, uint64_t row) {
    const auto label = static_cast<size_t>(b.labels[row]);
    if (b.outputs > 1 && (b.activation[0] == 0 || ends_in(b, "identity"))) {  // logits: avoids underflow of exp
      const float* x = b.predictions + row * b.outputs;
      const double high = *std::max_element(x, x + b.outputs);
      double sum = 0;
      for (uint64_t c = 0; c < b.outputs; ++c) sum += std::exp(x[c] - high);
      return std::log(sum) + (high - x[label]);
    }
    probabilities(b, row, scratch_);
    return -std::log(std::max(scratch_[label], static_cast<double>(std::numeric_limits<float>::min())));
  }

  std::vector<double> scratch_;
  double sum_ = 0;
  uint64_t rows_ = 0;
};

}  // namespace

uint32_t predicted_class(const MetricBatch& b, uint64_t row) {
  const float* p = b.predictions + row * b.outputs;
  if (b.outputs == 1) return p[0] > 0.5f;
  return static_cast<uint32_t>(std::max_element(p, p + b.outputs) - p);
}

void probabilities(const MetricBatch& b, uint64_t row, std::vector<double>& out) {
  const float* p = b.predictions + row * b.outputs;
  if (b.outputs == 1) {
    out.assign({1.0 - p[0], static_cast<double>(p[0])});
    return;
  }
  out.assign(p, p + b.outputs);
  if (ends_in(b, "softmax")) return;
  if (b.activation[0] == 0 || ends_in(b, "identity") || ends_in(b, "log_softmax")) {
    const double high = *std::max_element(out.begin(), out.end());
    for (double& v : out) v = std::exp(v - high);
  }
  double sum = 0;
  for (double v : out) sum += v;
  for (double& v : out) v = sum > 0 ? v / sum : 1.0 / static_cast<double>(out.size());
}

Made make_accuracy(const Arguments&) { return std::make_unique<Accuracy>(); }
Made make_topk(const Arguments& a) { return std::make_unique<TopK>(a.integer("k", 5)); }
Made make_precision(const Arguments& a) { return std::make_unique<ByClass>("precision", precision, average_of(a)); }
Made make_recall(const Arguments& a) { return std::make_unique<ByClass>("recall", recall, average_of(a)); }
Made make_f1(const Arguments& a) { return std::make_unique<ByClass>("f1", f1, average_of(a)); }
Made make_confusion(const Arguments&) { return std::make_unique<Confusion>(); }
Made make_perplexity(const Arguments&) { return std::make_unique<Perplexity>(); }

}  // namespace metrics
