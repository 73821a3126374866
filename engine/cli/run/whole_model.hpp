// Models with all that their files say, for commands that write them again.
#pragma once

#include <functional>
#include <string>

#include "engine/model/imported.hpp"
#include "engine/transformer/described.hpp"

namespace harmonics::engine::cli {

// With all metadata, vocabularies too, if the importer leaves some out otherwise.
ImportedModel import_whole(const std::string& path, Registry& registry, const DescribedOptions& options = {});

// A model as a GGUF file: the file itself, or, of a folder, a file beside `to` that lasts as long as the object.
class AsGguf {
 public:
  AsGguf(const std::string& from, const std::string& to);
  // A file that `write` writes to `path`, and that lasts as long as the object.
  AsGguf(std::string path, const std::function<void(const std::string&)>& write);
  ~AsGguf();
  AsGguf(const AsGguf&) = delete;
  AsGguf& operator=(const AsGguf&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool made_ = false;
};

}  // namespace harmonics::engine::cli
