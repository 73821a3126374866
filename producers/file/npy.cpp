#include "producers/file/npy.hpp"

#include <cstring>

#include "wire/plain/npy_header.hpp"

namespace harmonics {
namespace {

constexpr char magic[] = "\x93NUMPY";
constexpr size_t magic_size = 6;

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
