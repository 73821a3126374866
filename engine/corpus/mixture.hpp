// The order in which rows of several data sets follow each other.
#pragma once

#include <cstdint>
#include <vector>

namespace harmonics::engine {

// A row of one of the data sets.
struct MixedRow {
  uint32_t set;
  uint64_t row;
};

// With equal weights of 0, the data sets follow each other and each pass has all rows once. Otherwise each has its
// share of the rows of a pass, spread evenly: one with a larger share begins again, and one with a smaller share
// continues in the next pass where it ended. A function of sizes and weights alone.
class Mixture {
 public:
  // `sizes`: rows of the data sets, 1 to 2^32 each. `weights`: of the same length; all 0, or all above 0.
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
    uint64_t number;  // among the rows of the set in one pass
  };
  std::vector<Place> order_;  // of one pass; empty: one after the other
};

}  // namespace harmonics::engine
