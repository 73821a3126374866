// Any input is a GGUF file or an error. Its tensors are inside the file, and a copy of it can be read.
#include "formats/gguf.hpp"
#include "plugins/gguf/importer.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<char> exact(data, data + size);
  const std::string_view bytes(exact.data(), size);
  return refusing([&] {
    const GgufFile file = read_gguf(bytes, {"input.gguf", ErrorKind::Weights});
    for (const GgufTensor& tensor : file.tensors) {
      require(tensor.offset <= size && tensor.bytes <= size - tensor.offset, "a tensor beyond the file");
      require(tensor.offset % file.alignment == 0 || file.data_offset % file.alignment != 0, "an unaligned tensor");
    }
    gguf::metadata_of(file, "input.gguf");
    refusing([&] { gguf::metadata_of(file, "input.gguf", true); });
    GgufWriter writer;
    for (const GgufMetadata& entry : file.metadata) writer.copy(entry);
    const std::string copied = writer.header();
    const GgufFile again = read_gguf(copied, {"copy.gguf", ErrorKind::Weights});
    require(again.metadata.size() + (file.find("general.alignment") ? 1 : 0) == file.metadata.size(), "a lost key");
  });
}
