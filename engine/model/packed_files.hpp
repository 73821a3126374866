// Packed weights in the user's cache folder, so that the next start maps them. A file is named by the content of the
// weights, their type and the packing, which names layout, instruction set and version.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/file.hpp"
#include "engine/execution/executable.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics::engine {

// 128 bits of a text or of elements. Not secure against someone who searches for equal hashes.
using ContentHash = std::array<uint64_t, 2>;
// Takes the elements in parts of any length, `bytes` in all.
class ContentHasher {
 public:
  explicit ContentHasher(size_t bytes, uint64_t seed = 0);
  void add(const void* data, size_t bytes);
  ContentHash result();  // call once, last

 private:
  static constexpr size_t kChains = 8, kBlock = kChains * sizeof(uint64_t);
  void take(const char* at, size_t blocks);

  uint64_t seed_;
  std::array<uint64_t, kChains> chains_;
  std::array<char, kBlock> rest_{};
  size_t waiting_ = 0;  // bytes of rest_
};
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
  class FileAside;
  std::string path(const ContentHash& name, const char* ending) const;
  std::string path_of(const std::string& key) const;
  PackedForm mapped(const std::string& path, const std::string& key, uint64_t bytes,
                    const ContentHash* written = nullptr) const;
  PackedForm written(const Packing& packing, const TensorType& type, const void* elements, const MappedFile& source,
                     const std::string& what, std::string& content);
  void note(const std::string& path, const std::string& text) const;
  std::string known_text(const std::string& path, size_t bytes) const;
  bool has_form_of(uint64_t bytes) const;
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
