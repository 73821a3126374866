#include "producers/file/csv.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <harmonics/quantity.hpp>

#include "producers/file/near_name.hpp"
#include "producers/file/plain_number.hpp"
#include "producers/file/select.hpp"
#include "wire/plain/csv_scanner.hpp"

namespace harmonics {
namespace {

using Cells = std::vector<std::string_view>;

constexpr uint64_t bytes_of_a_column = 128;  // name, number, index among the selected columns, cell

class CsvRows final : public TableRows {
 public:
  CsvRows(const FileBytesPtr& file, const CsvOptions& options)
      : file_(file),
        options_(options),
        text_(file->text()),
        delimiter_(delimiter()),
        scanner_(file->name(), text_, delimiter_) {
    check_word("header", options.header, {"true", "false", "auto"});
    check_word("as", options.as, {"number", "class", "auto"});
    read_top();
    select();
    slot_.resize(width_, -1);
    for (size_t i = 0; i < columns_.size(); ++i) {
      twice_ = twice_ || slot_[columns_[i]] >= 0;
      slot_[columns_[i]] = static_cast<int32_t>(i);
    }
    for (const char c : {delimiter_, '\n', '\r', '"', '\0'}) special_[static_cast<uint8_t>(c)] = true;
    chosen_.resize(columns_.size());
  }

  const FileBytesPtr& file() const override { return file_; }
  RowPlace first() const override { return first_; }
  size_t cells() const override { return columns_.size(); }
  Shape sample() const override { return columns_.size() > 1 ? Shape{static_cast<int64_t>(columns_.size())} : Shape{}; }
  size_t line() const override { return line_; }
  std::string name_of(size_t cell) const override {
    const size_t c = columns_[cell];
    return "column #" + std::to_string(c) + (names_.empty() ? "" : " '" + names_[c] + "'");
  }

  bool read(RowPlace& place, Cell* cells) override {
    if (!read_plain(place) && !read_any(place)) return false;
    for (size_t i = 0; i < columns_.size(); ++i) cells[i] = cell_of(chosen_[i]);
    return true;
  }

  bool read_numbers(RowPlace& place, float* to, bool whole) override {
    if (twice_) return false;
    const char *p = text_.data() + place.at, *const end = text_.data() + text_.size();
    const char delimiter = delimiter_;
    const int32_t* const slots = slot_.data();
    for (size_t c = 0, last = width_ - 1;; ++c) {
      if (slots[c] < 0) {
        p = pass_plain(p, end);
      } else {
        float value = 0;
        const char* const start = p;
        p = plain_number(p, end, value);
        if (!p || (whole && std::find(start, p, '.') != p)) return false;
        to[slots[c]] = value;
      }
      if (c == last) break;
      if (p == end || *p++ != delimiter) return false;
    }
    return end_row(p, end, place);
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

  char delimiter() const {
    const std::string& d = options_.delimiter;
    if (d == "tab" || d == "\t") return '\t';
    if (d.size() == 1 && d != "\"" && d != "\n" && d != "\r" && d != " ") return d[0];
    if (d != "auto") refuse_option("delimiter", d, "one character, delimiter=tab, or delimiter=auto");
    return most_frequent_delimiter(text_);
  }

  void read_top() {
    Cells cells;
    first_ = {scanner_.at(), scanner_.next_line()};
    if (!scanner_.next(cells)) refuse_file(file_->name(), "has no rows");
    width_ = cells.size();
    first_line_ = scanner_.line();
    file_->budget()->take(width_, bytes_of_a_column, "'" + file_->name() + "'",
                          "the " + quantity(width_, "column") + " of line " + std::to_string(first_line_));
    const RowPlace second{scanner_.at(), scanner_.next_line()};
    std::vector<std::string> first(cells.begin(), cells.end());
    if (options_.header == "true" || (options_.header == "auto" && is_header(first))) {
      names_ = std::move(first);
      first_ = second;
      scanner_.go_to(second.at, second.line);
      if (!scanner_.next(cells)) refuse_file(file_->name(), "has a header but no rows");
    }
  }

  // Recognizes a header: a first row of words only, above at least one number. Ambiguous files need an explicit option.
  bool is_header(const std::vector<std::string>& first) {
    const auto word = [](const std::string& c) { return !number_in(c) && !is_missing(c); };
    const bool any_word = std::any_of(first.begin(), first.end(), word);
    const bool any_number =
        std::any_of(first.begin(), first.end(), [](const std::string& c) { return number_in(c).has_value(); });
    if (!any_word) return false;
    Cells cells;
    for (int row = 0; row < 100 && scanner_.next(cells); ++row)
      for (size_t c = 0; c < std::min(cells.size(), first.size()); ++c) {
        if (!number_in(cells[c]) || !word(first[c])) continue;
        if (!any_number) return true;
        refuse_top("'" + first[c] + "' is above numbers, beside numbers");
      }
    if (!any_number) refuse_top("there is no number in it or below");
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
    const auto first = integer_in(word.substr(0, std::min(dash, word.size())));
    const auto last = dash == std::string::npos ? first : integer_in(word.substr(dash + 1));
    if (const size_t option = word.find('?'); option != std::string::npos && (!first || !last))
      refuse_file(file_->name(), "has no column '" + word + "'",
                  "options are written before '#': '" + file_->name() + word.substr(option) + "#" +
                      word.substr(0, option) + "'");
    if (!first || !last || *first < 0)
      refuse_file(file_->name(), "has no column '" + word + "'",
                  names_.empty() ? "it has no header line, its columns are #0 to #" + std::to_string(width_ - 1)
                                 : "its columns are: " + listed(names_) + meant_name(word, names_));
    if (*last < *first || static_cast<size_t>(*last) >= width_)
      refuse_file(file_->name(), "has no columns #" + word, "its columns are #0 to #" + std::to_string(width_ - 1));
    for (int64_t i = *first; i <= *last; ++i) columns_.push_back(static_cast<size_t>(i));
  }

  static Cell cell_of(std::string_view text) {
    Cell cell;
    cell.text = text;
    if (is_missing(text)) return cell;
    if (const auto integer = integer_in(text)) {
      cell.kind = Cell::Kind::Integer;
      cell.integer = *integer;
      // "-0" is a negative zero, as where read_numbers() reads it.
      cell.number = *integer == 0 && text[0] == '-' ? -0.0 : static_cast<double>(*integer);
    } else if (const auto number = number_in(text)) {
      cell.kind = Cell::Kind::Number;
      cell.number = *number;
    } else {
      cell.kind = Cell::Kind::Word;
    }
    return cell;
  }

  // Returns the next special character. Compares 16 at a time; candidates are those up to '\r'.
  const char* pass_plain(const char* p, const char* end) const {
#ifdef __SSE2__
    const __m128i delimiter = _mm_set1_epi8(delimiter_), quote = _mm_set1_epi8('"'), control = _mm_set1_epi8('\r');
    for (; end - p >= 16; p += 16) {
      const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
      const __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(text, control), text);
      const __m128i found =
          _mm_or_si128(low, _mm_or_si128(_mm_cmpeq_epi8(text, delimiter), _mm_cmpeq_epi8(text, quote)));
      for (auto mask = static_cast<uint32_t>(_mm_movemask_epi8(found)); mask != 0; mask &= mask - 1)
        if (const char* at = p + std::countr_zero(mask); special_[static_cast<uint8_t>(*at)]) return at;
    }
#endif
    while (p < end && !special_[static_cast<uint8_t>(*p)]) ++p;
    return p;
  }

