// Built programs on the disk, under the user's cache, named by what they were built from. A file that is not whole is as none.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace harmonics::kernels {

class ProgramFile {
 public:
  // `device`: whose folder of the cache; `made_from`: everything that makes another program of it.
  ProgramFile(const std::string& device, const std::vector<std::string>& made_from);
  std::optional<std::string> read() const;
  // What cannot be written is built again next time.
  void write(const std::string& binary) const;
  const std::string& path() const { return path_; }  // "": there is no place for it

 private:
  std::string path_, key_;
};

}  // namespace harmonics::kernels
