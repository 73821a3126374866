#include "producers/file/table.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <set>

#include <harmonics/quantity.hpp>

#include "producers/file/array.hpp"
#include "formats/utf8.hpp"
#include "producers/file/characters.hpp"
#include "producers/file/part.hpp"
#include "producers/file/raw.hpp"
#include "producers/file/select.hpp"

namespace harmonics {
namespace {

constexpr uint64_t bytes_to_index = 1024;  // bytes of samples between two indexed rows
constexpr uint64_t bytes_of_a_word = 256;  // memory of a class besides its letters, in lists and maps

enum class Kind { Numbers, Integers, Classes };

// Converts rows to samples and collects statistics over all rows.
class Table {
 public:
  Table(std::unique_ptr<TableRows> rows, const TableOptions& options) : rows_(std::move(rows)), options_(options) {
    expect_room();
    cells_.resize(rows_->cells());
    missing_.resize(cells_.size());
    read_missing_option();
    read_dtype();
    kind_ = kind_of_column();
    if (kind_ == Kind::Classes && symbols_.empty()) collect_symbols();
    for (size_t i = 0; i < symbols_.size(); ++i) classes_[symbols_[i]] = static_cast<int64_t>(i);
    info_.dtype = kind_ == Kind::Numbers ? dtype_ : DType::I64;
    info_.sample = kind_ == Kind::Numbers && !options_.shape.empty() ? asked_shape() : rows_->sample();
    info_.symbols = symbols_;
    info_.classes = static_cast<int64_t>(symbols_.size());
    bytes_ = info_.sample_bytes();
    stride_ = std::max<uint64_t>(1, bytes_to_index / bytes_);
  }

  // Reads all rows. Returns the samples' bytes if they are small enough to keep, else null.
  std::shared_ptr<FileBytes> read_all() {
    const FileBytesPtr& file = rows_->file();
    const uint64_t most = std::min<uint64_t>(options_.kept, file->budget()->left());
    auto kept = FileBytes::reserve(file->name(), most, file->budget());
    std::vector<uint8_t> passing(bytes_);
    RowPlace place = rows_->first();
    for (;; ++count_) {
      const RowPlace begin = place;
      const bool fits = kept && bytes_ <= most && count_ < most / bytes_;
      if (!fits) kept.reset();
      if (!encode(place, fits ? kept->writable() + count_ * bytes_ : passing.data())) break;
      if (count_ % stride_ == 0) index_.push_back(begin);
    }
    if (count_ == 0) refuse_file(file->name(), "has no rows");
    if (kept) {
      kept->shrink(count_ * bytes_);
      kept->charge(count_ * bytes_, "its samples");
    }
    fill_with_means(kept.get());
    note_missing();
    const bool classes = kind_ == Kind::Integers || (dtype_ != DType::F32 && info_.sample.rank() == 0);
    const bool countable = least_ >= 0 && most_ < std::numeric_limits<int64_t>::max();
    if (classes && symbols_.empty()) info_.classes = countable ? most_ + 1 : 0;
    reading_again_ = true;
    return kept;
  }

  // Encodes the row at `place` as a sample. Returns false at the end.
  bool encode(RowPlace& place, void* to) {
    if (kind_ == Kind::Numbers) {
      auto* numbers = dtype_ == DType::F32 ? static_cast<float*>(to) : wide_.data();
      if (!encode_numbers(place, numbers)) return false;
      if (dtype_ != DType::F32) narrow(numbers, to);
      return true;
    }
    if (!rows_->read(place, cells_.data())) return false;
    const int64_t value = kind_ == Kind::Integers ? integer_of() : class_of();
    std::memcpy(to, &value, sizeof value);
    return true;
  }

  const StreamInfo& info() const { return info_; }
  uint64_t count() const { return count_; }
  size_t bytes() const { return bytes_; }
  const FileBytes& file() const { return *rows_->file(); }
  // Returns the indexed row at or before `row`, and sets `row` to its number.
  RowPlace indexed(uint64_t& row) const {
    const RowPlace place = index_[row / stride_];
    row -= row % stride_;
    return place;
  }

 private:
  [[noreturn]] void refuse(size_t cell, const std::string& what, const std::string& remedy) const {
    refuse_file(rows_->file()->name(), place_of(cell) + ": " + what, remedy);
  }

