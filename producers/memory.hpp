// memory:NAME: a producer returns what a consumer of the same name in the same process received.
#pragma once

#include <memory>
#include <string>

#include <harmonics/stream.hpp>

namespace harmonics {

// Throws ErrorKind::NoInput when the store is empty.
std::shared_ptr<Producer> open_memory_producer(const std::string& name);
// Empties the store of that name and fills it.
std::shared_ptr<Consumer> open_memory_consumer(const std::string& name);

}  // namespace harmonics
