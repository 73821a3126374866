#include "producers/file/csv.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "producers/file/csv_scanner.hpp"

namespace harmonics {
namespace {

using Cells = std::vector<std::string_view>;

bool is_missing(std::string_view cell) {
  for (const std::string_view word : {"", "NA", "N/A", "NaN", "nan", "null", "NULL", "?"})
    if (cell == word) return true;
  return false;
}

std::optional<double> number(std::string_view cell) {
  if (!cell.empty() && cell[0] == '+') cell.remove_prefix(1);
  double value = 0;
  const auto [stop, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (stop != cell.data() + cell.size() || cell.empty()) return std::nullopt;
  return error == std::errc() ? value : std::numeric_limits<double>::infinity();
}

std::optional<int64_t> integer(std::string_view cell) {
  if (!cell.empty() && cell[0] == '+') cell.remove_prefix(1);
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc() || stop != cell.data() + cell.size()) return std::nullopt;
  return value;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < 20; ++i) text += (i ? ", " : "") + names[i];
  return names.size() > 20 ? text + ", ..." : text;
}

class CsvReader {
 public:
  CsvReader(const FileBytesPtr& file, const CsvOptions& options) : file_(file), options_(options) {
    check_word("header", options_.header, {"true", "false", "auto"});
    check_word("as", options_.as, {"number", "class", "auto"});
    delimiter_ = delimiter();
    read_top();
    select();
    survey();
  }

  ArrayLayout read() {
    if (columns_.size() > 1 || options_.as == "number" || (options_.as == "auto" && all_numbers_ && !all_integers_))
      return numbers();
    if (all_integers_ && options_.symbols.empty()) return integers();
    if (options_.as == "auto" && options_.symbols.empty() && some_numbers_)
      refuse_cell(odd_line_, columns_[0], "found '" + odd_ + "' among numbers",
                  "correct it, or read the column as words with as=class");
    return classes();
  }

 private:
  [[noreturn]] void refuse_option(const std::string& key, const std::string& value, const std::string& allowed) const {
    throw Error(ErrorKind::Usage, key + "=" + value + " cannot be used for '" + file_->name() + "'; write " + allowed);
  }
  void check_word(const char* key, const std::string& value, const std::vector<std::string>& words) const {
    if (std::find(words.begin(), words.end(), value) != words.end()) return;
    std::string all;
    for (const std::string& w : words) all += (all.empty() ? "" : " or ") + std::string(key) + "=" + w;
    refuse_option(key, value, all);
  }
  [[noreturn]] void refuse_cell(size_t line, size_t column, const std::string& what, const std::string& remedy) const {
    refuse_file(file_->name(),
                "line " + std::to_string(line) + ", column #" + std::to_string(column) +
                    (names_.empty() ? "" : " '" + names_[column] + "'") + ": " + what,
                remedy);
  }

  char delimiter() const {
    const std::string& d = options_.delimiter;
    if (d == "tab" || d == "\t") return '\t';
    if (d.size() == 1 && d != "\"" && d != "\n" && d != "\r" && d != " ") return d[0];
    if (d != "auto") refuse_option("delimiter", d, "one character, delimiter=tab, or delimiter=auto");
    const std::string_view first = file_->text().substr(0, file_->text().find('\n'));
    size_t most = 0;
    char best = ',';
    for (const char c : {',', '\t', ';', '|'}) {
      const auto n = static_cast<size_t>(std::count(first.begin(), first.end(), c));
      if (n > most) most = n, best = c;
    }
    return best;
  }

  void read_top() {
    CsvScanner scanner(file_->name(), file_->text(), delimiter_);
    Cells cells;
    if (!scanner.next(cells)) refuse_file(file_->name(), "has no rows");
    width_ = cells.size();
    first_line_ = scanner.line();
    std::vector<std::string> first(cells.begin(), cells.end());
    if (options_.header == "true" || (options_.header == "auto" && is_header(first, scanner)))
      names_ = std::move(first);
  }