  std::string place_of(size_t cell) const {
    return "line " + std::to_string(rows_->line()) + ", " + rows_->name_of(cell);
  }

  // Checks the memory budget before allocating the memory of a row.
  void expect_room() const {
    constexpr uint64_t each = sizeof(Cell) + sizeof(std::string_view) + 3 * sizeof(uint64_t) + 3 * sizeof(float);
    Budget& budget = *rows_->file()->budget();
    budget.take(rows_->cells(), each, "'" + rows_->file()->name() + "'",
                "the " + quantity(rows_->cells(), "cell") + " of a row");
  }

  void read_missing_option() {
    if (!options_.missing) return;
    stand_in_.text = *options_.missing;
    if (const auto value = number_in(stand_in_.text)) {
      const auto integer = integer_in(stand_in_.text);
      stand_in_.kind = integer ? Cell::Kind::Integer : Cell::Kind::Number;
      stand_in_.number = *value;
      stand_in_.integer = integer.value_or(0);
    } else {
      stand_in_.kind = Cell::Kind::Word;
    }
    means_ = *options_.missing == "mean";
    if (means_) sums_.resize(cells_.size()), counts_.resize(cells_.size()), fill_.resize(cells_.size(), NAN);
    not_a_number_ = *options_.missing == "nan";
  }

  void read_dtype() {
    if (options_.dtype.empty()) {
      // Non-integral substitutes make the column real; the user of the indices reports that.
      if (!options_.indices || options_.as == "number" || rows_->sample().rank() == 0 || means_ || not_a_number_)
        return;
      dtype_ = DType::I32;
      wide_.resize(cells_.size());
      return;
    }
    const auto dtype = dtype_named(options_.dtype);
    for (const DType offered : {DType::F32, DType::U8, DType::I8, DType::U16, DType::I16, DType::I32})
      if (dtype == offered) dtype_ = offered;
    if (dtype != dtype_)
      throw Error(ErrorKind::Usage, "dtype=" + options_.dtype + " of '" + rows_->file()->name() +
                                        "' is not a type for table cells; write dtype=f32, u8, i8, u16, i16 or i32");
    if (dtype_ == DType::F32) return;
    if (means_ || not_a_number_)
      throw Error(ErrorKind::Usage, "missing=" + *options_.missing + " of '" + rows_->file()->name() + "' makes no " +
                                        options_.dtype + "; give a whole number, or leave dtype= out");
    wide_.resize(cells_.size());
  }

  Shape asked_shape() const {
    const Shape shape = shape_named(options_.shape, rows_->file()->name());
    if (shape.count() != static_cast<int64_t>(cells_.size()))
      throw Error(ErrorKind::Usage, "shape=" + options_.shape + " of '" + rows_->file()->name() + "' is one of " +
                                        std::to_string(shape.count()) + " numbers, a row has " +
                                        std::to_string(cells_.size()));
    return shape;
  }

  bool encode_numbers(RowPlace& place, float* to) {
    if (!rows_->read_numbers(place, to, dtype_ != DType::F32)) {
      if (!rows_->read(place, cells_.data())) return false;
      for (size_t i = 0; i < cells_.size(); ++i) to[i] = number_of(i);
    }
    if (means_) add_to_means(to);
    return true;
  }

