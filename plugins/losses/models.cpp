// Losses that compare the scores of two models: preference optimization and distillation.
#include <cmath>

#include "losses.hpp"

namespace harmonics::losses {

namespace {

// Checks scores [batch, tokens, classes] of two models, and class indices [batch, tokens].
void expect_scores(const char* loss, const std::string& activation, const HTensor& scores, const HTensor& target,
                   const char* other_name, const HTensor& other) {
  const Before b = before(activation);
  if (b != Before::Nothing && b != Before::Softmax && b != Before::LogSoftmax)
    refuse(loss, activation, "end the arrow in softmax or in no activation");
  if (!is_integer(target) || target.rank() + 1 != scores.rank() ||
      scores.shape().slice(0, target.rank()) != target.shape())
    throw Error(ErrorKind::Shape, std::string(loss) +
                                      " takes scores [batch, tokens, classes] and class numbers [batch, tokens]; got " +
                                      scores.shape().str() + " and " + target.shape().str());
  if (other && other.shape() != scores.shape())
    throw Error(ErrorKind::Shape, std::string(loss) + ": the scores are " + scores.shape().str() + ", and those of '" +
                                      other_name + "' " + other.shape().str())
        .note("both models need the same tokenizer");
}

// Direct preference optimization (Rafailov et al. 2023). A row contains the chosen answer, then the rejected one.
class Preference : public LossFunction {
 public:
  HTensor operator()(const HTensor&, const HTensor&) const override {
    throw Error(ErrorKind::Type, "dpo is computed before the activation, not from its result");
  }
  HTensor fused(const std::string& activation, const HTensor& scores, const HTensor& target,
                const Arguments& a) const override {
    const HTensor reference = a.tensor("reference");
    expect_scores("dpo", activation, scores, target, "reference", reference);
    if (target.rank() != 2 || target.shape()[1] < 2)
      throw Error(ErrorKind::Shape,
                  "dpo compares the two answers of each row [batch, tokens]; the target is " + target.shape().str());
    const std::string kind = a.text("loss", "sigmoid");
    const double beta = a.number("beta", 0.1);
    const HTensor counts = logical_not(equal(target, static_cast<double>(a.integer("ignored", -100))));
    const HTensor labels = select(counts, target, zeros_like(target));
    HTensor gain = log_probability(scores, labels);  // log-probability minus the reference's, per position
    if (reference) gain = gain - cast(stop_gradient(log_probability(reference, labels)), gain.dtype());
    const HTensor chosen = share(logical_and(counts, in_answer(target, a, 0)), gain.dtype(), kind),
                  rejected = share(logical_and(counts, in_answer(target, a, 1)), gain.dtype(), kind);
    const HTensor of_chosen = reduce_sum(chosen * gain, {1}), of_rejected = reduce_sum(rejected * gain, {1});
    const HTensor margin = of_chosen - of_rejected;
    report_rewards(of_chosen * beta, of_rejected * beta);
    if (kind == "hinge") return maximum(1.0 - margin * beta, 0);
    if (kind == "ipo") {
      const HTensor missing = margin - 0.5 / beta;
      return missing * missing;
    }
    const HTensor wanted = full(margin.dtype(), margin.shape(), 1 - a.number("label_smoothing", 0));
    return call1("sigmoid_cross_entropy", {margin * beta, wanted});
  }

