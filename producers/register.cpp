#include "producers/register.hpp"

#include "producers/file/open.hpp"
#include "producers/http_samples.hpp"
#include "producers/memory.hpp"
#include "producers/live_bytes.hpp"

namespace harmonics {

void register_builtin_producers(FunctionRegistry& registry) {
  registry.register_producer(
      "file", open_file,
      "samples from a file, a folder or a pattern: IDX, NPY, NPZ, safetensors, CSV, TSV, JSON lines, text, "
      "tokens, raw numbers, PNG and JPEG; files may be compressed with gzip or zstd",
      file_options());
  registry.register_producer("stdin", open_stdin,
                             "samples from a pipe on standard input: JSON lines, CSV, MessagePack, NumPy arrays, or "
                             "HXS/1 frames; #NAME selects a field, column or tensor",
                             stdin_options());
  registry.register_producer("http", open_http,
                             "samples received by POST /v1/samples, or /v1/samples/NAME for http:NAME, at the address "
                             "of --serve; #NAME selects a field",
                             http_options());
  registry.register_producer(
      "memory", [](const std::string& name, const Arguments&) { return open_memory_producer(name); },
      "samples of the consumer memory: with the same name");
  registry.register_consumer(
      "memory", [](const std::string& name, const Arguments&) { return open_memory_consumer(name); },
      "stores samples for the producer memory: with the same name");
}

}  // namespace harmonics
