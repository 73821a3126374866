// FiniteResults: counts infinite and NaN results, so that the run reports them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/cycle/cycle_feed.hpp"

namespace harmonics::engine {

class FiniteResults {
 public:
  explicit FiniteResults(const CyclePlan& plan) : plan_(plan), of_(plan.wanted.size()) {}
  // Checks one result of a step; `sample` is the type of one sample of it.
  void look(size_t result, const TensorType& sample, const Slot& slot);
  // Returns one message for each node that gave infinite or NaN results.
  std::vector<std::string> notes() const;

 private:
  struct Counts {
    uint64_t seen = 0, bad = 0, first = 0;  // in samples; `first` counts from 1
    std::string cause;
  };
  std::string cause_of(const Slot& slot, int64_t row) const;

  const CyclePlan& plan_;
  std::vector<Counts> of_;  // by wanted node
};

}  // namespace harmonics::engine
