#include <catch2/catch.hpp>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include <harmonics/element_conversion.hpp>
#include <harmonics/ops.hpp>
#include <harmonics/philox.hpp>

#include "engine/model/packed_files.hpp"
#include "engine/model/parameter_store.hpp"
#include "engine/model/safetensors.hpp"
#include "engine/tensor/value.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

const hx_init kZero{HX_INIT_CONSTANT, 0, 0};

std::vector<float> drawn(const std::string& name, const Shape& shape, const hx_init& init, uint64_t seed = 1) {
  std::vector<float> values(static_cast<size_t>(shape.count()));
  initialise(values.data(), {DType::F32, shape}, init, seed, name);
  return values;
}

struct Moments {
  double mean = 0, deviation = 0, skew = 0, kurtosis = 0;
  explicit Moments(const std::vector<float>& values) {
    const double n = static_cast<double>(values.size());
    for (const float v : values) mean += v / n;
    double m2 = 0, m3 = 0, m4 = 0;
    for (const float v : values) {
      const double d = v - mean;
      m2 += d * d / n;
      m3 += d * d * d / n;
      m4 += d * d * d * d / n;
    }
    deviation = std::sqrt(m2);
    skew = m3 / std::pow(m2, 1.5);
    kurtosis = m4 / (m2 * m2);
  }
};

template <typename Body>
std::string refusal(ErrorKind kind, Body&& body) {
  try {
    body();
  } catch (const Error& e) {
    CHECK(e.kind() == kind);
    std::string text = e.what();
    for (const std::string& note : e.notes()) text += "\n" + note;
    return text;
  }
  return "nothing";
}

}  // namespace

TEST_CASE("initialisation: depends on seed and name only") {
  const TensorType type{DType::F32, {5, 7}};
  const hx_init init{HX_INIT_KAIMING_UNIFORM, 7, 0};
  const auto weights = [&](const std::vector<std::string>& names, uint64_t seed) {
    ParameterStore store;
    for (const std::string& name : names) store.declare(name, type, Role::weight, init, seed);
    const float* p = static_cast<const float*>(store.find("hidden.weight")->storage->data());
    return std::vector<float>(p, p + 35);
  };
  const auto alone = weights({"hidden.weight"}, 3);
  CHECK(weights({"a", "output.weight", "hidden.weight"}, 3) == alone);
  CHECK(weights({"hidden.weight", "z"}, 3) == alone);
  CHECK(weights({"hidden.weight"}, 4) != alone);
  CHECK(drawn("hidden.weights", {5, 7}, init, 3) != alone);
  // A larger tensor with the same name starts with the same values.
  const auto larger = drawn("hidden.weight", {6, 7}, init, 3);
  CHECK(std::equal(alone.begin(), alone.end(), larger.begin()));
}

TEST_CASE("initialisation: element i takes word i mod 4 of block i / 4") {
  const std::string name = "w";
  const auto values = drawn(name, {6}, {HX_INIT_UNIFORM, 0, 1}, 9);
  const auto key = philox_key(9, stream_of(name.data(), name.size()));
  for (uint32_t i = 0; i < 6; ++i) CHECK(values[i] == unit_float(philox({i / 4, 0, 0, 0}, key)[i % 4]));
}

TEST_CASE("initialisation: uniform numbers fill their range evenly") {
  const auto values = drawn("u", {100000}, {HX_INIT_UNIFORM, -2, 6});
  const Moments m(values);
  CHECK(m.mean == Approx(2).margin(0.03));
  CHECK(m.deviation == Approx(8 / std::sqrt(12.0)).epsilon(0.01));
  CHECK(*std::min_element(values.begin(), values.end()) >= -2);
  CHECK(*std::max_element(values.begin(), values.end()) <= 6);
  std::vector<int> bins(20);
  for (const float v : values) ++bins[static_cast<size_t>(std::min(19.0f, (v + 2) / 8 * 20))];
  for (const int n : bins) CHECK(n == Approx(5000).margin(300));
}

