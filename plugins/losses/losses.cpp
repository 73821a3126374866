// The losses of the catalogue. Cross entropies are computed from the value before the activation, for numerical
// stability.
#include <harmonics/plugin.hpp>

#include "losses.hpp"

HARMONICS_PLUGIN("harmonics.losses", "0.1.0", "Apache-2.0", "Harmonics");

namespace {

using namespace harmonics;
using namespace harmonics::losses;

void expect_no_absence(const Arguments& a) {
  if (a.has("ignore_index"))
    throw Error(ErrorKind::Type, "ignore_index is a class number, but the target has a number for each output");
}

double smoothing_of(const Arguments& a) { return a.number("label_smoothing", 0); }

// With a single class, the probability is always 1 and every loss 0.
void expect_several(const char* loss, const HTensor& outputs) {
  if (outputs.shape().back() != 1) return;
  throw Error(ErrorKind::Shape, std::string(loss) + " over one class trains nothing: its probability is always 1")
      .note("for several classes of which the data contain one, declare their number: producer labels {10};")
      .note("for a number use mse; for yes or no end the arrow in sigmoid and use binary_cross_entropy");
}

// Cross entropy: -log of the probability that softmax of the logits gives to the target (class numbers or
// probabilities). With smoothing, each class gets an equal share of `smoothing`.
HTensor softmax_entropy(const char* loss, const HTensor& logits, const HTensor& target, const Arguments& a) {
  expect_several(loss, logits);
  const double smoothing = smoothing_of(a);
  if (is_integer(target)) {
    const Labels labels(target, a);
    if (smoothing == 0) return labels.mean_of_present(call("softmax_cross_entropy", {logits, labels.numbers}).at(0));
    const HTensor log_p = log_softmax(logits);
    const HTensor of_label = call1("nll", {log_p, labels.numbers}), of_all = -reduce_mean(log_p, {last_of(log_p)});
    return labels.mean_of_present(of_label * (1 - smoothing) + of_all * smoothing);
  }
  expect_no_absence(a);
  const HTensor smoothed =
      smoothing == 0 ? target : target * (1 - smoothing) + smoothing / static_cast<double>(logits.shape().back());
  return -reduce_sum(smoothed * log_softmax(logits), {last_of(logits)});
}

HTensor sigmoid_entropy(const HTensor& logits, const HTensor& target, const Arguments& a) {
  if (smoothing_of(a) != 0)
    throw Error(ErrorKind::Type, "label_smoothing spreads a class over all; outputs after sigmoid are independent");
  if (!is_integer(target)) {
    expect_no_absence(a);
    return call1("sigmoid_cross_entropy", {logits, target});
  }
  expect_several("cross_entropy", logits);
  const Labels labels(target, a);
  const HTensor hot = call1("one_hot", {labels.numbers}, Attributes().set("classes", logits.shape().back()));
  const HTensor each = call1("sigmoid_cross_entropy", {logits, hot});
  return labels.absent ? labels.mean_of_present(reduce_sum(each, {last_of(each)})) : each;
}

class CrossEntropy : public LossFunction {
 public:
  HTensor operator()(const HTensor&, const HTensor&) const override {
    throw Error(ErrorKind::Type, "cross_entropy is computed before the activation, not from its result");
  }
  HTensor fused(const std::string& activation, const HTensor& logits, const HTensor& target,
                const Arguments& a) const override {
    switch (before(activation)) {
      case Before::Nothing:
      case Before::Softmax:
      case Before::LogSoftmax:
        return softmax_entropy("cross_entropy", logits, target, a);
      case Before::Sigmoid:
        return sigmoid_entropy(logits, target, a);
      case Before::Other:
        break;
    }
    refuse("cross_entropy", activation,
           "end the arrow in softmax (one of many classes), sigmoid (each output independently) or in no activation");
  }
};

class NegativeLogLikelihood : public LossFunction {
 public:
  HTensor operator()(const HTensor& p, const HTensor& target) const override { return (*this)(p, target, {}); }
  HTensor operator()(const HTensor& p, const HTensor& target, const Arguments& a) const override {
    if (!is_integer(target))
      throw Error(ErrorKind::Type, "nll takes class numbers, the target holds other numbers")
          .note("kl_div compares with a distribution");
    expect_several("nll", p);
    const Labels labels(target, a);
    return labels.mean_of_present(call1("nll", {p, labels.numbers}));
  }
  HTensor fused(const std::string& activation, const HTensor& logits, const HTensor& target,
                const Arguments& a) const override {
    const Before b = before(activation);
    if (b == Before::Softmax || b == Before::Sigmoid)
      refuse("nll", activation, "nll takes log-probabilities: end the arrow in log_softmax, or write cross_entropy");
    return b == Before::LogSoftmax && is_integer(target) ? softmax_entropy("nll", logits, target, a) : HTensor();
  }
};

class Divergence : public LossFunction {
 public:
  HTensor operator()(const HTensor& p, const HTensor& target) const override { return call1("kl_div", {p, target}); }
  HTensor fused(const std::string& activation, const HTensor& logits, const HTensor& target,
                const Arguments&) const override {
    switch (before(activation)) {
      case Before::Softmax:
      case Before::LogSoftmax:
        expect_several("kl_div", logits);
        return call1("kl_div", {log_softmax(logits), target});
      case Before::Sigmoid:
        refuse("kl_div", activation, "kl_div compares distributions: end the arrow in softmax or log_softmax");
      default:
        return {};
    }
  }
};

// Targets are class indices, or -1 and 1 for each output.
class Hinge : public LossFunction {
 public:
  HTensor operator()(const HTensor& p, const HTensor& target) const override { return (*this)(p, target, {}); }
  HTensor operator()(const HTensor& p, const HTensor& target, const Arguments& a) const override {
    if (is_integer(target)) expect_several("hinge", p);
    const int64_t power = a.integer("power", 1);
    const Attributes attributes = Attributes().set("margin", a.number("margin", 1)).set("power", power);
    return call1(is_integer(target) ? "multi_margin" : "hinge", {p, target}, attributes);
  }
};

class NextToken : public LossFunction {
 public:
  HTensor operator()(const HTensor&, const HTensor&) const override {
    throw Error(ErrorKind::Type, "next_token is computed before the activation, not from its result");
  }
  HTensor fused(const std::string& activation, const HTensor& logits, const HTensor& target,
                const Arguments& a) const override {
    const Before b = before(activation);
    if (b != Before::Nothing && b != Before::Softmax && b != Before::LogSoftmax)
      refuse("next_token", activation, "end the arrow in softmax or in no activation");
    const int64_t rank = logits.rank();
    if (rank < 3 || !is_integer(target) || target.rank() + 1 != logits.rank())
      throw Error(ErrorKind::Shape,
                  "next_token compares logits [batch, positions, symbols] with symbols "
                  "[batch, positions]; got " +
                      logits.shape().str() + " and " + target.shape().str())
          .note("take samples that are sequences of symbols: file:PATH?window=256");
    const int64_t positions = logits.shape()[static_cast<uint32_t>(rank - 2)];
    if (positions < 2)
      throw Error(ErrorKind::Shape, "next_token needs at least two positions, got " + std::to_string(positions));
    return softmax_entropy("next_token", slice_axis(logits, rank - 2, 0, positions - 1),
                           slice_axis(target, rank - 2, 1, positions), a);
  }
};

class BinaryCrossEntropy : public LossFunction {
 public:
  HTensor operator()(const HTensor& p, const HTensor& target) const override {
    return call1("binary_cross_entropy", {p, by_output(p, target)});
  }
  HTensor fused(const std::string& activation, const HTensor& logits, const HTensor& target,
                const Arguments&) const override {
    if (before(activation) != Before::Sigmoid) return {};
    return call1("sigmoid_cross_entropy", {logits, by_output(logits, target)});
  }

