// Row-wise kernels: softmax and its losses.
#pragma once

#include <cstdint>

namespace harmonics::cpu {

struct RowsContext {
  int64_t rows, columns;
  uint32_t parts;
  uint32_t index_dtype;  // of labels
};

}  // namespace harmonics::cpu
