// The order of a matrix's rows in a folder, and in GGUF.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mapping.hpp"

namespace huggingface {

// Row j of GGUF's matrix is row rows[j] of the folder's. Of a transposed matrix, the folder stores rows as columns.
struct RowOrder {
  std::vector<uint64_t> rows;
  uint64_t folder_rows = 0;
  bool transposed = false;

  bool same() const;  // of both: the bytes are equal
};

// `folder_rows`: of the whole matrix in the folder. `heads`: of rotary pairs (`permute`) or of parts (`by_head`), if
// the row has one of these. `fail` throws; it gets the reason why the rows cannot be divided.
RowOrder row_order(const TensorRow& row, uint64_t folder_rows, uint64_t heads,
                   const std::function<void(const std::string&)>& fail);

// Copies one matrix; `bytes`: of a row, of `columns` elements.
void read_rows(const RowOrder& order, const char* folder, char* gguf, uint64_t bytes, uint64_t columns);
void write_rows(const RowOrder& order, const char* gguf, char* folder, uint64_t bytes, uint64_t columns);

}  // namespace huggingface
