#include "formats/gguf.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include <harmonics/checked.hpp>
#include <harmonics/element_type.hpp>
#include <harmonics/quantity.hpp>

#include "formats/utf8.hpp"

namespace harmonics {

namespace {

constexpr std::string_view kMagic = "GGUF", kAlignmentKey = "general.alignment";
constexpr uint32_t kLatestVersion = 3;
constexpr uint64_t kDefaultAlignment = 32, kLongestName = 1 << 16, kLongestAlignment = 1 << 30;
constexpr uint64_t kMostKeys = 1 << 12, kMostTensors = 1 << 14;
constexpr uint32_t kMostAxes = 4;
constexpr int kDeepestList = 4;

struct KindRow {
  std::string_view name;
  uint32_t bytes;  // 0: variable length
};
constexpr KindRow kKinds[] = {{"u8", 1},   {"i8", 1},   {"u16", 2},  {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
                              {"bool", 1}, {"text", 0}, {"list", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8}};

constexpr GgufType kTypes[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},      {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},      {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},    {41, "Q1_0", 128, 18},    {42, "Q2_0", 64, 18},
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

template <typename T>
T load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <typename T>
void put(std::string& out, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  out.append(bytes, sizeof bytes);
}
void put_text(std::string& out, std::string_view text) {
  put<uint64_t>(out, text.size());
  out += text;
}

std::optional<int64_t> integer_at(GgufKind kind, const char* at) {
  switch (kind) {
    case GgufKind::U8:
      return load<uint8_t>(at);
    case GgufKind::I8:
      return load<int8_t>(at);
    case GgufKind::U16:
      return load<uint16_t>(at);
    case GgufKind::I16:
      return load<int16_t>(at);
    case GgufKind::U32:
      return load<uint32_t>(at);
    case GgufKind::I32:
      return load<int32_t>(at);
    case GgufKind::I64:
      return load<int64_t>(at);
    case GgufKind::U64:
      if (const auto value = load<uint64_t>(at); value <= INT64_MAX) return static_cast<int64_t>(value);
      return std::nullopt;
    default:
      return std::nullopt;
  }
}

std::optional<double> number_at(GgufKind kind, const char* at) {
  if (kind == GgufKind::F32) return load<float>(at);
  if (kind == GgufKind::F64) return load<double>(at);
  if (kind == GgufKind::U64) return static_cast<double>(load<uint64_t>(at));
  if (const auto integer = integer_at(kind, at)) return static_cast<double>(*integer);
  return std::nullopt;
}

const KindRow& row_of(GgufKind kind) { return kKinds[static_cast<uint32_t>(kind)]; }

// Reads the text at `at`, whose bounds have been checked, and advances `at` past it.
std::string_view text_at(std::string_view bytes, size_t& at, bool short_lengths) {
  const uint64_t length = short_lengths ? load<uint32_t>(bytes.data() + at) : load<uint64_t>(bytes.data() + at);
  const std::string_view text = bytes.substr(at + (short_lengths ? 4 : 8), length);
  at += (short_lengths ? 4 : 8) + length;
  return text;
}

template <typename T, typename Convert>
std::optional<std::vector<T>> list_of(GgufKind items, std::string_view bytes, uint64_t size, Convert convert) {
  const uint32_t step = row_of(items).bytes;
  if (!step) return std::nullopt;
  std::vector<T> all;
  all.reserve(size);
  for (uint64_t i = 0; i < size; ++i) {
    const auto value = convert(items, bytes.data() + i * step);
    if (!value) return std::nullopt;
    all.push_back(*value);
  }
  return all;
}

}  // namespace

std::string_view name_of(GgufKind kind) { return row_of(kind).name; }

std::optional<int64_t> GgufValue::integer() const {
  return row_of(kind_).bytes ? integer_at(kind_, bytes_.data()) : std::nullopt;
}
std::optional<double> GgufValue::number() const {
  return row_of(kind_).bytes ? number_at(kind_, bytes_.data()) : std::nullopt;
}
std::optional<bool> GgufValue::truth() const {
  return kind_ == GgufKind::Bool ? std::optional<bool>(bytes_[0] != 0) : std::nullopt;
}
std::optional<std::string_view> GgufValue::text() const {
  return kind_ == GgufKind::Text ? std::optional<std::string_view>(bytes_) : std::nullopt;
}
std::optional<std::vector<int64_t>> GgufValue::integers() const {
  const auto whole = [](GgufKind kind, const char* at) {
    return integer_at(kind == GgufKind::Bool ? GgufKind::U8 : kind, at);
  };
  return kind_ == GgufKind::List ? list_of<int64_t>(items_, bytes_, size_, whole) : std::nullopt;
}
std::optional<std::vector<double>> GgufValue::numbers() const {
  return kind_ == GgufKind::List ? list_of<double>(items_, bytes_, size_, number_at) : std::nullopt;
}
std::optional<std::vector<std::string_view>> GgufValue::texts() const {
  if (kind_ != GgufKind::List || (items_ != GgufKind::Text && size_ > 0)) return std::nullopt;
  std::vector<std::string_view> all;
  all.reserve(size_);
  for (size_t at = 0; all.size() < size_;) all.push_back(text_at(bytes_, at, short_lengths_));
  return all;
}

const GgufType* find_gguf_type(uint32_t number) {
  const auto at =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const GgufType& row) { return row.number == number; });
  return at == std::end(kTypes) ? nullptr : at;
}

