// What `harmonics plugin new` writes.
#pragma once

#include <string>

#include "engine/cli/options.hpp"

namespace harmonics::cli {

// Writes a project of its own for a plugin of options.kind into options.directory (default: the name). Throws
// ErrorKind::Usage for names and kinds that are none, ErrorKind::Output where a file cannot be written or is already
// there.
int new_plugin(const std::string& name, const Options& options);

struct Template {
  const char *name, *text;  // "activation.cpp", with @words@ to be filled in
};
// Made from the files of engine/cli/templates while building.
extern const Template kTemplates[];
extern const unsigned kTemplateCount;

}  // namespace harmonics::cli
