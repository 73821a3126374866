#include "formats/safetensors.hpp"

#include <algorithm>
#include <tuple>

#include <boost/json/serialize.hpp>
#include <boost/json/string_view.hpp>

#include <harmonics/quantity.hpp>
#include <harmonics/stream.hpp>

#include "formats/utf8.hpp"
#include "formats/safetensors_json.hpp"

namespace harmonics {

namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr std::string_view kStoredType = "harmonics.element_type:";  // metadata key; a tensor's name follows

struct DTypeSpelling {
  DType dtype;
  std::string_view name;
};
// In the sort order of the reference writer: largest element size last.
constexpr DTypeSpelling kDTypes[] = {{DType::Bool, "BOOL"},       {DType::U8, "U8"},           {DType::I8, "I8"},
                                     {DType::F8_E5M2, "F8_E5M2"}, {DType::F8_E4M3, "F8_E4M3"}, {DType::I16, "I16"},
                                     {DType::U16, "U16"},         {DType::F16, "F16"},         {DType::BF16, "BF16"},
                                     {DType::I32, "I32"},         {DType::U32, "U32"},         {DType::F32, "F32"},
                                     {DType::F64, "F64"},         {DType::I64, "I64"},         {DType::U64, "U64"}};

const DTypeSpelling* spelling(std::string_view name) {
  const auto at =
      std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const auto& row) { return row.name == name; });
  return at == std::end(kDTypes) ? nullptr : at;
}

// Types without a spelling are written as bytes.
const DTypeSpelling& spelling(DType dtype) {
  const auto row_of = [](DType wanted) {
    return std::find_if(std::begin(kDTypes), std::end(kDTypes), [&](const auto& row) { return row.dtype == wanted; });
  };
  const auto* found = row_of(dtype);
  return found == std::end(kDTypes) ? *row_of(DType::U8) : *found;
}
bool is_written_as_bytes(DType dtype) { return spelling(dtype).dtype != dtype; }

// "q8_0[64, 96]"
std::string type_text(DType dtype, const std::vector<uint64_t>& shape) {
  std::string s = std::string(element_type(dtype).name) + "[";
  for (size_t i = 0; i < shape.size(); ++i) s += (i ? ", " : "") + std::to_string(shape[i]);
  return s + "]";
}

std::string list_text(const std::vector<uint64_t>& values) {
  constexpr size_t kMostShown = 16;
  std::string s = "[";
  for (size_t i = 0; i < values.size() && i < kMostShown; ++i) s += (i ? ", " : "") + std::to_string(values[i]);
  return s + (values.size() > kMostShown ? ", ...]" : "]");
}

std::vector<uint64_t> written_shape(const TensorEntry& entry) {
  std::vector<uint64_t> shape = entry.shape;
  if (is_written_as_bytes(entry.dtype)) shape.back() = run_bytes(entry.dtype, static_cast<int64_t>(entry.shape.back()));
  return shape;
}

// Replaces the type and shape of entries that are stored as bytes by those in their metadata.
void apply_stored_types(const Origin& file, SafetensorsHeader& header) {
  std::map<std::string_view, TensorEntry*> entries;
  for (TensorEntry& entry : header.tensors) entries.emplace(entry.name, &entry);
  for (auto at = header.metadata.lower_bound(std::string(kStoredType));
       at != header.metadata.end() && at->first.starts_with(kStoredType); at = header.metadata.erase(at)) {
    const std::string name = at->first.substr(kStoredType.size());
    const auto refuse = [&](const std::string& what) {
      refuse_safetensors(file, kLengthBytes, &name,
                         "metadata gives it the type " + shown_name(at->second) + ", " + what);
    };
    const auto found = entries.find(name);
    if (found == entries.end()) refuse("but the file has no such tensor");
    TensorEntry& entry = *found->second;
    const ElementType* type = nullptr;
    for (const ElementType& row : detail::element_types)
      if (row.name == std::string_view(at->second).substr(0, at->second.find('[')) && is_written_as_bytes(row.dtype))
        type = &row;
    if (!type) refuse("which is not a type that is stored as bytes");
    if (entry.dtype != DType::U8 || entry.shape.empty() || entry.shape.back() % type->block_bytes != 0)
      refuse("which its rows of " + std::string(spelling(entry.dtype).name) + " " + list_text(entry.shape) +
             " cannot hold: they are U8 with a multiple of " + std::to_string(type->block_bytes) + " bytes");
    std::vector<uint64_t> shape = entry.shape;
    if (__builtin_mul_overflow(shape.back() / type->block_bytes, uint64_t{type->block}, &shape.back()) ||
        shape.back() > INT64_MAX)
      refuse("which overflows");
    if (const std::string held = type_text(type->dtype, shape); held != at->second)
      refuse("but its bytes are those of " + held);
    entry.dtype = type->dtype;
    entry.shape = std::move(shape);
  }
}

