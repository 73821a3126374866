// stdout: and file: as consumers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <harmonics/function.hpp>

namespace harmonics {

// Writes one line per sample to standard output.
std::shared_ptr<Consumer> open_stdout(const std::string& path, const Arguments& options);
// Writes .csv, .txt and .jsonl with one line per sample, .npy as one array whose first axis counts samples.
std::shared_ptr<Consumer> open_output_file(const std::string& path, const Arguments& options);
// Returns the option schemas for registration.
std::vector<Argument> line_options();
std::vector<Argument> stdout_options();

}  // namespace harmonics
