#include "engine/cycle/finite_results.hpp"

#include <fmt/core.h>

#include "engine/tensor/finite.hpp"

namespace harmonics::engine {

void FiniteResults::look(size_t result, const TensorType& sample, const Slot& slot) {
  Counts& c = of_[result];
  const auto count = static_cast<int64_t>(slot.count);
  const BadRows bad = rows_not_finite(sample.dtype, slot.results[result].data(), count, sample.shape.count());
  if (bad.rows > 0 && c.bad == 0) {
    c.first = c.seen + static_cast<uint64_t>(bad.first) + 1;
    c.cause = cause_of(slot, bad.first);
  }
  c.bad += static_cast<uint64_t>(bad.rows);
  c.seen += slot.count;
}

std::string FiniteResults::cause_of(const Slot& slot, int64_t row) const {
  for (size_t i = 0; i < plan_.producers.size(); ++i) {
    const StreamType& type = plan_.graph.types().at(plan_.producers[i]);
    const TensorType one{type.dtype, type.sample};
    const auto* at = static_cast<const std::byte*>(slot.pointers[i]) + static_cast<size_t>(row) * one.bytes();
    if (first_not_finite(type.dtype, at, type.sample.count()) >= 0)
      return fmt::format("its sample of '{}' is not finite either", plan_.name_of(plan_.producers[i]));
  }
  return "its samples are finite: look at the weights";
}

std::vector<std::string> FiniteResults::notes() const {
  std::vector<std::string> notes;
  for (size_t i = 0; i < of_.size(); ++i)
    if (of_[i].bad > 0)
      notes.push_back(fmt::format("{} of {} results of '{}' are infinite or NaN, the first is number {}; {}",
                                  of_[i].bad, of_[i].seen, plan_.name_of(plan_.wanted[i]), of_[i].first, of_[i].cause));
  return notes;
}

}  // namespace harmonics::engine