// Checks one tensor's JSON and converts it to an entry.
class EntryCheck {
 public:
  EntryCheck(const Origin& file, const RawTensor& raw, uint64_t data_bytes)
      : file_(file), raw_(raw), data_bytes_(data_bytes) {}

  TensorEntry entry() const {
    if (!raw_.dtype) refuse("has no 'dtype'");
    if (!raw_.shape) refuse("has no 'shape'");
    if (!raw_.data_offsets) refuse("has no 'data_offsets'");
    if (raw_.name.find('\0') != std::string::npos) refuse("has a name with a zero character in it");
    if (raw_.data_offsets->size() != 2)
      refuse("data_offsets = " + list_text(*raw_.data_offsets) + " must have two entries, begin and end");
    TensorEntry out{raw_.name, dtype(), *raw_.shape, (*raw_.data_offsets)[0], (*raw_.data_offsets)[1]};
    if (out.begin > out.end || out.end > data_bytes_)
      refuse("data_offsets = " + list_text(*raw_.data_offsets) + " are not inside the " +
             quantity(data_bytes_, "byte") + " of data");
    const uint64_t expected = size(out.dtype);
    if (out.end - out.begin != expected)
      refuse(*raw_.dtype + " " + list_text(*raw_.shape) + " takes " + quantity(expected, "byte") +
             ", data_offsets = " + list_text(*raw_.data_offsets) + " hold " + std::to_string(out.end - out.begin));
    return out;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const { refuse_safetensors(file_, kLengthBytes, &raw_.name, what); }

  DType dtype() const {
    if (const DTypeSpelling* found = spelling(*raw_.dtype)) return found->dtype;
    std::string known;
    for (const DTypeSpelling& row : kDTypes) known += (known.empty() ? "" : ", ") + std::string(row.name);
    refuse("dtype " + shown_name(*raw_.dtype) + " is not one that can be read: " + known);
  }

  uint64_t size(DType dtype) const {
    uint64_t bytes = element_bytes(dtype);
    for (const uint64_t d : *raw_.shape) {
      if (d > INT64_MAX) refuse("the dimension " + std::to_string(d) + " is too large");
      if (__builtin_mul_overflow(bytes, d, &bytes) || bytes > INT64_MAX)
        refuse("the size of shape " + list_text(*raw_.shape) + " overflows");
    }
    return bytes;
  }

  const Origin& file_;
  const RawTensor& raw_;
  uint64_t data_bytes_;
};

// Checks that the sorted tensors cover the data without gaps.
void expect_gapless(const Origin& file, const SafetensorsHeader& header, uint64_t data_bytes) {
  uint64_t at = 0;
  const std::string* former = nullptr;
  for (const TensorEntry& t : header.tensors) {
    if (t.begin != at)
      refuse_safetensors(file, header.data_offset + t.begin, &t.name,
                         "begins at byte " + std::to_string(t.begin) + " of the data, expected " + std::to_string(at) +
                             (former ? ", where " + shown_name(*former) + " ends" : ", the first") +
                             (t.begin > at ? "; a gap hides bytes that no tensor owns" : "; the two overlap"));
    at = t.end;
    former = &t.name;
  }
  if (at != data_bytes)
    refuse_safetensors(file, header.data_offset + at, nullptr,
                       std::to_string(data_bytes - at) + " bytes follow the last tensor; the file must end there");
}

// Throws for a file of another kind whose first bytes, read as a length, are larger than any header.
void expect_no_other_kind(std::string_view first, const Origin& file) {
  const std::string what = "'" + file.name + "' is not a safetensors file, but a ";
  if (first.starts_with("GGUF"))
    throw Error(file.kind, what + "GGUF file")
        .note("harmonics export " + file.name + " NAME.safetensors converts a model");
  const auto is_text = [](char c) { return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t'; };
  if (std::all_of(first.begin(), first.end(), is_text))
    throw Error(file.kind, what + "text").note("give a file of tensors, such as --save writes");
}

uint64_t header_length(const void* data, size_t bytes, const Origin& file) {
  if (bytes < kLengthBytes)
    refuse_safetensors(file, 0, nullptr, "it holds " + quantity(bytes, "byte") + ", the header's length alone takes 8");
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<const unsigned char*>(data)[i];
  if (length > kLongestSafetensorsHeader) {
    expect_no_other_kind({static_cast<const char*>(data), kLengthBytes}, file);
    refuse_safetensors(file, 0, nullptr,
                       "the header's length is " + std::to_string(length) + ", at most " +
                           std::to_string(kLongestSafetensorsHeader) + " are allowed");
  }
  if (length > bytes - kLengthBytes)
    refuse_safetensors(file, 0, nullptr,
                       "the header's length is " + std::to_string(length) + ", but only " +
                           std::to_string(bytes - kLengthBytes) + " bytes follow");
  return length;
}

// Rejects files that could not be read back.
void expect_readable(const SafetensorsHeader& header, size_t length) {
  if (length <= kLongestSafetensorsHeader) return;
  Error e(ErrorKind::Weights, "a safetensors file cannot hold this: its header would take " + std::to_string(length) +
                                  " bytes, at most " + std::to_string(kLongestSafetensorsHeader) + " are allowed");
  const auto longest = std::max_element(header.metadata.begin(), header.metadata.end(),
                                        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (longest != header.metadata.end())
    e.note(std::to_string(longest->second.size()) + " of them are its metadata " + shown_name(longest->first) +
           "; tensors: " + std::to_string(header.tensors.size()));
  throw e;
}

std::string json_text(std::string_view s) {
  return boost::json::serialize(boost::json::string_view(s.data(), s.size()));
}

}  // namespace

void refuse_safetensors(const Origin& file, uint64_t offset, const std::string* tensor, const std::string& what) {
  throw Error(file.kind, "'" + file.name + "' is not a safetensors file: at byte " + std::to_string(offset) + ", " +
                             (tensor ? "tensor " + shown_name(*tensor) + ": " : "") + what)
      .note("the file is damaged, cut short or of another kind; fetch or save it again");
}

SafetensorsHeader read_safetensors_header(const void* data, size_t bytes, const Origin& file) {
  const uint64_t length = header_length(data, bytes, file);
  const std::string_view text(static_cast<const char*>(data) + kLengthBytes, length);
  if (text.empty() || text[0] != '{') refuse_safetensors(file, kLengthBytes, nullptr, "the header must begin with '{'");
  RawHeader raw = parse_safetensors_json(text, file, kLengthBytes);
  SafetensorsHeader header;
  header.metadata = std::move(raw.metadata);
  header.data_offset = kLengthBytes + length;
  const uint64_t data_bytes = bytes - header.data_offset;
  for (const RawTensor& tensor : raw.tensors) header.tensors.push_back(EntryCheck(file, tensor, data_bytes).entry());
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  expect_gapless(file, header, data_bytes);
  apply_stored_types(file, header);
  return header;
}

void order_as_written(std::vector<TensorEntry>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& a, const TensorEntry& b) {
    const auto *x = &spelling(a.dtype), *y = &spelling(b.dtype);
    return x != y ? x > y : a.name < b.name;
  });
}