  // If a row may end at p, advances `place` past it and returns true.
  bool end_row(const char* p, const char* end, RowPlace& place) {
    if (p < end && *p == '\r') {
      ++p;
      if (p < end && *p == '\n') ++p;
    } else if (p < end && *p == '\n') {
      ++p;
    } else if (p != end) {
      return false;
    }
    line_ = place.line++;
    place.at = static_cast<size_t>(p - text_.data());
    return true;
  }

  // Reads the selected cells of a row without quotes and with the right number of cells. Returns false for other rows
  // and at the end.
  bool read_plain(RowPlace& place) {
    const char *p = text_.data() + place.at, *const end = text_.data() + text_.size();
    // A single cell of blanks is a blank line, and a line end begins one.
    if (twice_ || p == end || *p == '\n' || *p == '\r' || (width_ == 1 && (*p == ' ' || *p == '\t'))) return false;
    for (size_t c = 0; c < width_; ++c) {
      const char* start = p;
      p = pass_plain(p, end);
      if (slot_[c] >= 0) {
        const char* stop = p;
        while (start < stop && *start == ' ') ++start;
        while (start < stop && stop[-1] == ' ') --stop;
        chosen_[static_cast<size_t>(slot_[c])] = std::string_view(start, static_cast<size_t>(stop - start));
      }
      if (c + 1 < width_ && (p == end || *p++ != delimiter_)) return false;
    }
    return end_row(p, end, place);
  }

  bool read_any(RowPlace& place) {
    scanner_.go_to(place.at, place.line);
    if (!scanner_.next(row_)) return false;
    line_ = scanner_.line();
    if (row_.size() != width_)
      refuse_file(file_->name(),
                  "line " + std::to_string(line_) + " has " + quantity(row_.size(), "cell") + ", line " +
                      std::to_string(first_line_) + " has " + std::to_string(width_),
                  "every row needs the same number of cells");
    for (size_t i = 0; i < columns_.size(); ++i) chosen_[i] = row_[columns_[i]];
    place = {scanner_.at(), scanner_.next_line()};
    return true;
  }

  FileBytesPtr file_;
  CsvOptions options_;
  std::string_view text_;
  char delimiter_;
  CsvScanner scanner_;
  std::vector<std::string> names_;  // column names; empty: no header
  std::vector<size_t> columns_;
  std::vector<int32_t> slot_;  // by column of the file: index among the selected ones, -1: not selected
  bool twice_ = false;         // a column is selected more than once
  size_t width_ = 0, first_line_ = 1, line_ = 0;
  RowPlace first_;
  std::array<bool, 256> special_{};
  Cells chosen_, row_;
};

}  // namespace

std::unique_ptr<TableRows> csv_rows(const FileBytesPtr& file, const CsvOptions& options) {
  return std::make_unique<CsvRows>(file, options);
}

}  // namespace harmonics
