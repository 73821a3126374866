// Any input is a checkpoint or an error, and a parsed state round-trips. Each input is tried unchanged, and as the text
// of a state with correct checksums, so that mutations get past them.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "engine/checkpoint/run_state.hpp"
#include "engine/model/sealed_file.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

void try_file(const std::string& bytes) {
  try {
    TensorFile file = read_sealed(std::make_shared<const std::string>(bytes), "input");
    const RunState state = take_state(file, "input");
    TensorFile once, twice;
    write_state(state, once);
    TensorFile copy = once;
    write_state(take_state(copy, "written"), twice);
    require(write_sealed(once) == write_sealed(twice), "a state came back as another");
  } catch (const Error& e) {
    require(e.kind() == ErrorKind::Weights && std::strstr(e.what(), "input"), "a refusal without its file");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  try_file(bytes);
  TensorFile file;
  file.metadata["harmonics.run"] = bytes;
  const auto doubles = [](int64_t rows, int64_t columns) {
    return HTensor::from(Shape{rows, columns}, std::vector<double>(static_cast<size_t>(rows * columns), 1.5));
  };
  file.tensors["run/window/loss"] = doubles(2, 2);
  file.tensors["run/window/o.loss"] = doubles(2, 2);
  file.tensors["run/curve"] = doubles(4, 2);
  file.tensors["run/table/1/o"] = doubles(2, 2);
  file.tensors["run/metric/o/0"] = HTensor::from(Shape{4}, std::vector<uint8_t>{1, 2, 3, 4});
  try {
    try_file(write_sealed(file));
  } catch (const Error&) {
    // invalid UTF-8: such metadata cannot be written
  }
  return 0;
}
