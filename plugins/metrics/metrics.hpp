// The metrics of the catalogue and their helpers.
#pragma once

#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include <harmonics/metric.hpp>

namespace metrics {

using harmonics::Arguments;
using harmonics::Metric;
using harmonics::MetricBatch;

using Made = std::unique_ptr<Metric>;
using Bytes = std::vector<std::byte>;

inline constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

// Serializes numbers of fixed size; lists are preceded by their length.
class Saved {
 public:
  template <typename T>
  Saved& number(T v) {
    static_assert(std::is_arithmetic_v<T>);
    return put(&v, sizeof v);
  }
  template <typename T>
  Saved& list(const std::vector<T>& v) {
    number<uint64_t>(v.size());
    return put(v.data(), v.size() * sizeof(T));
  }
  Bytes bytes() { return std::move(bytes_); }

 private:
  Saved& put(const void* from, size_t n) {
    const auto* b = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), b, b + n);
    return *this;
  }
  Bytes bytes_;
};

// Deserializes them; all must be read.
class Taken {
 public:
  explicit Taken(const Bytes& bytes) : bytes_(bytes) {}
  template <typename T>
  void number(T& v) {
    take(&v, sizeof v);
  }
  template <typename T>
  void list(std::vector<T>& v) {
    uint64_t n = 0;
    number(n);
    if (n > (bytes_.size() - at_) / sizeof(T)) refuse();
    v.resize(n);
    take(v.data(), n * sizeof(T));
  }
  void end() const {
    if (at_ != bytes_.size()) refuse();
  }

 private:
  void take(void* to, size_t n) {
    if (n > bytes_.size() - at_) refuse();
    if (n > 0) std::memcpy(to, bytes_.data() + at_, n);
    at_ += n;
  }
  [[noreturn]] void refuse() const {
    throw harmonics::Error(harmonics::ErrorKind::Weights,
                           "the saved state, " + std::to_string(bytes_.size()) + " bytes, does not fit it");
  }
  const Bytes& bytes_;
  size_t at_ = 0;
};

// Classification metrics.
Made make_accuracy(const Arguments&);
Made make_topk(const Arguments&);
Made make_precision(const Arguments&);
Made make_recall(const Arguments&);
Made make_f1(const Arguments&);
Made make_confusion(const Arguments&);
Made make_perplexity(const Arguments&);
Made make_auc(const Arguments&);
// Regression metrics.
Made make_mae(const Arguments&);
Made make_rmse(const Arguments&);
Made make_r2(const Arguments&);

// Returns the class that a row predicts: the index of the largest output (of equal ones the first), or, if the single
// output is the probability of the second class, whether it reaches one half.
uint32_t predicted_class(const MetricBatch& batch, uint64_t row);

// Converts a row's prediction to probabilities that add up to 1, depending on its activation: softmax and log_softmax
// give them, no activation gives logits, and other outputs are divided by their sum.
void probabilities(const MetricBatch& batch, uint64_t row, std::vector<double>& out);

}  // namespace metrics
