// What exists, of every kind: the library's own and what plugins registered, described alike.
#pragma once

#include <string>
#include <vector>

namespace harmonics::cli {

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

// The names of the kinds as `list` takes them: "activations".
std::vector<std::string> catalogue_kinds();
// "loss" of "losses"; other words without their last s.
std::string singular(const std::string& kind);
std::string plural(const std::string& kind);

// The names of a kind (singular); opens no library.
std::vector<std::string> catalogue_names(const std::string& kind);
// Of one kind (singular), or everything. Opens the libraries that have them.
std::vector<CatalogueEntry> catalogue(const std::string& kind = "");
// Everything of this name, opening only the libraries that announce it.
std::vector<CatalogueEntry> catalogue_of(const std::string& name);

}  // namespace harmonics::cli
