// Writes plugin projects for `harmonics plugin new`.
#pragma once

#include <string>

#include "engine/cli/options/options.hpp"

namespace harmonics::engine::cli {

// Writes a plugin project of options.kind into options.directory (default: the name). Throws ErrorKind::Usage for
// invalid names and kinds, ErrorKind::Output if a file exists or cannot be written.
int new_plugin(const std::string& name, const Options& options);

struct Template {
  const char *name, *text;  // file name such as "activation.cpp"; content with placeholders like @name@
};
// Generated from the files of engine/cli/templates at build time.
extern const Template kTemplates[];
extern const unsigned kTemplateCount;

}  // namespace harmonics::engine::cli
