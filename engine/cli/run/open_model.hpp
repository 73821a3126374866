// Opens a model from a file of another program, for verbs that also take flows.
#pragma once

#include <initializer_list>
#include <string>

#include "engine/cli/options/options.hpp"
#include "engine/model/imported.hpp"
#include "engine/model/model.hpp"

namespace harmonics::engine::cli {

struct OpenedModel {
  ImportedModel imported;  // the tokenizer may be in its file
  Model model;
};
// With the limits, the types and the spec that the options ask for.
OpenedModel open_model(const std::string& path, const Options& options);

// Throws ErrorKind::NoInput for a path that does not exist and is almost the name of a built-in model.
void expect_no_misspelt_model(const std::string& path);

// Throws ErrorKind::Usage if one of these flags was typed: "--batch has no effect: 'm.gguf' is a language model".
void refuse_flags(const Options& options, std::initializer_list<const char*> flags, const std::string& what);

// Throws ErrorKind::Usage if one of these flags was typed: "--show has no effect beside --html".
void refuse_beside(const Options& options, std::initializer_list<const char*> flags, const char* other);
// The same for "--numbers has no effect without --html FILE.html".
void refuse_without(const Options& options, std::initializer_list<const char*> flags, const char* other);

// Throws ErrorKind::Usage if a flag is given that is for flows only: data for training, --weights, --graph.
void expect_no_flow_flags(const Options& options);

}  // namespace harmonics::engine::cli
