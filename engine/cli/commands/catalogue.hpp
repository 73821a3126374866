// The catalogue: descriptions of all items of the library and of plugins.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace harmonics::engine::cli {

struct CatalogueArgument {
  std::string name, type, default_text, range, description;
  bool required = false;
};

struct CatalogueOperand {
  std::string name, type;  // "weight", "[out, in]"
  bool optional = false, repeated = false;
  std::string below;  // axis or attribute that bounds its indices; "": it has no indices
};

struct CatalogueEntry {
  std::string kind, name, signature, description;
  std::string plugin, path;  // "": the library itself
  std::vector<CatalogueArgument> arguments;
  std::string example;
  // Operands of functionals; empty if a plugin does not name them.
  std::vector<CatalogueOperand> inputs = {}, results = {};
  std::vector<std::string> traits = {};
  std::vector<std::pair<std::string, std::string>> metadata = {};  // metadata of activations: name, text
  std::string notes = {};
};

// Returns the names of the kinds for `list`, such as "activations".
std::vector<std::string> catalogue_kinds();
// Convert the name of a kind: singular() returns "loss" for "losses", other words without their final s.
std::string singular(const std::string& kind);
std::string plural(const std::string& kind);

// Returns the names of all items of a kind (singular). Opens no library.
std::vector<std::string> catalogue_names(const std::string& kind);
// Returns the items of one kind (singular), or all items. Opens the libraries that provide them.
std::vector<CatalogueEntry> catalogue(const std::string& kind = "");
// Returns all items with this name. Opens only the libraries that announce it.
std::vector<CatalogueEntry> catalogue_of(const std::string& name);

}  // namespace harmonics::engine::cli
