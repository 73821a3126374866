// Selects the importer or tokenizer that reads a file.
#pragma once

#include <string>
#include <string_view>

#include <harmonics/importer_abi.h>

#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

// Returns the item of this kind (HX_IMPORTER, HX_TOKENIZER) whose probe gives the highest score for the file; null if
// none reads it. Plugins that cannot be loaded and failing probes are skipped. Throws ErrorKind::Usage if several items
// share the highest score.
ItemPtr find_reader(uint32_t kind, const std::string& path, std::string_view bytes, Registry& registry);
// Returns the item called `name`, or that of find_reader() if `name` is empty. If none reads the file, throws
// ErrorKind::Weights with its size, its first bytes, the known items and the failures.
ItemPtr need_reader(uint32_t kind, const std::string& path, std::string_view bytes, Registry& registry,
                    const std::string& name = "");

}  // namespace harmonics::engine
