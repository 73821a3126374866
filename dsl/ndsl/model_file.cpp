#include "dsl/ndsl/model_file.hpp"

#include <algorithm>
#include <filesystem>

#include <fmt/core.h>

#include "dsl/ndsl/faults.hpp"
#include "dsl/ndsl/reader.hpp"
#include "engine/base/read_file.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine::ndsl {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 64;

// Throws an error for a text that is not a valid file name.
[[noreturn]] void refuse(const Place& place, ErrorKind kind, const std::string& what, const std::string& remedy = "") {
  Error error(kind, what, place.span);
  if (!remedy.empty()) error.note(remedy);
  throw SourceErrors({TextErrors{place.source, {error}}});
}

class Files {
 public:
  Files(Library library, Faults& faults) : library_(library), faults_(faults) {}

  ModelFile read(const std::shared_ptr<const SourceText>& source, const std::string& folder, const std::string& key) {
    if (++read_ > kMostFiles)
      throw Error(ErrorKind::Syntax,
                  fmt::format("'{}' is one of more than {} files that a model is made of", source->name(), kMostFiles));
    open_.push_back(key);
    FilePart part = part_of(source);
    ModelFile model = std::move(part.model);
    for (const Named& import : part.imports) {
      std::optional<ModelFile> other = opened(import, folder, "import");
      if (!other) continue;
      const auto add = [&](std::map<std::string, Block>& to, std::map<std::string, Block>& from, const char* what) {
        for (auto& [name, steps] : from)
          if (!to.emplace(name, std::move(steps)).second)
            faults_.add(import.place, fmt::format("{} has the {} {}, which exists already", shown_name(import.text),
                                                  what, shown_name(name)));
      };
      add(model.neurons, other->neurons, "neuron");
      add(model.blocks, other->blocks, "block");
    }
    if (part.extends) {
      part.model = std::move(model);
      const Named extends = *part.extends;
      std::optional<ModelFile> base = opened(extends, folder, "extends");
      model = base ? over(std::move(*base), std::move(part), extends) : std::move(part.model);
    }
    open_.pop_back();
    return model;
  }

 private:
  // Reads one file. The part is empty if the text is not YAML; then no key is reported as missing.
  FilePart part_of(const std::shared_ptr<const SourceText>& source) {
    document::Document document;
    try {
      document = document::parse_document(source);
    } catch (const SourceErrors& e) {
      return broken(source, e.errors());
    } catch (const Error& e) {
      if (e.span().line == 0) throw;
      return broken(source, {e});
    }
    FilePart part;
    part.model.path = source->name();
    try {
      part = FileReader(document).read();
    } catch (const SourceErrors&) {
      throw;  // too many errors
    } catch (const Error& e) {
      part.errors = {e};
    }
    for (const Error& e : part.errors) faults_.add(source, e);
    for (const std::string& key : part.doubted) faults_.doubt(key);
    return part;
  }

  FilePart broken(const std::shared_ptr<const SourceText>& source, const std::vector<Error>& errors) {
    for (const Error& e : errors) faults_.add(source, e);
    for (const char* all : {"extends", "import"}) faults_.doubt(all);
    FilePart part;
    part.model.path = source->name();
    part.model.name.place = {source, {1, 1, 1}};
    return part;
  }

  // Opens the file that `key` names. Adds an error and returns nothing if it cannot be opened.
  std::optional<ModelFile> opened(const Named& name, const std::string& folder, const char* key) {
    const size_t depth = open_.size();
    try {
      return named(name, folder);
    } catch (const SourceErrors& e) {
      if (e.errors().size() != 1 || e.files().front() != name.place.source->name()) throw;  // too many errors
      faults_.add(name.place.source, e.errors().front());
      faults_.doubt(key);
      open_.resize(depth);
      return {};
    }
  }

