#include "engine/model/importance.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/base/file.hpp"
#include "formats/gguf.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";

[[noreturn]] void refuse_importance(const Origin& file, const std::string& what) {
  throw Error(file.kind, fmt::format("'{}' is not an importance matrix: {}", file.name, what), {},
              {"'harmonics importance' and llama.cpp's llama-imatrix write such files"});
}

double checked_number(float value, const std::string& name, const Origin& file) {
  if (!std::isfinite(value) || value < 0)
    refuse_importance(file, fmt::format("{} has the number {}, which is not finite or negative", shown_name(name),
                                        static_cast<double>(value)));
  return static_cast<double>(value);
}

std::vector<double> numbers_of(std::string_view bytes, const std::string& name, const Origin& file) {
  std::vector<double> all(bytes.size() / sizeof(float));
  for (size_t i = 0; i < all.size(); ++i) {
    float value;
    std::memcpy(&value, bytes.data() + i * sizeof value, sizeof value);
    all[i] = checked_number(value, name, file);
  }
  return all;
}

// ---- GGUF

std::vector<double> numbers_of(const GgufTensor& tensor, std::string_view bytes, const Origin& file) {
  const std::string name(tensor.name);
  if (tensor.type->name != "F32")
    refuse_importance(file, fmt::format("the tensor {} is in {}, not in F32", shown_name(name), tensor.type->name));
  return numbers_of(bytes.substr(tensor.offset, tensor.bytes), name, file);
}

ImportanceMatrix read_gguf_form(std::string_view bytes, const Origin& file) {
  const GgufFile contents = read_gguf(bytes, file);
  const GgufValue* type = contents.find("general.type");
  if (!type || type->text() != "imatrix") refuse_importance(file, "general.type is not 'imatrix'");
  ImportanceMatrix result;
  if (const GgufValue* value = contents.find("imatrix.datasets"))
    if (const auto texts = value->texts()) result.datasets.assign(texts->begin(), texts->end());
  const auto integer = [&](const char* key) -> int64_t {
    const GgufValue* value = contents.find(key);
    return value ? value->integer().value_or(0) : 0;
  };
  result.chunks = integer("imatrix.chunk_count");
  result.chunk_tokens = integer("imatrix.chunk_size");
  std::map<std::string, const GgufTensor*> counts;
  for (const GgufTensor& tensor : contents.tensors)
    if (tensor.name.ends_with(kCounts))
      counts.emplace(tensor.name.substr(0, tensor.name.size() - kCounts.size()), &tensor);
  for (const GgufTensor& tensor : contents.tensors) {
    if (!tensor.name.ends_with(kSums)) continue;
    const std::string name(tensor.name.substr(0, tensor.name.size() - kSums.size()));
    const auto at = counts.find(name);
    if (at == counts.end()) refuse_importance(file, fmt::format("{} has sums but no counts", shown_name(name)));
    ColumnImportance entry;
    entry.squares = numbers_of(tensor, bytes, file);
    entry.counts = numbers_of(*at->second, bytes, file);
    if (entry.counts.empty() || entry.squares.empty() || entry.squares.size() % entry.counts.size() != 0)
      refuse_importance(file, fmt::format("{} has {} and {}", shown_name(name), quantity(entry.squares.size(), "sum"),
                                          quantity(entry.counts.size(), "count")));
    entry.columns = static_cast<int64_t>(entry.squares.size() / entry.counts.size());
    result.tensors.emplace(name, std::move(entry));
  }
  return result;
}

// ---- the binary form: i32 number of entries; per entry: i32 length and name, i32 calls, i32 length and f32 sums; then
// i32 chunks, and i32 length and name of the dataset. The last two may be missing.

class BinaryForm {
 public:
  BinaryForm(std::string_view bytes, const Origin& file) : bytes_(bytes), file_(file) {}

