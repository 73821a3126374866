// fuse_scales: products that read bytes directly.
#include <catch2/catch.hpp>

#include <algorithm>
#include <limits>

#include <harmonics/ops.hpp>

#include "engine/passes/pass.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/tracer.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

constexpr int64_t kBatch = 4, kIn = 5, kOut = 3;

HTensor numbers(const Shape& shape) {
  std::vector<float> v;
  for (int64_t i = 0; i < shape.count(); ++i) v.push_back(static_cast<float>(i * 37 % 29 - 14) / 16);
  return HTensor::from(shape, v);
}

// An image's bytes into an affine map whose weight is updated; `reads` adds another reader.
class BytesTracer {
 public:
  Program run(DType dtype, void (*reads)(Tracer&, const HTensor&) = nullptr, double scale = 0.25) {
    const HTensor bytes = tracer_.input("x", {dtype, {kBatch, kIn}}),
                  w = tracer_.parameter("w", {DType::F32, {kIn, kOut}}),
                  dy = tracer_.input("dy", {DType::F32, {kBatch, kOut}}),
                  rate = tracer_.input("rate", {DType::F32, {}});
    const HTensor x = cast(bytes, DType::F32) * scale;
    tracer_.output("y", apply("linear", AttributeMap().set("transposed", true), {x, w}).at(0));
    tracer_.update("w", apply("sgd_outer", {}, {w, x, dy, rate}).at(0));
    if (reads) reads(tracer_, x);
    return dce(cse(simplify(tracer_.take())));
  }

 private:
  Tracer tracer_{"bytes"};
};

int64_t scaled(const Program& p) {
  return std::count_if(p.nodes.begin(), p.nodes.end(),
                       [](const Node& n) { return n.op == Op::call && n.attributes.has("scale"); });
}
int64_t casts(const Program& p) {
  return std::count_if(p.nodes.begin(), p.nodes.end(), [](const Node& n) { return n.op == Op::cast; });
}
bool everything(const std::string&, const AttributeMap&, const std::vector<TensorType>&) { return true; }

std::vector<std::vector<float>> results(const Program& program) {
  std::vector<uint8_t> bytes;
  for (int i = 0; i < kBatch * kIn; ++i) bytes.push_back(static_cast<uint8_t>(i * 53));
  const Values values = interpret(program, {{"x", HTensor::from<uint8_t>({kBatch, kIn}, bytes)},
                                            {"w", numbers({kIn, kOut})},
                                            {"dy", numbers({kBatch, kOut})},
                                            {"rate", HTensor::from<float>({}, {0.5f})}});
  std::vector<std::vector<float>> all;
  for (const HTensor& v : values) all.emplace_back(v.data<float>(), v.data<float>() + v.size());
  return all;
}

}  // namespace

TEST_CASE("fuse_scales: products read bytes with a scale") {
  const Program p = BytesTracer().run(DType::U8), fused = fuse_scales(p, everything);
  REQUIRE(scaled(p) == 0);
  CHECK(scaled(fused) == 2);
  CHECK(casts(fused) == 0);
  CHECK(results(fused) == results(p));
  for (const Node& n : fused.nodes)
    if (n.op == Op::call) CHECK(n.attributes.number("scale") == 0.25);
}

TEST_CASE("fuse_scales: all readers are accepted with new attributes and types, or none") {
  const Program p = BytesTracer().run(DType::U8);
  std::vector<std::string> asked;
  const auto only_maps = [&](const std::string& callee, const AttributeMap& attributes,
                             const std::vector<TensorType>& types) {
    asked.push_back(callee);
    CHECK(attributes.number("scale") == 0.25);
    CHECK(types.at(callee == "linear" ? 0 : 1) == TensorType{DType::U8, {kBatch, kIn}});
    return callee == "linear";
  };
  const Program left = fuse_scales(p, only_maps);
  CHECK(asked == std::vector<std::string>{"linear", "sgd_outer"});
  CHECK(scaled(left) == 0);
  CHECK(casts(left) == 1);
}

TEST_CASE("fuse_scales: values with other readers are computed") {
  const Program output = BytesTracer().run(DType::U8, [](Tracer& t, const HTensor& x) { t.output("x", x); });
  const Program reader = BytesTracer().run(DType::U8, [](Tracer& t, const HTensor& x) {
    t.output("most", reduce_max(x, {0, 1}));
  });
  const Program weight = BytesTracer().run(DType::U8, [](Tracer& t, const HTensor& x) {
    t.output("z", apply("linear", {}, {x, x}).at(0));
  });
  const Program whole = BytesTracer().run(DType::I32);
  for (const Program* p : {&output, &reader, &weight, &whole}) {
    CHECK(scaled(fuse_scales(*p, everything)) == 0);
    CHECK(casts(fuse_scales(*p, everything)) == 1);
  }
}

TEST_CASE("fuse_scales: scales that change zeros are not fused") {
  for (const double scale : {1e-40, 1e300, -1e300, std::numeric_limits<double>::quiet_NaN()})
    CHECK(scaled(fuse_scales(BytesTracer().run(DType::U8, nullptr, scale), everything)) == 0);
  CHECK(scaled(fuse_scales(BytesTracer().run(DType::U8, nullptr, -2.0), everything)) == 2);
}
