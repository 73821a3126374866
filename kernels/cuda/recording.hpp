// A stream's work while it is captured: what each operation waits for is found from the memory it uses, so that
// operations that do not need each other run side by side in the graph.
#pragma once

#include <cstdint>
#include <vector>

#include "driver.hpp"

namespace harmonics::cuda {

// Memory that an operation reads or writes, in addresses.
struct Extent {
  uint64_t begin, end;
  bool writes;
};

class Recording {
 public:
  Recording(Driver& driver, void* stream) : driver_(driver), stream_(stream) {}

  // Around the capture of an operation. Each returns the driver's status.
  int begin(const std::vector<Extent>& extents);
  int end();
  // What is captured next waits for everything before it. `foreign`: operations of others follow, for which everything
  // later waits.
  int join(bool foreign);

 private:
  using Operations = std::vector<uint32_t>;
  struct Operation {
    std::vector<void*> last;      // nodes that finish it
    std::vector<bool> waits_for;  // by operation, also indirectly
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
  std::vector<Use> uses_;  // that later operations may have to wait for
  // Of the operation in progress.
  std::vector<Extent> extents_;
  Operations before_;
  std::vector<void*> front_;
  bool foreign_ = false;
};

}  // namespace harmonics::cuda
