#include "producers/file/npy.hpp"

#include "formats/npy.hpp"

namespace harmonics {

ArrayLayout read_npy_at(const FileBytesPtr& file, size_t offset, size_t& end) {
  const std::span<const uint8_t> array = file->bytes().subspan(offset);
  const Origin origin = file->origin();
  if (!looks_like_npy(array.data(), array.size()))
    refuse_file(file->name(), "is not NPY: no NPY array begins at byte " + std::to_string(offset));
  const std::optional<NpyPreamble> preamble = read_npy_preamble(array, origin);
  if (!preamble)
    refuse_file(file->name(), "ends at byte " + std::to_string(file->size()) + " inside its NPY header",
                "get the file again");
  const std::span<const uint8_t> rest = array.subspan(preamble->text);
  if (preamble->size > rest.size())
    refuse_file(file->name(),
                "is truncated: its NPY header has " + std::to_string(preamble->size) + " bytes, " +
                    std::to_string(rest.size()) + " are there",
                "get the file again");
  const std::string_view text(reinterpret_cast<const char*>(rest.data()), preamble->size);
  const NpyHeader header = read_npy_header(text, offset + preamble->text, origin);
  ArrayLayout layout;
  layout.bytes = file;
  layout.offset = offset + preamble->text + preamble->size;
  layout.dtype = header.dtype;
  const std::vector<uint64_t>& dims = header.shape;
  set_axes(layout, dims, "its array");
  const size_t bytes = array_bytes(file->name(), layout.dtype, dims);
  const size_t there = file->size() - layout.offset;
  if (there < bytes)
    refuse_file(file->name(),
                "is truncated: its NPY header promises " + std::to_string(bytes) + " bytes of elements, " +
                    std::to_string(there) + " are there",
                "get the file again");
  end = layout.offset + bytes;
  layout.column_major = header.column_major;
  layout.swapped = header.swapped;
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
