// Dependencies of a captured stream. They are derived from the memory that each operation uses, so that independent
// operations run in parallel in the graph.
#pragma once

#include <cstdint>
#include <vector>

#include "driver.hpp"

namespace harmonics::cuda {

// A range of addresses that an operation reads or writes.
struct Extent {
  uint64_t begin, end;
  bool writes;
};

class Recording {
 public:
  Recording(Driver& driver, void* stream) : driver_(driver), stream_(stream) {}

  // Called before and after the capture of an operation. Return the driver's status.
  int begin(const std::vector<Extent>& extents);
  int end();
  // The next captured operation depends on all operations before it. `foreign`: operations captured by other code
  // follow, and all later operations depend on them.
  int join(bool foreign);

 private:
  using Operations = std::vector<uint32_t>;
  struct Operation {
    std::vector<void*> last;      // its final nodes
    std::vector<bool> waits_for;  // by operation: direct or indirect dependency
  };
  struct Use {
    Extent extent;
    uint32_t operation;
  };

  int close_foreign();
  Operations found(const std::vector<Extent>& extents) const;
  void add(const std::vector<Extent>& extents, const Operations& before, std::vector<void*> last);
  int set_front(const Operations& operations);

  Driver& driver_;
  void* stream_;
  std::vector<Operation> operations_;
  std::vector<Use> uses_;  // possible dependencies of later operations
  // State of the operation in progress.
  std::vector<Extent> extents_;
  Operations before_;
  std::vector<void*> front_;
  bool foreign_ = false;
};

}  // namespace harmonics::cuda
