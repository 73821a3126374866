#include "engine/cli/run/deployment.hpp"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "dsl/load.hpp"
#include "engine/base/file.hpp"
#include "engine/base/spelling.hpp"
#include "engine/plugin/registry.hpp"

namespace harmonics::engine::cli {

namespace {

namespace json = boost::json;

struct Hardware {
  std::string backend = "auto";
  bool fallback = true;
};

// Reads values of one file, whose name begins each error.
class DeploymentReader {
 public:
  explicit DeploymentReader(const std::string& path) : path_(path) {}

  json::object object_of(const json::value& value, const char* what, const std::vector<std::string>& keys) const {
    if (!value.is_object()) wrong(fmt::format("{} is no object", what), R"(write {"backend": "gpu"})");
    for (const auto& [key, ignored] : value.get_object()) {
      const std::string name(key);
      if (std::find(keys.begin(), keys.end(), name) != keys.end()) continue;
      const std::string meant = did_you_mean(name, keys);
      wrong(fmt::format("there is no key '{}'", name), meant.empty() ? "its keys: " + comma_separated(keys) : meant);
    }
    return value.get_object();
  }
  Hardware hardware(const json::object& from) const {
    static const std::vector<std::string> kinds{"auto", "cpu", "gpu", "fpga"};
    Hardware found;
    if (const json::value* backend = from.if_contains("backend")) {
      if (!backend->is_string()) wrong("'backend' is no text", "it can be " + comma_separated(kinds));
      found.backend = std::string(backend->get_string());
      if (std::find(kinds.begin(), kinds.end(), found.backend) == kinds.end())
        wrong(fmt::format("'backend' is \"{}\"", found.backend), "it can be " + comma_separated(kinds));
    }
    if (const json::value* fallback = from.if_contains("fallback")) {
      if (!fallback->is_bool()) wrong("'fallback' is neither true nor false", "write true or false");
      found.fallback = fallback->get_bool();
    }
    return found;
  }
  // The options of the last partition of this name.
  std::optional<Hardware> partition(const json::value& partitions, const std::string& graph) const {
    if (!partitions.is_array()) wrong("'partitions' is no list", R"(write [{"name": "FLOW", "backend": "cpu"}])");
    std::optional<Hardware> found;
    for (const json::value& value : partitions.get_array()) {
      const json::object one = object_of(value, "a partition", {"name", "backend", "fallback"});
      const json::value* name = one.if_contains("name");
      if (!name || !name->is_string()) wrong("a partition has no 'name'", "name the flow that it is for");
      const Hardware own = hardware(one);
      if (std::string_view(name->get_string()) == graph) found = own;
    }
    return found;
  }
  [[noreturn]] void wrong(const std::string& what, const std::string& remedy) const {
    throw Error(ErrorKind::Syntax, fmt::format("{}: {}", path_, what)).note(remedy);
  }

 private:
  const std::string& path_;
};

}  // namespace

DeviceChoice deployed_device(const std::string& path, const std::string& graph) {
  const DeploymentReader reader(path);
  json::error_code failed;
  const json::value value = json::parse(read_plain_file(path), failed);
  if (failed) reader.wrong("the file is no JSON: " + failed.message(), R"(write {"backend": "gpu"})");
  const json::object root = reader.object_of(value, "the descriptor", {"backend", "fallback", "partitions"});
  Hardware hardware = reader.hardware(root);
  if (const json::value* partitions = root.if_contains("partitions"))
    if (const auto own = reader.partition(*partitions, graph)) hardware = *own;
  if (hardware.backend == "cpu") return {"cpu", ""};
  const uint32_t kind = hardware.backend == "gpu"    ? HX_DEVICE_GPU
                        : hardware.backend == "fpga" ? HX_DEVICE_FPGA
                                                     : HX_DEVICE_OTHER;
  DeviceChoice choice = choose_device(Registry::global(), kind);
  if (!choice.note.empty() && !hardware.fallback && hardware.backend != "auto")
    throw Error(ErrorKind::Device, fmt::format("{}: {}", path, choice.note))
        .note("\"fallback\": true runs on the CPU then");
  return choice;
}

std::string name_of_flow(const Options& options) {
  if (!options.graph.empty()) return options.graph;
  if (options.files.empty() || !options.files.front().ends_with(".hmx")) return "";
  try {
    const Flow flow = parse_flow_file(options.files.front());
    return flow.harmonics.empty() ? "" : flow.harmonics.front().name.text;
  } catch (const Error&) {  // the verb reports it
    return "";
  }
}

}  // namespace harmonics::engine::cli
