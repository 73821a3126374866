#include "engine/cli/options/installed.hpp"

#include <algorithm>
#include <filesystem>

#include "engine/cli/terminal/command_text.hpp"

namespace harmonics::engine::cli {

namespace {

namespace fs = std::filesystem;

std::string folder_from_program(const char* relative) {
  std::error_code failed;
  const fs::path program = fs::canonical("/proc/self/exe", failed);
  if (failed) return "";
  const fs::path folder = (program.parent_path() / relative).lexically_normal();
  return fs::is_directory(folder, failed) ? folder.string() : "";
}

}  // namespace

std::string samples_folder() {
  static const std::string folder = folder_from_program(HARMONICS_SAMPLES_FROM_PROGRAM);
  return folder;
}

std::string documentation_folder() {
  static const std::string folder = folder_from_program(HARMONICS_DOCUMENTATION_FROM_PROGRAM);
  return folder;
}

std::string installed_sample(const std::string& path) {
  const std::string folder = samples_folder(), relative = "samples/";
  if (folder.empty() || path.rfind(relative, 0) != 0) return "";
  const std::string file = folder + "/" + path.substr(relative.size());
  std::error_code failed;
  return fs::is_regular_file(file, failed) ? file : "";
}

std::string with_samples_folder(std::string text) {
  const std::string folder = samples_folder(), relative = " samples/";
  if (folder.empty()) return text;
  for (size_t at = 0; (at = text.find(relative, at)) != std::string::npos;) {
    const size_t end = std::min(text.find_first_of(" \n", at + 1), text.size());
    const std::string path = " " + quoted(folder + "/" + text.substr(at + relative.size(), end - at - relative.size()));
    text.replace(at, end - at, path);
    at += path.size();
  }
  return text;
}

}  // namespace harmonics::engine::cli
