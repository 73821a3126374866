// The catalogue: all items of every kind, from the library and from plugins, described alike.
#pragma once

#include <string>
#include <vector>

namespace harmonics::engine::cli {

struct CatalogueArgument {
  std::string name, type, default_text, range, description;
  bool required = false;
};

struct CatalogueEntry {
  std::string kind, name, signature, description;
  std::string plugin, path;  // "": the library itself
  std::vector<CatalogueArgument> arguments;
  std::string example;
};

// Returns the names of the kinds as `list` takes them: "activations".
std::vector<std::string> catalogue_kinds();
// Returns "loss" for "losses", and other words without their final s.
std::string singular(const std::string& kind);
std::string plural(const std::string& kind);

// Returns the names of a kind (singular). Opens no library.
std::vector<std::string> catalogue_names(const std::string& kind);
// Returns the items of one kind (singular), or all items. Opens the libraries that provide them.
std::vector<CatalogueEntry> catalogue(const std::string& kind = "");
// Returns all items with this name. Opens only the libraries that announce it.
std::vector<CatalogueEntry> catalogue_of(const std::string& name);

}  // namespace harmonics::engine::cli
