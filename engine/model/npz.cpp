#include "engine/model/npz.hpp"

#include <algorithm>
#include <cstring>

#include <harmonics/quantity.hpp>

#include "engine/base/model_limits.hpp"
#include "formats/npy.hpp"
#include "formats/utf8.hpp"
#include "formats/zip.hpp"

namespace harmonics::engine {

namespace {

constexpr std::string_view kEnding = ".npy";

// Copies elements of `bytes` bytes each into row-major order and native byte order.
void copy_in_order(const uint8_t* from, uint8_t* to, const Shape& shape, size_t bytes, const NpyHeader& header) {
  const auto count = static_cast<size_t>(shape.count());
  const size_t rank = shape.rank();
  const auto extent = [&](size_t d) { return static_cast<size_t>(shape[static_cast<uint32_t>(d)]); };
  std::vector<size_t> index(rank, 0), stride(rank, 1);
  for (size_t d = 0; d + 1 < rank; ++d) stride[d + 1] = stride[d] * extent(d);
  if (!header.column_major)
    for (size_t d = rank, at = 1; d-- > 0; at *= extent(d)) stride[d] = at;
  size_t source = 0;
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(to + i * bytes, from + source * bytes, bytes);
    if (header.swapped) std::reverse(to + i * bytes, to + (i + 1) * bytes);
    for (size_t d = rank; d-- > 0;) {
      source += stride[d];
      if (++index[d] < extent(d)) break;
      source -= stride[d] * index[d];
      index[d] = 0;
    }
  }
}

// Returns the array in `bytes`: a view that keeps `keep` alive if order and alignment allow it, otherwise a copy. If
// `keep` is null, always a copy.
HTensor array_of(std::span<const uint8_t> bytes, const Origin& member, const std::shared_ptr<const void>& keep) {
  if (!looks_like_npy(bytes.data(), bytes.size())) refuse(member, "is not NPY");
  const auto preamble = read_npy_preamble(bytes, member);
  if (!preamble || preamble->size > bytes.size() - preamble->text) refuse(member, "ends inside its NPY header");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + preamble->text, preamble->size);
  const NpyHeader header = read_npy_header(text, preamble->text, member);
  const std::span<const uint8_t> data = bytes.subspan(preamble->text + preamble->size);
  if (header.shape.size() > HX_MAX_RANK)
    refuse(member, "has " + std::to_string(header.shape.size()) + " dimensions; a tensor has at most 8");
  TensorType type{header.dtype, {}};
  uint64_t size = element_bytes(header.dtype);
  for (const uint64_t d : header.shape) {
    if (d > INT64_MAX || __builtin_mul_overflow(size, d, &size) || size > INT64_MAX)
      refuse(member, "has a shape whose size overflows");
    type.shape.push_back(static_cast<int64_t>(d));
  }
  if (size != data.size())
    refuse(member,
           "has " + quantity(data.size(), "byte") + " of elements; its header promises " + std::to_string(size));
  if (header.dtype == DType::Bool && std::any_of(data.begin(), data.end(), [](uint8_t b) { return b > 1; }))
    refuse(member, "has a bool that is neither 0 nor 1");
  const bool in_order = !header.swapped && !(header.column_major && header.shape.size() > 1);
  const bool aligned = reinterpret_cast<uintptr_t>(data.data()) % element_bytes(header.dtype) == 0;
  if (keep && in_order && aligned)
    return make_value(type, std::make_shared<Storage>(const_cast<uint8_t*>(data.data()), size, keep, false));
  auto storage = std::make_shared<Storage>(size);
  auto* to = static_cast<uint8_t*>(storage->data());
  if (in_order)
    std::copy(data.begin(), data.end(), to);
  else
    copy_in_order(data.data(), to, type.shape, element_bytes(header.dtype), header);
  return make_value(type, std::move(storage));
}

}  // namespace

bool looks_like_npz(const void* data, size_t bytes) {
  const auto* first = static_cast<const uint8_t*>(data);
  // A safetensors header length may equal a zip's magic number, but then zero bytes follow.
  return looks_like_zip(first, bytes) && bytes > 4 && first[4] != 0;
}

TensorFile read_npz(const void* data, size_t bytes, const std::string& name, const std::shared_ptr<const void>& keep) {
  const Origin origin{name, ErrorKind::Weights};
  const std::span<const uint8_t> archive(static_cast<const uint8_t*>(data), bytes);
  Budget unpacked = ModelLimits().for_weights();
  TensorFile file;
  for (const ZipMember& member : read_zip_directory(archive, origin)) {
    const Origin array{name + "#" + member.name, ErrorKind::Weights};
    if (!member.name.ends_with(kEnding) || member.name.size() == kEnding.size())
      refuse(array, "is not an array of an NPZ file, whose members are NAME.npy", "save arrays with numpy.savez");
    const std::string tensor = member.name.substr(0, member.name.size() - kEnding.size());
    if (find_invalid_utf8(tensor)) refuse(array, "has a name that is not UTF-8");
    const std::span<const uint8_t> packed = zip_member_bytes(archive, member, origin);
    HTensor value;
    if (member.stored()) {
      check_zip_member(packed, member, origin);
      value = array_of(packed, array, keep);
    } else {
      unpacked.take(member.size, "'" + array.name + "'", std::to_string(member.size) + " bytes");
      std::vector<uint8_t> whole(member.size);
      inflate_zip_member(packed, member, whole, origin);
      check_zip_member(whole, member, origin);
      value = array_of(whole, array, nullptr);
    }
    if (!file.tensors.emplace(tensor, std::move(value)).second) refuse(array, "occurs twice in the archive");
  }
  return file;
}

}  // namespace harmonics::engine
