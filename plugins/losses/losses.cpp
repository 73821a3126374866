// The losses of the catalogue. Cross entropies are computed from the value before the activation, where they are
// numerically safe.
#include <harmonics/plugin.hpp>

HARMONICS_PLUGIN("harmonics.losses", "0.1.0", "Apache-2.0", "Harmonics");

namespace {

using namespace harmonics;

bool is_integer(const HTensor& x) { return x.dtype() >= DType::U8 && x.dtype() <= DType::U64; }

// What stood between logits and prediction. A replacement registered by another plugin has another identity, so that it
// is never taken for the real one.
enum class Before { Nothing, Softmax, Sigmoid, Other };
Before before(const std::string& activation) {
  if (activation.empty() || activation == "harmonics.activations/identity") return Before::Nothing;
  if (activation == "harmonics.activations/softmax") return Before::Softmax;
  if (activation == "harmonics.activations/sigmoid") return Before::Sigmoid;
  return Before::Other;
}

[[noreturn]] void refuse(const char* loss, const std::string& activation, const char* instead) {
  throw Error(ErrorKind::Type, std::string(loss) + " does not go with what the arrow ends in, '" + activation + "'")
      .note(instead);
}

// -log of the probability that softmax of the logits gives to the target: class numbers, or probabilities.
HTensor softmax_entropy(const HTensor& logits, const HTensor& target) {
  if (is_integer(target)) return call("softmax_cross_entropy", {logits, target}).at(0);
  const int64_t last = static_cast<int64_t>(logits.rank()) - 1;
  return -reduce_sum(target * log_softmax(logits), {last});
}

HTensor sigmoid_entropy(const HTensor& logits, const HTensor& target) {
  if (!is_integer(target)) return call1("sigmoid_cross_entropy", {logits, target});
  const HTensor hot = call1("one_hot", {target}, Attributes().set("classes", logits.shape().back()));
  return call1("sigmoid_cross_entropy", {logits, hot});
}

class CrossEntropy : public LossFunction {
 public:
  HTensor operator()(const HTensor&, const HTensor&) const override {
    throw Error(ErrorKind::Type, "cross_entropy is computed before the activation, not from its result");
  }
  HTensor fused(const std::string& activation, const HTensor& logits, const HTensor& target,
                const Arguments&) const override {
    switch (before(activation)) {
      case Before::Nothing:
      case Before::Softmax:
        return softmax_entropy(logits, target);
      case Before::Sigmoid:
        return sigmoid_entropy(logits, target);
      case Before::Other:
        break;
    }
    refuse("cross_entropy", activation,
           "end the arrow in softmax (one of many classes), sigmoid (each output by itself) or in no activation");
  }
};

class NextToken : public LossFunction {
 public:
  HTensor operator()(const HTensor&, const HTensor&) const override {
    throw Error(ErrorKind::Type, "next_token is computed before the activation, not from its result");
  }
  HTensor fused(const std::string& activation, const HTensor& logits, const HTensor& target,
                const Arguments&) const override {
    const Before b = before(activation);
    if (b != Before::Nothing && b != Before::Softmax)
      refuse("next_token", activation, "end the arrow in softmax or in no activation");
    const int64_t rank = logits.rank();
    if (rank < 3 || !is_integer(target) || target.rank() + 1 != logits.rank())
      throw Error(ErrorKind::Shape,
                  "next_token compares logits [batch, positions, symbols] with symbols "
                  "[batch, positions]; here are " +
                      logits.shape().str() + " and " + target.shape().str())
          .note("take samples that are sequences of symbols: file:PATH?window=256");
    const int64_t positions = logits.shape()[static_cast<uint32_t>(rank - 2)];
    if (positions < 2)
      throw Error(ErrorKind::Shape, "next_token needs at least two positions, here is " + std::to_string(positions));
    return softmax_entropy(slice_axis(logits, rank - 2, 0, positions - 1), slice_axis(target, rank - 2, 1, positions));
  }
};

class BinaryCrossEntropy : public LossFunction {
 public:
  // Logarithms are kept above -100, so that a probability of exactly 0 or 1 gives a finite loss.
  HTensor operator()(const HTensor& p, const HTensor& target) const override {
    const HTensor on = maximum(log(p), -100), off = maximum(log1p(-p), -100);
    return -(target * on + (1.0 - target) * off);
  }
  HTensor fused(const std::string& activation, const HTensor& logits, const HTensor& target,
                const Arguments&) const override {
    return before(activation) == Before::Sigmoid ? call1("sigmoid_cross_entropy", {logits, target}) : HTensor();
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
    if (!(delta > 0)) throw Error(ErrorKind::Type, "delta is " + std::to_string(delta) + "; it must be positive");
    return call1("huber", {p, target}, Attributes().set("delta", delta));
  }
};

}  // namespace

extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) {
  registry.register_loss("cross_entropy", std::make_shared<CrossEntropy>(),
                         "negative log-likelihood after softmax, or per output after sigmoid", {}, HX_TAKES_CLASSES);
  registry.register_loss("binary_cross_entropy", std::make_shared<BinaryCrossEntropy>(),
                         "negative log-likelihood of each output as a probability of its own");
  registry.register_loss("mse", std::make_shared<Distance>("mse"), "squared difference");
  registry.register_loss("mae", std::make_shared<Distance>("mae"), "absolute difference");
  registry.register_loss("huber", std::make_shared<Huber>(), "squared below delta, linear above",
                         {Argument::number("delta", "1", "where it becomes linear")});
  registry.register_loss("next_token", std::make_shared<NextToken>(),
                         "cross entropy of each position against the symbol that follows it", {},
                         HX_TAKES_CLASSES | HX_SHIFTS_TARGET);
}
