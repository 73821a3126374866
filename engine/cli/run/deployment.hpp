// `--deployment FILE`: hardware by kind instead of a device's name, as a DeploymentDescriptor.
#pragma once

#include <string>

#include "engine/cli/options/options.hpp"
#include "engine/execution/device_choice.hpp"

namespace harmonics::engine::cli {

// Reads the file and returns the device for the graph of this name: by the last partition of that name, else by the
// descriptor. Throws what reading the file throws, ErrorKind::Syntax for wrong content, and ErrorKind::Device with the
// reason if there is no such hardware and no fallback.
DeviceChoice deployed_device(const std::string& path, const std::string& graph);

// The name of the flow that the options select; "" if their file is none, or cannot be read.
std::string name_of_flow(const Options& options);

}  // namespace harmonics::engine::cli
