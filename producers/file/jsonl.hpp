// JSON lines: one object, array or number per line; table.hpp interprets the values.
#pragma once

#include <memory>

#include "producers/file/table.hpp"

namespace harmonics {

// Selects fields by name, or nested ones by path: 'label', 'a,b', 'meta.size'. The first line defines the fields and
// their shapes. A null or absent field is missing.
std::unique_ptr<TableRows> json_rows(const FileBytesPtr& file, const TableOptions& options);

}  // namespace harmonics