  // Returns false if one of the N numbers is not representable in T. A constant N allows vector instructions.
  template <size_t N, typename T>
  bool narrow_block(const float* numbers, T* out) {
    // Cells are f32, which is inexact for integers from 2^24 on.
    constexpr auto low = std::max(static_cast<float>(std::numeric_limits<T>::min()), -16777215.0f),
                   high = std::min(static_cast<float>(std::numeric_limits<T>::max()), 16777215.0f);
    int32_t whole[N], wrong = 0;
    for (size_t i = 0; i < N; ++i) {
      const float bounded = numbers[i] > low ? (numbers[i] < high ? numbers[i] : high) : low;
      whole[i] = static_cast<int32_t>(bounded);
      wrong |= -static_cast<int32_t>(static_cast<float>(whole[i]) != numbers[i]);
    }
    if (wrong) return false;
    for (size_t i = 0; i < N; ++i) out[i] = static_cast<T>(whole[i]);
    if (reading_again_) return true;
    int32_t least = whole[0], most = whole[0];
    for (size_t i = 1; i < N; ++i) least = std::min(least, whole[i]), most = std::max(most, whole[i]);
    count_class(least), count_class(most);
    return true;
  }
  template <typename T>
  void narrow_to(const float* numbers, void* to) {
    constexpr size_t block = 16;
    auto* out = static_cast<T*>(to);
    size_t i = 0;
    while (i + block <= cells_.size() && narrow_block<block>(numbers + i, out + i)) i += block;
    for (; i < cells_.size(); ++i)
      if (!narrow_block<1>(numbers + i, out + i)) refuse_narrow(i, static_cast<double>(numbers[i]));
  }
  [[noreturn]] void refuse_narrow(size_t i, double number) const {
    Cell cell;
    cell.kind = Cell::Kind::Number;
    cell.number = number;
    if (options_.dtype.empty())
      refuse(i, "found '" + text_of(cell) + "', which is not an index", "the flow takes these cells as whole numbers");
    refuse(i, "found '" + text_of(cell) + "', which " + options_.dtype + " cannot represent",
           "leave dtype= out, or give one that can represent it");
  }
  void narrow(const float* numbers, void* to) {
    if (dtype_ == DType::U8) return narrow_to<uint8_t>(numbers, to);
    if (dtype_ == DType::I8) return narrow_to<int8_t>(numbers, to);
    if (dtype_ == DType::U16) return narrow_to<uint16_t>(numbers, to);
    if (dtype_ == DType::I32) return narrow_to<int32_t>(numbers, to);
    narrow_to<int16_t>(numbers, to);
  }

  // Returns the kind of a single column. Several columns are numbers.
  Kind kind_of_column() {
    if (rows_->sample().rank() > 0 || options_.as == "number" || !options_.dtype.empty()) return Kind::Numbers;
    symbols_ = options_.symbols;
    if (options_.as == "class" && !symbols_.empty() && !options_.learned) return Kind::Classes;
    bool all_numbers = true, all_integers = true, some_numbers = false, all_learned = true;
    std::set<std::string> learned;
    if (options_.learned) learned.insert(symbols_.begin(), symbols_.end());
    std::string odd_place, odd;
    for (RowPlace place = rows_->first(); rows_->read(place, cells_.data());) {
      const Cell& cell = present(0);
      const bool number = cell.kind != Cell::Kind::Word || fill_in_numbers(cell);
      some_numbers = some_numbers || number;
      if (!number && all_numbers) odd_place = place_of(0), odd = cell.text;
      all_numbers = all_numbers && number;
      all_integers = all_integers && cell.kind == Cell::Kind::Integer;
      all_learned = all_learned && all_integers && learned.count(text_of(cell)) > 0;
    }
    if (options_.learned && all_integers && !all_learned) symbols_.clear();  // class indices in place of words
    if (options_.as == "auto" && all_numbers && !all_integers) return Kind::Numbers;
    if (all_integers && symbols_.empty()) return Kind::Integers;
    if (options_.as == "auto" && symbols_.empty() && some_numbers)
      refuse_file(rows_->file()->name(), odd_place + ": found '" + odd + "' among numbers",
                  "correct it, or read the column as words with as=class");
    return Kind::Classes;
  }

  void collect_symbols() {
    std::map<std::string, int64_t, std::less<>> found;
    Budget& budget = *rows_->file()->budget();
    for (RowPlace place = rows_->first(); rows_->read(place, cells_.data());) {
      const std::string word = text_of(present(0));
      if (found.find(word) != found.end()) continue;
      if (const auto bad = find_invalid_utf8(word))
        refuse(0,
               "the class '" + shown_bytes(word) + "' is not UTF-8: its byte " + std::to_string(*bad) +
                   " does not begin a character",
               convert_to_utf8);
      budget.take(2 * word.size() + bytes_of_a_word, "'" + rows_->file()->name() + "'",
                  "the words that are its classes");
      found.emplace(word, 0);
    }
    for (const auto& [word, unused] : found) symbols_.push_back(word);
  }

  bool fill_in_numbers(const Cell& cell) const { return &cell == &stand_in_ && (means_ || not_a_number_); }