  // Reads a file of the folder or its subfolders, or one of the library.
  ModelFile named(const Named& name, const std::string& folder) {
    const auto expect_new = [&](const std::string& key) {
      if (std::find(open_.begin(), open_.end(), key) == open_.end()) return;
      std::string chain;
      for (const std::string& one : open_) chain += printable(one, 80) + " → ";
      refuse(name.place, ErrorKind::Name, fmt::format("{} includes itself", shown_name(name.text)),
             "note: " + chain + printable(key, 80));
    };
    if (const char* text = library_ ? library_(name.text) : nullptr) {
      expect_new(name.text);
      return read(std::make_shared<const SourceText>(name.text, text), "", name.text);
    }
    const fs::path path(name.text);
    const bool inside = !path.is_absolute() &&
                        std::none_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; });
    if (!inside)
      refuse(name.place, ErrorKind::Name, fmt::format("{} is outside the folder of its file", shown_name(name.text)),
             "name a file of this folder or one below it");
    if (folder.empty() || !name.text.ends_with(".ndsl"))
      refuse(name.place, ErrorKind::Name, fmt::format("there is no model {}", shown_name(name.text)),
             "name a file that ends with .ndsl, or a built-in model: harmonics list models");
    const fs::path full = (fs::path(folder) / path).lexically_normal();
    std::error_code failed;
    const fs::path real = fs::weakly_canonical(fs::absolute(full), failed), root = fs::weakly_canonical(folder, failed);
    const auto [end, rest] = std::mismatch(root.begin(), root.end(), real.begin(), real.end());
    if (failed || end != root.end())
      refuse(name.place, ErrorKind::Name, fmt::format("{} is outside the folder of its file", shown_name(name.text)));
    expect_new(real.string());
    std::string text;
    try {
      text = read_file(full.string(), document::Limits().bytes);
    } catch (const Error& e) {
      refuse(name.place, e.kind(), e.what());
    }
    return read(std::make_shared<const SourceText>(full.string(), std::move(text)), full.parent_path().string(),
                real.string());
  }

  ModelFile over(ModelFile base, FilePart part, const Named& extends) {
    ModelFile& own = part.model;
    if (base.type != own.type) {
      if (!faults_.doubts("type"))
        faults_.add(extends.place,
                    fmt::format("{} is a {}, but this file is a {}", shown_name(extends.text), base.type, own.type));
      faults_.doubt("extends");
      return std::move(part.model);
    }
    base.path = own.path;
    base.name = own.name;
    base.description = own.description;
    if (!own.variant.text.empty()) base.variant = own.variant;
    if (part.has_block) base.block = std::move(own.block);
    for (auto& [name, steps] : own.blocks) base.blocks[name] = std::move(steps);
    for (auto& [name, steps] : own.neurons) base.neurons[name] = std::move(steps);
    if (part.has_layers) base.layers = std::move(own.layers);
    const auto put = [](Settings& to, Settings& from) {
      for (auto& [key, value] : from) to[key] = std::move(value);
    };
    put(base.config, own.config);
    put(base.hf_defaults, own.hf_defaults);
    if (part.has_embedding) put(base.embedding, own.embedding);
    if (part.has_head) put(base.head, own.head);
    if (part.has_final_norm) base.final_norm = std::move(own.final_norm), base.has_final_norm = own.has_final_norm;
    if (!own.hf_architecture.empty()) base.hf_architecture = own.hf_architecture;
    if (!own.hf_model_type.empty()) base.hf_model_type = own.hf_model_type;
    if (!own.hf_prefix.empty()) base.hf_prefix = own.hf_prefix;
    for (Mapping& mapping : own.hf_mapping) {
      const auto same = std::find_if(base.hf_mapping.begin(), base.hf_mapping.end(),
                                     [&](const Mapping& m) { return m.tensor.text == mapping.tensor.text; });
      if (same == base.hf_mapping.end())
        base.hf_mapping.push_back(std::move(mapping));
      else
        *same = std::move(mapping);
    }
    base.hf_ignored.insert(base.hf_ignored.end(), own.hf_ignored.begin(), own.hf_ignored.end());
    return base;
  }

  Library library_;
  Faults& faults_;
  std::vector<std::string> open_;
  size_t read_ = 0;
};

}  // namespace

ModelFile parse_model_file(const std::string& name, std::string_view text, const std::string& folder, Library library,
                           Faults& faults) {
  return Files(library, faults).read(std::make_shared<const SourceText>(name, std::string(text)), folder, name);
}

ModelFile read_model_file(const std::string& path, Library library, Faults& faults) {
  std::string text = read_file(path, document::Limits().bytes);
  std::error_code failed;
  const fs::path real = fs::weakly_canonical(path, failed);
  std::string folder = fs::path(path).parent_path().string();
  if (folder.empty()) folder = ".";
  return Files(library, faults).read(std::make_shared<const SourceText>(path, std::move(text)), folder, real.string());
}

ModelFile parse_model_file(const std::string& name, std::string_view text, const std::string& folder, Library library) {
  Faults faults;
  ModelFile model = parse_model_file(name, text, folder, library, faults);
  faults.throw_any();
  return model;
}

ModelFile read_model_file(const std::string& path, Library library) {
  Faults faults;
  ModelFile model = read_model_file(path, library, faults);
  faults.throw_any();
  return model;
}

}  // namespace harmonics::engine::ndsl
