// Any input is a safetensors model or an error. Its tensors are inside the file, and its metadata can be written again.
#include "plugins/safetensors/models.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<char> exact(data, data + size);
  const std::string_view bytes(exact.data(), size);
  const uint32_t score = safetensors::Importer().probe({"input.safetensors", bytes.substr(0, 1 << 16), size});
  require(score <= HX_PROBE_CERTAIN, "a score above certain");
  return refusing([&] {
    const ModelDescription model = safetensors::describe(bytes, "input.safetensors", true);
    for (const TensorInFile& tensor : model.tensors)
      require(tensor.offset <= size && tensor.bytes <= size - tensor.offset, "a tensor beyond the file");
    for (const auto& [key, value] : model.metadata)
      if (!std::holds_alternative<std::string>(value))
        require(!safetensors::json_of(key, value).empty(), "a value without a text");
    require(safetensors::describe(bytes, "input.safetensors", false).metadata.size() <= model.metadata.size(),
            "more metadata without the long lists");
  });
}
