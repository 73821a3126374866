#include "engine/checkpoint/live_types.hpp"

#include <optional>

#include <boost/json.hpp>

#include "engine/base/file.hpp"
#include "engine/checkpoint/checkpoint_folder.hpp"
#include "formats/safetensors.hpp"

namespace harmonics::engine {

namespace {

using Texts = std::map<std::string, std::string>;

// Returns the types and sets `metadata` to that of the header; none if the file is no readable checkpoint.
std::optional<Texts> types_of_checkpoint(const std::string& path, Texts& metadata) {
  try {
    const auto file = MappedFile::open(path);
    SafetensorsHeader header = read_safetensors_header(file->data(), file->bytes(), {path, ErrorKind::Weights});
    const auto state = header.metadata.find("harmonics.run");
    if (state == header.metadata.end()) return std::nullopt;
    const boost::json::value value = boost::json::parse(state->second);
    Texts types;
    if (const auto* live = value.as_object().if_contains("live"))
      for (const auto& [name, stream] : live->as_object())
        if (const auto* type = stream.as_object().if_contains("type")) types[name] = std::string(type->as_string());
    metadata = std::move(header.metadata);
    return types;
  } catch (const std::exception&) {
    return std::nullopt;  // reported when the whole checkpoint is read
  }
}

Texts newest_types(const std::string& path, Texts& metadata) {
  std::vector<CheckpointFolder::Entry> entries;
  try {
    entries = CheckpointFolder(path).list();
  } catch (const Error&) {
    return types_of_checkpoint(path, metadata).value_or(Texts());  // not a folder
  }
  for (const CheckpointFolder::Entry& entry : entries)
    if (auto types = types_of_checkpoint(entry.path, metadata)) return *std::move(types);
  return {};
}

}  // namespace

std::map<std::string, std::string> live_types_in(const std::string& path) {
  Texts metadata;
  return newest_types(path, metadata);
}

std::map<std::string, std::string> metadata_in(const std::string& path) {
  Texts metadata;
  newest_types(path, metadata);
  return metadata;
}

}  // namespace harmonics::engine
