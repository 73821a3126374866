#include "engine/model/weights_file.hpp"

#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <variant>

#include "engine/model/imported.hpp"
#include "engine/model/npz.hpp"
#include "formats/safetensors.hpp"

namespace harmonics::engine {

namespace {

// Returns whether the file begins like safetensors: with the length of a header that is a JSON object.
bool begins_like_safetensors(std::string_view bytes) {
  uint64_t length = 0;
  if (bytes.size() <= sizeof length) return false;
  std::memcpy(&length, bytes.data(), sizeof length);
  return length <= kLongestSafetensorsHeader && bytes[sizeof length] == '{';
}

bool is_read_by_importer(const std::string& path, Registry& registry) {
  const auto mapped = MappedFile::open(path);
  const std::string_view bytes(static_cast<const char*>(mapped->data()), mapped->bytes());
  return !looks_like_npz(bytes.data(), bytes.size()) && !begins_like_safetensors(bytes) &&
         is_importable(path, bytes, registry);
}

HTensor copy_of(const HTensor& tensor) {
  const TensorType type = type_of(tensor);
  auto storage = std::make_shared<Storage>(type.bytes());
  std::memcpy(storage->data(), tensor.bytes(), type.bytes());
  return make_value(type, std::move(storage));
}

}  // namespace

TensorFile read_weights(const std::string& path, Registry& registry) {
  if (!is_read_by_importer(path, registry)) return read_weights(path);
  ImportedModel model = import_model(path, registry);
  TensorFile file;
  for (const auto& [key, value] : model.metadata.values().entries())
    if (const auto* text = std::get_if<std::string>(&value)) file.metadata.emplace(key, *text);
  file.tensors = std::move(model.tensors);
  if (model.others.empty()) {
    file.mapped = model.file;
    return file;
  }
  for (auto& [name, tensor] : file.tensors) tensor = copy_of(tensor);  // a TensorFile views one mapping
  model.expect_whole();
  return file;
}

TensorFile read_run_weights(const std::string& path, Registry& registry) {
  TensorFile file = read_weights(path, registry);
  if (holds_state(file))
    std::erase_if(file.tensors, [](const auto& entry) { return entry.first.find('/') != std::string::npos; });
  return file;
}

}  // namespace harmonics::engine
