// Items that read files: which importer or tokenizer takes a file, and its view of the file.
#pragma once

#include <string>
#include <string_view>

#include <harmonics/importer_abi.h>

#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

// Returns the item of this kind (HX_IMPORTER, HX_TOKENIZER) whose probe scores highest for the file; null: none reads
// it. Plugins that cannot be loaded and probes that fail read nothing. Throws ErrorKind::Usage if several score
// equally.
ItemPtr find_reader(uint32_t kind, const std::string& path, std::string_view bytes, Registry& registry);
// The same, or the item of this name if one is given. Throws ErrorKind::Weights if none reads the file, with its size,
// its first bytes, the known items and the failures.
ItemPtr need_reader(uint32_t kind, const std::string& path, std::string_view bytes, Registry& registry,
                    const std::string& name = "");

}  // namespace harmonics::engine
