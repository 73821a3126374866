// Attention by an emulated cuDNN, compared with the functional's body.
#include <cmath>

#include "tests/cuda/emulated_device.hpp"
#include "tests/engine/execution/cached_decoding.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::cuda;
using namespace harmonics::cuda::testing;

namespace {

struct Case {
  int64_t batch, heads, shared, queries, keys, width, value_width;
  bool causal, positions_first;
  double scale;  // 0: the default

  Shape shape(int64_t n, int64_t positions, int64_t last) const {
    return positions_first ? Shape{batch, positions, n, last} : Shape{batch, n, positions, last};
  }
  Attributes attributes() const {
    Attributes a;
    a.set("causal", causal).set("positions_first", positions_first);
    if (scale > 0) a.set("scale", scale);
    return a;
  }
  std::map<std::string, HTensor> given() const {
    return {{"q", harmonics::engine::testing::noise(shape(heads, queries, width), 1, 1.0f)},
            {"k", harmonics::engine::testing::noise(shape(shared, keys, width), 2, 1.0f)},
            {"v", harmonics::engine::testing::noise(shape(shared, keys, value_width), 3, 1.0f)}};
  }
};

constexpr Case kAttentionCases[] = {
    // shared key heads; a different width of values
    {2, 3, 3, 5, 5, 8, 8, false, false, 0},  {2, 4, 2, 5, 7, 8, 16, false, false, 0.7},
    {1, 4, 1, 6, 6, 16, 16, true, false, 0}, {2, 2, 2, 3, 9, 8, 8, true, false, 0},  // the last query sees all keys
    {2, 4, 2, 5, 7, 8, 8, true, true, 0},    {1, 1, 1, 1, 1, 8, 8, false, true, 2},
};

// Results out and lse of an attention in this type, and the kernel's name.
struct Result {
  HTensor out, lse;
  std::string kernel;
};
Result attend(const Case& c, DType dtype, Precision precision) {
  Tracer tracer("attention");
  std::vector<HTensor> in;
  for (const auto& [name, value] : c.given())
    in.push_back(cast(tracer.input(name, {DType::F32, value.shape()}), dtype));
  const auto results = call("attention", {in[1], in[0], in[2]}, c.attributes());  // a map sorts k before q
  tracer.output("out", cast(results[0], DType::F32));
  tracer.output("lse", results[1]);
  EmulatedDevice with;
  CompileOptions options = with.options();
  options.precision = precision;
  const Program program = tracer.take();
  const auto plan = compile(program, nullptr, *with.executor, options);
  plan->run(harmonics::engine::testing::input_pointers(*plan, c.given()).data());
  Result r{harmonics::engine::testing::copy_of(plan->output("out")),
           harmonics::engine::testing::copy_of(plan->output("lse")), ""};
  for (const PlanStep& s : plan->steps())
    if (s.kernel == "cuDNN attention") r.kernel = s.kernel;
  return r;
}

void require_close_within(const HTensor& a, const HTensor& b, double margin) {
  REQUIRE(a.shape() == b.shape());
  for (int64_t i = 0; i < a.size(); ++i) {
    INFO("element " << i);
    REQUIRE(static_cast<double>(a.data<float>()[i]) == Approx(static_cast<double>(b.data<float>()[i])).margin(margin));
  }
}

}  // namespace

TEST_CASE("cudnn attention: 16-bit types, and f32 with rounding allowed") {
  const FreshSettings fresh;
  struct Kind {
    DType dtype;
    Precision precision;
    double margin;  // tolerance of rounded results: the body rounds at other steps
  };
  for (const Case& c : kAttentionCases)
    for (const Kind kind : {Kind{DType::F16, Precision::fp32, 2e-3}, Kind{DType::BF16, Precision::fp32, 2e-2},
                            Kind{DType::F32, Precision::fp16, 4e-3}}) {
      INFO(c.heads << " heads of " << c.width << ", " << c.queries << " queries, " << c.keys << " keys, type "
                   << static_cast<int>(kind.dtype));
      emulated::settings() = {};
      const Result by_dnn = attend(c, kind.dtype, kind.precision);
      CHECK(by_dnn.kernel == "cuDNN attention");
      CHECK(emulated::settings().attentions == 1);
      emulated::settings().has_dnn = false;
      const Result by_body = attend(c, kind.dtype, kind.precision);
      CHECK(by_body.kernel.empty());
      require_close_within(by_dnn.out, by_body.out, kind.margin);
      require_close_within(by_dnn.lse, by_body.lse, kind.margin);
    }
  CHECK(emulated::settings().dnn_descriptions == 0);
}

