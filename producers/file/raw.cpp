#include "producers/file/raw.hpp"

#include <charconv>

#include <harmonics/checked.hpp>
#include <harmonics/quantity.hpp>

namespace harmonics {
namespace {

struct TypeName {
  const char* name;
  DType dtype;
};
constexpr TypeName raw_types[] = {
    {"bool", DType::Bool}, {"u8", DType::U8},     {"i8", DType::I8},   {"u16", DType::U16}, {"i16", DType::I16},
    {"f16", DType::F16},   {"bf16", DType::BF16}, {"u32", DType::U32}, {"i32", DType::I32}, {"f32", DType::F32},
    {"u64", DType::U64},   {"i64", DType::I64},   {"f64", DType::F64}};

}  // namespace

Shape shape_named(const std::string& text, const std::string& file) {
  Shape dims;
  const char *at = text.data(), *end = at + text.size();
  while (at != end) {
    int64_t size = 0;
    const auto [stop, error] = std::from_chars(at, end, size);
    const bool more = stop != end;
    if (error != std::errc() || size < 1 || (more && (*stop != 'x' || stop + 1 == end)) || dims.rank() == HX_MAX_RANK)
      throw Error(ErrorKind::Usage, "shape=" + text + " of '" + file +
                                        "' is not a shape; write sizes with x between, such as shape=28x28");
    dims.push_back(size);
    at = stop + (more ? 1 : 0);
  }
  if (!checked_count<int64_t>(dims))
    throw Error(ErrorKind::Usage,
                "shape=" + text + " of '" + file + "' is larger than any memory; write smaller sizes");
  return dims;
}

std::optional<DType> dtype_named(const std::string& name) {
  for (const TypeName& t : raw_types)
    if (name == t.name) return t.dtype;
  return std::nullopt;
}

ArrayLayout read_raw(const FileBytesPtr& file, const RawOptions& options) {
  const auto dtype = dtype_named(options.dtype);
  if (!dtype) {
    std::string known;
    for (const TypeName& t : raw_types) known += (known.empty() ? "" : ", ") + std::string(t.name);
    throw Error(ErrorKind::Usage,
                (options.dtype.empty() ? "'" + file->name() + "' holds raw numbers of unknown type"
                                       : "dtype=" + options.dtype + " of '" + file->name() + "' is not a type") +
                    "; write dtype= and one of " + known);
  }
  const Shape shape = shape_named(options.shape, file->name());
  const size_t sample = array_bytes(file->name(), *dtype, {shape.begin(), shape.end()});
  const size_t bytes = file->size() - std::min<uint64_t>(file->size(), options.offset);
  if (bytes == 0 || bytes % sample)
    refuse_file(file->name(),
                "has " + quantity(bytes, "byte") +
                    (options.offset ? " after the first " + std::to_string(options.offset) : "") +
                    ", which are not samples of " + quantity(sample, "byte") + " each",
                "correct dtype=, shape= or offset=");
  ArrayLayout layout;
  layout.bytes = file;
  layout.offset = options.offset;
  layout.dtype = *dtype;
  layout.sample = shape;
  layout.count = bytes / sample;
  return layout;
}

}  // namespace harmonics
