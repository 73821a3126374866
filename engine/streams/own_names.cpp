// Reserved names: built-in names that a plugin cannot redefine.
#include <algorithm>

#include "engine/program/functional.hpp"
#include "engine/program/op.hpp"
#include "engine/training/optimizer.hpp"
#include "engine/training/schedule.hpp"

#include "engine/streams/augmentations.hpp"

namespace harmonics {

namespace {

bool is_row(const std::vector<NamedRow>& rows, const std::string& name) {
  return std::any_of(rows.begin(), rows.end(), [&](const NamedRow& row) { return row.name == name; });
}

}  // namespace

bool is_own_name(uint32_t kind, const std::string& name) {
  if (kind == HX_FUNCTIONAL) return find_any_op(name) || FunctionalTable::global().has_own(name);
  if (kind == HX_OPTIMIZER) return is_row(optimizer_rows(), name);
  if (kind == HX_SCHEDULE) return is_row(schedule_rows(), name);
  if (kind == HX_AUGMENTATION) return is_own_augmentation(name);
  return false;
}

}  // namespace harmonics
