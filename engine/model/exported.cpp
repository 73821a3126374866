#include "engine/model/exported.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include <fmt/core.h>
#include <harmonics/exporter_abi.h>

#include "engine/base/spelling.hpp"
#include "engine/contract/guard.hpp"
#include "engine/contract/plugin_body.hpp"
#include "engine/base/file_group.hpp"
#include "engine/model/folder_weights.hpp"
#include "engine/model/imported.hpp"
#include "engine/model/sealed_file.hpp"
#include "engine/plugin/arguments.hpp"

namespace harmonics::engine {

namespace {

ItemPtr exporter_for(const std::string& path, Registry& registry, const std::string& given) {
  if (!given.empty()) return registry.need(HX_EXPORTER, given);
  const std::string file = std::filesystem::path(path).filename().string();
  const std::vector<std::string> known = registry.names(HX_EXPORTER);
  std::vector<ItemPtr> best;
  uint32_t highest = HX_PROBE_NO;
  for (const std::string& name : known) {
    const ItemPtr item = registry.need(HX_EXPORTER, name);
    uint32_t score = HX_PROBE_NO;
    const hx_status status = item->table<hx_exporter_vt>().probe(item->self, file.c_str(), &score);
    if (status == HX_DECLINED) continue;
    if (status != HX_OK) throw plugin_error(*item, status);
    if (score == HX_PROBE_NO || score < highest) continue;
    if (score > highest) best.clear();
    highest = score;
    best.push_back(item);
  }
  if (best.size() == 1) return best.front();
  std::vector<std::string> names;
  for (const ItemPtr& item : best) names.push_back(item->name);
  if (!best.empty())
    throw Error(ErrorKind::Usage,
                fmt::format("several exporters write '{}' equally well: {}", path, comma_separated(names)))
        .note("name the one to use: --format " + names.front());
  Error error(ErrorKind::Usage, fmt::format("the name '{}' does not determine a format", path));
  if (path.find('.', path.rfind('/') + 1) == std::string::npos)
    error.note(fmt::format("the name of a folder ends with /: {}/", path));
  error.note(known.empty() ? std::string("no exporter is known") : "name one: --format " + comma_separated(known));
  throw error;
}

// The files being written, as seen by the exporter.
struct Sink {
  std::string path;
  FileGroup files;
  FileReplacement* file;           // the current file
  std::vector<std::string> names;  // file names, without folders
  uint64_t bytes = 0;
  std::optional<Error> failure;  // error of the first failed write
};

template <typename Body>
hx_status into(void* host, const Body& body) {
  return guard([&] {
    auto& sink = *static_cast<Sink*>(host);
    if (sink.failure) throw *sink.failure;
    try {
      body(sink);
    } catch (const Error& e) {
      sink.failure = e;
      throw;
    }
  });
}

hx_status append(void* host, const void* data, uint64_t bytes) {
  return into(host, [&](Sink& sink) {
    sink.file->append({static_cast<const char*>(data), bytes});
    sink.bytes += bytes;
  });
}

hx_status next_file(void* host, const char* name) {
  return into(host, [&](Sink& sink) {
    expect_neighbour(name ? name : "");
    if (std::find(sink.names.begin(), sink.names.end(), name) != sink.names.end())
      throw Error(ErrorKind::Plugin, fmt::format("the exporter writes the file '{}' twice", name));
    sink.file = &sink.files.add((std::filesystem::path(sink.path).parent_path() / name).string());
    sink.names.emplace_back(name);
  });
}

// Creates the folder if the path names one by a trailing '/'.
void make_folder_of(const std::string& path, FileCalls& calls) {
  if (!path.ends_with('/')) return;
  if (const int failed = make_directories(path, calls))
    throw Error(ErrorKind::Output, fmt::format("cannot create the folder '{}': {}", path, std::strerror(failed)), {},
                {"name another folder"});
}

}  // namespace

ExportResult export_model(const std::map<std::string, HTensor>& tensors, const AttributeMap& metadata,
                          const std::string& to, Registry& registry, const ExportOptions& options,
                          const std::function<void()>& written, FileCalls& calls) {
  const std::string path = to.ends_with('/') ? to + kFolderFile : model_file(to);
  const ItemPtr item = exporter_for(path, registry, options.exporter);
  const AttributeMap arguments = bind_texts(*item, options.options);
  AttributeMap kept;
  for (const auto& [key, value] : metadata.entries())
    if (!describes_one_file(key)) kept.set(key, value);
  std::vector<hx_exported_tensor> all;
  for (const auto& [name, tensor] : tensors)
    all.push_back(
        {sizeof(hx_exported_tensor), 0, name.c_str(), to_c(type_of(tensor)), tensor.bytes(), type_of(tensor).bytes()});
  const AttributeView about(kept), view(arguments);
  const hx_exported_model model = {sizeof model, static_cast<uint32_t>(all.size()), all.data(), *about.get()};
  make_folder_of(to, calls);
  Sink sink{path, FileGroup(path, calls), nullptr, {std::filesystem::path(path).filename().string()}, 0, {}};
  sink.file = &sink.files.leading();
  const hx_export_sink c_sink = {sizeof c_sink, 0, path.c_str(), &sink, append, next_file};
  const hx_status status = item->table<hx_exporter_vt>().write(item->self, &model, view.get(), &c_sink);
  if (sink.failure) throw *sink.failure;
  if (status != HX_OK) throw plugin_error(*item, status);
  if (written) written();
  if (sink.names.front() == kFolderFile)
    for (const std::string& former : former_weights(std::filesystem::path(path).parent_path().string(), sink.names))
      sink.files.remove(former);
  sink.files.finish();
  return {item->name, all.size(), sink.bytes, std::move(sink.names)};
}

}  // namespace harmonics::engine
