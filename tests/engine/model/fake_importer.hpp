// Importers built from functions, and files for them.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <harmonics/importer.hpp>

#include "engine/plugin/pending_items.hpp"
#include "engine/plugin/registry.hpp"

namespace harmonics::engine::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "harmonics-test-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw std::runtime_error("no temporary folder");
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string write(const std::string& name, const std::string& bytes) const {
    const std::filesystem::path path = path_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return path.string();
  }

 private:
  std::filesystem::path path_;
};

// Registers as a plugin does.
inline void register_by(Registry& registry, const std::function<void(FunctionRegistry&)>& body) {
  hx_registry pending;
  hx_registration registration = {sizeof registration, harmonics_api(), &pending};
  body(reinterpret_cast<FunctionRegistry&>(registration));
  commit_pending(pending, registry);
}

inline void add_item(Registry& registry, uint32_t kind, const char* name, const void* table, void* self,
                     const char* extension) {
  hx_registry pending;
  hx_item item{};
  item.struct_size = sizeof item;
  item.kind = kind;
  item.name = name;
  item.vtable = table;
  item.self = self;
  add_pending(pending, item, extension);
  commit_pending(pending, registry);
}

struct FakeImporter {
  uint32_t score;
  ModelDescription description;
  std::function<void(const FileStart&)> probed = {};
  std::function<void(const ImportSource&, const Arguments&)> opened = {};
};

inline void add_importer(Registry& registry, const std::string& name, FakeImporter fake,
                         const std::vector<Argument>& options = {}) {
  class Made final : public Importer {
   public:
    explicit Made(FakeImporter fake) : fake_(std::move(fake)) {}
    uint32_t probe(const FileStart& file) const override {
      if (fake_.probed) fake_.probed(file);
      return fake_.score;
    }
    ModelDescription open(const ImportSource& source, const Arguments& options) const override {
      if (fake_.opened) fake_.opened(source, options);
      return fake_.description;
    }

   private:
    FakeImporter fake_;
  };
  register_by(registry, [&](FunctionRegistry& r) {
    register_importer(r, name, std::make_shared<Made>(std::move(fake)), "a fake", options);
  });
}

}  // namespace harmonics::engine::testing
