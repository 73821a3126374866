// The page of a running cycle: the files of page/, within the program.
#pragma once

#include "engine/serving/service.hpp"

namespace harmonics {

struct PageFile {
  const char *name, *text;
};
// Made from the files of page/ while building.
extern const PageFile kPageFiles[];
extern const unsigned kPageFileCount;

// From now on "/" is the page, and what it consists of is beside it.
void put_page(Service& service);

}  // namespace harmonics
