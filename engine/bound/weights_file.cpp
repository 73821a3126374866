// Checks the files that a flow names: they must be in its own folder, or in folders that the user allows.
#include <algorithm>
#include <filesystem>

#include <fmt/core.h>

#include "engine/flow/graph.hpp"

namespace harmonics::engine {

namespace {

namespace fs = std::filesystem;

// Resolves symbolic links, "." and ".." as far as the path exists. Returns an empty path on failure.
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

// Returns the path of an allowed file, relative to the flow. `written` is the path in the flow; `spoken` is its
// argument, for the message. Throws ErrorKind::Denied.
std::string allowed_file(const Graph& graph, const std::string& written, const std::string& spoken, Span span) {
  const fs::path flow = graph.source ? fs::path(graph.source->name()) : fs::path();
  const fs::path folder = flow.has_parent_path() ? flow.parent_path() : fs::path(".");
  const fs::path path = written, named = path.is_absolute() ? path : folder / path, real = resolved_path(named);
  const auto allows = [&](const std::string& other) { return lies_in(real, other); };
  if (lies_in(real, folder) || std::any_of(graph.weights_folders.begin(), graph.weights_folders.end(), allows))
    return named.string();
  throw Error(ErrorKind::Denied, fmt::format("{} is outside the folder of the flow, '{}'", spoken, folder.string()),
              span,
              {fmt::format("put the file there, or allow its folder: --weights-from {}",
                           real.empty() ? "DIR" : real.parent_path().string())});
}

}  // namespace

std::string Graph::weights_file(const BoundCall& call) const {
  return allowed_file(*this, call.weights, fmt::format("weights=\"{}\"", call.weights), call.span);
}

std::string Graph::model_file(const BoundCall& call) const {
  const std::string& written = call.arguments.text("file");
  return allowed_file(*this, written, fmt::format("model(\"{}\")", written), call.span);
}

std::string Graph::named_file(const BoundCall& call, const std::string& written, const std::string& spoken) const {
  return allowed_file(*this, written, spoken, call.span);
}

}  // namespace harmonics::engine
