#include "producers/file/npz.hpp"

#include "producers/file/npy.hpp"
#include "producers/file/select.hpp"
#include "producers/file/zip.hpp"

namespace harmonics {
namespace {

constexpr char ending[] = ".npy";
constexpr size_t ending_size = 4;

std::string array_name(const std::string& member) {
  const bool npy = member.size() > ending_size && member.compare(member.size() - ending_size, ending_size, ending) == 0;
  return npy ? member.substr(0, member.size() - ending_size) : "";
}

}  // namespace

ArrayLayout read_npz(const FileBytesPtr& archive, const std::optional<std::string>& name) {
  std::vector<ZipMember> arrays;
  std::vector<std::string> names;
  for (ZipMember& member : read_zip_directory(archive)) {
    const std::string array = array_name(member.name);
    if (array.empty()) continue;
    names.push_back(array);
    arrays.push_back(std::move(member));
  }
  return read_npy(read_zip_member(archive, arrays[selected(archive->name(), "array", names, name)]));
}

}  // namespace harmonics
