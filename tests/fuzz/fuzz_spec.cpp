// Any text is a model spec or an error with its position. A parsed spec is applied to a model of one layer: the result
// has entries, or is rejected.
#include "dsl/spec/reader.hpp"
#include "engine/transformer/resolved_spec.hpp"
#include "tests/fuzz/guarded_bytes.hpp"
#include "tests/fuzz/structured_files.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  return refusing([&] {
    specs::Spec read;
    try {
      read = specs::parse_spec("input", text);
    } catch (const Error& e) {
      require(std::strstr(e.what(), "input"), "a refusal without its place");
      throw;
    }
    const ModelMetadata metadata("model", AttributeMap().set("general.architecture", "a").set("n", int64_t{2}));
    const TensorTypes tensors{{"t", {DType::F32, {4, 2}}}, {"w", {DType::Q8_0, {3, 32}}}, {"g", {DType::F32, {2}}}};
    ResolvedSpec resolved(read, metadata, tensors, {}, "model");
    resolved.check_entries(DType::F32);
    require(!resolved.spec().forward.empty(), "a spec without steps");
  });
}
