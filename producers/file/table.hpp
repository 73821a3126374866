// Rows of cells as samples: the common part of CSV, TSV and JSON lines. Numbers become f32 or the requested type; a
// single column of integers or words becomes classes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <harmonics/stream.hpp>

#include "producers/file/bytes.hpp"
#include "wire/plain/cell_text.hpp"

namespace harmonics {

struct TableOptions {
  std::string as = "auto";               // number, class, auto
  std::optional<std::string> missing;    // substitute for missing cells: a value, nan, mean; none: they are rejected
  std::vector<std::string> symbols;      // the words of a class column in order; empty: sorted as found
  bool learned = false;                  // `symbols` were learned with the weights
  std::optional<std::string> selection;  // label · 3 · 0-3 · a,b; none: all columns
  std::string dtype;                     // of numbers: f32, or u8, i8, u16, i16, i32 for integers; empty: f32
  bool indices = false;                  // the flow uses rows of several cells as indices: i32, unless dtype differs
  std::string shape;                     // of a numeric sample, such as 28x28; empty: as in the rows
  std::string part;                      // range of the rows; see part.hpp
  size_t kept = size_t{256} << 20;       // more bytes of samples than this are read from the file in every pass
};

struct Cell {
  enum class Kind : uint8_t { Missing, Integer, Number, Word };
  Kind kind = Kind::Missing;
  double number = 0;  // also set for integers
  int64_t integer = 0;
  uint64_t large = 0;     // an integer beyond `integer`, in JSON; 0: none
  std::string_view text;  // of words, and of numbers whose text the file has; valid until the next row is read
};

// The start of a row, or of blank lines before it.
struct RowPlace {
  size_t at = 0, line = 1;
};

// Reads the rows of one text, and the selected cells of each row.
class TableRows {
 public:
  virtual ~TableRows() = default;
  virtual const FileBytesPtr& file() const = 0;
  virtual RowPlace first() const = 0;
  virtual size_t cells() const = 0;  // per row, at least 1
  virtual Shape sample() const = 0;  // shape of the cells; scalar: one cell
  // Reads the row at `place` and advances. Returns false at the end.
  virtual bool read(RowPlace& place, Cell* cells) = 0;
  // Likewise for rows of plain numbers only, with `whole` of integers. Returns false without changes for other rows;
  // read() then handles the row.
  virtual bool read_numbers(RowPlace& place, float* to, bool whole) = 0;
  // Returns the line of the last row read.
  virtual size_t line() const = 0;
  // Returns "column #2 'age'".
  virtual std::string name_of(size_t cell) const = 0;
};

// Reads every row once, so that errors appear on opening. If the samples exceed options.kept bytes, they are not kept
// in memory but read again; an index of some rows then finds samples by number.
std::shared_ptr<Producer> open_table(std::unique_ptr<TableRows> rows, const TableOptions& options);

// Returns the cell's original text, or one that represents its number.
std::string text_of(const Cell& cell);
// Converts to lower case.
std::string lower(std::string_view word);

}  // namespace harmonics
