// JSON lines: one object, array or number a line; what values mean is table.hpp's.
#pragma once

#include <memory>

#include "producers/file/table.hpp"

namespace harmonics {

// Fields are selected by name, inner ones by a path: 'label', 'a,b', 'meta.size'. The first line says which fields
// there are and what shape each has. A field that is null or not there is missing.
std::unique_ptr<TableRows> json_rows(const FileBytesPtr& file, const TableOptions& options);

}  // namespace harmonics
