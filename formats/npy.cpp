#include "formats/npy.hpp"

#include <algorithm>
#include <cstring>

#include <harmonics/stream.hpp>

namespace harmonics {

namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);

struct NpyType {
  const char* code;
  DType dtype;
};
constexpr NpyType kTypes[] = {{"b1", DType::Bool}, {"u1", DType::U8},  {"i1", DType::I8},  {"i2", DType::I16},
                              {"u2", DType::U16},  {"i4", DType::I32}, {"u4", DType::U32}, {"i8", DType::I64},
                              {"u8", DType::U64},  {"f2", DType::F16}, {"f4", DType::F32}, {"f8", DType::F64}};

// The dictionary is a Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
class Dictionary {
 public:
  Dictionary(std::string_view text, uint64_t offset, const Origin& file) : file_(file), text_(text), offset_(offset) {}

  NpyHeader read() {
    expect('{');
    while (!accept('}')) {
      entry();
      if (accept('}')) break;
      expect(',');
    }
    space();
    if (at_ != text_.size()) fail("the end of the header");
    if (!descr_) missing("descr");
    if (!fortran_) missing("fortran_order");
    if (!shape_) missing("shape");
    NpyHeader header{dtype_of_descr(*descr_, file_), false, *fortran_, std::move(*shape_)};
    header.swapped = (*descr_)[0] == '>' && element_bytes(header.dtype) > 1;
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    const std::string found =
        at_ < text_.size() ? "'" + std::string(text_.substr(at_, 8)) + "'" : std::string("its end");
    refuse(file_, "has a damaged NPY header: found " + found + " at byte " + std::to_string(offset_ + at_) +
                      ", expected " + expected);
  }
  [[noreturn]] void missing(const char* key) const {
    refuse(file_, std::string("has a damaged NPY header: it has no '") + key + "'");
  }

  void space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool accept(char c) {
    space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string("'") + c + "'");
  }

  void entry() {
    space();
    const size_t start = at_;
    const std::string key = string("a key");
    expect(':');
    if (key == "descr" && !descr_) {
      descr_ = descr_value();
    } else if (key == "fortran_order" && !fortran_) {
      fortran_ = boolean();
    } else if (key == "shape" && !shape_) {
      shape_ = tuple();
    } else {
      at_ = start;
      fail("'descr', 'fortran_order' or 'shape', each once");
    }
  }
  std::string string(const char* what) {
    space();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) fail(what);
    const char quote = text_[at_++];
    const size_t start = at_;
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\\') ++at_;
    if (at_ == text_.size() || text_[at_] != quote) fail("the end of a string");
    return std::string(text_.substr(start, at_++ - start));
  }
  std::string descr_value() {
    space();
    if (at_ < text_.size() && text_[at_] == '[')
      refuse(file_, "holds records of several fields (a structured NPY dtype)", "save each field as its own array");
    return string("a dtype such as '<f4'");
  }
  bool boolean() {
    space();
    for (const auto& [word, value] : {std::pair{"True", true}, std::pair{"False", false}}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += std::strlen(word);
      return value;
    }
    fail("True or False");
  }
  std::vector<uint64_t> tuple() {
    std::vector<uint64_t> dims;
    expect('(');
    while (!accept(')')) {
      dims.push_back(number());
      if (accept(')')) break;
      expect(',');
    }
    return dims;
  }
  uint64_t number() {
    space();
    uint64_t value = 0;
    const size_t start = at_;
    for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      if (__builtin_mul_overflow(value, uint64_t{10}, &value) ||
          __builtin_add_overflow(value, static_cast<uint64_t>(text_[at_] - '0'), &value)) {
        at_ = start;
        fail("a size below 2^64");
      }
    if (at_ == start) fail("a size");
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // Python 2 writes 2L
    return value;
  }

  const Origin& file_;
  std::string_view text_;
  uint64_t offset_;
  size_t at_ = 0;
  std::optional<std::string> descr_;
  std::optional<bool> fortran_;
  std::optional<std::vector<uint64_t>> shape_;
};

}  // namespace

bool looks_like_npy(const uint8_t* data, size_t size) {
  return size >= kMagic.size() && std::memcmp(data, kMagic.data(), kMagic.size()) == 0;
}

std::optional<NpyPreamble> read_npy_preamble(std::span<const uint8_t> bytes, const Origin& file) {
  if (bytes.size() < 10) return std::nullopt;
  const uint8_t major = bytes[6];
  if (major < 1 || major > 3)
    refuse(file, "is NPY of version " + std::to_string(major) + "." + std::to_string(bytes[7]) +
                     "; versions 1 to 3 can be read");
  const size_t text = major == 1 ? 10 : 12;
  if (bytes.size() < text) return std::nullopt;
  uint64_t size = bytes[8] | uint64_t{bytes[9]} << 8;
  if (major > 1) size |= uint64_t{bytes[10]} << 16 | uint64_t{bytes[11]} << 24;
  return NpyPreamble{text, size};
}

NpyHeader read_npy_header(std::string_view text, uint64_t offset, const Origin& file) {
  return Dictionary(text, offset, file).read();
}

DType dtype_of_descr(const std::string& descr, const Origin& file) {
  if (descr.size() > 1 && std::strchr("<>|=", descr[0]))
    for (const NpyType& t : kTypes)
      if (descr.compare(1, std::string::npos, t.code) == 0) return t.dtype;
  if (descr.find('O') != std::string::npos)
    refuse(file, "holds Python objects (dtype '" + descr + "'), which are never read",
           "save numbers: array.astype('f4')");
  if (descr.size() > 1 && (descr[1] == 'U' || descr[1] == 'S'))
    refuse(file, "holds texts (dtype '" + descr + "'), not numbers",
           "save class numbers: numpy.unique(array, return_inverse=True)[1], or the words as a column of a CSV file");
  refuse(file,
         "has the dtype '" + descr + "'; numbers of 1 to 8 bytes can be read (b1, u1 to u8, i1 to i8, f2, f4, f8)",
         "convert it with array.astype('f4')");
}

std::string write_npy_header(DType dtype, const std::vector<uint64_t>& shape, size_t alignment) {
  const auto type =
      std::find_if(std::begin(kTypes), std::end(kTypes), [&](const NpyType& t) { return t.dtype == dtype; });
  if (type == std::end(kTypes))
    throw Error(ErrorKind::Type,
                "NumPy has no type for " + std::string(element_type(dtype).name) + "; convert the array to f32");
  std::string text = std::string("{'descr': '") + (element_bytes(dtype) == 1 ? '|' : '<') + type->code +
                     "', 'fortran_order': False, 'shape': (";
  for (size_t i = 0; i < shape.size(); ++i)
    text.append(i ? " " : "").append(std::to_string(shape[i])).append(i + 1 < shape.size() || i == 0 ? "," : "");
  text += "), }";
  const size_t preamble = kMagic.size() + 4,
               whole = (preamble + text.size() + 1 + alignment - 1) / alignment * alignment;
  text.resize(whole - preamble - 1, ' ');
  text += '\n';
  return std::string(kMagic) + '\x01' + '\0' + static_cast<char>(text.size() & 0xff) +
         static_cast<char>(text.size() >> 8) + text;
}

}  // namespace harmonics
