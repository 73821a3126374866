// The kinds of items: their names, what of a table each must have, and how it is given back.
#pragma once

#include <span>
#include <string_view>

#include "engine/plugin/registry.hpp"

namespace harmonics {

struct KindRow {
  uint32_t kind;
  std::string_view name, plural, listed;       // listed: what `harmonics list` calls them
  const char* (*missing)(const void* vtable);  // the first required function that is not there; null: none
  void (*destroy)(const void* vtable, void* self);
};

std::span<const KindRow> kind_rows();
// What an item or an argument may be called: a letter or '_', then letters, digits and "_.+-".
bool is_item_name(std::string_view text);
const KindRow& kind_row(uint32_t kind);  // ErrorKind::Internal for a number that is none

}  // namespace harmonics
