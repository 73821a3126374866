// Registry of `.ndsl` models by name, for programs that embed the engine: built-in models and registered files.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/transformer/ndsl_compile.hpp"

namespace harmonics::engine {

// Thread-safe.
class ModelRegistry {
 public:
  static ModelRegistry& global();
  // Reads and compiles the file. Replaces an earlier one of the same name. Throws the errors of compile_ndsl_model().
  void add(const std::string& name, const std::string& file);
  // Throws ErrorKind::Name, with the nearest name, for an unknown name.
  std::shared_ptr<const CompiledNdsl> get(const std::string& name);
  std::vector<std::string> names();              // sorted
  std::string file_of(const std::string& name);  // as given to add(); "": none

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const CompiledNdsl>> models_;
  std::map<std::string, std::string> files_;
};

}  // namespace harmonics::engine