std::string write_safetensors_header(const SafetensorsHeader& header) {
  std::string json = "{";
  const auto key = [&json](std::string_view name) {
    if (json.back() != '{') json += ',';
    json.append(json_text(name)).append(":");
  };
  std::map<std::string, std::string> metadata = header.metadata;
  if (const auto taken = metadata.lower_bound(std::string(kStoredType));
      taken != metadata.end() && taken->first.starts_with(kStoredType))
    throw Error(ErrorKind::Weights, "the metadata key " + shown_name(taken->first) +
                                        " is reserved for the types of tensors; give it another name");
  for (const TensorEntry& t : header.tensors)
    if (is_written_as_bytes(t.dtype)) metadata[std::string(kStoredType) + t.name] = type_text(t.dtype, t.shape);
  if (!metadata.empty()) {
    json.append("\"__metadata__\":{");
    for (const auto& [name, value] : metadata) {
      key(name);
      json.append(json_text(value));
    }
    json += '}';
  }
  for (const TensorEntry& t : header.tensors) {
    key(t.name);
    json.append("{\"dtype\":\"").append(spelling(t.dtype).name).append("\",\"shape\":[");
    for (const uint64_t d : written_shape(t)) json.append(json.back() == '[' ? "" : ",").append(std::to_string(d));
    json.append("],\"data_offsets\":[")
        .append(std::to_string(t.begin))
        .append(",")
        .append(std::to_string(t.end))
        .append("]}");
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  expect_readable(header, json.size());
  std::string out;
  for (size_t i = 0; i < kLengthBytes; ++i) out += static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return out + json;
}

std::vector<SafetensorsShard> safetensors_shards(const std::vector<std::pair<std::string, uint64_t>>& tensors,
                                                 uint64_t most) {
  std::vector<SafetensorsShard> shards(1);
  uint64_t in_shard = 0;
  for (const auto& [name, bytes] : tensors) {
    if (in_shard > 0 && in_shard + bytes > most) shards.emplace_back(), in_shard = 0;
    shards.back().tensors.push_back(name);
    in_shard += bytes;
  }
  const auto five = [](size_t number) {
    const std::string digits = std::to_string(number);
    return std::string(digits.size() < 5 ? 5 - digits.size() : 0, '0') + digits;
  };
  for (size_t i = 0; i < shards.size(); ++i)
    shards[i].file =
        shards.size() == 1 ? kFolderWeights : "model-" + five(i + 1) + "-of-" + five(shards.size()) + ".safetensors";
  return shards;
}

}  // namespace harmonics
