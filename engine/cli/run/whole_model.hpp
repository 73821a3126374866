// Imports models with all their metadata, for commands that write them again.
#pragma once

#include <functional>
#include <string>

#include "engine/model/imported.hpp"
#include "engine/transformer/described.hpp"

namespace harmonics::engine::cli {

// Imports a model with all metadata, including vocabularies that the importer omits by default.
ImportedModel import_whole(const std::string& path, Registry& registry, const DescribedOptions& options = {});

// A model as a GGUF file: the file itself, or a temporary file beside `to`, which the destructor removes, for a folder
// or a file of another format.
class AsGguf {
 public:
  AsGguf(const std::string& from, const std::string& to);
  // Calls `write` to write the file `path`, which the destructor removes.
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
