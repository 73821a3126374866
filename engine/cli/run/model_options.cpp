#include "engine/cli/run/model_options.hpp"

#include <charconv>
#include <cmath>

#include <fmt/core.h>

#include "dsl/spec/reader.hpp"

namespace harmonics::engine::cli {

std::vector<AdapterFile> adapter_files(const Options& options) {
  std::vector<AdapterFile> files;
  for (const std::string& text : options.lora) {
    AdapterFile file{text, 1};
    if (const size_t at = text.rfind('='); at != std::string::npos && at > 0 && at + 1 < text.size()) {
      const char* end = text.data() + text.size();
      double scale = 0;
      const auto [last, failed] = std::from_chars(text.data() + at + 1, end, scale);
      if (failed == std::errc() && last == end && std::isfinite(scale)) file = {text.substr(0, at), scale};
    }
    files.push_back(std::move(file));
  }
  return files;
}

namespace {

std::map<std::string, std::string> settings_of(const Options& options) {
  std::map<std::string, std::string> set;
  for (const std::string& setting : options.set) {
    const size_t at = setting.find('=');
    if (at == 0 || at == std::string::npos || at + 1 == setting.size())
      throw Error(ErrorKind::Usage, fmt::format("--set {} is not NAME=VALUE", setting), {},
                  {at == 0 || setting.empty() ? std::string("'harmonics explain MODEL' shows the variables of a model")
                                              : fmt::format("write --set {}=VALUE", setting.substr(0, at))});
    set[setting.substr(0, at)] = setting.substr(at + 1);
  }
  return set;
}

}  // namespace

DescribedOptions described_options(const Options& options) {
  if (!options.spec.empty())
    throw Error(ErrorKind::Usage, "--spec is for files of weights; a .ndsl file describes itself", {},
                {"leave it out"});
  DescribedOptions result;
  result.set = settings_of(options);
  if (options.run.seed) result.seed = static_cast<uint64_t>(*options.run.seed);
  return result;
}

NdslOptions ndsl_options(const Options& options) {
  const DescribedOptions described = described_options(options);
  NdslOptions result;
  result.set = described.set;
  result.seed = described.seed;
  result.weights = options.weights;
  return result;
}

ImportedModel import_for(const std::string& path, const Options& options) {
  if (!options.spec.empty()) return import_model(path, Registry::global());
  return import_language_model(path, Registry::global(), described_options(options));
}

ModelOptions model_options(const Options& options) {
  ModelOptions result;
  result.weights = options.weight_type;
  result.cache = options.cache_type;
  if (!options.spec.empty()) result.spec = specs::read_spec(options.spec);
  result.adapters = adapter_files(options);
  result.set = settings_of(options);
  result.length = options.context;
  return result;
}

CompileOptions text_compile_options(const Options& options) {
  CompileOptions compile;
  static_cast<DeviceSettings&>(compile) = options.run;
  if (!options.precision_given && compile.device == "cpu") compile.precision = Precision::int8;
  compile.limits = options.limits;
  return compile;
}

}  // namespace harmonics::engine::cli
