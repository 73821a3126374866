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
  std::optional<std::string> missing;    // the substitute for missing cells: a value, nan, mean; absent: reject them
  std::vector<std::string> symbols;      // the words of a class column in order; empty: sorted as found
  bool learned = false;                  // `symbols` are those that weights learned
  std::optional<std::string> selection;  // label · 3 · 0-3 · a,b; absent: all columns
  std::string dtype;                     // of numbers: f32, or u8, i8, u16, i16, i32 for integers; empty: f32
  bool indices = false;                  // the flow takes rows of several cells as indices: i32, unless dtype says else
  std::string shape;                     // of a sample of numbers, such as 28x28; empty: as in the rows
  std::string part;                      // of the rows; see part.hpp
  size_t kept = size_t{256} << 20;       // samples of more bytes than this are read from the file in every pass
};

struct Cell {
  enum class Kind : uint8_t { Missing, Integer, Number, Word };
  Kind kind = Kind::Missing;
  double number = 0;  // of integers too
  int64_t integer = 0;
  std::string_view text;  // of words, and of numbers if the file has their text; valid until the next row is read
};

// The start of a row, or of blank lines before it.
struct RowPlace {
  size_t at = 0, line = 1;
};

// Reads the rows of one text, and the cells of the selected columns in each.
class TableRows {
 public:
  virtual ~TableRows() = default;
  virtual const FileBytesPtr& file() const = 0;
  virtual RowPlace first() const = 0;
  virtual size_t cells() const = 0;  // in a row, at least 1
  virtual Shape sample() const = 0;  // the shape of the cells; a scalar is one cell
  // Reads the row at `place` and advances; false at the end.
  virtual bool read(RowPlace& place, Cell* cells) = 0;
  // The same for rows of plain numbers only. False changes nothing; read() then handles the row.
  virtual bool read_numbers(RowPlace& place, float* to) = 0;
  // Of the last row read.
  virtual size_t line() const = 0;
  // "column #2 'age'"
  virtual std::string name_of(size_t cell) const = 0;
};

// Reads every row once, so that errors show on opening. Samples larger than options.kept are not kept in memory but
// read again; an index of some rows finds samples by number.
std::shared_ptr<Producer> open_table(std::unique_ptr<TableRows> rows, const TableOptions& options);

// The original text, or one that represents its number.
std::string text_of(const Cell& cell);
// Converts to lower case.
std::string lower(std::string_view word);

}  // namespace harmonics
