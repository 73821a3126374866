// The samples of a workload as producers.
#pragma once

#include <memory>
#include <string>

#include <harmonics/stream.hpp>

#include "tests/bench/workload.hpp"

namespace harmonics::bench {

std::shared_ptr<Producer> open_data(const DataSpec& data, uint64_t seed);

// Where "mnist" comes from: the folder of MNIST's files, or "" when drawn digits take its place.
std::string mnist_folder();

}  // namespace harmonics::bench
