#include "row_order.hpp"

#include <algorithm>
#include <cstring>

namespace huggingface {

namespace {

constexpr uint64_t kTile = 64;  // columns of a transposition that are read before the next row is written

// Calls body(j, at) for each row of GGUF's matrix and its row in the folder, and each column.
template <class Body>
void each_element(const RowOrder& order, uint64_t columns, Body&& body) {
  for (uint64_t from = 0; from < columns; from += kTile)
    for (uint64_t j = 0; j < order.rows.size(); ++j)
      for (uint64_t c = from; c < std::min(columns, from + kTile); ++c)
        body(j * columns + c, c * order.folder_rows + order.rows[j]);
}

}  // namespace

bool RowOrder::same() const {
  if (transposed || rows.size() != folder_rows) return false;
  for (uint64_t j = 0; j < rows.size(); ++j)
    if (rows[j] != j) return false;
  return true;
}

RowOrder row_order(const TensorRow& row, uint64_t folder_rows, uint64_t heads,
                   const std::function<void(const std::string&)>& fail) {
  RowOrder order;
  order.folder_rows = folder_rows;
  order.transposed = row.transposed;
  const auto fill = [&](uint64_t count, const std::function<uint64_t(uint64_t)>& at) {
    order.rows.resize(count);
    for (uint64_t j = 0; j < count; ++j) order.rows[j] = at(j);
  };
  const bool half = row.half != Half::whole;
  const uint64_t count = half ? folder_rows / 2 : folder_rows;
  if (half && folder_rows % 2 != 0) fail("which are not two halves");
  switch (row.half) {
    case Half::first:
      fill(count, [](uint64_t j) { return j; });
      break;
    case Half::second:
      fill(count, [&](uint64_t j) { return count + j; });
      break;
    case Half::even:
      fill(count, [](uint64_t j) { return 2 * j; });
      break;
    case Half::odd:
      fill(count, [](uint64_t j) { return 2 * j + 1; });
      break;
    case Half::whole:
      if (!row.permute.empty()) {
        if (heads == 0 || count % (2 * heads) != 0) fail("and " + std::to_string(heads) + " heads need pairs of rows");
        const uint64_t pairs = count / heads / 2;
        fill(count, [&](uint64_t j) { return (j / (2 * pairs) * 2 + j % 2) * pairs + j % (2 * pairs) / 2; });
      } else if (!row.by_head.empty()) {
        if (heads == 0 || count % (3 * heads) != 0)
          fail("and " + std::to_string(heads) + " heads need three parts each");
        const uint64_t part = count / heads / 3;
        fill(count, [&](uint64_t j) { return (j / part % heads * 3 + j / part / heads) * part + j % part; });
      } else {
        fill(count, [](uint64_t j) { return j; });
      }
  }
  return order;
}

void read_rows(const RowOrder& order, const char* folder, char* gguf, uint64_t bytes, uint64_t columns) {
  if (!order.transposed) {
    for (uint64_t j = 0; j < order.rows.size(); ++j)
      std::memcpy(gguf + j * bytes, folder + order.rows[j] * bytes, bytes);
    return;
  }
  const uint64_t size = bytes / std::max<uint64_t>(columns, 1);
  each_element(order, columns,
               [&](uint64_t to, uint64_t from) { std::memcpy(gguf + to * size, folder + from * size, size); });
}

void write_rows(const RowOrder& order, const char* gguf, char* folder, uint64_t bytes, uint64_t columns) {
  if (!order.transposed) {
    for (uint64_t j = 0; j < order.rows.size(); ++j)
      std::memcpy(folder + order.rows[j] * bytes, gguf + j * bytes, bytes);
    return;
  }
  const uint64_t size = bytes / std::max<uint64_t>(columns, 1);
  each_element(order, columns,
               [&](uint64_t from, uint64_t to) { std::memcpy(folder + to * size, gguf + from * size, size); });
}

}  // namespace huggingface
