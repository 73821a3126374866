// Decodes table rows as they arrive. The first two rows determine whether there is a header.
#include <algorithm>

#include <harmonics/quantity.hpp>

#include "wire/plain/cell_text.hpp"
#include "wire/plain/csv_scanner.hpp"
#include "wire/plain/held_bytes.hpp"
#include "wire/plain/record_decoder.hpp"

namespace harmonics::plain {
namespace {

using Texts = std::vector<std::string>;

bool is_cell_word(const std::string& cell) { return !number_in(cell) && !is_missing(cell); }

class CsvDecoder final : public RecordDecoder {
 public:
  explicit CsvDecoder(const DecoderOptions& options) : where_(options.where), header_(options.header) {
    if (header_ != "true" && header_ != "false" && header_ != "auto")
      throw Error(ErrorKind::Usage, where_ + ": header=" + header_ + " is neither true nor false");
    const std::string& d = options.delimiter;
    if (d == "tab" || d == "\t")
      delimiter_ = '\t';
    else if (d.size() == 1 && d != "\"" && d != "\n" && d != "\r" && d != " ")
      delimiter_ = d[0];
    else if (d != "auto")
      throw Error(ErrorKind::Usage, where_ + ": delimiter=" + d + " cannot be used")
          .note("write one character, or delimiter=tab");
  }

  void arrived(std::span<const std::byte> bytes) override { held_.add(bytes); }
  void flush() override { flushed_ = true; }
  size_t held() const override { return held_.size() + first_bytes_; }
  std::string_view raw() override { return raw_; }
  std::string_view header() const override { return has_header_ ? std::string_view(top_) : ""; }

  Next next(Record& record, std::string& reason) override {
    if (!failure_.empty()) return reason = failure_, Next::Broken;
    if (!topped_ && !read_top(record, reason))
      return reason.empty() ? Next::None : failure_.empty() ? Next::Refused : Next::Broken;
    if (waiting_) {  // the first row, if it is not a header
      waiting_ = false;
      first_bytes_ = 0;
      raw_ = top_;
      return take(first_, first_line_, record, reason);
    }
    Texts cells;
    if (const Next got = row(cells, record, reason); got != Next::Record) return got;
    return take(cells, row_line_, record, reason);
  }

 private:
  // Reads the first row, and the second if it is needed to recognize a header. Returns false if more bytes are needed
  // or on an error in `reason`.
  bool read_top(Record& record, std::string& reason) {
    reason.clear();
    if (first_.empty()) {
      if (row(first_, record, reason) != Next::Record) return false;
      first_line_ = row_line_;
      top_ = raw_;
      for (const std::string& cell : first_) first_bytes_ += cell.size();
      width_ = first_.size();
    }
    const bool any_word = std::any_of(first_.begin(), first_.end(), is_cell_word);
    const bool any_number =
        std::any_of(first_.begin(), first_.end(), [](const std::string& c) { return number_in(c).has_value(); });
    if (header_ == "false" || (header_ == "auto" && !any_word)) return begin(false);
    if (header_ == "true") return begin(true);
    if (any_number) return begin(false);  // a row with both words and numbers is data
    // A row of words only is a header if the next row has numbers.
    const std::string_view next = peek();
    if (next.empty()) {
      if (!flushed_) return false;
      flushed_ = false;
      return ambiguous(reason);
    }
    CsvScanner scanner(where_, next, delimiter_);
    std::vector<std::string_view> cells;
    try {
      if (!scanner.next(cells)) cells.clear();  // only a byte order mark
    } catch (const Error& e) {
      reason = e.what();
      raw_ = next;
      return pass_row(), false;
    }
    if (std::any_of(cells.begin(), cells.end(), [](std::string_view c) { return number_in(c).has_value(); }))
      return begin(true);
    return ambiguous(reason);
  }
  bool ambiguous(std::string& reason) {
    failure_ = reason =
        "line " + std::to_string(first_line_) +
        " may be a header or a row: there is no number in it or below; write header=true or header=false";
    raw_ = top_.append(held_.rest().substr(0, kMostRecord));
    return false;
  }
  bool begin(bool header) {
    topped_ = true;
    has_header_ = header;
    waiting_ = !header;
    for (size_t i = 0; i < width_; ++i) names_.push_back(header ? first_[i] : std::to_string(i));
    if (header) first_bytes_ = 0;
    return true;
  }

