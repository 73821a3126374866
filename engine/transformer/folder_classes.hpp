// The classes of the transformers library whose folders open: those of built-in specs, and of built-in .ndsl models.
#pragma once

#include <string>
#include <vector>

namespace harmonics::engine {

// An architecture with a built-in spec.
struct KnownArchitecture {
  std::string name;                  // general.architecture
  std::string models;                // "Llama 1 to 3"
  std::vector<std::string> classes;  // of its folders; empty: only files of GGUF open
};
std::vector<KnownArchitecture> known_architectures();

// Returns the class of a built-in .ndsl model ("GPT2"), or "".
std::string class_of_ndsl(const std::string& name);
// Returns the built-in .ndsl model for a class ("GPT2.ndsl"), or "".
std::string ndsl_of_class(const std::string& name);

// Returns the three known classes whose names are nearest.
std::vector<std::string> nearest_classes(const std::string& name);

}  // namespace harmonics::engine
