// memory:NAME: what a consumer of that name was given, a producer of the same name gives again, in one process.
#pragma once

#include <memory>
#include <string>

#include <harmonics/stream.hpp>

namespace harmonics {

// Throws ErrorKind::NoInput when nothing was put there.
std::shared_ptr<Producer> open_memory_producer(const std::string& name);
// Empties the store of that name and fills it.
std::shared_ptr<Consumer> open_memory_consumer(const std::string& name);

}  // namespace harmonics