// The names of both tables differ only in case.
const GgufType* find_gguf_type(DType dtype) {
  const std::string_view name = element_type(dtype).name;
  const auto at =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const GgufType& row) { return lower(row.name) == name; });
  return at == std::end(kTypes) ? nullptr : at;
}

std::optional<DType> dtype_of(const GgufType& type) {
  const std::string name = lower(type.name);
  for (uint32_t number = 0;; ++number) {
    const ElementType* found = find_element_type(number);
    if (!found) return std::nullopt;
    if (found->name == name) return found->dtype;
  }
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto at =
      std::find_if(metadata.begin(), metadata.end(), [&](const GgufMetadata& entry) { return entry.key == key; });
  return at == metadata.end() ? nullptr : &at->value;
}

bool is_gguf(std::string_view first) { return first.substr(0, kMagic.size()) == kMagic; }

class GgufReader {
 public:
  GgufReader(std::string_view bytes, const Origin& file) : bytes_(bytes), origin_(file) {}

  GgufFile read() {
    const auto [tensors, keys] = counts();
    metadata(keys);
    alignment();
    entries(tensors);
    place();
    return std::move(file_);
  }

 private:
  [[noreturn]] void refuse(uint64_t offset, const std::string& what) const {
    throw Error(origin_.kind,
                "'" + origin_.name + "' is not a GGUF file: at byte " + std::to_string(offset) + ", " + entry() + what)
        .note("the file is damaged, cut short or of another kind; fetch or save it again");
  }
  std::string entry() const {
    return entry_kind_.empty() ? "" : std::string(entry_kind_) + " " + shown_name(std::string(entry_)) + ": ";
  }
  // Sets the entry that errors name. An empty kind: none.
  void reading(std::string_view kind, std::string_view name) {
    entry_kind_ = kind;
    entry_ = name;
  }
  [[noreturn]] void refuse_version(const std::string& what, const std::string& remedy) const {
    throw Error(origin_.kind, "'" + origin_.name + "' " + what).note(remedy);
  }

  uint64_t left() const { return bytes_.size() - at_; }
  template <typename T>
  T number(const char* name) {
    if (left() < sizeof(T)) refuse(at_, std::string("the file ends in ") + name);
    const T value = load<T>(bytes_.data() + at_);
    at_ += sizeof(T);
    return value;
  }
  uint64_t length(const char* name) { return short_lengths_ ? number<uint32_t>(name) : number<uint64_t>(name); }
  std::string_view text(const char* name, uint64_t longest = UINT64_MAX) {
    const uint64_t start = at_, size = length(name);
    if (size > longest)
      refuse(start, std::string(name) + " is " + std::to_string(size) + " bytes long; the limit is " +
                        std::to_string(longest));
    if (size > left())
      refuse(start,
             std::string(name) + " is " + quantity(size, "byte") + " long, and " + std::to_string(left()) + " follow");
    const std::string_view found = bytes_.substr(at_, size);
    at_ += size;
    return found;
  }
  std::string_view name(const char* of) {
    const uint64_t start = at_;
    const std::string_view found = text(of, kLongestName);
    if (found.empty()) refuse(start, std::string(of) + " is empty");
    if (find_invalid_utf8(found) || found.find('\0') != std::string_view::npos)
      refuse(start, std::string(of) + " is not text");
    return found;
  }

