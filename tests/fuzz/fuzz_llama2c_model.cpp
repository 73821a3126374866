// Any input is a llama2.c checkpoint or an error. Its tensors are inside the file, one after another.
#include "plugins/llama2c/checkpoint.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<char> exact(data, data + size);
  const std::string_view bytes(exact.data(), size);
  const uint32_t score = llama2c::probe_checkpoint(bytes.substr(0, 1 << 16), size);
  require(score <= HX_PROBE_CERTAIN, "a score above certain");
  return refusing([&] {
    const ModelDescription model = llama2c::read_checkpoint(bytes, "input.bin", 10000);
    require(score == HX_PROBE_LIKELY, "a checkpoint that the probe does not recognise");
    uint64_t end = 28;
    for (const TensorInFile& tensor : model.tensors) {
      require(tensor.offset >= end && tensor.offset <= size, "a tensor over another");
      require(tensor.bytes > 0 && tensor.bytes <= size - tensor.offset, "a tensor beyond the file");
      require(tensor.bytes == static_cast<uint64_t>(tensor.shape.count()) * 4, "bytes of another shape");
      end = tensor.offset + tensor.bytes;
    }
    require(model.tensors.size() == static_cast<size_t>(9 * std::get<int64_t>(model.metadata.at("llama.block_count"))) +
                                        2 + (model.tensors.back().name == "output.weight"),
            "not every tensor is there");
  });
}