TEST_CASE("initialisation: normal numbers have the right moments and tails") {
  const auto values = drawn("n", {200000}, {HX_INIT_NORMAL, 1, 0.5});
  const Moments m(values);
  CHECK(m.mean == Approx(1).margin(0.005));
  CHECK(m.deviation == Approx(0.5).epsilon(0.01));
  CHECK(m.skew == Approx(0).margin(0.03));
  CHECK(m.kurtosis == Approx(3).margin(0.06));
  const auto beyond = std::count_if(values.begin(), values.end(), [](float v) { return std::abs(v - 1) > 1; });
  CHECK(beyond == Approx(200000 * 0.0455).epsilon(0.05));
  double product = 0;  // the two numbers of a pair are independent
  for (size_t i = 0; i < values.size(); i += 2) product += (values[i] - 1) * (values[i + 1] - 1) / 0.25;
  CHECK(product / 100000 == Approx(0).margin(0.02));
}

TEST_CASE("initialisation: Kaiming uniform has PyTorch's bounds") {
  // torch.nn.Linear(784, 392): U(-1/sqrt(784), 1/sqrt(784)), whose deviation is 1/sqrt(3 * 784).
  const auto values = drawn("hidden.weight", {392, 784}, {HX_INIT_KAIMING_UNIFORM, 784, 0});
  const Moments m(values);
  const float bound = 1 / 28.0f;
  CHECK(*std::max_element(values.begin(), values.end()) <= bound);
  CHECK(*std::min_element(values.begin(), values.end()) >= -bound);
  CHECK(*std::max_element(values.begin(), values.end()) > 0.9999f * bound);
  CHECK(m.mean == Approx(0).margin(1e-4));
  CHECK(m.deviation == Approx(1 / std::sqrt(3.0 * 784)).epsilon(0.003));
}

TEST_CASE("initialisation: every float type gets the same numbers, rounded") {
  const hx_init init{HX_INIT_UNIFORM, -1, 1};
  const auto wide = drawn("w", {9}, init);
  const std::string name = "w";
  double doubles[9];
  initialise(doubles, {DType::F64, {9}}, init, 1, name);
  for (size_t i = 0; i < 9; ++i) CHECK(static_cast<float>(doubles[i]) == wide[i]);
  uint16_t halves[9];
  initialise(halves, {DType::BF16, {9}}, init, 1, name);
  for (size_t i = 0; i < 9; ++i) CHECK((halves[i] >> 15) == (std::signbit(wide[i]) ? 1 : 0));
  int32_t counters[2];
  initialise(counters, {DType::I32, {2}}, {HX_INIT_CONSTANT, 7, 0}, 1, name);
  CHECK(counters[1] == 7);
}

TEST_CASE("initialisation: invalid settings are rejected") {
  float x[4];
  int64_t n[1];
  const TensorType type{DType::F32, {4}};
  CHECK(refusal(ErrorKind::Type, [&] {
          initialise(n, {DType::I64, {1}}, {HX_INIT_NORMAL, 0, 1}, 1, "steps");
        }) == "'steps' is i64[1]; only floating-point parameters can begin with random numbers");
  CHECK(refusal(ErrorKind::Usage, [&] {
          initialise(x, type, {HX_INIT_KAIMING_UNIFORM, 0, 0}, 1, "w");
        }) == "the initialisation of 'w' (0.000000, 0.000000) needs a fan-in above 0");
  CHECK(refusal(ErrorKind::Usage, [&] {
          initialise(x, type, {HX_INIT_UNIFORM, 1, 0}, 1, "w");
        }) == "the initialisation of 'w' (1.000000, 0.000000) needs bounds in rising order");
  CHECK(refusal(ErrorKind::Usage, [&] {
          initialise(x, type, {HX_INIT_NORMAL, 0, -1}, 1, "w");
        }) == "the initialisation of 'w' (0.000000, -1.000000) needs a deviation that is not negative");
  CHECK(refusal(ErrorKind::Usage, [&] {
          initialise(x, type, {77, 0, 0}, 1, "w");
        }) == "the initialisation of 'w' has the unknown kind 77");
}

