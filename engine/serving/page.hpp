// The page of a running cycle: the files of page/, compiled into the program.
#pragma once

#include "engine/serving/service.hpp"

namespace harmonics::engine {

struct PageFile {
  const char *name, *text;
};
// Generated from the files of page/ by the build.
extern const PageFile kPageFiles[];
extern const unsigned kPageFileCount;

// Serves the page at "/" and its other files beside it.
void put_page(Service& service);

}  // namespace harmonics::engine
