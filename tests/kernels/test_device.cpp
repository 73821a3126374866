#include "kernel_call.hpp"

#include <cstdlib>

namespace harmonics::engine::kernel_tests {

TEST_CASE("cpu device: registers and describes itself") {
  CHECK(device_name() == "cpu");
  CHECK_THAT(device_text(), Catch::StartsWith("CPU, ") && Catch::Contains("oneDNN"));
  const char* wanted = std::getenv("HARMONICS_ISA");
  if (wanted) CHECK_THAT(device_text(), Catch::Contains(wanted));
}

TEST_CASE("cpu device: unsupported call sites are declined") {
  CHECK_FALSE(KernelCall("no_such_operation").in(Tensor::zeros({3}, HX_F32)).out({3}).served());
  CHECK_FALSE(KernelCall("dot")
                  .in(Tensor::zeros({3, 3}, HX_F64))
                  .in(Tensor::zeros({3, 3}, HX_F64))
                  .out({3, 3}, HX_F64)
                  .served());
  CHECK_FALSE(KernelCall("exp").in(Tensor::zeros({0}, HX_F32)).out({0}).served());
}

}  // namespace harmonics::engine::kernel_tests
