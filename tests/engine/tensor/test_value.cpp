#include <catch2/catch.hpp>

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/tensor/value.hpp"

using namespace harmonics;
using namespace harmonics::engine;

TEST_CASE("a type prints as it is written in programs") {
  CHECK(TensorType{DType::F32, {64, 784}}.str() == "f32[64, 784]");
  CHECK(TensorType{DType::I64, {}}.str() == "i64[]");
  CHECK(dtype_named("bf16") == DType::BF16);
  CHECK_THROWS_WITH(dtype_named("f23"), "unknown element type 'f23'");
  CHECK(TensorType{DType::F64, {2, 3}}.bytes() == 48);
  CHECK(TensorType{DType::F64, {2, 0}}.bytes() == 0);
}

TEST_CASE("a C type is checked before anything is made of it") {
  hx_type t = make_type(DType::F32, {4, 5});
  CHECK(from_c(t) == TensorType{DType::F32, {4, 5}});
  t.dims[0] = -1;
  CHECK_THROWS_WITH(from_c(t), "negative dimension in [-1, 5]");
  t.dims[0] = int64_t{1} << 61;
  CHECK_THROWS_WITH(from_c(t), Catch::Matchers::Contains("overflows"));
  t.rank = 9;
  CHECK_THROWS_WITH(from_c(t), "a tensor has at most 8 dimensions, not 9");
  t = make_type(DType::F32, {});
  t.dtype = 77;
  CHECK_THROWS_WITH(from_c(t), "unknown element type number 77");
}

TEST_CASE("own memory is zeroed and aligned") {
  const HTensor t(DType::F32, {3, 5});
  CHECK(reinterpret_cast<uintptr_t>(t.bytes()) % 64 == 0);
  for (int i = 0; i < 15; ++i) CHECK(t.data<float>()[i] == 0);
  CHECK(t.raw()->storage->owned());
}

TEST_CASE("writing a shared tensor leaves the other handles' numbers") {
  HTensor a = HTensor::from<float>({3}, {1, 2, 3});
  const HTensor b = a;
  a.mutable_data<float>()[0] = 9;
  CHECK(a.data<float>()[0] == 9);
  CHECK(b.data<float>()[0] == 1);
  const float* before = a.data<float>();
  a.mutable_data<float>()[1] = 8;
  CHECK(a.data<float>() == before);
}

TEST_CASE("a view shows memory that lives elsewhere and keeps its owner") {
  auto owner = std::make_shared<std::vector<float>>(std::vector<float>{1, 2});
  std::weak_ptr<std::vector<float>> watch = owner;
  HTensor view = view_of({DType::F32, {2}}, owner->data(), owner);
  CHECK_FALSE(view.raw()->storage->owned());
  owner->at(1) = 5;
  CHECK(view.data<float>()[1] == 5);
  owner.reset();
  CHECK_FALSE(watch.expired());
  view = {};
  CHECK(watch.expired());
}

TEST_CASE("elements are read as what they are") {
  const HTensor t = HTensor::from<int64_t>({2}, {1, 2});
  CHECK_THROWS_AS(t.data<float>(), Error);
  CHECK_THROWS_WITH(t.item<int64_t>(), "item() needs one element, the shape is [2]");
  CHECK_THROWS_WITH(HTensor::from<float>({3}, {1}), "1 value cannot fill a tensor of shape [3]");
}