  // Reads the numbers of tensors and of metadata keys. Every entry takes some bytes, so a count that the file cannot
  // hold is rejected before memory is allocated for it.
  std::pair<uint64_t, uint64_t> counts() {
    if (!is_gguf(bytes_)) refuse(0, "it does not begin with 'GGUF'");
    at_ = kMagic.size();
    file_.version = number<uint32_t>("the version");
    if (file_.version >= 1 << 16 && (file_.version & 0xFFFF) == 0)
      refuse_version("is a GGUF file of a big-endian machine", "convert it to little-endian order");
    if (file_.version < 1 || file_.version > kLatestVersion)
      refuse_version("is a GGUF file of version " + std::to_string(file_.version) + "; versions 1 to " +
                         std::to_string(kLatestVersion) + " can be read",
                     "convert the model again");
    short_lengths_ = file_.version == 1;
    const uint64_t least_tensor = short_lengths_ ? 21 : 25, least_key = short_lengths_ ? 10 : 14;
    const uint64_t start = at_, tensors = length("the number of tensors"), keys = length("the number of keys");
    if (tensors > kMostTensors || keys > kMostKeys)
      refuse(start, std::to_string(tensors) + " tensors and " + std::to_string(keys) + " keys of metadata; at most " +
                        std::to_string(kMostTensors) + " and " + std::to_string(kMostKeys) + " are read");
    if (tensors > left() / least_tensor)
      refuse(start, std::to_string(tensors) + " tensors cannot be described in the " + std::to_string(left()) +
                        " bytes that follow");
    if (keys > left() / least_key)
      refuse(start, std::to_string(keys) + " keys of metadata cannot be in the " + std::to_string(left()) +
                        " bytes that follow");
    return {tensors, keys};
  }

  GgufKind kind() {
    const uint64_t start = at_;
    const auto found = number<uint32_t>("a kind");
    if (found >= std::size(kKinds)) refuse(start, "the kind " + std::to_string(found) + " is unknown");
    return static_cast<GgufKind>(found);
  }

  GgufValue value(GgufKind kind) {
    GgufValue result;
    result.kind_ = kind;
    result.short_lengths_ = short_lengths_;
    if (kind == GgufKind::Text) {
      result.bytes_ = text("the text");
    } else if (kind == GgufKind::List) {
      list(result);
    } else {
      result.bytes_ = scalars(kind, 1);
    }
    return result;
  }

  void list(GgufValue& result) {
    result.items_ = kind();
    const uint64_t start = at_;
    result.size_ = length("the length of the list");
    const uint64_t first = at_;
    skip(result.items_, result.size_, start, 1);
    result.bytes_ = bytes_.substr(first, at_ - first);
  }

  void skip(GgufKind items, uint64_t count, uint64_t start, int depth) {
    const uint64_t lengths = short_lengths_ ? 4 : 8;
    const uint64_t least = items == GgufKind::Text   ? lengths
                           : items == GgufKind::List ? lengths + 4
                                                     : row_of(items).bytes;
    if (count > left() / least)
      refuse(start, "a list of " + quantity(count, "item") + " does not fit into the " + std::to_string(left()) +
                        " bytes that follow");
    if (items == GgufKind::Text) {
      for (uint64_t i = 0; i < count; ++i) text("a string of the list");
    } else if (items == GgufKind::List) {
      if (depth == kDeepestList) refuse(start, "lists are nested more than " + std::to_string(depth) + " deep");
      for (uint64_t i = 0; i < count; ++i) {
        const GgufKind inner = kind();
        const uint64_t at = at_;
        skip(inner, length("the length of a list"), at, depth + 1);
      }
    } else {
      scalars(items, count);
    }
  }

