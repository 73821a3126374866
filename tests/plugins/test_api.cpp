// The host's function table, called through its C functions where the C++ API would hide them.
#include <catch2/catch.hpp>

#include <cstring>

#include "tests/plugins/traced.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

std::string said() {
  uint32_t kind = 0;
  return harmonics_api()->last_error(&kind);
}

}  // namespace

TEST_CASE("table: states its size and contract") {
  CHECK(harmonics_api()->struct_size == sizeof(hx_api));
  CHECK(harmonics_api()->abi_major == HX_ABI_MAJOR);
  CHECK(harmonics_api()->abi_minor == HX_ABI_MINOR);
  CHECK(harmonics_api()->extension("hx.nothing/9") == nullptr);
}

TEST_CASE("table: tensors are zeros or copies, and writes do not affect other handles") {
  const HTensor zeros(DType::I16, {2, 2});
  CHECK(zeros.data<int16_t>()[3] == 0);
  const float given[] = {1, 2};
  HTensor a(DType::F32, {2}, given);
  const HTensor b = a;
  CHECK(a.data<float>() == b.data<float>());
  a.mutable_data<float>()[0] = 9;
  CHECK(b.data<float>()[0] == 1);
  CHECK(a.data<float>()[0] == 9);
  const float* own = a.data<float>();
  CHECK(a.mutable_data<float>() == own);  // the only handle, so not copied
  const float read_only[] = {5};
  HTensor c =
      make_value({DType::F32, {1}}, std::make_shared<Storage>(const_cast<float*>(read_only), 4, nullptr, false));
  c.mutable_data<float>()[0] = 6;
  CHECK(read_only[0] == 5);
}

TEST_CASE("table: invalid types are refused") {
  hx_value* out = nullptr;
  hx_type type{HX_F32, 1, {-1}};
  CHECK(harmonics_api()->create(&type, nullptr, &out) == HX_ERROR);
  CHECK(said() == "negative dimension in [-1]");
  type = {HX_F32, 9, {}};
  CHECK(harmonics_api()->create(&type, nullptr, &out) == HX_ERROR);
  type = {77, 0, {}};
  CHECK(harmonics_api()->create(&type, nullptr, &out) == HX_ERROR);
  CHECK(said() == "unknown element type number 77");
  type = {HX_F64, 3, {int64_t{1} << 31, int64_t{1} << 31, 4}};
  CHECK(harmonics_api()->create(&type, nullptr, &out) == HX_ERROR);
  CHECK(said().find("overflows") != std::string::npos);
  CHECK(out == nullptr);
}

TEST_CASE("table: a traced value has a type but no numbers") {
  Tracer tracer("test");
  HTensor x = tracer.input("x", {DType::F32, {2, 3}});
  CHECK(x.shape() == Shape{2, 3});
  const void* data = nullptr;
  CHECK(harmonics_api()->data(x.raw(), &data) == HX_NEEDS_VALUES);
  CHECK_THROWS_AS(x.data<float>(), detail::NeedsValues);
  CHECK_THROWS_AS(x.mutable_data<float>(), detail::NeedsValues);
}

TEST_CASE("table: errors keep kind, text and notes") {
  const HTensor x = floats({2, 2}, {1, 2, 3, 4});
  try {
    call1("rleu", {x});
    FAIL("nothing was thrown");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Name);
    CHECK(std::string(e.what()) == "there is no operation 'rleu'");
    REQUIRE(e.notes().size() == 1);
    CHECK(e.notes()[0] == "did you mean 'relu'?");
  }
  CHECK(error_of([&] { call1("add", {x, HTensor()}); }) == "operand 2 of 'add' is an empty tensor");
  harmonics_api()->set_error(HX_ERROR_STREAM, "first\nsecond");
  uint32_t kind = 0;
  CHECK(std::string(harmonics_api()->last_error(&kind)) == "first\nsecond");
  CHECK(kind == HX_ERROR_STREAM);
}

TEST_CASE("table: results that do not fit the caller's buffer are refused") {
  const HTensor x = floats({1, 2}, {1, 2});
  hx_value* in[] = {x.raw()};
  const hx_attribute k{"k", HX_ATTR_INT, 0, {1}};
  const hx_attributes attributes{&k, 1};
  hx_value* out[1] = {};
  uint32_t n = 0;
  CHECK(harmonics_api()->apply("top_k", &attributes, in, 1, out, 1, &n) == HX_ERROR);
  CHECK(said() == "'top_k' has 2 results, there is room for 1");
}

TEST_CASE("table: a layer's scope is reachable") {
  TestScope scope;
  scope.leading_axes = 2;
  scope.symbols = 7;
  Scope face(&scope);
  CHECK(face.parameter("weight", {2, 2}, constant_init(3)).data<float>()[3] == 3);
  CHECK(face.leading() == 2);
  CHECK(face.classes() == 7);
  CHECK_FALSE(face.training());
  CHECK_THROWS_AS(face.width(), detail::NeedsWidth);
  scope.target_width = 5;
  CHECK(face.width() == 5);
  hx_value* out = nullptr;
  const hx_type wrong{HX_I32, 1, {2}};
  CHECK(harmonics_api()->scope_random(&scope, &wrong, &out) == HX_ERROR);
  CHECK(said() == "random numbers are f32, not i32[2]");
}