TEST_CASE("cudnn attention: values beyond f16 stay finite with rounding allowed") {
  const FreshSettings fresh;
  Machine own{open_driver(), open_compiler()};
  Buffer q = numbers({1, 1, 1, 8}, 1), k = q, v = q;
  std::fill(q.numbers.begin(), q.numbers.end(), 0.0f);
  std::fill(v.numbers.begin(), v.numbers.end(), -1e6f);
  DeviceCall call("attention", {}, {q, k, v}, {1, 1, 1, 8});
  call.second({1, 1, 1}).flags(HX_SITE_FP16_CHUNKS);
  REQUIRE(call.plan(own) == "cuDNN attention");
  for (const float x : call.run()) CHECK(x == -65504.0f);
}

TEST_CASE("cuda: attention with optional inputs, positions and caches have kernels") {
  const FreshSettings fresh;
  Machine own{open_driver(), open_compiler()};
  DeviceCall windowed("attention", AttributeMap().set("window", int64_t{2}).set("softcap", 4.0),
                      {numbers({1, 4, 3, 8}, 1), numbers({1, 2, 5, 8}, 2), numbers({1, 2, 5, 8}, 3)}, {1, 4, 3, 8});
  windowed.second({1, 4, 3});
  CHECK(windowed.plan(own) == "attention");
  DeviceCall turned("rope", AttributeMap().set("pairing", "interleaved").set("rotary_dims", int64_t{6}),
                    {numbers({2, 3, 8}, 1)}, {2, 3, 8});
  CHECK(turned.plan(own) == "rope");
}

TEST_CASE("cuda: caches of f32, f16, bf16 and q8_0 have kernels that append in place and attend") {
  const FreshSettings fresh;
  EmulatedDevice device;
  harmonics::engine::testing::check_cached_decoding(*device.executor, device.options());
  harmonics::engine::testing::check_paged_decoding(*device.executor, device.options());
}

TEST_CASE("cuda: gradients of attention with optional inputs, grouped heads, a window and a cap equal the body's") {
  const FreshSettings fresh;
  using harmonics::engine::testing::noise;
  constexpr int64_t batch = 2, heads = 4, shared = 2, queries = 5, keys = 7, width = 12;
  for (const bool first : {false, true}) {
    const auto shape = [&](int64_t n, int64_t positions) {
      return first ? Shape{batch, positions, n, width} : Shape{batch, n, positions, width};
    };
    const std::map<std::string, HTensor> numbers{
        {"q", noise(shape(heads, queries), 1, 1.0f)},
        {"k", noise(shape(shared, keys), 2, 1.0f)},
        {"v", noise(shape(shared, keys), 3, 1.0f)},
        {"bias", noise(first ? Shape{queries, keys} : Shape{batch, heads, queries, keys}, 4, 1.0f)},
        {"sinks", noise({heads}, 5, 1.0f)},
        {"lengths", HTensor::from<int32_t>({batch}, {7, 4})},
        {"mask", less(noise({batch, 1, queries, keys}, 6, 1.0f), 0.7)}};
    Tracer tracer("gradient");
    const auto input = [&](const char* name) { return tracer.input(name, type_of(numbers.at(name))); };
    const HTensor q = input("q"), k = input("k"), v = input("v"), bias = input("bias"), sinks = input("sinks");
    Attributes a;
    a.set("operands", "lengths,mask,bias,sinks").set("positions_first", first).set("causal", true);
    a.set("window", 4).set("softcap", 2.0);
    const HTensor y = call("attention", {q, k, v, input("lengths"), input("mask"), bias, sinks}, a)[0];
    const Values gradients = gradient(tracer, reduce_sum(y * sin(y), {0, 1, 2, 3}), {q, k, v, bias, sinks});
    const char* names[] = {"dq", "dk", "dv", "dbias", "dsinks"};
    for (size_t i = 0; i < gradients.size(); ++i) tracer.output(names[i], gradients[i]);
    const Program program = tracer.take();
    EmulatedDevice device;
    harmonics::engine::testing::MapBinding none;
    const auto plan = compile(program, &none, *device.executor, device.options());
    size_t own = 0;
    for (const PlanStep& s : plan->steps()) own += s.what == "attention_grad" && s.kernel == "attention";
    CHECK(own == 1);
    plan->run(harmonics::engine::testing::input_pointers(*plan, numbers).data());
    const Values expected = interpret(program, numbers);
    for (size_t i = 0; i < expected.size(); ++i) {
      INFO(names[i]);
      require_close_within(harmonics::engine::testing::copy_of(plan->output(names[i])), expected[i], 1e-4);
    }
  }
}