  std::string_view scalars(GgufKind kind, uint64_t count) {
    const uint64_t bytes = row_of(kind).bytes * count;  // bounded by the file's size, or a single value
    if (bytes > left()) refuse(at_, "the file ends in a value");
    const std::string_view found = bytes_.substr(at_, bytes);
    if (kind == GgufKind::Bool)
      for (const char c : found)
        if (c != 0 && c != 1) refuse(at_, "a bool is " + std::to_string(static_cast<unsigned char>(c)));
    at_ += bytes;
    return found;
  }

  struct HashedName {
    size_t hash;
    uint64_t start;  // offset of its entry
    std::string_view name;
  };
  static size_t hash(std::string_view name) { return std::hash<std::string_view>()(name); }

  // Sorts instead of hashing: crafted names with equal hashes would make a hash table quadratic.
  void check_unique(std::vector<HashedName>& names, std::string_view kind, const char* what) {
    std::sort(names.begin(), names.end(), [](const HashedName& a, const HashedName& b) {
      if (a.hash != b.hash) return a.hash < b.hash;
      if (const int order = a.name.compare(b.name)) return order < 0;
      return a.start < b.start;
    });
    const auto twice = std::adjacent_find(names.begin(), names.end(), [](const HashedName& a, const HashedName& b) {
      return a.hash == b.hash && a.name == b.name;
    });
    if (twice == names.end()) return;
    reading(kind, twice->name);
    refuse(std::next(twice)->start, std::string(what) + " occurs twice");
  }