  ImportanceMatrix read() {
    const int32_t entries = number("the number of entries");
    if (entries < 1) refuse("it has no entries");
    ImportanceMatrix result;
    for (int32_t i = 0; i < entries; ++i) entry(result);
    if (at_ < bytes_.size()) result.chunks = std::max(0, number("the number of chunks"));
    if (at_ < bytes_.size()) result.datasets.emplace_back(run("the name of the data", 1));
    if (at_ < bytes_.size()) refuse("the file has bytes after its end");
    return result;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    refuse_importance(file_, fmt::format("at byte {}, {}", at_, what));
  }
  int32_t number(const char* name) {
    int32_t value;
    if (bytes_.size() - at_ < sizeof value) refuse(fmt::format("the file ends in {}", name));
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  // Reads an i32 count followed by as many items of `width` bytes.
  std::string_view run(const char* name, size_t width) {
    const int32_t count = number(name);
    if (count < 0 || static_cast<size_t>(count) > (bytes_.size() - at_) / width)
      refuse(fmt::format("{} has {}, and {} bytes follow", name, quantity(count, "item"), bytes_.size() - at_));
    const std::string_view found = bytes_.substr(at_, static_cast<size_t>(count) * width);
    at_ += found.size();
    return found;
  }
  void entry(ImportanceMatrix& result) {
    const std::string name(run("the name of a tensor", 1));
    if (name.empty() || find_invalid_utf8(name)) refuse("the name of a tensor is not a string");
    const int32_t calls = number("the number of calls");
    ColumnImportance found;
    found.squares = numbers_of(run("the sums of a tensor", sizeof(float)), name, file_);
    if (found.squares.empty()) refuse(shown_name(name) + " has no sums");
    found.columns = static_cast<int64_t>(found.squares.size());
    found.counts = {static_cast<double>(std::max(1, calls))};
    if (!result.tensors.emplace(name, std::move(found)).second) refuse(shown_name(name) + " occurs twice");
  }

  const std::string_view bytes_;
  const Origin& file_;
  size_t at_ = 0;
};

void append_floats(std::string& data, const std::vector<double>& numbers) {
  for (const double number : numbers) {
    const auto value = static_cast<float>(number);
    data.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
}

}  // namespace

std::vector<float> ColumnImportance::weights(int64_t matrix) const {
  std::vector<float> all(static_cast<size_t>(columns), 1.0f);
  const double* sums = squares.data() + matrix * columns;
  double total = 0;
  for (int64_t i = 0; i < columns; ++i) total += sums[i];
  if (!(counts[static_cast<size_t>(matrix)] > 0) || !(total > 0)) return all;
  for (int64_t i = 0; i < columns; ++i)
    all[static_cast<size_t>(i)] = static_cast<float>(sums[i] * static_cast<double>(columns) / total);
  return all;
}

ImportanceMatrix read_importance(std::string_view bytes, const Origin& file) {
  return is_gguf(bytes) ? read_gguf_form(bytes, file) : BinaryForm(bytes, file).read();
}

ImportanceMatrix read_importance(const std::string& path) {
  const auto file = MappedFile::open(path);
  return read_whole(*file, [&] {
    return read_importance({static_cast<const char*>(file->data()), file->bytes()}, {path, ErrorKind::Weights});
  });
}

void write_importance(const ImportanceMatrix& matrix, const std::string& path) {
  GgufWriter writer;
  writer.set_text("general.type", "imatrix");
  writer.set("imatrix.datasets", matrix.datasets);
  writer.set("imatrix.chunk_count", GgufKind::U32, matrix.chunks);
  writer.set("imatrix.chunk_size", GgufKind::U32, matrix.chunk_tokens);
  const GgufType& type = *find_gguf_type(DType::F32);
  std::string data;
  for (const auto& [name, entry] : matrix.tensors) {
    const auto matrices = static_cast<uint64_t>(entry.matrices());
    data.resize(writer.add(name + std::string(kSums), type, {matrices, static_cast<uint64_t>(entry.columns)}));
    append_floats(data, entry.squares);
    data.resize(writer.add(name + std::string(kCounts), type, {matrices, 1}));
    append_floats(data, entry.counts);
  }
  const std::string header = writer.header();
  const std::string_view pieces[] = {header, data};
  write_file_atomically(path, pieces);
}

}  // namespace harmonics::engine
