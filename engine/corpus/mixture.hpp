// Mixes the rows of several data sets.
#pragma once

#include <cstdint>
#include <vector>

namespace harmonics::engine {

// A row of one of the data sets.
struct MixedRow {
  uint32_t set;
  uint64_t row;
};

// If all weights are 0, a pass has all rows once, one data set after the other. Otherwise each data set has its share
// of the rows of a pass, spread evenly: a set with fewer rows than its share repeats rows, and a set with more rows
// continues in the next pass. The order depends on sizes and weights only.
class Mixture {
 public:
  // `sizes` are the rows of the data sets, 1 to 2^32 each. `weights` has the same length; all are 0, or all above 0.
  Mixture(std::vector<uint64_t> sizes, const std::vector<double>& weights);

  uint64_t size() const { return size_; }  // rows in a pass
  bool passes_differ() const { return differ_; }
  MixedRow at(uint64_t epoch, uint64_t index) const;

 private:
  std::vector<uint64_t> sizes_, shares_;
  uint64_t size_ = 0;
  bool differ_ = false;
  struct Place {
    uint32_t set;
    uint64_t number;  // index among the set's rows of one pass
  };
  std::vector<Place> order_;  // order of one pass; empty: one set after the other
};

}  // namespace harmonics::engine
