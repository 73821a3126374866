// Any text is a model, or errors with positions from all stages. A small model that compiles has entries, or is
// rejected.
#include "engine/transformer/ndsl_mapping.hpp"
#include "engine/transformer/ndsl_model.hpp"
#include "tests/fuzz/guarded_bytes.hpp"
#include "tests/fuzz/structured.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), std::min<size_t>(size, 1 << 14));
  return refusing([&] {
    NdslFaults faults;
    const ndsl::ModelFile file = ndsl::parse_model_file("input.ndsl", text, "", builtin_ndsl, faults);
    NdslCompileOptions options;
    options.set = {{"num_layers", "2"}};
    const CompiledNdsl model = compile_ndsl(file, options, faults);
    if (faults.any()) check_mapping(model, faults);
    faults.throw_any();
    require(model.layers.size() == 2, "layers that the settings do not name");
    for (const NdslAlias& alias : model.aliases)
      for (const std::string& tensor : alias.tensors) require(model.find(tensor), "an alias of no tensor");
    folder_tensors(model);
    check_ndsl(model);
  });
}
