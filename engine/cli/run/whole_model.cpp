#include "engine/cli/run/whole_model.hpp"

#include <filesystem>

#include "engine/model/exported.hpp"

namespace harmonics::engine::cli {

ImportedModel import_whole(const std::string& path, Registry& registry, const DescribedOptions& options) {
  DescribedOptions whole = options;
  whole.whole = true;
  return import_language_model(path, registry, whole);
}

AsGguf::AsGguf(const std::string& from, const std::string& to) : path_(from) {
  if (model_file(from) == from && !from.ends_with(std::string("/") + kFolderFile)) return;
  Registry& registry = Registry::global();
  const ImportedModel model = import_whole(from, registry);
  path_ = to + ".whole.gguf";
  export_model(model.tensors, model.metadata.values(), path_, registry, {"gguf", {}}, [&] { model.expect_whole(); });
  made_ = true;
}

AsGguf::~AsGguf() {
  std::error_code failed;
  if (made_) std::filesystem::remove(path_, failed);
}

}  // namespace harmonics::engine::cli
