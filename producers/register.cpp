#include "producers/register.hpp"

#include "producers/file/open.hpp"
#include "producers/http_samples.hpp"
#include "producers/memory.hpp"
#include "producers/live_bytes.hpp"

namespace harmonics {

void register_builtin_producers(FunctionRegistry& registry) {
  registry.register_producer(
      "file", open_file,
      "samples of a file, a folder or a pattern: IDX, NPY, NPZ, safetensors, CSV, TSV, JSON lines, text, "
      "tokens, raw numbers, PNG and JPEG; also packed with gzip or zstd",
      file_options());
  registry.register_producer("stdin", open_stdin,
                             "samples that another program writes to a pipe: JSON lines, CSV, MessagePack, NumPy "
                             "arrays, or frames of HXS/1; a field, a column or a tensor: #NAME",
                             stdin_options());
  registry.register_producer("http", open_http,
                             "samples that programs send to POST /v1/samples or, as http:NAME, /v1/samples/NAME of the "
                             "address of --serve; a field: #NAME",
                             http_options());
  registry.register_producer(
      "memory", [](const std::string& name, const Arguments&) { return open_memory_producer(name); },
      "the samples that the consumer memory: of the same name received");
  registry.register_consumer(
      "memory", [](const std::string& name, const Arguments&) { return open_memory_consumer(name); },
      "keeps samples for a producer memory: of the same name");
}

}  // namespace harmonics
