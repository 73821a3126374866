#include "engine/cli/commands/file_summary.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/base/spelling.hpp"
#include "engine/cli/terminal/command_text.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/tensor/value.hpp"
#include "wire/plain/csv_scanner.hpp"
#include "producers/file/formats.hpp"
#include "producers/file/jsonl.hpp"
#include "producers/file/npz.hpp"

namespace harmonics::engine::cli {

namespace {

namespace json = boost::json;

constexpr size_t kMostValues = 1000, kMostOfAll = 100000, kShownValues = 8, kLongestValue = 200;

// Collects statistics of one column, row by row.
class Column {
 public:
  void add(const Cell& cell, size_t& values_left) {
    if (cell.kind == Cell::Kind::Missing) return void(++missing_);
    ++of_[static_cast<size_t>(cell.kind)];
    if (cell.kind != Cell::Kind::Word) {
      least_ = std::min(least_.value_or(cell.number), cell.number);
      greatest_ = std::max(greatest_.value_or(cell.number), cell.number);
    }
    if (counts_ && cell.kind != Cell::Kind::Number) count(text_of(cell), values_left);
  }
  ColumnSummary summary(std::string name, std::string address) const {
    const bool words = of(Cell::Kind::Word) > 0, numbers = of(Cell::Kind::Number) > 0,
               integers = of(Cell::Kind::Integer) > 0;
    ColumnSummary s{std::move(name), std::move(address), {}, {}, missing_, {}, {}, {}, {}};
    s.type = words && (numbers || integers) ? "mixed"
             : words                        ? "words"
             : numbers                      ? "number"
             : integers                     ? "integer"
                                            : "missing";
    if (!words) s.least = least_, s.greatest = greatest_;
    if (counts_ && !numbers && s.type != "missing") s.classes = values_.size();
    if (words)
      for (const std::string& value : values_)
        if (s.values.size() < kShownValues) s.values.push_back(value);
    return s;
  }

 private:
  uint64_t of(Cell::Kind kind) const { return of_[static_cast<size_t>(kind)]; }
  void count(std::string value, size_t& values_left) {
    if (value.size() > kLongestValue) value.resize(kLongestValue);
    if (values_.count(value)) return;
    counts_ = values_.size() < kMostValues && values_left > 0;
    if (counts_)
      --values_left, values_.insert(std::move(value));
    else
      values_left += values_.size(), values_.clear();
  }

