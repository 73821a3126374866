// Decides which files a flow may name: those in its own folder, and in folders that the user allows.
#include <algorithm>
#include <filesystem>

#include <fmt/core.h>

#include "engine/flow/graph.hpp"

namespace harmonics::engine {

namespace {

namespace fs = std::filesystem;

// Resolves links and dots, as far as the path exists.
fs::path resolved_path(const fs::path& path) {
  std::error_code failed;
  const fs::path absolute = fs::absolute(path, failed), real = fs::weakly_canonical(absolute, failed);
  return failed ? fs::path() : real;
}

bool lies_in(const fs::path& file, const fs::path& folder) {
  if (file.empty() || folder.empty()) return false;
  const fs::path real = resolved_path(folder);
  const auto [end, rest] = std::mismatch(real.begin(), real.end(), file.begin(), file.end());
  return end == real.end() && rest != file.end();
}

}  // namespace

std::string Graph::weights_file(const BoundCall& call) const {
  const fs::path flow = source ? fs::path(source->name()) : fs::path();
  const fs::path folder = flow.has_parent_path() ? flow.parent_path() : fs::path(".");
  const fs::path path = call.weights, named = path.is_absolute() ? path : folder / path, real = resolved_path(named);
  const auto allows = [&](const std::string& other) { return lies_in(real, other); };
  if (lies_in(real, folder) || std::any_of(weights_folders.begin(), weights_folders.end(), allows))
    return named.string();
  throw Error(ErrorKind::Denied,
              fmt::format("weights=\"{}\" leaves the folder of the flow, '{}'", call.weights, folder.string()),
              call.span,
              {fmt::format("put the file there, or allow its folder: --weights-from {}",
                           real.empty() ? "DIR" : real.parent_path().string())});
}

}  // namespace harmonics::engine
