// Shared by the losses of the catalogue.
#pragma once

#include <string>

#include <harmonics/function.hpp>
#include <harmonics/ops.hpp>

namespace harmonics::losses {

inline bool is_integer(const HTensor& x) { return x.dtype() >= DType::U8 && x.dtype() <= DType::U64; }

// The activation between logits and prediction. A replacement registered by another plugin has a different identity,
// so it is never mistaken for the built-in one.
enum class Before { Nothing, Softmax, LogSoftmax, Sigmoid, Other };
inline Before before(const std::string& activation) {
  if (activation.empty() || activation == "harmonics.activations/identity") return Before::Nothing;
  if (activation == "harmonics.activations/softmax") return Before::Softmax;
  if (activation == "harmonics.activations/log_softmax") return Before::LogSoftmax;
  if (activation == "harmonics.activations/sigmoid") return Before::Sigmoid;
  return Before::Other;
}

[[noreturn]] inline void refuse(const char* loss, const std::string& activation, const char* instead) {
  throw Error(ErrorKind::Type, std::string(loss) + " does not fit the last function of the arrow, '" + activation + "'")
      .note(instead);
}

inline int64_t last_of(const HTensor& x) { return static_cast<int64_t>(x.rank()) - 1; }

// Class indices with an optional ignored index: its positions have no loss, and the mean is taken over the others.
struct Labels {
  HTensor numbers, absent;  // absent: empty if every position counts

  Labels(const HTensor& target, const Arguments& a) : numbers(target) {
    if (!a.has("ignore_index")) return;
    absent = equal(target, static_cast<double>(a.integer("ignore_index")));
    numbers = select(absent, zeros_like(target), target);
  }
  HTensor mean_of_present(const HTensor& loss) const {
    if (!absent) return loss;
    const HTensor count = reduce_sum(cast(logical_not(absent), loss.dtype()), axes_from(loss, 0));
    return select(absent, zeros_like(loss), loss) * (static_cast<double>(loss.size()) / maximum(count, 1));
  }
};

// Registers the losses that compare the scores of two models: dpo and distillation.
void register_model_losses(FunctionRegistry& registry);

}  // namespace harmonics::losses
