// Models in files of other programs, as exporters of plugins write them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/file.hpp"
#include "engine/plugin/registry.hpp"
#include "engine/tensor/attributes.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics::engine {

struct ExportOptions {
  std::string exporter;                                      // "": the one whose probe fits the name best
  std::vector<std::pair<std::string, std::string>> options;  // of the exporter: name, text
};

struct ExportResult {
  std::string exporter;
  uint64_t tensors = 0, bytes = 0;      // bytes of the file
  std::vector<std::string> files = {};  // names of the files of a folder
};

// Writes the tensors and the metadata to `path`, which is replaced as a whole or not at all; a folder, or a path that
// ends with '/', gets the files of a folder, config.json last. `written` is called before that, and may throw. Throws
// ErrorKind::Usage if no exporter writes files of this name or several do equally well, the exporter's error for what
// its format cannot hold, ErrorKind::Output if the file cannot be written.
ExportResult export_model(const std::map<std::string, HTensor>& tensors, const AttributeMap& metadata,
                          const std::string& path, Registry& registry, const ExportOptions& options = {},
                          const std::function<void()>& written = {}, FileCalls& calls = FileCalls::system());

}  // namespace harmonics::engine
