// The face of an embedder: tensors and operations at once.
#include <harmonics/harmonics.hpp>

#include <cstdio>

int main() {
  const auto x = harmonics::HTensor::from<float>({2, 2}, {-1, 2, -3, 4});
  const auto y = harmonics::call1("relu", {x}) + 1;
  const float expected[] = {1, 3, 1, 5};
  for (int i = 0; i < 4; ++i)
    if (y.data<float>()[i] != expected[i]) return 1;
  try {
    harmonics::matmul(x, harmonics::HTensor(harmonics::DType::F32, {3, 3}));
  } catch (const harmonics::Error& error) {
    std::puts(error.what());
    return error.kind() == harmonics::ErrorKind::Shape ? 0 : 2;
  }
  return 3;
}
