// Any input is a saved session or an error, and a parsed one round-trips. Each input is tried unchanged, and as the
// description of a session with correct checksums, so that mutations get past them.
#include "engine/language/session_file.hpp"
#include "engine/model/sealed_file.hpp"
#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

void try_saved(const std::string& bytes) {
  refusing([&] {
    const SavedSession once = read_session(std::make_shared<const std::string>(bytes), "input");
    require(once.computed >= 0 && once.computed <= static_cast<int64_t>(once.tokens.size()), "states of no tokens");
    const SavedSession twice = read_session(std::make_shared<const std::string>(session_bytes(once)), "written");
    require(session_bytes(once) == session_bytes(twice), "a session came back as another");
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try_saved(bytes);
  TensorFile file;
  file.metadata["harmonics.session"] = bytes;
  file.tensors["tokens"] = HTensor::from(Shape{3}, std::vector<int32_t>{1, 2, 3});
  file.tensors["state/000000"] = HTensor::from(Shape{4}, std::vector<uint8_t>{1, 2, 3, 4});
  try {
    try_saved(write_sealed(file));
  } catch (const Error&) {
    // invalid UTF-8: such metadata cannot be written
  }
  return 0;
}
