// On-disk cache of compiled programs in the user's cache folder, keyed by all inputs. Damaged files are ignored, and so
// are those that another user owns or may write, because a device runs what they contain.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace harmonics::kernels {

class ProgramFile {
 public:
  // `device`: folder name in the cache; `made_from`: all inputs that affect the program.
  ProgramFile(const std::string& device, const std::vector<std::string>& made_from);
  std::optional<std::string> read() const;
  // Ignores write errors: the program is rebuilt next time.
  void write(const std::string& binary) const;
  const std::string& path() const { return path_; }  // "": no cache folder
  // Returns what the program in a file was made from; nothing if the file is damaged.
  static std::optional<std::vector<std::string>> made_from(const std::string& path);

 private:
  std::string path_, key_;
};

}  // namespace harmonics::kernels