  uint64_t missing_ = 0, of_[4] = {};
  std::optional<double> least_, greatest_;
  bool counts_ = true;
  std::set<std::string> values_;
};

std::string address_of(Address file, bool missing, const std::string& selection) {
  if (missing && !file.find("missing")) file.options.push_back({"missing", "mean"});
  if (!selection.empty()) file.fragment = selection;
  constexpr std::string_view kScheme = "file:";
  const std::string text = file.str(), bare = text.starts_with(kScheme) ? text.substr(kScheme.size()) : text;
  return bare.substr(0, bare.find_first_of("?#")).find(':') == std::string::npos ? bare : text;
}

// A column, or a field of JSON lines with all cells of its array.
struct Named {
  std::string name, selection;
  std::vector<int64_t> shape;
};

// Returns the quoted name in a text like "column #2 'age'" or "field 'pixels', number 3"; "" if there is none.
std::string quoted_in(const std::string& text) {
  const size_t begin = text.find('\''), end = text.rfind('\'');
  return begin == std::string::npos ? "" : text.substr(begin + 1, end - begin - 1);
}

// Selects each column by its name if that is unique and unambiguous, otherwise by its number.
std::vector<Named> named_columns(const TableRows& rows) {
  std::vector<Named> all;
  std::multiset<std::string> names;
  for (size_t i = 0; i < rows.cells(); ++i) names.insert(quoted_in(rows.name_of(i)));
  for (size_t i = 0; i < rows.cells(); ++i) {
    const std::string name = quoted_in(rows.name_of(i));
    const bool plain =
        !name.empty() && name.find(',') == std::string::npos && !integer_in(name.substr(0, name.find('-', 1)));
    all.push_back({name.empty() ? "#" + std::to_string(i) : name,
                   plain && names.count(name) == 1 ? name : std::to_string(i),
                   {}});
  }
  return all;
}

// Sets `of_cell` to the field of each cell.
std::vector<Named> named_fields(const TableRows& rows, std::vector<size_t>& of_cell) {
  std::vector<Named> all;
  for (size_t i = 0; i < rows.cells(); ++i) {
    const std::string text = rows.name_of(i), name = quoted_in(text);
    const bool inner = text.find(", number ") != std::string::npos;
    if (inner && !all.empty() && all.back().selection == name && !all.back().shape.empty())
      ++all.back().shape.front();
    else
      all.push_back({name.empty() ? "(value)" : name, name, inner ? std::vector<int64_t>{1} : std::vector<int64_t>{}});
    of_cell[i] = all.size() - 1;
  }
  return all;
}

FileSummary of_table(const Address& address, TableRows& rows, bool csv) {
  std::vector<size_t> of_cell(rows.cells());
  for (size_t i = 0; i < of_cell.size(); ++i) of_cell[i] = i;
  const std::vector<Named> named = csv ? named_columns(rows) : named_fields(rows, of_cell);
  std::vector<Column> columns(named.size());
  std::vector<Cell> cells(rows.cells());
  size_t values_left = kMostOfAll;
  FileSummary summary{address.path, 0, {}};
  for (RowPlace place = rows.first(); rows.read(place, cells.data()); ++summary.rows)
    for (size_t i = 0; i < cells.size(); ++i) columns[of_cell[i]].add(cells[i], values_left);
  for (size_t i = 0; i < columns.size(); ++i) {
    ColumnSummary column = columns[i].summary(named[i].name, "");
    const bool numbers = column.type == "number" || column.type == "integer";
    column.shape = named[i].shape;
    column.address = address_of(address, column.missing > 0 && numbers, named[i].selection);
    summary.columns.push_back(std::move(column));
  }
  return summary;
}

FileSummary of_archive(const Address& address, const FileBytesPtr& file) {
  FileSummary summary{address.path, 0, {}};
  for (const ZipMember& member : read_zip_directory(file->bytes(), file->origin())) {
    if (!member.name.ends_with(".npy")) continue;
    const std::string name = member.name.substr(0, member.name.size() - 4);
    const ArrayLayout layout = read_npz(file, name);
    summary.columns.push_back({name,
                               address_of(address, false, name),
                               std::string(dtype_name(layout.dtype)),
                               layout.sample.vector(),
                               0,
                               {},
                               {},
                               {},
                               {}});
    summary.rows = std::max(summary.rows, layout.count);
  }
  return summary;
}

std::string range_text(const ColumnSummary& c) {
  return c.least ? fmt::format("{:.6g} to {:.6g}", *c.least, *c.greatest) : "";
}

std::string listed_values(const ColumnSummary& c) {
  std::string text;
  if (c.values.empty()) return text;
  for (const std::string& value : c.values) text += (text.empty() ? "" : ", ") + value;
  return c.classes.value_or(0) > c.values.size() || !c.classes ? text + ", ..." : text;
}

}  // namespace

std::optional<FileSummary> summary_of_file(const Address& address) {
  const auto known = [](const auto& option) {
    return option.key == "header" || option.key == "delimiter" || option.key == "missing" || option.key == "memory";
  };
  std::error_code failed;
  if (address.scheme != "file" || address.fragment ||
      !std::all_of(address.options.begin(), address.options.end(), known) ||
      !std::filesystem::is_regular_file(address.path, failed))
    return std::nullopt;
  const FileBytesPtr bytes = FileBytes::open(address.path);
  return read_whole(*bytes, [&]() -> std::optional<FileSummary> {
    const FileBytesPtr file = unpacked(bytes);
    FileOptions options;
    const auto option = [&](const char* name, std::string& to) {
      if (const std::string* value = address.find(name)) to = *value;
    };
    option("header", options.table.header);
    option("delimiter", options.table.delimiter);
    const std::string format = format_of(*file, options).name;
    if (format == "csv") return of_table(address, *csv_rows(file, options.table), true);
    if (format == "jsonl") return of_table(address, *json_rows(file, options.table), false);
    if (format == "npz") return of_archive(address, file);
    return std::nullopt;
  });
}

std::string summary_text(const FileSummary& summary) {
  size_t longest = 6, range = 5, address = 5;
  for (const ColumnSummary& c : summary.columns) {
    longest = std::max(longest, std::min<size_t>(c.name.size(), 40));
    range = std::max(range, range_text(c).size());
    address = std::max(address, std::min<size_t>(cli::quoted(c.address).size(), 60));
  }
  std::string s =
      fmt::format("file {}\n  {}, {}\n\n", summary.path, number_of(static_cast<uint64_t>(summary.rows), "row"),
                  quantity(summary.columns.size(), "column"));
  const auto line = [&](const auto&... cells) {
    s += fmt::format("  {:<{}}  {:<10} {:>8}  {:<{}} {:>8}  {:<{}}  {}\n", cells...);
  };
  line("column", longest, "type", "missing", "range", range, "classes", "write", address, "values");
  for (const ColumnSummary& c : summary.columns) {
    const std::string type = c.shape.empty() ? c.type : c.type + Shape(c.shape).str();
    line(c.name, longest, type, c.missing ? thousands(static_cast<int64_t>(c.missing)) : "", range_text(c), range,
         c.classes ? thousands(static_cast<int64_t>(*c.classes)) : "", cli::quoted(c.address), address,
         listed_values(c));
    while (s.size() > 1 && s[s.size() - 2] == ' ') s.erase(s.size() - 2, 1);
  }
  return s;
}

json::array columns_json(const FileSummary& summary) {
  json::array columns;
  const auto number = [](const std::optional<double>& value) {
    return value ? json::value(*value) : json::value(nullptr);
  };
  for (const ColumnSummary& c : summary.columns)
    columns.push_back(json::object{{"name", c.name},
                                   {"address", c.address},
                                   {"type", c.type},
                                   {"shape", json::value_from(c.shape)},
                                   {"missing", c.missing},
                                   {"least", number(c.least)},
                                   {"greatest", number(c.greatest)},
                                   {"classes", c.classes ? json::value(*c.classes) : json::value(nullptr)},
                                   {"values", json::value_from(c.values)}});
  return columns;
}

}  // namespace harmonics::engine::cli