TEST_CASE("initialisation: stored types begin with constants only") {
  for (uint32_t d = HX_F8_E4M3; d < detail::element_type_count; ++d) {
    const TensorType type{static_cast<DType>(d), {2, 256}};
    CAPTURE(type.str());
    HTensor t(type.dtype, type.shape);
    std::memset(t.mutable_bytes(), 0x5a, type.bytes());
    initialise(t.mutable_bytes(), type, kZero, 1, "w");
    const HTensor zeros = cast(t, DType::F32);
    CHECK(std::all_of(zeros.data<float>(), zeros.data<float>() + 512, [](float v) { return v == 0; }));
    const hx_init one{HX_INIT_CONSTANT, 1, 0};
    initialise(t.mutable_bytes(), type, one, 1, "w");
    const HTensor ones = cast(t, DType::F32);
    CHECK(std::all_of(ones.data<float>(), ones.data<float>() + 512, [](float v) { return std::abs(v - 1) < 1e-3f; }));
    const hx_init uniform{HX_INIT_UNIFORM, 0, 1};
    CHECK_THROWS_WITH(initialise(t.mutable_bytes(), type, uniform, 1, "w"),
                      Catch::Contains("only floating-point parameters"));
  }
}

TEST_CASE("parameter store: weights of stored types keep the layout of their file") {
  ParameterStore store;
  const TensorType type{DType::Q8_0, {64, 96}};
  HTensor numbers(type.dtype, type.shape);
  std::memset(numbers.mutable_bytes(), 0x11, type.bytes());
  store.adopt("w", numbers, nullptr, Role::frozen, kZero);
  CHECK(store.layout("w", type, Layout::transposed) == Layout::natural);
  CHECK(store.tensor("w").dtype() == DType::Q8_0);
  CHECK(std::memcmp(store.parameter("w", type), numbers.bytes(), type.bytes()) == 0);
  CHECK_THROWS_WITH(store.assign("w", HTensor(DType::F32, {64, 96})),
                    "'w' is q8_0[64, 96], the numbers are f32[64, 96]");
}

TEST_CASE("parameter store: weights of stored types are constant operands where all their packed forms can be kept") {
  const TensorType blocks{DType::Q8_0, {512, 256}}, plain{DType::F32, {64, 96}};
  const std::string path = "/tmp/blocks_" + std::to_string(::getpid());
  std::ofstream(path, std::ios::binary) << std::string(2 * blocks.bytes(), '\x11');
  const auto file = MappedFile::open(path);
  ::unlink(path.c_str());
  auto* begin = const_cast<char*>(static_cast<const char*>(file->data()));
  ParameterStore store;
  for (const char* name : {"a", "b"}) {
    char* at = begin + (*name == 'b' ? blocks.bytes() : 0);
    const auto view = std::make_shared<Storage>(at, blocks.bytes(), file, false);
    StoredTensor& stored = store.adopt(name, make_value(blocks, view), file, Role::frozen, kZero);
    stored.fixed = true;
    CHECK(stored.data() == at);  // blocks need no alignment
  }
  HTensor copy(blocks.dtype, blocks.shape);
  std::memset(copy.mutable_bytes(), 0x11, blocks.bytes());
  store.adopt("copied", copy, nullptr, Role::frozen, kZero).fixed = true;
  store.adopt("plain", HTensor(plain.dtype, plain.shape), nullptr, Role::frozen, kZero).fixed = true;
  CHECK_FALSE(store.is_constant("a"));
  CHECK(store.is_constant("plain"));
  const auto keep = [&](uint64_t bytes) { store.keep_packed(std::make_shared<PackedFiles>("packed", bytes)); };
  keep(6 * blocks.bytes());
  CHECK(store.is_constant("a"));
  CHECK_FALSE(store.is_constant("copied"));
  store.find("b")->fixed = false;
  CHECK_FALSE(store.is_constant("b"));
  keep(6 * blocks.bytes() - 1);
  CHECK_FALSE(store.is_constant("a"));
  CHECK(store.is_constant("plain"));
}

