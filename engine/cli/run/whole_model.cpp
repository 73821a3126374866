#include "engine/cli/run/whole_model.hpp"

#include <filesystem>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/model/exported.hpp"

namespace harmonics::engine::cli {

ImportedModel import_whole(const std::string& path, Registry& registry, const DescribedOptions& options) {
  DescribedOptions whole = options;
  whole.whole = true;
  ImportedModel model = import_language_model(path, registry, whole);
  if (!model.metadata.has(kNoTokenizer)) return model;
  print_note(fmt::format("the file has no tokenizer: {}; give it with --tokenizer {}",
                         model.metadata.text(kNoTokenizer), path));
  AttributeMap metadata;
  for (const auto& [key, value] : model.metadata.values().entries())
    if (key != kNoTokenizer) metadata.set(key, value);
  model.metadata = ModelMetadata(model.path, std::move(metadata));
  return model;
}

AsGguf::AsGguf(const std::string& from, const std::string& to) : path_(from) {
  expect_model_folder(from);
  Registry& registry = Registry::global();
  const auto file = MappedFile::open(model_file(from));
  const std::string_view bytes(static_cast<const char*>(file->data()), file->bytes());
  if (bytes.starts_with("GGUF")) return;
  const ImportedModel model = import_whole(from, registry);
  path_ = to + ".whole.gguf";
  export_model(model.tensors, model.metadata.values(), path_, registry, {"gguf", {}}, [&] { model.expect_whole(); });
  made_ = true;
}

AsGguf::AsGguf(std::string path, const std::function<void(const std::string&)>& write)
    : path_(std::move(path)), made_(true) {
  write(path_);
}

AsGguf::~AsGguf() {
  std::error_code failed;
  if (made_) std::filesystem::remove(path_, failed);
}

}  // namespace harmonics::engine::cli
