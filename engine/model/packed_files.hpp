// Packed weights in the user's cache folder, so that the next start maps them. A file is named by the content of the
// weights, their type and the packing, which names layout, instruction set and version.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/file.hpp"
#include "engine/execution/executable.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics::engine {

// 128 bits of a text or of elements. Not secure against someone who searches for equal hashes.
using ContentHash = std::array<uint64_t, 2>;
ContentHash hash_of(const void* data, size_t bytes, uint64_t seed = 0);

struct PackedForm {
  std::shared_ptr<Storage> storage;             // read-only if it is a view into `file`
  std::shared_ptr<const MappedFile> file = {};  // null: in memory only
};

class PackedFiles {
 public:
  // Files together take at most `most_bytes`: those used longest ago are removed. The folder is made when it is needed.
  PackedFiles(std::string folder, uint64_t most_bytes, FileCalls& calls = FileCalls::system());
  // The form of elements that lie in `source`: mapped if it was kept, else packed, written and mapped. A file that is
  // damaged, or that everyone can write, is replaced. If nothing can be written, the form is in memory. Threads and
  // processes may call at the same time.
  PackedForm take(const Packing& packing, const TensorType& type, const void* elements, const MappedFile& source);
  uint64_t most_bytes() const { return most_bytes_; }

 private:
  std::string path(const ContentHash& name, const char* ending) const;
  PackedForm mapped(const std::string& path, const std::string& key, uint64_t bytes,
                    const ContentHash* written = nullptr) const;
  bool write(const std::string& path, std::initializer_list<std::string_view> pieces);
  std::string known_content(const std::string& path) const;
  void remove_oldest();

  std::string folder_;
  uint64_t most_bytes_;
  FileCalls& calls_;
};

// The folder for packed weights in the user's cache folder; "": there is none.
std::string packed_files_folder();
// Smaller forms are packed at every start.
constexpr uint64_t kLeastPackedFile = uint64_t{1} << 20;

}  // namespace harmonics::engine
