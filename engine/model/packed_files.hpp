// Packed weights in the user's cache folder, which later processes map instead of packing again. A file is named by a
// hash of the weights, their type and the packing, whose name contains layout, instruction set and version.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/file.hpp"
#include "engine/execution/executable.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics::engine {

// 128-bit hash of a text or of elements. Not cryptographic.
using ContentHash = std::array<uint64_t, 2>;
// Hashes data that is added in parts of any length, `bytes` in total.
class ContentHasher {
 public:
  explicit ContentHasher(size_t bytes, uint64_t seed = 0);
  void add(const void* data, size_t bytes);
  ContentHash result();  // must be called once, after all data was added

 private:
  static constexpr size_t kChains = 8, kBlock = kChains * sizeof(uint64_t);
  void take(const char* at, size_t blocks);

  uint64_t seed_;
  std::array<uint64_t, kChains> chains_;
  std::array<char, kBlock> rest_{};
  size_t waiting_ = 0;  // bytes used in rest_
};
ContentHash hash_of(const void* data, size_t bytes, uint64_t seed = 0);

// A packed form to make, and the elements to make it of.
struct PackedSource {
  const Packing* packing;
  TensorType type;
  const void* elements;
};
struct PackedForm {
  std::shared_ptr<Storage> storage;             // read-only if it is a view into `file`
  std::shared_ptr<const MappedFile> file = {};  // null: in memory only
};

class PackedFiles {
 public:
  // Limits the files to `most_bytes` in total by removing the least recently used. Creates the folder when needed.
  PackedFiles(std::string folder, uint64_t most_bytes, FileCalls& calls = FileCalls::system());
  // Returns the packed forms, in order, of elements of the file `from`: mapped if they exist, otherwise packed, written
  // and mapped. Forms below kLargeForm share one file, so that they lie in huge pages. Replaces files that are damaged
  // or world-writable. If no file can be written, the forms are in memory. Safe to call from several threads and
  // processes.
  std::vector<PackedForm> take(std::span<const PackedSource> sources, const MappedFile& from);
  uint64_t most_bytes() const { return most_bytes_; }

 private:
  class FileAside;
  struct Group;
  std::vector<PackedForm> take_group(const Group& group, const MappedFile& from);
  std::string path(const ContentHash& name, const char* ending) const;
  std::string path_of(const std::string& key) const;
  std::shared_ptr<const MappedFile> mapped(const std::string& path, const std::string& key, uint64_t bytes,
                                           const ContentHash* written = nullptr) const;
  std::shared_ptr<const MappedFile> written(const Group& group, const MappedFile& from, std::string& content);
  void note(const std::string& path, const std::string& text) const;
  std::string known_text(const std::string& path, size_t bytes) const;
  bool has_file_of(uint64_t bytes) const;
  void remove_oldest();

  std::string folder_;
  uint64_t most_bytes_;
  FileCalls& calls_;
};

// What a file of packed weights contains: the name of the packing and the type of the weights, or the names of all
// packings and "12 tensors".
struct PackedName {
  std::string packing, type;
};
// Returns nothing if the file is not one of packed weights, or its description is damaged.
std::optional<PackedName> packed_name_of(const std::string& path);
// Returns the folder for packed weights in the user's cache folder, or "" if the environment defines none.
std::string packed_files_folder();
// Forms that need less in total are not written to files.
constexpr uint64_t kLeastPackedFile = uint64_t{1} << 20;
// Forms of this size have files of their own: the last huge page, which a file fills in part, matters little.
constexpr uint64_t kLargeForm = uint64_t{16} << 20;

}  // namespace harmonics::engine
