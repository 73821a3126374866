// Opens imported models, for verbs that also take flows.
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
// Opens a model with the limits, types and spec of the options.
OpenedModel open_model(const std::string& path, const Options& options);

// Throws ErrorKind::NoInput if the path does not exist and is similar to the name of a built-in model.
void expect_no_misspelt_model(const std::string& path);

// Throws ErrorKind::NoInput if --weights names a file that does not exist.
void expect_given_weights(const Options& options);
// Returns the newest checkpoint of a folder of checkpoints; any other path unchanged.
std::string checkpoint_in(const std::string& path);
// Prints a note if the weights for a model also have an adapter, which --lora would apply, and --lora is not given.
void note_unapplied_adapter(const Options& options);

// Throws ErrorKind::Usage if one of these flags was given: "--batch has no effect: 'm.gguf' is a language model".
void refuse_flags(const Options& options, std::initializer_list<const char*> flags, const std::string& what);

// Throws ErrorKind::Usage if one of these flags was given: "--show has no effect beside --html".
void refuse_beside(const Options& options, std::initializer_list<const char*> flags, const char* other);
// Throws ErrorKind::Usage if one of these flags was given: "--numbers has no effect without --html FILE.html".
void refuse_without(const Options& options, std::initializer_list<const char*> flags, const char* other);

// Throws ErrorKind::Usage for flags that apply only to flows: data for training, --weights, --graph.
void expect_no_flow_flags(const Options& options);

}  // namespace harmonics::engine::cli
