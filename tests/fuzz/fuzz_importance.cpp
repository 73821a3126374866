// Any input is an importance matrix or an error; its weights are finite and of the matrix's size.
#include <cmath>

#include "engine/model/importance.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<char> exact(data, data + size);
  return refusing([&] {
    const ImportanceMatrix matrix = read_importance({exact.data(), size}, {"input", ErrorKind::Weights});
    for (const auto& [name, entry] : matrix.tensors) {
      require(!name.empty() || !entry.squares.empty(), "an empty entry");
      for (int64_t i = 0; i < entry.matrices(); ++i) {
        const std::vector<float> weights = entry.weights(i);
        require(static_cast<int64_t>(weights.size()) == entry.columns, "weights of another size");
        for (const float weight : weights) require(weight >= 0 && !std::isnan(weight), "a weight that is not a number");
      }
    }
  });
}
