#include "engine/cli/options/hub_name.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <vector>

#include <fmt/core.h>

namespace harmonics::engine::cli {

namespace {

constexpr const char* kUsualType = "Q4_K_M";  // default if a model has several GGUF files

bool is_plain(std::string_view word) {
  constexpr std::string_view kOthers = "._-";
  return !word.empty() && word != "." && word != ".." && word.front() != '-' &&
         std::all_of(word.begin(), word.end(), [&](char c) {
           return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                  kOthers.find(c) != std::string_view::npos;
         });
}

bool take_beginning(std::string_view& text, std::string_view beginning) {
  if (!text.starts_with(beginning)) return false;
  text.remove_prefix(beginning.size());
  return true;
}

// Removes the hub's name from the beginning. Returns whether there was one.
bool take_hub(std::string_view& text) {
  if (take_beginning(text, "hf://") || take_beginning(text, "hf:")) return true;
  if (!take_beginning(text, "https://")) take_beginning(text, "http://");
  return take_beginning(text, "huggingface.co/") || take_beginning(text, "hf.co/");
}

bool names_file(std::string_view name) {
  constexpr std::array<std::string_view, 9> kEndings{".gguf", ".hmx",  ".ndsl", ".bin", ".safetensors",
                                                     ".json", ".yaml", ".npz",  ".npy"};
  return std::any_of(kEndings.begin(), kEndings.end(), [&](std::string_view end) { return name.ends_with(end); });
}

std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t end; (end = text.find('/')) != std::string_view::npos; text.remove_prefix(end + 1))
    parts.push_back(text.substr(0, end));
  parts.push_back(text);
  return parts;
}

bool is_gguf_name(std::string_view name) {
  constexpr std::string_view kFormat = "gguf";
  return std::search(name.begin(), name.end(), kFormat.begin(), kFormat.end(),
                     [](char a, char b) { return a == b || a == b - 'a' + 'A'; }) != name.end();
}

}  // namespace

std::string download_command(const std::string& name) {
  std::string_view text = name;
  const bool of_hub = take_hub(text);
  std::string_view type;
  if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    type = text.substr(colon + 1);
    text = text.substr(0, colon);
    if (!is_plain(type)) return "";
  }
  const std::vector<std::string_view> parts = parts_of(text);
  if (parts.size() < 2 || !std::all_of(parts.begin(), parts.end(), is_plain)) return "";
  if (!of_hub) {
    std::error_code failed;
    if (parts.size() > 2 || names_file(parts[1]) || std::filesystem::exists(std::string(parts[0]), failed)) return "";
  }
  std::string what;
  if (parts.size() > 2 && names_file(parts.back())) {
    // OWNER/NAME/resolve/main/FOLDER/FILE, or without "resolve/main".
    const bool addressed = parts.size() > 4 && (parts[2] == "resolve" || parts[2] == "blob");
    for (size_t i = addressed ? 4 : 2; i < parts.size(); ++i)
      what += (what.empty() ? " " : "/") + std::string(parts[i]);
  } else if (!type.empty() || is_gguf_name(parts[1])) {
    what = fmt::format(" --include '*{}*.gguf'", type.empty() ? kUsualType : type);
  }
  return fmt::format("hf download {}/{}{} --local-dir {}", parts[0], parts[1], what, parts[1]);
}

}  // namespace harmonics::engine::cli
