#include "dnn.hpp"

#include "driver.hpp"
#include "library.hpp"

namespace harmonics::cuda {

const DnnFunctions* open_cudnn(std::string& why) {
  static std::string missing;
  static const DnnFunctions* const found = []() -> const DnnFunctions* {
    static DnnFunctions f{};
    const Library library({"libcudnn.so.9", "libcudnn.so"}, missing);
    if (!library.is_open()) return nullptr;
    const bool whole = library.find(f.version, "cudnnGetVersion", missing) &&
                       library.find(f.create, "cudnnCreate", missing) &&
                       library.find(f.set_stream, "cudnnSetStream", missing) &&
                       library.find(f.status_text, "cudnnGetErrorString", missing) &&
                       library.find(f.make, "cudnnBackendCreateDescriptor", missing) &&
                       library.find(f.destroy, "cudnnBackendDestroyDescriptor", missing) &&
                       library.find(f.set, "cudnnBackendSetAttribute", missing) &&
                       library.find(f.get, "cudnnBackendGetAttribute", missing) &&
                       library.find(f.finalize, "cudnnBackendFinalize", missing) &&
                       library.find(f.execute, "cudnnBackendExecute", missing);
    if (!whole) return nullptr;
    if (const size_t version = f.version(); version < 90000) {
      missing = "cuDNN is older than 9 (" + std::to_string(version) + "); install a newer one";
      return nullptr;
    }
    return &f;
  }();
  why = missing;
  return found;
}

}  // namespace harmonics::cuda
