#include "engine/cli/outputs.hpp"

#include <filesystem>

#include <fmt/core.h>

namespace harmonics::cli {

namespace {

namespace fs = std::filesystem;

// A name that nobody has in `folder`, for what was to go to `path`.
std::string free_name(const fs::path& folder, const std::string& path) {
  const std::string stem = fs::path(path).stem().string();
  for (int number = 1;; ++number) {
    const fs::path name = folder / fmt::format("{}.unsaved{}.safetensors", stem, number > 1 ? "-" + std::to_string(number) : "");
    std::error_code failed;
    if (!fs::exists(fs::symlink_status(name, failed)) || failed) return name.string();
  }
}

}  // namespace

void save_or_rescue(const TensorFile& weights, const std::string& path) {
  try {
    save_safetensors(weights, path);
  } catch (const Error& failure) {
    std::error_code failed;
    for (const fs::path& folder : {fs::path(), fs::temp_directory_path(failed)}) {
      const std::string instead = free_name(folder, path);
      try {
        save_safetensors(weights, instead);
      } catch (const Error&) {
        continue;
      }
      throw Error(failure).note(fmt::format("the weights are in {}: --weights takes them", instead));
    }
    throw;
  }
}

}  // namespace harmonics::cli