  // Returns the cell, or its substitute if it is missing.
  const Cell& present(size_t i) const {
    const Cell& cell = cells_[i];
    if (cell.kind != Cell::Kind::Missing) return cell;
    if (!options_.missing)
      refuse(i, cell.text.empty() ? "the value is missing" : "the value is missing: '" + std::string(cell.text) + "'",
             "give missing=VALUE (or mean, nan) to replace it, or select other columns with '#NAME,NAME'");
    return stand_in_;
  }

  float number_of(size_t i) {
    const Cell& cell = present(i);
    if (&cell == &stand_in_) {
      if (!reading_again_) ++missing_[i];
      if (means_) return fill_[i];
      if (not_a_number_) return NAN;
    }
    double value = cell.number;
    if (cell.kind == Cell::Kind::Word) {
      const std::string word = lower(cell.text);
      if (const size_t comma = word.find(',');
          comma != std::string::npos && word.find_first_not_of("0123456789+-.,e") == std::string::npos)
        refuse(i, "found '" + std::string(cell.text) + "' where a number is expected",
               "write numbers with a decimal point and without separators of thousands");
      if (word != "true" && word != "false")
        refuse(i, "found '" + std::string(cell.text) + "' where a number is expected",
               "select columns of numbers with '#NAME,NAME', or a column of words alone to read classes");
      value = word == "true";
    }
    if (dtype_ != DType::F32 && value != std::trunc(value)) refuse_narrow(i, value);  // f32 may round it to an integer
    const auto number = static_cast<float>(value);
    if (!std::isfinite(number))
      refuse(i, "found '" + text_of(cell) + "', which is not a finite f32 number", "correct it");
    return number;
  }

  int64_t integer_of() {
    const Cell& cell = present(0);
    if (!reading_again_) count_missing(cell);
    count_class(cell.integer);
    return cell.integer;
  }

  int64_t class_of() {
    const Cell& cell = present(0);
    if (!reading_again_) count_missing(cell);
    const auto at = cell.kind == Cell::Kind::Word ? classes_.find(cell.text) : classes_.find(text_of(cell));
    if (at == classes_.end() && options_.learned)
      refuse(0, "found '" + text_of(cell) + "', which is unknown to the weights", learned_words(symbols_));
    if (at == classes_.end())
      refuse(0, "found '" + text_of(cell) + "', which symbols= does not list", "the symbols are: " + listed(symbols_));
    return at->second;
  }
  void count_class(int64_t number) {
    if (reading_again_) return;
    least_ = std::min(least_, number);
    most_ = std::max(most_, number);
  }
  void count_missing(const Cell& cell) { missing_[0] += &cell == &stand_in_; }

  void add_to_means(const float* numbers) {
    if (reading_again_) return;
    for (size_t i = 0; i < sums_.size(); ++i)
      if (!std::isnan(numbers[i])) sums_[i] += static_cast<double>(numbers[i]), ++counts_[i];
  }

  // Notes "'x.csv': 177 of 891 values of column #3 'age' are missing and read as 29.7".
  void note_missing() {
    size_t columns = 0;
    for (size_t i = 0; i < missing_.size(); ++i) {
      if (missing_[i] == 0 || ++columns > 5) continue;
      char mean[32];
      std::snprintf(mean, sizeof mean, "%g", means_ ? static_cast<double>(fill_[i]) : 0.0);
      info_.notes += (info_.notes.empty() ? "" : "\n") + std::string("'") + rows_->file()->name() +
                     "': " + std::to_string(missing_[i]) + " of " + std::to_string(count_) + " values of " +
                     rows_->name_of(i) + " are missing and read as " +
                     (means_ ? "their mean, " + std::string(mean) : *options_.missing);
    }
    if (columns > 5)
      info_.notes += "\n'" + rows_->file()->name() + "': values are missing in " + std::to_string(columns - 5) +
                     " further columns";
  }

  void fill_with_means(FileBytes* kept) {
    if (!means_ || kind_ != Kind::Numbers) return;
    for (size_t i = 0; i < sums_.size(); ++i) {
      if (counts_[i] == 0)
        refuse_file(rows_->file()->name(), "has no value in " + rows_->name_of(i) + ", so there is no mean",
                    "select other columns with '#NAME,NAME'");
      fill_[i] = static_cast<float>(sums_[i] / static_cast<double>(counts_[i]));
    }
    if (!kept) return;
    auto* numbers = reinterpret_cast<float*>(kept->writable());
    for (uint64_t row = 0; row < count_; ++row, numbers += fill_.size())
      for (size_t i = 0; i < fill_.size(); ++i)
        if (std::isnan(numbers[i])) numbers[i] = fill_[i];
  }

