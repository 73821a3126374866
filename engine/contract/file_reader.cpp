#include "engine/contract/file_reader.hpp"

#include <algorithm>
#include <filesystem>
#include <vector>

#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/base/spelling.hpp"
#include "engine/contract/plugin_body.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

constexpr size_t kProbed = 1 << 16;

hx_status probe(const Item& item, const hx_file_start& start, uint32_t& score) {
  return item.kind == HX_IMPORTER ? item.table<hx_importer_vt>().probe(item.self, &start, &score)
                                  : item.table<hx_tokenizer_vt>().probe(item.self, &start, &score);
}

struct Probed {
  std::vector<ItemPtr> best;          // the items with the highest score
  std::vector<std::string> failures;  // messages of failed probes
};

Probed probe_all(uint32_t kind, const std::string& path, std::string_view bytes, Registry& registry) {
  const std::string name = std::filesystem::path(path).filename().string();
  const hx_file_start start = {sizeof start, 0, name.c_str(), bytes.data(), std::min(bytes.size(), kProbed),
                               bytes.size()};
  Probed result;
  uint32_t highest = HX_PROBE_NO;
  for (const std::string& known : registry.names(kind)) {
    ItemPtr item;
    uint32_t score = HX_PROBE_NO;
    try {
      item = registry.need(kind, known);
      const hx_status status = probe(*item, start, score);
      if (status == HX_DECLINED) continue;
      if (status != HX_OK) throw plugin_error(*item, status);
    } catch (const Error& e) {
      result.failures.emplace_back(e.what());
      continue;
    }
    if (score == HX_PROBE_NO || score < highest) continue;
    if (score > highest) result.best.clear();
    highest = score;
    result.best.push_back(item);
  }
  return result;
}

std::string names_of(const std::vector<ItemPtr>& items) {
  std::vector<std::string> names;
  for (const ItemPtr& item : items) names.push_back(item->name);
  return comma_separated(names);
}

Error unread(uint32_t kind, const std::string& path, std::string_view bytes, Registry& registry) {
  if (bytes.empty())
    return Error(ErrorKind::Weights, fmt::format("'{}' is empty", path)).note("fetch it again, or name another file");
  if (kind == HX_IMPORTER && path.ends_with(".safetensors") && bytes.size() > 8 && bytes[8] == '{')
    return Error(ErrorKind::Weights, fmt::format("'{}' has tensors, but no description of their model", path))
        .note("give it as --weights, together with the flow or the .ndsl file of the model");
  std::string first;
  for (const char c : bytes.substr(0, 8)) first += fmt::format("{}{:02x}", first.empty() ? "" : " ", c & 0xff);
  const std::string kind_text(kind_name(kind));
  Error error(ErrorKind::Weights,
              fmt::format("no {} reads '{}' ({}{}{})", kind_text, path, quantity(bytes.size(), "byte"),
                          first.empty() ? "" : ", the first are ", first));
  const std::vector<std::string> known = registry.names(kind);
  error.note(known.empty() ? fmt::format("no {} is known", kind_text)
                           : fmt::format("known ones: {}", comma_separated(known)));
  return error.note(plugin_help(kind, "reads"));
}

ItemPtr only_one(uint32_t kind, const std::string& path, const Probed& probed) {
  if (probed.best.size() == 1) return probed.best.front();
  throw Error(ErrorKind::Usage,
              fmt::format("several {} read '{}' equally well: {}", kind_plural(kind), path, names_of(probed.best)))
      .note(fmt::format("name the {} to use", kind_name(kind)));
}

}  // namespace

ItemPtr find_reader(uint32_t kind, const std::string& path, std::string_view bytes, Registry& registry) {
  const Probed probed = probe_all(kind, path, bytes, registry);
  return probed.best.empty() ? nullptr : only_one(kind, path, probed);
}

ItemPtr need_reader(uint32_t kind, const std::string& path, std::string_view bytes, Registry& registry,
                    const std::string& name) {
  if (!name.empty()) return registry.need(kind, name);
  const Probed probed = probe_all(kind, path, bytes, registry);
  if (!probed.best.empty()) return only_one(kind, path, probed);
  Error error = unread(kind, path, bytes, registry);
  for (const std::string& failure : probed.failures) error.note(failure);
  throw error;
}

}  // namespace harmonics::engine
