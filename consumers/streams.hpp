// stdout: and file: as consumers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <harmonics/function.hpp>

namespace harmonics {

// Writes one line per sample to standard output.
std::shared_ptr<Consumer> open_stdout(const std::string& path, const Arguments& options);
// .csv, .txt and .jsonl: one line per sample; .npy: one array whose first axis counts the samples.
std::shared_ptr<Consumer> open_output_file(const std::string& path, const Arguments& options);
// The option schemas, for registration.
std::vector<Argument> line_options();
std::vector<Argument> stdout_options();

}  // namespace harmonics
