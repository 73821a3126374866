#include "consumers/register.hpp"

#include "consumers/streams.hpp"

namespace harmonics {

void register_builtin_consumers(FunctionRegistry& registry) {
  registry.register_consumer("stdout", open_stdout, "writes each sample as a line to standard output",
                             stdout_options());
  registry.register_consumer("file", open_output_file, "writes samples to a file: .csv, .jsonl, .txt or .npy",
                             line_options());
}

}  // namespace harmonics
