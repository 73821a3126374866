// The area under the ROC curve.
#include <algorithm>
#include <cmath>

#include <harmonics/quantity.hpp>

#include "metrics.hpp"

namespace metrics {

using harmonics::Error;
using harmonics::ErrorKind;
using harmonics::Figure;
using harmonics::quantity;

namespace {

constexpr size_t kMostScores = size_t{1} << 28;  // 1 GiB

// With two classes, the area for the second; with more, the mean over each class against the others, if both are
// present. Exact: keeps every score until the end of the pass. Undefined if a score is NaN, which has no rank.
class Auc : public Metric {
 public:
  void add(const MetricBatch& b) override {
    columns_ = b.classes == 2 ? 1 : b.classes;
    if (scores_.size() + b.rows * columns_ > kMostScores)
      throw Error(ErrorKind::Usage, "auc keeps every score until the end of the pass, but there are too many")
          .note("validate on fewer samples: take=N in the address");
    for (uint64_t i = 0; i < b.rows; ++i) {
      probabilities(b, i, row_);
      if (columns_ == 1)
        scores_.push_back(static_cast<float>(row_[1]));
      else
        for (const double p : row_) scores_.push_back(static_cast<float>(p));
      labels_.push_back(b.labels[i]);
    }
  }
  void reset() override { scores_.clear(), labels_.clear(); }
  std::optional<Bytes> save() const override { return Saved().number(columns_).list(scores_).list(labels_).bytes(); }
  void restore(const Bytes& saved) override {
    uint64_t columns = 0;
    Taken from(saved);
    from.number(columns);
    from.list(scores_);
    from.list(labels_);
    from.end();
    if (columns != columns_ || scores_.size() != labels_.size() * columns_)
      throw Error(ErrorKind::Weights, "it kept " + quantity(columns, "score") + " per row, but there are " +
                                          std::to_string(columns_) + " now");
  }
  std::vector<Figure> figures() const override {
    if (std::any_of(scores_.begin(), scores_.end(), [](float score) { return std::isnan(score); }))
      return {{"auc", kUndefined}};
    double sum = 0;
    int defined = 0;
    for (uint64_t c = 0; c < columns_; ++c) {
      const double area = of_class(c, columns_ == 1 ? 1 : static_cast<int32_t>(c));
      if (area < 0) continue;
      sum += area;
      ++defined;
    }
    return {{"auc", defined ? sum / defined : kUndefined}};
  }

 private:
  // Returns the share of positive-negative pairs in the right order, ties counting half; -1: no pairs.
  double of_class(uint64_t column, int32_t positive) const {
    std::vector<std::pair<float, bool>> order;
    order.reserve(labels_.size());
    for (size_t i = 0; i < labels_.size(); ++i)
      order.emplace_back(scores_[i * columns_ + column], labels_[i] == positive);
    std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    double below = 0, pairs = 0, positives = 0;
    for (size_t i = 0; i < order.size();) {
      double yes = 0, no = 0;
      const float score = order[i].first;
      for (; i < order.size() && order[i].first == score; ++i) (order[i].second ? yes : no) += 1;
      pairs += yes * (below + no / 2);
      below += no;
      positives += yes;
    }
    return positives > 0 && below > 0 ? pairs / (positives * below) : -1;
  }

  uint64_t columns_ = 0;
  std::vector<float> scores_;
  std::vector<int32_t> labels_;
  std::vector<double> row_;
};

}  // namespace

Made make_auc(const Arguments&) { return std::make_unique<Auc>(); }

}  // namespace metrics