  // Returns the bytes of the next non-blank row without consuming it; empty: it is incomplete.
  std::string_view peek() {
    while (true) {
      const std::string_view rest = held_.rest();
      const size_t end = row_end(rest);
      if (end == std::string_view::npos) return {};
      const std::string_view row = rest.substr(0, end);
      if (!is_blank(row)) return row;
      pass_row();
    }
  }
  // As the scanner, which counts tabs as cells if they are delimiters. Before the first row they may be.
  bool is_blank(std::string_view row) const {
    if (has_mark(row)) row.remove_prefix(3);
    const bool tabs = delimiter_ == '\t' || delimiter_ == 0;
    return row.find_first_not_of(tabs ? " \r\n" : " \t\r\n") == std::string_view::npos;
  }
  // Returns whether the row begins with a byte order mark, which only the first line may have.
  bool has_mark(std::string_view row) const { return line_ == 1 && row.starts_with("\xEF\xBB\xBF"); }
  // Returns the offset after the first line end outside quotes. npos: the row is incomplete.
  size_t row_end(std::string_view text) {
    if (row_end_ > 0) return row_end_;
    if (looked_ == 0) quoted_ = false, fresh_ = true;
    for (; looked_ < text.size(); ++looked_) {
      const char c = text[looked_];
      if (quoted_) {
        if (c == '"') quoted_ = false, fresh_ = false, closed_ = true;
        continue;
      }
      if (c == '"' && (fresh_ || closed_)) quoted_ = true;  // a cell's first quote, or a doubled one
      closed_ = false;
      if (c == '\n') return row_end_ = looked_ + 1;
      if (c == delimiter_ || (delimiter_ == 0 && (c == ',' || c == ';' || c == '\t' || c == '|')))
        fresh_ = true;
      else if (c != ' ' && !(line_ == 1 && looked_ < 3 && c == "\xEF\xBB\xBF"[looked_]))
        fresh_ = false;
    }
    if (looked_ > kMostRecord) return row_end_ = looked_;
    if (flushed_ && !text.empty()) return row_end_ = text.size();
    return std::string_view::npos;
  }
  void pass_row() {
    const std::string_view row = held_.rest().substr(0, row_end_);
    line_ += static_cast<size_t>(std::count(row.begin(), row.end(), '\n'));
    held_.pass(row_end_);
    looked_ = row_end_ = 0;
  }

  // Reads the cells of the next row.
  Next row(Texts& cells, Record& record, std::string& reason) {
    const std::string_view text = peek();
    if (text.empty()) {
      flushed_ = false;
      return Next::None;
    }
    row_line_ = line_;
    record.place = "line " + std::to_string(row_line_);
    raw_ = text.size() > kMostRecord ? std::string_view() : text;
    if (text.size() > kMostRecord) {
      reason = record.place + ": a row is longer than " + std::to_string(kMostRecord) +
               " bytes, or a quoted cell has no end";
      return pass_row(), Next::Refused;
    }
    if (delimiter_ == 0) delimiter_ = most_frequent_delimiter(text);
    std::vector<std::string_view> views;
    try {
      CsvScanner scanner(where_, text, delimiter_);
      scanner.go_to(has_mark(text) ? 3 : 0, line_);
      const bool any = scanner.next(views);
      if (any && views.size() <= kMostFields && scanner.at() == text.size()) {
        cells.assign(views.begin(), views.end());
        return pass_row(), Next::Record;
      }
      reason =
          record.place + (views.size() > kMostFields ? ": more than " + std::to_string(kMostFields) + " cells"
                                                     : ": a carriage return within a row; lines end with a line feed");
    } catch (const Error& e) {
      reason = e.what();
    }
    return pass_row(), Next::Refused;
  }

  Next take(const Texts& cells, size_t line, Record& record, std::string& reason) {
    record.clear();
    record.numbered = true;
    record.place = "line " + std::to_string(line);
    if (cells.size() != width_) {
      reason = record.place + " has " + quantity(cells.size(), "cell") + ", line " + std::to_string(first_line_) +
               " has " + std::to_string(width_);
      return Next::Refused;
    }
    for (size_t i = 0; i < width_; ++i) take_cell(cells[i], record.add(names_[i]), record);
    return Next::Record;
  }
  static void take_cell(const std::string& cell, Field& field, Record& record) {
    if (is_missing(cell)) return;
    const auto number = number_in(cell);
    const bool truth =
        cell == "true" || cell == "false" || cell == "True" || cell == "False" || cell == "TRUE" || cell == "FALSE";
    field.kind = number || truth ? Field::Kind::Numbers : Field::Kind::Word;
    field.text = cell;
    if (field.kind == Field::Kind::Word) return;
    field.whole = truth || integer_in(cell).has_value();
    record.numbers.push_back(number ? *number : (cell[0] | 0x20) == 't');
    field.count = 1;
  }

  std::string where_, header_, failure_;
  char delimiter_ = 0;  // 0: the first row's
  HeldBytes held_;
  bool flushed_ = false, topped_ = false, waiting_ = false, has_header_ = false;
  std::string top_;  // bytes of the first row
  std::string_view raw_;
  size_t looked_ = 0, row_end_ = 0;
  bool quoted_ = false, fresh_ = true, closed_ = false;
  size_t line_ = 1, row_line_ = 1, first_line_ = 1, width_ = 0, first_bytes_ = 0;
  Texts first_, names_;
};

}  // namespace

std::unique_ptr<RecordDecoder> make_csv_decoder(const DecoderOptions& options) {
  return std::make_unique<CsvDecoder>(options);
}

}  // namespace harmonics::plain