TEST_CASE("cudnn attention: declines with a reason") {
  const FreshSettings fresh;
  const auto why = [](const AttributeMap& a, int64_t queries, int64_t keys, int64_t width, uint32_t flags) {
    Machine own{open_driver(), open_compiler()};
    DeviceCall call(
        "attention", a,
        {numbers({1, 2, queries, width}, 1), numbers({1, 2, keys, width}, 2), numbers({1, 2, keys, width}, 3)},
        {1, 2, queries, width});
    call.second({1, 2, queries}).flags(flags);
    CHECK(call.plan(own).empty());
    return std::string(harmonics_api()->last_error(nullptr));
  };
  CHECK(why({}, 3, 3, 72, 0) == "needs a 16-bit type, or f32 with heads of 64 numbers at most or rounding allowed");
  CHECK(why(AttributeMap().set("causal", true), 4, 3, 72, HX_SITE_FP16_CHUNKS) ==
        "needs a visible key for every query");
  CHECK(why({}, 3, 3, 71, HX_SITE_FP16_CHUNKS) == "cuDNN does not take the description: an error");
  CHECK(why(AttributeMap().set("operands", "sinks"), 3, 3, 8, HX_SITE_FP16_CHUNKS) == "takes optional inputs by name");
  CHECK(why(AttributeMap().set("window", int64_t{2}), 3, 3, 300, 0) == "keeps heads of 256 numbers at most");
  emulated::settings().dnn_version = 92000;
  CHECK(why({}, 3, 3, 72, HX_SITE_FP16_CHUNKS) == "cuDNN is older than 9.21 (92000), which attends in one operation");
  emulated::settings().has_dnn = false;
  CHECK(why({}, 3, 3, 72, HX_SITE_FP16_CHUNKS) == "libcudnn.so.9 is not found");
  CHECK(emulated::settings().attentions == 0);
}

TEST_CASE("cuda attention in tiles: partial tiles, groups, widths, and more queries than keys") {
  const FreshSettings fresh;
  emulated::settings().has_dnn = false;
  for (const Case& c : {Case{1, 2, 1, 70, 45, 33, 20, false, false, 0}, Case{1, 2, 2, 45, 70, 40, 64, true, true, 0.3},
                        Case{1, 1, 1, 40, 33, 5, 6, true, false, 0}}) {
    INFO(c.queries << " queries, " << c.keys << " keys, width " << c.width);
    Tracer tracer("attention");
    std::map<std::string, HTensor> in;
    for (const auto& [name, value] : c.given()) in[name] = tracer.input(name, type_of(value));
    const HTensor y = call("attention", {in["q"], in["k"], in["v"]}, c.attributes())[0];
    const std::vector<HTensor> all{in["q"], in["k"], in["v"]};
    const Values gradients = gradient(tracer, reduce_sum(y * sin(y), {0, 1, 2, 3}), all);
    tracer.output("y", y);
    for (size_t i = 0; i < 3; ++i) tracer.output(std::string("d") + "qkv"[i], gradients[i]);
    const Program program = tracer.take();
    EmulatedDevice device;
    harmonics::engine::testing::MapBinding none;
    const auto plan = compile(program, &none, *device.executor, device.options());
    size_t tiled = 0;
    for (const PlanStep& s : plan->steps()) tiled += s.kernel == "attention in tiles";
    CHECK(tiled == 2);
    plan->run(harmonics::engine::testing::input_pointers(*plan, c.given()).data());
    const Values expected = interpret(program, c.given());
    for (size_t i = 0; i < expected.size(); ++i) {
      INFO(program.outputs[i].name);
      require_close_within(harmonics::engine::testing::copy_of(plan->output(program.outputs[i].name)), expected[i],
                           1e-4);
    }
  }
}
