// The kinds of items: their names, the required functions of their tables, and how an object is destroyed.
#pragma once

#include <span>
#include <string_view>

#include "engine/plugin/registry.hpp"

namespace harmonics::engine {

struct KindRow {
  uint32_t kind;
  std::string_view name, plural, listed;       // listed: the name in `harmonics list`
  const char* (*missing)(const void* vtable);  // the first missing required function; null: none
  void (*destroy)(const void* vtable, void* self);
  std::string_view extension = {};  // extension that registers it; "": hx_api.register_item
};

std::span<const KindRow> kind_rows();
// Returns whether the text is a valid name of an item or argument: a letter or '_', then letters, digits and "_.+-".
bool is_item_name(std::string_view text);
const KindRow& kind_row(uint32_t kind);  // ErrorKind::Internal for an unknown number

}  // namespace harmonics::engine