 private:
  // Converts class indices to -1 and 1 per output. A single output is the second of two classes.
  static HTensor by_output(const HTensor& p, const HTensor& target) {
    if (!is_integer(target)) return target;
    const int64_t outputs = p.shape().back();
    const HTensor hot = call1("one_hot", {target}, Attributes().set("classes", outputs == 1 ? int64_t{2} : outputs));
    return outputs == 1 ? slice_axis(hot, last_of(hot), 1, 2) : hot;
  }
};

// A functional of prediction and target.
class Distance : public LossFunction {
 public:
  explicit Distance(const char* functional) : functional_(functional) {}
  HTensor operator()(const HTensor& p, const HTensor& target) const override { return call1(functional_, {p, target}); }

 private:
  const char* functional_;
};

class Huber : public LossFunction {
 public:
  HTensor operator()(const HTensor& p, const HTensor& target) const override { return (*this)(p, target, {}); }
  HTensor operator()(const HTensor& p, const HTensor& target, const Arguments& a) const override {
    const double delta = a.number("delta", 1);
    return call1("huber", {p, target}, Attributes().set("delta", delta));
  }
};

// Quadratic below beta, scaled so that the gradient beyond beta is 1.
class SmoothL1 : public LossFunction {
 public:
  HTensor operator()(const HTensor& p, const HTensor& target) const override { return (*this)(p, target, {}); }
  HTensor operator()(const HTensor& p, const HTensor& target, const Arguments& a) const override {
    const double beta = a.number("beta", 1);
    return call1("huber", {p, target}, Attributes().set("delta", beta)) * (1 / beta);
  }
};

Argument ignored() { return Argument::integer("ignore_index", "class number to ignore; absent: none"); }
Argument smoothed() {
  return Argument::number("label_smoothing", "0", "fraction of the target to spread evenly over all classes")
      .in("0..1");
}

}  // namespace

extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) {
  registry.register_loss("cross_entropy", std::make_shared<CrossEntropy>(),
                         "negative log-likelihood after softmax, or per output after sigmoid", {smoothed(), ignored()},
                         HX_TAKES_CLASSES);
  registry.register_loss("binary_cross_entropy", std::make_shared<BinaryCrossEntropy>(),
                         "binary cross entropy: negative log-likelihood of each output as an independent probability",
                         {}, HX_TAKES_CLASSES | HX_TWO_CLASSES_IN_ONE);
  registry.register_loss("nll", std::make_shared<NegativeLogLikelihood>(),
                         "negative log-probability of the class, after log_softmax", {ignored()}, HX_TAKES_CLASSES);
  registry.register_loss("kl_div", std::make_shared<Divergence>(),
                         "Kullback-Leibler divergence of the target distribution from softmax or log_softmax");
  registry.register_loss(
      "hinge", std::make_shared<Hinge>(),
      "max(0, margin - target output), for targets -1 and 1; for classes: of the class against the others",
      {Argument::number("margin", "1", "the margin"),
       Argument::integer("power", 1, "1, or 2 for the square").in("1..2")},
      HX_TAKES_CLASSES);
  registry.register_loss("smooth_l1", std::make_shared<SmoothL1>(),
                         "squared difference below beta, absolute difference above",
                         {Argument::number("beta", "1", "difference above which the loss is linear").in("0<..")});
  registry.register_loss("mse", std::make_shared<Distance>("mse"), "squared difference");
  registry.register_loss("mae", std::make_shared<Distance>("mae"), "absolute difference");
  registry.register_loss("huber", std::make_shared<Huber>(), "squared below delta, linear above",
                         {Argument::number("delta", "1", "difference above which the loss is linear").in("0<..")});
  registry.register_loss("next_token", std::make_shared<NextToken>(),
                         "cross entropy of each position against the symbol that follows it", {smoothed(), ignored()},
                         HX_TAKES_CLASSES | HX_SHIFTS_TARGET);
  harmonics::losses::register_model_losses(registry);
}
