#include "producers/file/npy.hpp"

#include <cstring>
#include <optional>

namespace harmonics {
namespace {

constexpr char magic[] = "\x93NUMPY";
constexpr size_t magic_size = 6;

// The header's text is a Python dictionary literal: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }.
class NpyHeader {
 public:
  NpyHeader(const std::string& name, const char* text, size_t size, size_t place)
      : name_(name), text_(text), size_(size), place_(place) {
    expect('{');
    while (!accept('}')) {
      entry();
      if (accept('}')) break;
      expect(',');
    }
    space();
    if (at_ != size_) fail("the end of the header");
    if (!descr_) missing("descr");
    if (!fortran_) missing("fortran_order");
    if (!shape_) missing("shape");
  }

  const std::string& descr() const { return *descr_; }
  bool fortran() const { return *fortran_; }
  const std::vector<uint64_t>& shape() const { return *shape_; }

 private:
  [[noreturn]] void fail(const std::string& expected) const {
    const std::string found =
        at_ < size_ ? "'" + std::string(text_ + at_, std::min<size_t>(size_ - at_, 8)) + "'" : "its end";
    refuse_file(name_, "has a damaged NPY header: found " + found + " at byte " + std::to_string(place_ + at_) +
                           ", expected " + expected);
  }
  [[noreturn]] void missing(const char* key) const {
    refuse_file(name_, std::string("has a damaged NPY header: it has no '") + key + "'");
  }

  void space() {
    while (at_ < size_ && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool accept(char c) {
    space();
    if (at_ == size_ || text_[at_] != c) return false;
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
    if (at_ == size_ || (text_[at_] != '\'' && text_[at_] != '"')) fail(what);
    const char quote = text_[at_++];
    const size_t start = at_;
    while (at_ < size_ && text_[at_] != quote && text_[at_] != '\\') ++at_;
    if (at_ == size_ || text_[at_] != quote) fail("the end of a string");
    return std::string(text_ + start, at_++ - start);
  }
  std::string descr_value() {
    space();
    if (at_ < size_ && text_[at_] == '[')
      refuse_file(name_, "holds records of several fields (a structured NPY dtype)",
                  "save each field as its own array");
    return string("a dtype such as '<f4'");
  }
  bool boolean() {
    space();
    for (const auto& [word, value] : {std::pair{"True", true}, std::pair{"False", false}}) {
      const size_t n = std::strlen(word);
      if (size_ - at_ < n || std::memcmp(text_ + at_, word, n) != 0) continue;
      at_ += n;
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
    for (; at_ < size_ && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
      if (__builtin_mul_overflow(value, uint64_t{10}, &value) ||
          __builtin_add_overflow(value, static_cast<uint64_t>(text_[at_] - '0'), &value)) {
        at_ = start;
        fail("a size below 2^64");
      }
    if (at_ == start) fail("a size");
    if (at_ < size_ && text_[at_] == 'L') ++at_;  // written by Python 2
    return value;
  }

  const std::string& name_;
  const char* text_;
  size_t size_, place_, at_ = 0;
  std::optional<std::string> descr_;
  std::optional<bool> fortran_;
  std::optional<std::vector<uint64_t>> shape_;
};

struct NpyType {
  const char* code;
  DType dtype;
};
constexpr NpyType npy_types[] = {{"b1", DType::Bool}, {"u1", DType::U8},  {"i1", DType::I8},  {"i2", DType::I16},
                             {"u2", DType::U16},  {"i4", DType::I32}, {"u4", DType::U32}, {"i8", DType::I64},
                             {"u8", DType::U64},  {"f2", DType::F16}, {"f4", DType::F32}, {"f8", DType::F64}};

DType dtype_of_descr(const std::string& name, const std::string& descr) {
  if (descr.size() > 1 && std::strchr("<>|=", descr[0]))
    for (const NpyType& t : npy_types)
      if (descr.compare(1, std::string::npos, t.code) == 0) return t.dtype;
  if (descr.find('O') != std::string::npos)
    refuse_file(name, "holds Python objects (dtype '" + descr + "'), which are never read",
                "save numbers: array.astype('f4')");
  refuse_file(name,
              "has the dtype '" + descr + "'; numbers of 1 to 8 bytes can be read (b1, u1 to u8, i1 to i8, f2, f4, f8)",
              "convert it with array.astype('f4')");
}

struct Preamble {
  size_t text, size;  // of the header's dictionary, inside the file
};

Preamble read_preamble(const FileBytes& file, size_t offset) {
  const uint8_t* p = file.data() + offset;
  const size_t left = file.size() - offset;
  if (!looks_like_npy(p, left))
    refuse_file(file.name(), "is not NPY: no NPY array begins at byte " + std::to_string(offset));
  if (left < 10)
    refuse_file(file.name(), "ends at byte " + std::to_string(file.size()) + " inside its NPY header",
                "get the file again");
  const uint8_t major = p[6];
  if (major < 1 || major > 3)
    refuse_file(file.name(), "is NPY of version " + std::to_string(major) + "." + std::to_string(p[7]) +
                                 "; versions 1 to 3 can be read");
  const size_t start = major == 1 ? 10 : 12;
  if (left < start)
    refuse_file(file.name(), "ends at byte " + std::to_string(file.size()) + " inside its NPY header",
                "get the file again");
  size_t size = p[8] | size_t{p[9]} << 8;
  if (major > 1) size |= size_t{p[10]} << 16 | size_t{p[11]} << 24;
  if (size > left - start)
    refuse_file(file.name(),
                "is truncated: its NPY header has " + std::to_string(size) + " bytes, " + std::to_string(left - start) +
                    " are there",
                "get the file again");
  return {offset + start, size};
}

}  // namespace

bool looks_like_npy(const uint8_t* data, size_t size) {
  return size >= magic_size && std::memcmp(data, magic, magic_size) == 0;
}

ArrayLayout read_npy_at(const FileBytesPtr& file, size_t offset, size_t& end) {
  const Preamble preamble = read_preamble(*file, offset);
  const NpyHeader header(file->name(), reinterpret_cast<const char*>(file->data()) + preamble.text, preamble.size,
                         preamble.text);
  ArrayLayout layout;
  layout.bytes = file;
  layout.offset = preamble.text + preamble.size;
  layout.dtype = dtype_of_descr(file->name(), header.descr());
  const std::vector<uint64_t>& dims = header.shape();
  set_axes(layout, dims, "its array");
  const size_t bytes = array_bytes(file->name(), layout.dtype, dims);
  const size_t there = file->size() - layout.offset;
  if (there < bytes)
    refuse_file(file->name(),
                "is truncated: its NPY header promises " + std::to_string(bytes) + " bytes of elements, " +
                    std::to_string(there) + " are there",
                "get the file again");
  end = layout.offset + bytes;
  layout.column_major = header.fortran();
  layout.swapped = header.descr()[0] == '>' && element_bytes(layout.dtype) > 1;
  return layout;
}

ArrayLayout read_npy(const FileBytesPtr& file) {
  size_t end = 0;
  ArrayLayout layout = read_npy_at(file, 0, end);
  if (end != file->size())
    refuse_file(file->name(),
                "has " + std::to_string(file->size() - end) + " bytes after its array, which ends at byte " +
                    std::to_string(end),
                "save one array per file");
  return layout;
}

}  // namespace harmonics
