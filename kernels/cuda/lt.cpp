#include "lt.hpp"

#include "driver.hpp"
#include "library.hpp"

namespace harmonics::cuda {

const LtFunctions* open_cublaslt(std::string& why) {
  static std::string missing;
  static const LtFunctions* const found = []() -> const LtFunctions* {
    static LtFunctions f{};
    const Library library({"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"}, missing);
    if (!library.is_open()) return nullptr;
    const bool whole = library.find(f.create, "cublasLtCreate", missing) &&
                       library.find(f.destroy, "cublasLtDestroy", missing) &&
                       library.find(f.version, "cublasLtGetVersion", missing) &&
                       library.find(f.status_text, "cublasLtGetStatusString", missing) &&
                       library.find(f.product_create, "cublasLtMatmulDescCreate", missing) &&
                       library.find(f.product_set, "cublasLtMatmulDescSetAttribute", missing) &&
                       library.find(f.product_destroy, "cublasLtMatmulDescDestroy", missing) &&
                       library.find(f.matrix_create, "cublasLtMatrixLayoutCreate", missing) &&
                       library.find(f.matrix_set, "cublasLtMatrixLayoutSetAttribute", missing) &&
                       library.find(f.matrix_destroy, "cublasLtMatrixLayoutDestroy", missing) &&
                       library.find(f.preference_create, "cublasLtMatmulPreferenceCreate", missing) &&
                       library.find(f.preference_set, "cublasLtMatmulPreferenceSetAttribute", missing) &&
                       library.find(f.preference_destroy, "cublasLtMatmulPreferenceDestroy", missing) &&
                       library.find(f.heuristic, "cublasLtMatmulAlgoGetHeuristic", missing) &&
                       library.find(f.product, "cublasLtMatmul", missing);
    return whole ? &f : nullptr;
  }();
  why = missing;
  return found;
}

}  // namespace harmonics::cuda
