// memory:NAME: a producer returns the samples that a consumer of the same name in this process received.
#pragma once

#include <memory>
#include <string>

#include <harmonics/stream.hpp>

namespace harmonics {

// Throws ErrorKind::NoInput if the store is empty.
std::shared_ptr<Producer> open_memory_producer(const std::string& name);
// Clears the store of that name, and fills it.
std::shared_ptr<Consumer> open_memory_consumer(const std::string& name);

}  // namespace harmonics