 private:
  // Uses TRL's names.
  static void report_rewards(const HTensor& chosen, const HTensor& rejected) {
    const HTensor a = stop_gradient(chosen), b = stop_gradient(rejected);
    report_figure("rewards/chosen", a);
    report_figure("rewards/rejected", b);
    report_figure("rewards/accuracies", cast(less(b, a), DType::F32));
    report_figure("rewards/margins", a - b);
  }
  static HTensor log_probability(const HTensor& scores, const HTensor& labels) {
    return -call("softmax_cross_entropy", {scores, labels}).at(0);
  }
  // Returns the positions of an answer. Without documents, each answer is one half of the row.
  static HTensor in_answer(const HTensor& target, const Arguments& a, int which) {
    if (const HTensor documents = a.tensor("documents")) {
      if (documents.shape() != target.shape())
        throw Error(ErrorKind::Shape, "dpo: the target is " + target.shape().str() + ", and the documents are " +
                                          documents.shape().str());
      return equal(documents, static_cast<double>(which));
    }
    const HTensor place = iota(DType::I32, target.shape(), 1);
    const HTensor first = less(place, static_cast<double>(target.shape()[1] / 2));
    return which == 0 ? first : logical_not(first);
  }
  // Returns the weight of each position in the sum over its answer, or in the mean for ipo.
  static HTensor share(const HTensor& positions, DType dtype, const std::string& kind) {
    const HTensor ones = cast(positions, dtype);
    return kind == "ipo" ? ones / maximum(reduce_sum(ones, {1}, true), 1) : ones;
  }
};

// Generalized Jensen-Shannon divergence of the next-token distributions (Agarwal et al. 2024): beta interpolates from
// KL(teacher || model) at 0 to KL(model || teacher) at 1.
class Distillation : public LossFunction {
 public:
  HTensor operator()(const HTensor&, const HTensor&) const override {
    throw Error(ErrorKind::Type, "distillation is computed before the activation, not from its result");
  }
  HTensor fused(const std::string& activation, const HTensor& scores, const HTensor& target,
                const Arguments& a) const override {
    const HTensor teacher = a.tensor("teacher");
    expect_scores("distillation", activation, scores, target, "teacher", teacher);
    const double temperature = a.number("temperature", 1), beta = a.number("beta", 0);
    const HTensor own = logarithms(scores, temperature);
    const HTensor other = cast(stop_gradient(logarithms(teacher, temperature)), own.dtype());
    if (beta == 0) return Labels(target, a).mean_of_present(divergence(other, own));
    if (beta == 1) return Labels(target, a).mean_of_present(divergence(own, other));
    const HTensor x = own + std::log1p(-beta), y = other + std::log(beta);
    const HTensor mixed = maximum(x, y) + log1p(exp(-abs(x - y)));
    return Labels(target, a).mean_of_present(divergence(other, mixed) * beta + divergence(own, mixed) * (1 - beta));
  }

 private:
  static HTensor logarithms(const HTensor& scores, double temperature) {
    const HTensor wide =
        scores.dtype() == DType::F16 || scores.dtype() == DType::BF16 ? cast(scores, DType::F32) : scores;
    return log_softmax(temperature == 1 ? wide : wide * (1 / temperature));
  }
  // Returns KL(from || to) of log-probabilities.
  static HTensor divergence(const HTensor& from, const HTensor& to) {
    return reduce_sum(exp(from) * (from - to), {last_of(from)});
  }
};

}  // namespace

void register_model_losses(FunctionRegistry& registry) {
  registry.register_loss(
      "dpo", std::make_shared<Preference>(),
      "direct preference optimisation: preference for the chosen answer of a row over the rejected one, relative to a "
      "reference model",
      {Argument::layer("reference", "scores of the model before training; absent: none"),
       Argument::layer(
           "documents",
           "0 in the chosen answer, 1 in the rejected one; absent: the first and the second half of the row"),
       Argument::number("beta", "0.1", "strength of the pull towards the reference model").in("0<.."),
       Argument::text("loss", "sigmoid", "loss of the margin between both answers").in("sigmoid|hinge|ipo"),
       Argument::number("label_smoothing", "0", "sigmoid: assumed fraction of pairs with swapped answers")
           .in("0..<0.5"),
       Argument::integer("ignored", -100, "class number of positions to ignore")},
      HX_TAKES_CLASSES);
  registry.register_loss(
      "distillation", std::make_shared<Distillation>(),
      "divergence between the next-token distributions of the model and a teacher",
      {Argument::layer("teacher", "scores of the teacher").must(),
       Argument::number("temperature", "1", "temperature: divides the scores of both models").in("0<.."),
       Argument::number(
           "beta", "0",
           "0: KL(teacher || model); 1: KL(model || teacher); between: divergence of both from their mixture")
           .in("0..1"),
       Argument::integer("ignore_index", "class number to ignore; absent: none")},
      HX_TAKES_CLASSES);
}

}  // namespace harmonics::losses