TEST_CASE("parameter store: a parameter is declared once and keeps its type") {
  ParameterStore store;
  const TensorType type{DType::F32, {196, 784}};
  StoredTensor& first = store.declare("hidden.weight", type, Role::weight, {HX_INIT_CONSTANT, 2, 0}, 1);
  first.role = Role::frozen;
  StoredTensor& again = store.declare("hidden.weight", type, Role::weight, kZero, 2);
  CHECK(&again == &first);
  CHECK(again.role == Role::frozen);
  CHECK(store.tensor("hidden.weight").data<float>()[5] == 2);
  CHECK(refusal(ErrorKind::Weights,
                [&] {
                  store.declare("hidden.weight", {DType::F32, {392, 784}}, Role::weight, kZero, 1);
                }) ==
        "'hidden.weight' is f32[196, 784] in the given weights, but the graph needs f32[392, 784]; give it weights of "
        "that shape "
        "or change the layer back");
}

TEST_CASE("parameter store: tensors of a file are converted to the float type that a program declares") {
  const Shape shape{2, 64};
  std::vector<float> values(128);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 128;  // exact in every type but q8_0
  const HTensor plain = HTensor::from(shape, values);
  ParameterStore store;
  for (const DType type : {DType::F16, DType::BF16, DType::F64, DType::Q8_0}) {
    CAPTURE(dtype_name(type));
    const std::string name(dtype_name(type));
    const HTensor given = cast(plain, type), expected = cast(given, DType::F32);
    store.adopt(name, given, nullptr, Role::weight, kZero);
    CHECK(store.find(name)->type.dtype == type);
    StoredTensor& declared = store.declare(name, {DType::F32, shape}, Role::weight, kZero, 1);
    CHECK(declared.type.dtype == DType::F32);
    CHECK(std::memcmp(declared.data(), expected.bytes(), 128 * sizeof(float)) == 0);
    store.adopt(name, cast(cast(plain * 2.0, type), DType::F16), nullptr, Role::weight, kZero);
    CHECK(&declared == store.find(name));  // used, so the elements are assigned
    CHECK(static_cast<const float*>(declared.data())[64] == Approx(1).epsilon(0.01));
  }
  store.adopt("whole", HTensor(DType::I32, shape), nullptr, Role::weight, kZero);
  CHECK(refusal(ErrorKind::Weights,
                [&] {
                  store.declare("whole", {DType::F32, shape}, Role::weight, kZero, 1);
                }) ==
        "'whole' is i32[2, 64] in the given weights, but the graph needs f32[2, 64]; give it weights of that type "
        "or change the layer back");
  store.declare("used", {DType::F32, shape}, Role::weight, kZero, 1);
  CHECK(refusal(ErrorKind::Weights,
                [&] {
                  store.adopt("used", HTensor(DType::F32, Shape{64, 2}), nullptr, Role::weight, kZero);
                }) ==
        "'used' is f32[64, 2] in the given weights, but the graph needs f32[2, 64]; give it weights of that shape "
        "or change the layer back");
  store.adopt("twice", HTensor(DType::F32, Shape{64, 2}), nullptr, Role::weight, kZero);
  CHECK(store.adopt("twice", plain, nullptr, Role::weight, kZero).type.shape == shape);  // of a later file
}

TEST_CASE("parameter store: a binding returns the memory itself") {
  ParameterStore store;
  const TensorType type{DType::F32, {3}};
  store.declare("output.bias", type, Role::weight, kZero, 1);
  auto* memory = static_cast<float*>(store.parameter("output.bias", type));
  CHECK(reinterpret_cast<uintptr_t>(memory) % 64 == 0);
  const HTensor view = store.tensor("output.bias");
  memory[1] = 4;
  CHECK(view.data<float>()[1] == 4);
  CHECK(refusal(ErrorKind::Weights, [&] { store.parameter("output.bia", type); }) ==
        "there is no parameter 'output.bia'\ndid you mean 'output.bias'?");
  CHECK(refusal(ErrorKind::Weights,
                [&] {
                  store.parameter("output.bias", {DType::F64, {3}});
                }) ==
        "parameter 'output.bias' is f32[3], the program expects f64[3]; compile the program again for these weights");
  CHECK(refusal(ErrorKind::Weights, [&] { store.tensor("x"); }) == "there is no parameter 'x'");
}

