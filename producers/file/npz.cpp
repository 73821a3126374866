#include "producers/file/npz.hpp"

#include "formats/zip.hpp"
#include "producers/file/npy.hpp"
#include "producers/file/select.hpp"

namespace harmonics {
namespace {

constexpr char ending[] = ".npy";
constexpr size_t ending_size = 4;

std::string array_name(const std::string& member) {
  const bool npy = member.size() > ending_size && member.compare(member.size() - ending_size, ending_size, ending) == 0;
  return npy ? member.substr(0, member.size() - ending_size) : "";
}

}  // namespace

FileBytesPtr read_zip_member(const FileBytesPtr& archive, const ZipMember& member) {
  const Origin origin = archive->origin();
  const std::span<const uint8_t> packed = zip_member_bytes(archive->bytes(), member, origin);
  const std::string name = archive->name() + "#" + member.name;
  if (member.stored()) {
    check_zip_member(packed, member, origin);
    return FileBytes::piece(archive, name, static_cast<size_t>(packed.data() - archive->data()), member.size);
  }
  const auto bytes = FileBytes::reserve(name, member.size, archive->budget());
  bytes->charge(member.size, "its decompressed content");
  inflate_zip_member(packed, member, {bytes->writable(), bytes->size()}, origin);
  check_zip_member(bytes->bytes(), member, origin);
  return bytes;
}

ArrayLayout read_npz(const FileBytesPtr& archive, const std::optional<std::string>& name) {
  std::vector<ZipMember> arrays;
  std::vector<std::string> names;
  for (ZipMember& member : read_zip_directory(archive->bytes(), archive->origin())) {
    const std::string array = array_name(member.name);
    if (array.empty()) continue;
    names.push_back(array);
    arrays.push_back(std::move(member));
  }
  return read_npy(read_zip_member(archive, arrays[selected(archive->name(), "array", names, name)]));
}

}  // namespace harmonics
