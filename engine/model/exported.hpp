// Export of models to file formats of other programs, by plugins.
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
  std::string exporter;                                      // "": the one whose probe scores highest for the name
  std::vector<std::pair<std::string, std::string>> options;  // options of the exporter: name, text
};

struct ExportResult {
  std::string exporter;
  uint64_t tensors = 0, bytes = 0;      // number of tensors; bytes written
  std::vector<std::string> files = {};  // names of the files written, without folders
};

// Writes the tensors and the metadata to `path`, which is replaced atomically. If `path` is a folder or ends with '/',
// writes the files of a folder and replaces config.json last. `written` is called before files are replaced, and may
// throw. Throws ErrorKind::Usage if no exporter writes files of this name, or several score equally; the exporter's
// error for contents that its format cannot represent; ErrorKind::Output if a file cannot be written.
ExportResult export_model(const std::map<std::string, HTensor>& tensors, const AttributeMap& metadata,
                          const std::string& path, Registry& registry, const ExportOptions& options = {},
                          const std::function<void()>& written = {}, FileCalls& calls = FileCalls::system());

}  // namespace harmonics::engine