  // A header is a first row of words alone over at least one number. Where both readings make sense the user must say.
  bool is_header(const std::vector<std::string>& first, CsvScanner& below) const {
    const auto word = [](const std::string& c) { return !number(c) && !is_missing(c); };
    const bool any_word = std::any_of(first.begin(), first.end(), word);
    const bool any_number =
        std::any_of(first.begin(), first.end(), [](const std::string& c) { return number(c).has_value(); });
    if (!any_word) return false;
    Cells cells;
    for (int row = 0; row < 100 && below.next(cells); ++row)
      for (size_t c = 0; c < std::min(cells.size(), first.size()); ++c) {
        if (!number(cells[c]) || !word(first[c])) continue;
        if (!any_number) return true;
        refuse_top("'" + first[c] + "' stands over numbers, beside numbers");
      }
    if (!any_number) refuse_top("no number stands in it or below");
    return false;
  }
  [[noreturn]] void refuse_top(const std::string& why) const {
    refuse_file(file_->name(), "line " + std::to_string(first_line_) + " may be a header or a row: " + why,
                "write header=true or header=false");
  }

  void select() {
    if (!options_.selection) {
      for (size_t i = 0; i < width_; ++i) columns_.push_back(i);
      return;
    }
    const std::string& text = *options_.selection;
    for (size_t at = 0; at <= text.size();) {
      const size_t comma = std::min(text.find(',', at), text.size());
      select_one(text.substr(at, comma - at));
      at = comma + 1;
    }
  }
  void select_one(const std::string& word) {
    const auto named = std::find(names_.begin(), names_.end(), word);
    if (named != names_.end()) {
      if (std::find(named + 1, names_.end(), word) != names_.end())
        refuse_file(file_->name(), "has several columns named '" + word + "'",
                    "select by number, '#" + std::to_string(named - names_.begin()) + "' is the first");
      columns_.push_back(static_cast<size_t>(named - names_.begin()));
      return;
    }
    const size_t dash = word.find('-', 1);
    const auto first = integer(word.substr(0, std::min(dash, word.size())));
    const auto last = dash == std::string::npos ? first : integer(word.substr(dash + 1));
    if (!first || !last || *first < 0)
      refuse_file(file_->name(), "has no column '" + word + "'",
                  names_.empty() ? "it has no header line, its columns are #0 to #" + std::to_string(width_ - 1)
                                 : "its columns are: " + joined(names_));
    if (*last < *first || static_cast<size_t>(*last) >= width_)
      refuse_file(file_->name(), "has no columns #" + word, "its columns are #0 to #" + std::to_string(width_ - 1));
    for (int64_t i = *first; i <= *last; ++i) columns_.push_back(static_cast<size_t>(i));
  }

  // One pass over all rows: their number, their widths, missing cells, and what a single column holds.
  void survey() {
    each_row([&](size_t line, const Cells& cells) {
      ++rows_;
      for (const size_t c : columns_)
        if (is_missing(cells[c]) && !options_.missing)
          refuse_cell(
              line, c,
              cells[c].empty() ? "the value is missing" : "the value is missing: '" + std::string(cells[c]) + "'",
              "give missing=VALUE to stand in for it, or select other columns with '#NAME,NAME'");
      if (columns_.size() == 1) survey_cell(line, cell(cells, columns_[0]));
    });
    if (rows_ == 0) refuse_file(file_->name(), "has a header and no rows");
  }
  void survey_cell(size_t line, std::string_view cell) {
    const bool is_number = number(cell).has_value();
    some_numbers_ = some_numbers_ || is_number;
    if (!is_number && all_numbers_) odd_line_ = line, odd_ = cell;
    all_numbers_ = all_numbers_ && is_number;
    all_integers_ = all_integers_ && integer(cell);
  }

