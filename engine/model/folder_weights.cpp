#include "engine/model/folder_weights.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

#include <boost/json.hpp>

#include "engine/base/read_file.hpp"
#include "engine/model/safetensors.hpp"

namespace harmonics::engine {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr uint64_t kLargestIndex = uint64_t{64} << 20;

// Returns the files that an index names, or nothing if the file is not an index.
std::set<std::string> files_of_index(const std::string& path) {
  std::set<std::string> files;
  std::error_code failed;
  if (!fs::is_regular_file(path, failed)) return files;
  try {
    const json::value index = json::parse(read_file(path, kLargestIndex));
    for (const auto& [tensor, file] : index.at("weight_map").as_object()) files.emplace(file.as_string());
  } catch (const std::exception&) {
    files.clear();
  }
  return files;
}

bool is_shard(const std::string& name) { return name.ends_with(".safetensors") && name.find('/') == std::string::npos; }

}  // namespace

std::vector<std::string> former_weights(const std::string& folder, const std::vector<std::string>& written) {
  const auto has = [&](const std::string& name) {
    return std::find(written.begin(), written.end(), name) != written.end();
  };
  std::vector<std::string> former;
  if (!has(kFolderIndex) && !has(kFolderWeights)) return former;
  const auto path = [&](const std::string& name) { return (fs::path(folder) / name).string(); };
  for (const std::string& name : files_of_index(path(kFolderIndex)))
    if (is_shard(name) && name != kFolderWeights && !has(name)) former.push_back(path(name));
  for (const char* name : {kFolderIndex, kFolderWeights})
    if (!has(name)) former.push_back(path(name));
  return former;
}

}  // namespace harmonics::engine
