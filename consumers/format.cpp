#include "consumers/format.hpp"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>

namespace harmonics {
namespace {

template <typename T>
T load(const char* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

float from_bits(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

float half(uint16_t h) {
  const uint32_t exponent = h >> 10 & 31, fraction = h & 1023;
  const float magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                          : exponent == 0
                              ? std::ldexp(static_cast<float>(fraction), -24)
                              : std::ldexp(static_cast<float>(fraction | 1024), static_cast<int>(exponent) - 25);
  return h & 0x8000 ? -magnitude : magnitude;
}

bool is_real(DType dtype) { return dtype >= DType::F16; }

double real_at(DType dtype, const char* at) {
  switch (dtype) {
    case DType::F16:
      return half(load<uint16_t>(at));
    case DType::BF16:
      return from_bits(uint32_t{load<uint16_t>(at)} << 16);
    case DType::F32:
      return load<float>(at);
    default:
      return load<double>(at);
  }
}

int64_t integer_at(DType dtype, const char* at) {
  switch (dtype) {
    case DType::Bool:
    case DType::U8:
      return load<uint8_t>(at);
    case DType::I8:
      return load<int8_t>(at);
    case DType::I16:
      return load<int16_t>(at);
    case DType::U16:
      return load<uint16_t>(at);
    case DType::I32:
      return load<int32_t>(at);
    case DType::U32:
      return load<uint32_t>(at);
    default:
      return load<int64_t>(at);
  }
}

// Writes the fewest digits that parse back to `v`, in the notation of printf's %g.
template <typename T>
void add_shortest(std::string& out, T v) {
  char text[64];
  if (std::isnan(v)) v = std::numeric_limits<T>::quiet_NaN();  // the sign of a NaN is meaningless
  out.append(text, std::to_chars(text, text + sizeof text, v, std::chars_format::general).ptr);
}

// Likewise for the 16-bit types: the text is nearer to this value than to its neighbours.
void add_shortest_of_16(std::string& out, DType dtype, const char* at) {
  const auto value = [&](uint16_t bits) { return real_at(dtype, reinterpret_cast<const char*>(&bits)); };
  const uint16_t bits = load<uint16_t>(at), magnitude = bits & 0x7fff;
  const double v = value(magnitude);
  if (magnitude == 0 || !std::isfinite(v)) return add_shortest(out, value(bits));
  const double below = value(magnitude - 1), next = value(magnitude + 1),
               above = std::isfinite(next) ? next : 2 * v - below;
  char text[64];
  char* end = text;
  for (int digits = 1; digits <= 9; ++digits) {
    end = std::to_chars(text, text + sizeof text, v, std::chars_format::general, digits).ptr;
    double read = 0;
    std::from_chars(text, end, read);
    if (read > (below + v) / 2 && read < (v + above) / 2) break;
  }
  if (bits != magnitude) out += '-';
  out.append(text, end);
}

void add_real(std::string& out, DType dtype, const char* at) {
  switch (dtype) {
    case DType::F32:
      return add_shortest(out, load<float>(at));
    case DType::F64:
      return add_shortest(out, load<double>(at));
    default:
      return add_shortest_of_16(out, dtype, at);
  }
}

void add_number(std::string& out, DType dtype, const char* at) {
  char text[32];
  if (is_real(dtype)) return add_real(out, dtype, at);
  if (dtype == DType::U64)
    std::snprintf(text, sizeof text, "%" PRIu64, load<uint64_t>(at));
  else
    std::snprintf(text, sizeof text, "%" PRId64, integer_at(dtype, at));
  out += text;
}

// Writes null for infinity and NaN, which JSON cannot represent, and a negative zero with a point: readers take "-0"
// for an integer, without a sign.
void add_json_value(std::string& out, DType dtype, const char* at) {
  if (dtype == DType::Bool)
    out += *at ? "true" : "false";
  else if (is_real(dtype) && !std::isfinite(real_at(dtype, at)))
    out += "null";
  else if (is_real(dtype) && real_at(dtype, at) == 0 && std::signbit(real_at(dtype, at)))
    out += "-0.0";
  else
    add_number(out, dtype, at);
}

// Returns the index of the largest element, of equal ones the first; none if NaN or infinity makes it ambiguous.
std::optional<int64_t> largest_of(DType dtype, const char* data, int64_t n) {
  const size_t step = element_bytes(dtype);
  double most = -INFINITY;
  int64_t index = 0;
  for (int64_t k = 0; k < n; ++k) {
    const double v = real_at(dtype, data + static_cast<size_t>(k) * step);
    if (std::isnan(v)) return std::nullopt;
    if (v > most) most = v, index = k;
  }
  return std::isfinite(most) ? std::optional(index) : std::nullopt;
}

size_t characters(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

LineWriter::LineWriter(LineFormat format, std::vector<std::string> symbols)
    : format_(format), symbols_(std::move(symbols)) {
  if (format_ == LineFormat::Symbols && symbols_.empty())
    throw Error(ErrorKind::Usage,
                "format=symbols needs the symbols; write symbols=a,b,c for words or vocabulary=abc for characters");
  spaced_ = std::any_of(symbols_.begin(), symbols_.end(), [](const std::string& s) { return characters(s) != 1; });
}

const std::string& LineWriter::line(const HTensor& sample) {
  line_.clear();
  const hx_type type = sample.type();
  const char* data = static_cast<const char*>(sample.bytes());
  switch (format_) {
    case LineFormat::Text:
      add_elements(type, data, " ");
      break;
    case LineFormat::Csv:
      add_elements(type, data, ",");
      break;
    case LineFormat::Json:
      add_json(type, 0, data);
      break;
    case LineFormat::Argmax:
    case LineFormat::Symbols:
      add_indices(type, data);
      break;
  }
  return line_;
}

void LineWriter::add_elements(const hx_type& type, const char* data, const char* separator) {
  const auto dtype = static_cast<DType>(type.dtype);
  const size_t step = element_bytes(dtype);
  const int64_t n = Shape(type.dims, type.dims + type.rank).count();
  for (int64_t i = 0; i < n; ++i, data += step) {
    if (i) line_ += separator;
    add_number(line_, dtype, data);
  }
}

void LineWriter::add_json(const hx_type& type, uint32_t axis, const char*& at) {
  const auto dtype = static_cast<DType>(type.dtype);
  if (axis == type.rank) {
    add_json_value(line_, dtype, at);
    at += element_bytes(dtype);
    return;
  }
  line_ += '[';
  for (int64_t i = 0; i < type.dims[axis]; ++i) {
    if (i) line_ += ", ";
    add_json(type, axis + 1, at);
  }
  line_ += ']';
}

void LineWriter::add_indices(const hx_type& type, const char* data) {
  const auto dtype = static_cast<DType>(type.dtype);
  const size_t step = element_bytes(dtype);
  const int64_t n = Shape(type.dims, type.dims + type.rank).count();
  const int64_t row = is_real(dtype) && type.rank ? type.dims[type.rank - 1] : 1;
  for (int64_t i = 0; i < n; i += row) {
    std::optional<int64_t> index;
    if (!is_real(dtype)) {
      index = integer_at(dtype, data + static_cast<size_t>(i) * step);
    } else {
      index = largest_of(dtype, data + static_cast<size_t>(i) * step, row);
    }
    add_index(index, i == 0);
  }
}

void LineWriter::add_index(std::optional<int64_t> index, bool first) {
  if ((format_ == LineFormat::Argmax || spaced_) && !first) line_ += ' ';
  if (!index) return;
  if (format_ == LineFormat::Argmax) {
    line_ += std::to_string(*index);
    return;
  }
  if (*index < 0 || static_cast<size_t>(*index) >= symbols_.size())
    throw Error(ErrorKind::Stream, "the index " + std::to_string(*index) + " has no symbol; " +
                                       std::to_string(symbols_.size()) + " symbols are known");
  line_ += symbols_[static_cast<size_t>(*index)];
}

}  // namespace harmonics