  void metadata(uint64_t count) {
    std::vector<HashedName> names;
    names.reserve(count);
    file_.metadata.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t start = at_;
      const std::string_view key = name("a key");
      reading("metadata", key);
      names.push_back({hash(key), start, key});
      file_.metadata.push_back({key, value(kind())});
      reading({}, {});
    }
    check_unique(names, "metadata", "the key");
  }

  void alignment() {
    file_.alignment = kDefaultAlignment;
    const GgufValue* given = file_.find(kAlignmentKey);
    if (!given) return;
    const auto found = given->integer();
    if (!found || *found < 8 || static_cast<uint64_t>(*found) > kLongestAlignment || (*found & (*found - 1)) != 0)
      refuse(at_, "general.alignment is " + (found ? std::to_string(*found) : "not an integer") +
                      "; it must be a power of two from 8 on");
    file_.alignment = static_cast<uint64_t>(*found);
  }

  void entries(uint64_t count) {
    std::vector<HashedName> names;
    names.reserve(count);
    file_.tensors.reserve(count);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t start = at_;
      GgufTensor tensor;
      tensor.name = name("the name of a tensor");
      reading("tensor", tensor.name);
      names.push_back({hash(tensor.name), start, tensor.name});
      shape(tensor);
      const uint64_t at = at_;
      const auto type = number<uint32_t>("the type");
      tensor.type = find_gguf_type(type);
      if (!tensor.type) refuse(at, "the type " + std::to_string(type) + " is unknown");
      size(tensor, at);
      tensor.offset = number<uint64_t>("the offset");
      if (tensor.offset % file_.alignment != 0)
        refuse(at_ - 8, "the offset " + std::to_string(tensor.offset) + " is not a multiple of " +
                            std::to_string(file_.alignment));
      file_.tensors.push_back(std::move(tensor));
      reading({}, {});
    }
    check_unique(names, "tensor", "the name");
  }

  void shape(GgufTensor& tensor) {
    const uint64_t start = at_;
    const auto axes = number<uint32_t>("the number of axes");
    if (axes > kMostAxes)
      refuse(start, "it has " + std::to_string(axes) + " axes; the limit is " + std::to_string(kMostAxes));
    tensor.shape.reserve(axes);
    for (uint32_t i = 0; i < axes; ++i) tensor.shape.push_back(length("the length of an axis"));
    std::reverse(tensor.shape.begin(), tensor.shape.end());
  }

  void size(GgufTensor& tensor, uint64_t at) const {
    const uint64_t row = tensor.shape.empty() ? 1 : tensor.shape.back();
    if (row % tensor.type->block != 0)
      refuse(at, "rows of " + quantity(row, "element") + " are not whole blocks of " + std::string(tensor.type->name) +
                     ", which has " + std::to_string(tensor.type->block) + " in a block");
    const auto count = checked_count<uint64_t>(tensor.shape);
    const auto bytes =
        count ? checked_product<uint64_t>(*count / tensor.type->block, tensor.type->block_bytes) : std::nullopt;
    if (!bytes || *count > INT64_MAX || *bytes > INT64_MAX) refuse(at, "its size overflows");
    tensor.bytes = *bytes;
  }

  // Converts offsets in the data to offsets in the file, and rejects tensors that overlap or leave the file.
  void place() {
    const uint64_t unaligned = at_ % file_.alignment;
    file_.data_offset = at_ + (unaligned ? file_.alignment - unaligned : 0);
    std::vector<std::pair<uint64_t, const GgufTensor*>> ordered;  // by offset, ties by the order in the table
    ordered.reserve(file_.tensors.size());
    for (GgufTensor& tensor : file_.tensors) {
      const auto begin = checked_sum<uint64_t>(file_.data_offset, tensor.offset);
      const auto end = begin ? checked_sum<uint64_t>(*begin, tensor.bytes) : std::nullopt;
      if (!end || *end > bytes_.size()) {
        reading("tensor", tensor.name);
        refuse(at_, "its " + std::to_string(tensor.bytes) + " bytes from " + std::to_string(tensor.offset) +
                        " of the data on end beyond the file, which has " + std::to_string(bytes_.size()));
      }
      tensor.offset = *begin;
      if (tensor.bytes > 0) ordered.emplace_back(tensor.offset, &tensor);
    }
    std::sort(ordered.begin(), ordered.end());
    const GgufTensor* former = nullptr;
    for (const auto& [offset, tensor] : ordered) {
      if (former && former->offset + former->bytes > offset)
        refuse(offset, "the tensors " + shown_name(std::string(former->name)) + " and " +
                           shown_name(std::string(tensor->name)) + " overlap");
      former = tensor;
    }
  }

  std::string_view bytes_;
  const Origin& origin_;
  uint64_t at_ = 0;
  bool short_lengths_ = false;
  std::string_view entry_kind_, entry_;  // the key or tensor being read
  GgufFile file_;
};

GgufFile read_gguf(std::string_view bytes, const Origin& file) { return GgufReader(bytes, file).read(); }

std::optional<std::string> gguf_part_name(std::string_view any_part, uint64_t index, uint64_t count) {
  constexpr size_t kDigits = 5;
  constexpr std::string_view kOf = "-of-", kEnd = ".gguf";
  const size_t tail = 1 + kDigits + kOf.size() + kDigits + kEnd.size();
  if (any_part.size() <= tail || count >= 100000 || index >= count) return std::nullopt;
  const std::string_view stem = any_part.substr(0, any_part.size() - tail), rest = any_part.substr(stem.size());
  const auto digits = [&](size_t from) {
    return rest.substr(from, kDigits).find_first_not_of("0123456789") == std::string_view::npos;
  };
  if (rest[0] != '-' || !digits(1) || rest.substr(1 + kDigits, kOf.size()) != kOf ||
      !digits(1 + kDigits + kOf.size()) || rest.substr(tail - kEnd.size()) != kEnd)
    return std::nullopt;
  const auto five = [](uint64_t value) {
    const std::string text = std::to_string(value);
    return std::string(kDigits - text.size(), '0') + text;
  };
  return std::string(stem) + "-" + five(index + 1) + std::string(kOf) + five(count) + std::string(kEnd);
}

std::string& GgufWriter::begin(std::string_view key, GgufKind kind) {
  put_text(metadata_, key);
  put(metadata_, static_cast<uint32_t>(kind));
  ++keys_;
  return metadata_;
}

