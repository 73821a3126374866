// The samples of a workload as producers.
#pragma once

#include <memory>
#include <string>

#include <harmonics/stream.hpp>

#include "tests/bench/workload.hpp"

namespace harmonics::engine::bench {

std::shared_ptr<Producer> open_data(const DataSpec& data, uint64_t seed);

// Returns the folder of MNIST's files for "mnist", or "" if synthetic digits replace them.
std::string mnist_folder();

}  // namespace harmonics::engine::bench