  std::unique_ptr<TableRows> rows_;
  TableOptions options_;
  std::vector<Cell> cells_;
  Kind kind_ = Kind::Numbers;
  DType dtype_ = DType::F32;  // of numeric samples
  std::vector<float> wide_;   // a row of numbers before conversion to an integer type
  Cell stand_in_;             // substitute for missing cells
  bool means_ = false, not_a_number_ = false, reading_again_ = false;
  std::vector<uint64_t> missing_;  // missing cells per column
  std::vector<double> sums_;
  std::vector<uint64_t> counts_;
  std::vector<float> fill_;  // means, once they are computed
  std::vector<std::string> symbols_;
  std::map<std::string, int64_t, std::less<>> classes_;
  int64_t least_ = 0, most_ = -1;
  uint64_t stride_ = 1;
  std::vector<RowPlace> index_;  // every stride_-th row
  uint64_t count_ = 0;
  StreamInfo info_;
  size_t bytes_ = 0;
};

// Reads rows from the text on demand.
class TableProducer final : public Producer {
 public:
  TableProducer(std::unique_ptr<Table> table, uint64_t first, uint64_t last)
      : table_(std::move(table)), info_(table_->info()), first_(first) {
    info_.size = last - first;
    rewind();
  }
  HTensor next() override {
    HTensor sample(info_.dtype, info_.sample);
    return read(1, sample.mutable_bytes()) ? sample : HTensor();
  }
  std::size_t size() const override { return info_.size; }
  bool rewind() override { return go_to(0), true; }
  bool seek(uint64_t, uint64_t index) override { return index <= info_.size && (go_to(index), true); }
  std::optional<StreamInfo> describe() override { return info_; }
  int64_t read(uint64_t n, void* to) override {
    n = std::min(n, info_.size - at_);
    if (n) table_->file().check();
    auto* bytes = static_cast<uint8_t*>(to);
    return read_whole(table_->file(), [&] {
      for (uint64_t i = 0; i < n; ++i, bytes += table_->bytes()) read_row(place_, bytes);
      at_ += n;
      return static_cast<int64_t>(n);
    });
  }
  bool read_at(const uint64_t* numbers, uint64_t n, void* to) override {
    if (n) table_->file().check();
    auto* bytes = static_cast<uint8_t*>(to);
    return read_whole(table_->file(), [&] {
      for (uint64_t i = 0; i < n; ++i, bytes += table_->bytes()) {
        RowPlace place = place_of(numbers[i], bytes);
        read_row(place, bytes);
      }
      return true;
    });
  }

 private:
  void read_row(RowPlace& place, void* to) {
    if (!table_->encode(place, to)) refuse_file(table_->file().name(), "changed while it was read");
  }
  // Walks forward from the nearest indexed row. `scratch` has room for one sample.
  RowPlace place_of(uint64_t sample, void* scratch) {
    uint64_t at = first_ + sample;
    RowPlace place = table_->indexed(at);
    for (; at < first_ + sample; ++at) read_row(place, scratch);
    return place;
  }
  void go_to(uint64_t sample) {
    at_ = sample;
    if (sample == info_.size) return;
    std::vector<uint8_t> scratch(table_->bytes());
    place_ = place_of(sample, scratch.data());
  }

  std::unique_ptr<Table> table_;
  StreamInfo info_;
  uint64_t first_, at_ = 0;
  RowPlace place_;
};

}  // namespace

std::shared_ptr<Producer> open_table(std::unique_ptr<TableRows> rows, const TableOptions& options) {
  auto table = std::make_unique<Table>(std::move(rows), options);
  const auto kept = table->read_all();
  const auto [first, last] = part_of(options.part, table->count(), table->file().name());
  if (!kept) return std::make_shared<TableProducer>(std::move(table), first, last);
  ArrayLayout layout;
  layout.bytes = kept;
  layout.dtype = table->info().dtype;
  layout.sample = table->info().sample;
  layout.count = table->count();
  layout.symbols = table->info().symbols;
  layout.notes = table->info().notes;
  return std::make_shared<ArrayProducer>(std::move(layout), first, last);
}

}  // namespace harmonics