  template <typename Body>
  void each_row(Body&& body) const {
    CsvScanner scanner(file_->name(), file_->text(), delimiter_);
    Cells cells;
    if (!names_.empty()) scanner.next(cells);
    while (scanner.next(cells)) {
      if (cells.size() != width_)
        refuse_file(file_->name(),
                    "line " + std::to_string(scanner.line()) + " has " + std::to_string(cells.size()) +
                        (cells.size() == 1 ? " cell" : " cells") + ", line " + std::to_string(first_line_) + " has " +
                        std::to_string(width_),
                    "every row needs the same number of cells");
      body(scanner.line(), cells);
    }
  }
  std::string_view cell(const Cells& cells, size_t column) const {
    return options_.missing && is_missing(cells[column]) ? std::string_view(*options_.missing) : cells[column];
  }

  ArrayLayout layout(DType dtype, const std::shared_ptr<FileBytes>& bytes) const {
    ArrayLayout out;
    out.bytes = bytes;
    out.dtype = dtype;
    if (columns_.size() > 1) out.sample.push_back(static_cast<int64_t>(columns_.size()));
    out.count = rows_;
    return out;
  }

  ArrayLayout numbers() const {
    const auto bytes =
        FileBytes::reserve(file_->name(), array_bytes(file_->name(), DType::F32, {rows_, columns_.size()}));
    auto* to = reinterpret_cast<float*>(bytes->writable());
    each_row([&](size_t line, const Cells& cells) {
      for (const size_t c : columns_) {
        const std::string_view text = cell(cells, c);
        const auto value = number(text);
        if (!value)
          refuse_cell(line, c, "found '" + std::string(text) + "' where a number is expected",
                      "select columns of numbers with '#NAME,NAME', or a column of words alone to read classes");
        if (!std::isfinite(static_cast<float>(*value)))
          refuse_cell(line, c, "found '" + std::string(text) + "', which is no finite f32 number", "correct it");
        *to++ = static_cast<float>(*value);
      }
    });
    return layout(DType::F32, bytes);
  }

  ArrayLayout integers() const {
    const auto bytes = FileBytes::reserve(file_->name(), array_bytes(file_->name(), DType::I64, {rows_}));
    auto* to = reinterpret_cast<int64_t*>(bytes->writable());
    each_row([&](size_t, const Cells& cells) { *to++ = *integer(cell(cells, columns_[0])); });
    return layout(DType::I64, bytes);
  }

  ArrayLayout classes() const {
    std::map<std::string, int64_t, std::less<>> index;
    std::vector<std::string> symbols = options_.symbols;
    if (symbols.empty()) {
      each_row([&](size_t, const Cells& cells) {
        const std::string_view word = cell(cells, columns_[0]);
        if (index.find(word) == index.end()) index.emplace(word, 0);
      });
      for (const auto& [word, unused] : index) symbols.push_back(word);
    }
    for (size_t i = 0; i < symbols.size(); ++i) index[symbols[i]] = static_cast<int64_t>(i);
    const auto bytes = FileBytes::reserve(file_->name(), array_bytes(file_->name(), DType::I64, {rows_}));
    auto* to = reinterpret_cast<int64_t*>(bytes->writable());
    each_row([&](size_t line, const Cells& cells) {
      const auto at = index.find(cell(cells, columns_[0]));
      if (at == index.end())
        refuse_cell(line, columns_[0],
                    "found '" + std::string(cell(cells, columns_[0])) + "', which symbols= does not list",
                    "the symbols are: " + joined(symbols));
      *to++ = at->second;
    });
    ArrayLayout out = layout(DType::I64, bytes);
    out.symbols = symbols;
    return out;
  }

  FileBytesPtr file_;
  const CsvOptions& options_;
  char delimiter_ = ',';
  std::vector<std::string> names_;  // empty: no header
  std::vector<size_t> columns_;
  size_t width_ = 0, first_line_ = 1, rows_ = 0;
  bool all_numbers_ = true, all_integers_ = true, some_numbers_ = false;
  size_t odd_line_ = 0;
  std::string odd_;  // the first cell of a single column that is no number
};

}  // namespace

ArrayLayout read_csv(const FileBytesPtr& file, const CsvOptions& options) { return CsvReader(file, options).read(); }

}  // namespace harmonics