TEST_CASE("parameter store: expected values are taken by name and type, now or later") {
  ParameterStore store;
  const TensorType type{DType::F32, Shape{2, 3}};
  store.declare("here", type, Role::weight, hx_init{}, 0);
  CHECK(store.layout("here", type, Layout::transposed) == Layout::transposed);
  const auto of = [](std::vector<float> v) { return HTensor::from(Shape{2, 3}, v); };
  store.expect(
      {{"here", of({1, 2, 3, 4, 5, 6})}, {"later", of({6, 5, 4, 3, 2, 1})}, {"wider", of({0, 0, 0, 0, 0, 1})}});
  const auto numbers = [&](const char* name) {
    std::vector<float> v(6);
    store.copy(name, v.data());
    return v;
  };
  CHECK(numbers("here") == std::vector<float>{1, 2, 3, 4, 5, 6});
  store.declare("later", type, Role::moment, hx_init{HX_INIT_CONSTANT, 9, 0}, 0);
  CHECK(numbers("later") == std::vector<float>{6, 5, 4, 3, 2, 1});
  store.declare("wider", {DType::F32, Shape{6, 1}}, Role::weight, hx_init{HX_INIT_CONSTANT, 9, 0}, 0);
  CHECK(numbers("wider") == std::vector<float>(6, 9));
  REQUIRE(store.expected().size() == 1);
  CHECK(store.expected().count("wider") == 1);
  store.forget_expected([](const std::string& name) { return name == "wider"; });
  CHECK(store.expected().empty());
}

TEST_CASE("parameter store: elements of a file are copied when a program or the host changes them") {
  const TensorType type{DType::F32, {512, 1024}};
  const std::string path = "/tmp/adopted_" + std::to_string(::getpid()) + ".safetensors";
  std::vector<float> values(static_cast<size_t>(type.shape.count()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  save_safetensors(
      {{}, {{"a", HTensor::from(type.shape, values)}, {"b", HTensor::from(Shape{2}, std::vector<float>{1, 2})}}}, path);
  const TensorFile file = read_safetensors(path);
  ::unlink(path.c_str());
  const auto* begin = static_cast<const std::byte*>(file.mapped->data());
  const auto lies_in_file = [&](const void* p) { return p >= begin && p < begin + file.mapped->bytes(); };
  ParameterStore store;
  StoredTensor& a = store.adopt("a", file.tensors.at("a"), file.mapped, Role::weight, kZero);
  StoredTensor& b = store.adopt("b", file.tensors.at("b"), file.mapped, Role::weight, kZero);
  CHECK(lies_in_file(a.data()));
  CHECK_FALSE(lies_in_file(b.data()));
  CHECK(reinterpret_cast<uintptr_t>(b.data()) % 64 == 0);
  REQUIRE(store.files().size() == 1);

  a.fixed = true;
  CHECK(lies_in_file(store.parameter("a", type)));
  {
    const auto plan = store.user_of("a");
    store.assign("a", file.tensors.at("a"));  // equal values
    CHECK(lies_in_file(a.data()));
    CHECK(refusal(ErrorKind::Internal, [&] { store.will_change("a"); }) ==
          "a tensor of type f32[512, 1024] is to change, but a compiled program reads it in a shared place");
  }
  ParameterStore other;
  const StoredTensor& shared = other.share("a", a);
  store.will_change("a");
  auto* mine = static_cast<float*>(store.parameter("a", type));
  CHECK_FALSE(lies_in_file(mine));
  CHECK(store.files().empty());
  mine[3] = -1;
  CHECK(static_cast<const float*>(shared.data())[3] == 3);
  CHECK(file.tensors.at("a").data<float>()[3] == 3);

  // A tensor that some program may change is copied at the first read, because its address must stay valid.
  ParameterStore third;
  third.adopt("a", file.tensors.at("a"), file.mapped, Role::weight, kZero);
  CHECK_FALSE(lies_in_file(third.parameter("a", type)));
}