void GgufWriter::set_text(std::string_view key, std::string_view text) { put_text(begin(key, GgufKind::Text), text); }
void GgufWriter::set_bool(std::string_view key, bool value) { put<uint8_t>(begin(key, GgufKind::Bool), value); }

void GgufWriter::set(std::string_view key, GgufKind kind, double value) {
  if (kind == GgufKind::F32) return put(begin(key, kind), static_cast<float>(value));
  if (kind == GgufKind::F64) return put(begin(key, kind), value);
  throw Error(ErrorKind::Type, "the metadata '" + std::string(key) + "' of kind " + std::string(name_of(kind)) +
                                   " cannot be a fraction");
}

void GgufWriter::set(std::string_view key, GgufKind kind, int64_t value) {
  if (kind == GgufKind::Bool || !row_of(kind).bytes)
    throw Error(ErrorKind::Type, "the metadata '" + std::string(key) + "' of kind " + std::string(name_of(kind)) +
                                     " cannot be a number");
  if (kind == GgufKind::F32 || kind == GgufKind::F64) return set(key, kind, static_cast<double>(value));
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  if (integer_at(kind, bytes) != value)
    throw Error(ErrorKind::Type, "the metadata '" + std::string(key) + "' cannot be " + std::to_string(value) +
                                     ": its kind is " + std::string(name_of(kind)));
  begin(key, kind).append(bytes, row_of(kind).bytes);
}

namespace {

void put_list(std::string& out, GgufKind items, uint64_t count) {
  put(out, static_cast<uint32_t>(items));
  put(out, count);
}

}  // namespace

void GgufWriter::set(std::string_view key, const std::vector<std::string>& texts) {
  put_list(begin(key, GgufKind::List), GgufKind::Text, texts.size());
  for (const std::string& text : texts) put_text(metadata_, text);
}
void GgufWriter::set(std::string_view key, const std::vector<float>& numbers) {
  put_list(begin(key, GgufKind::List), GgufKind::F32, numbers.size());
  for (const float number : numbers) put(metadata_, number);
}
void GgufWriter::set(std::string_view key, const std::vector<int32_t>& numbers) {
  put_list(begin(key, GgufKind::List), GgufKind::I32, numbers.size());
  for (const int32_t number : numbers) put(metadata_, number);
}

void GgufWriter::copy(const GgufMetadata& entry) {
  const GgufValue& value = entry.value;
  if (entry.key == kAlignmentKey) return;
  if (value.kind_ == GgufKind::Text) return set_text(entry.key, value.bytes_);
  if (value.kind_ == GgufKind::List && value.short_lengths_ && value.items_ == GgufKind::List)
    throw Error(ErrorKind::Weights, "the metadata '" + std::string(entry.key) +
                                        "' is a list of lists in a file of version 1, which cannot be copied");
  std::string& out = begin(entry.key, value.kind_);
  if (value.kind_ == GgufKind::List) {
    put_list(out, value.items_, value.size_);
    if (const auto texts = value.texts()) {
      for (const std::string_view text : *texts) put_text(out, text);
      return;
    }
  }
  out += value.bytes_;
}

uint64_t GgufWriter::add(std::string_view name, const GgufType& type, const std::vector<uint64_t>& shape) {
  const uint64_t begin = (end_ + kAlignment - 1) / kAlignment * kAlignment;
  put_text(tensors_, name);
  put(tensors_, static_cast<uint32_t>(shape.size()));
  for (size_t i = shape.size(); i-- > 0;) put(tensors_, shape[i]);
  put(tensors_, type.number);
  put(tensors_, begin);
  ++count_;
  uint64_t elements = 1;
  for (const uint64_t length : shape) elements *= length;
  end_ = begin + elements / type.block * type.block_bytes;
  return begin;
}

std::string GgufWriter::header() const {
  std::string out(kMagic);
  put(out, kLatestVersion);
  put(out, count_);
  put(out, keys_);
  out += metadata_;
  out += tensors_;
  out.resize((out.size() + kAlignment - 1) / kAlignment * kAlignment, '\0');
  return out;
}

}  // namespace harmonics
