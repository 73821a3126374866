// Convolutions by an emulated cuDNN, compared with explicit sums.
#include <cmath>

#include "tests/cuda/emulated_device.hpp"
#include "tests/engine/execution/training_program.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::cuda;
using namespace harmonics::cuda::testing;

namespace {

Machine conv_machine() { return {open_driver(), open_compiler()}; }

using Dims = std::vector<int64_t>;

struct Conv {
  int64_t samples, channels, outputs, groups;  // channels and outputs over all groups
  Dims size, kernel, strides, dilation, low, high;

  Dims with(int64_t a, int64_t b, const Dims& more) const {
    Dims d{a, b};
    d.insert(d.end(), more.begin(), more.end());
    return d;
  }
  Dims places() const {
    Dims p;
    for (size_t i = 0; i < size.size(); ++i)
      p.push_back((size[i] + low[i] + high[i] - (kernel[i] - 1) * dilation[i] - 1) / strides[i] + 1);
    return p;
  }
  Dims x() const { return with(samples, channels, size); }
  Dims weight() const { return with(outputs, channels / groups, kernel); }
  Dims y() const { return with(samples, outputs, places()); }
  AttributeMap attributes() const {
    return AttributeMap()
        .set("strides", strides)
        .set("dilation", dilation)
        .set("padding_low", low)
        .set("padding_high", high)
        .set("groups", groups);
  }
};

Dims three(const Dims& d, int64_t otherwise) {
  Dims r(3 - d.size(), otherwise);
  r.insert(r.end(), d.begin(), d.end());
  return r;
}

// Calls f(element of x, of weight, of y) for each product of a convolution.
template <typename F>
void for_products(const Conv& c, F f) {
  const Dims size = three(c.size, 1), kernel = three(c.kernel, 1), places = three(c.places(), 1),
             step = three(c.strides, 1), apart = three(c.dilation, 1), low = three(c.low, 0);
  const int64_t own = c.channels / c.groups, made = c.outputs / c.groups;
  for (int64_t n = 0; n < c.samples; ++n)
    for (int64_t o = 0; o < c.outputs; ++o)
      for (int64_t p = 0; p < places[0] * places[1] * places[2]; ++p)
        for (int64_t i = 0; i < own; ++i)
          for (int64_t t = 0; t < kernel[0] * kernel[1] * kernel[2]; ++t) {
            const int64_t at[] = {p / (places[1] * places[2]), p / places[2] % places[1], p % places[2]};
            const int64_t tap[] = {t / (kernel[1] * kernel[2]), t / kernel[2] % kernel[1], t % kernel[2]};
            int64_t element = n * c.channels + o / made * own + i;
            bool inside = true;
            for (size_t a = 0; a < 3; ++a) {
              const int64_t place = at[a] * step[a] - low[a] + tap[a] * apart[a];
              inside = inside && place >= 0 && place < size[a];
              element = element * size[a] + place;
            }
            if (!inside) continue;
            f(static_cast<size_t>(element), static_cast<size_t>((o * own + i) * kernel[0] * kernel[1] * kernel[2] + t),
              static_cast<size_t>((n * c.outputs + o) * places[0] * places[1] * places[2] + p));
          }
}

void require_close_sums(const std::vector<float>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    INFO("element " << i);
    REQUIRE(static_cast<double>(a[i]) == Approx(b[i]).margin(1e-4));
  }
}
std::vector<double> zeros(const Buffer& b) { return std::vector<double>(b.numbers.size(), 0.0); }
double product(const Buffer& a, size_t i, const Buffer& b, size_t j) {
  return static_cast<double>(a.numbers[i]) * static_cast<double>(b.numbers[j]);
}

const Conv kConvCases[] = {
    {2, 3, 4, 1, {7, 8}, {3, 3}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
    {2, 3, 4, 1, {7, 8}, {3, 2}, {2, 1}, {1, 2}, {1, 1}, {1, 1}},
    {1, 6, 4, 2, {5, 6}, {3, 3}, {1, 2}, {1, 1}, {1, 0}, {0, 2}},  // groups, and asymmetric padding
    {3, 4, 4, 4, {6, 5}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 1}},  // depthwise
    {2, 3, 5, 1, {9}, {3}, {2}, {2}, {1}, {0}},
    {1, 2, 3, 1, {4, 5, 6}, {2, 3, 2}, {1, 2, 1}, {1, 1, 2}, {1, 0, 1}, {0, 1, 1}},
    {1, 1, 1, 1, {1, 1}, {1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}},
};

}  // namespace

TEST_CASE("cudnn convolution: windows, groups, bias and activation") {
  const FreshSettings fresh;
  for (const Conv& c : kConvCases)
    for (const bool bias : {false, true})
      for (const char* activation : {"", "relu", "tanh"}) {
        INFO(c.size.size() << " axes, " << c.groups << " groups" << (bias ? ", bias " : " ") << activation);
        Machine own = conv_machine();
        const Buffer x = numbers(c.x(), 1), w = numbers(c.weight(), 2), b = numbers({c.outputs}, 3),
                     like_y = numbers(c.y(), 4);
        AttributeMap a = c.attributes();
        if (*activation) a.set("activation", activation);
        DeviceCall call("conv", a, bias ? std::vector{x, w, b} : std::vector{x, w}, c.y());
        REQUIRE(call.plan(own) == "cuDNN convolution");
        std::vector<double> meant = zeros(like_y);
        for_products(c, [&](size_t i, size_t j, size_t k) { meant[k] += product(x, i, w, j); });
        const size_t places = meant.size() / static_cast<size_t>(c.samples * c.outputs);
        for (size_t k = 0; k < meant.size(); ++k) {
          if (bias) meant[k] += static_cast<double>(b.numbers[k / places % static_cast<size_t>(c.outputs)]);
          if (*activation) meant[k] = *activation == 'r' ? std::max(meant[k], 0.0) : std::tanh(meant[k]);
        }
        require_close_sums(call.run(), meant);
      }
}

TEST_CASE("cudnn convolution: gradients") {
  const FreshSettings fresh;
  for (const Conv& c : kConvCases) {
    INFO(c.size.size() << " axes, " << c.groups << " groups");
    Machine own = conv_machine();
    const Buffer x = numbers(c.x(), 1), w = numbers(c.weight(), 2), dy = numbers(c.y(), 3);
    std::vector<double> dx = zeros(x), dw = zeros(w);
    for_products(c, [&](size_t i, size_t j, size_t k) {
      dx[i] += product(w, j, dy, k);
      dw[j] += product(x, i, dy, k);
    });
    DeviceCall input("conv_grad_input", c.attributes().set("input_shape", c.x()), {w, dy}, c.x());
    REQUIRE(input.plan(own) == "cuDNN convolution");
    require_close_sums(input.run(), dx);
    DeviceCall weight("conv_grad_weight", c.attributes().set("weight_shape", c.weight()), {x, dy}, c.weight());
    const bool is_own = c.groups == 1 && c.size.size() <= 2;  // in exact f32 over planes
    REQUIRE(weight.plan(own) == (is_own ? "convolution" : "cuDNN convolution"));
    require_close_sums(weight.run(), dw);
    require_close_sums(weight.run(), dw);         // again, with the same buffers
    require_close_sums(weight.move().run(), dw);  // with other buffers
    CHECK(emulated::settings().dnn_descriptions > 0);
  }
  CHECK(emulated::settings().dnn_descriptions == 0);  // all descriptors are released
}

TEST_CASE("cudnn convolution: rounding engines only if allowed, non-deterministic ones never") {
  const FreshSettings fresh;
  const Conv& c = kConvCases[0];
  const auto engine_for = [&](uint32_t flags) {
    Machine own = conv_machine();
    DeviceCall call("conv", c.attributes(), {numbers(c.x(), 1), numbers(c.weight(), 2)}, c.y());
    call.flags(flags);
    REQUIRE(call.plan(own) == "cuDNN convolution");
    call.run();
    return emulated::settings().last_engine;
  };
  CHECK(engine_for(0) == 2);
  CHECK(engine_for(HX_SITE_FP16_CHUNKS) == 1);  // on tensor cores; the non-deterministic one is excluded
  emulated::settings().dnn_knows = false;
  Machine own = conv_machine();
  DeviceCall call("conv", c.attributes(), {numbers(c.x(), 1), numbers(c.weight(), 2)}, c.y());
  CHECK(call.plan(own).empty());
  CHECK(std::string(harmonics_api()->last_error(nullptr)) == "cuDNN knows no way: engines that round or vary");
}

TEST_CASE("cudnn convolution: f64, f16 and bf16 with bias and activation") {
  const FreshSettings fresh;
  struct Kind {
    DType dtype;
    double margin;  // tolerance of rounded results: the body rounds at other steps
  };
  for (const Kind kind : {Kind{DType::F64, 1e-12}, Kind{DType::F16, 2e-2}, Kind{DType::BF16, 1e-1}})
    for (const char* activation : {"", "relu", "tanh", "logistic", "gelu"}) {
      INFO("type " << static_cast<int>(kind.dtype) << ' ' << activation);
      const Conv& c = kConvCases[2];
      std::map<std::string, HTensor> given = {{"x", harmonics::engine::testing::noise(Shape(c.x()), 1, 1.0f)},
                                              {"w", harmonics::engine::testing::noise(Shape(c.weight()), 2, 1.0f)}};
      given["b"] = harmonics::engine::testing::noise(Shape{c.outputs}, 3, 1.0f);
      Tracer tracer("convolution");
      std::map<std::string, HTensor> in;
      for (const auto& [name, value] : given)
        in[name] = cast(tracer.input(name, {DType::F32, value.shape()}), kind.dtype);
      Attributes window = Attributes()
                              .set("strides", c.strides)
                              .set("dilation", c.dilation)
                              .set("padding_low", c.low)
                              .set("padding_high", c.high)
                              .set("groups", c.groups);
      if (*activation) window.set("activation", activation);
      tracer.output("y", cast(call1("conv", {in["x"], in["w"], in["b"]}, window), DType::F64));
      const Program program = tracer.take();
      std::vector<HTensor> results;
      for (const bool has : {true, false}) {
        emulated::settings() = {};
        emulated::settings().has_dnn = has;
        EmulatedDevice with;
        const auto plan = compile(program, nullptr, *with.executor, with.options());
        plan->run(harmonics::engine::testing::input_pointers(*plan, given).data());
        results.push_back(harmonics::engine::testing::copy_of(plan->output("y")));
        CHECK(emulated::settings().convolutions == (has ? 1 : 0));
      }
      for (int64_t i = 0; i < results[0].size(); ++i)
        REQUIRE(results[0].data<double>()[i] == Approx(results[1].data<double>()[i]).margin(kind.margin));
    }
}

TEST_CASE("cudnn convolution: declines with a reason") {
  const FreshSettings fresh;
  const Conv& c = kConvCases[0];
  const auto why = [&](AttributeMap a, Buffer x, Buffer w) {
    Machine own = conv_machine();
    DeviceCall call("conv", std::move(a), {std::move(x), std::move(w)}, c.y());
    CHECK(call.plan(own).empty());
    return std::string(harmonics_api()->last_error(nullptr));
  };
  const Buffer x = numbers(c.x(), 1), w = numbers(c.weight(), 2);
  Buffer half = x;
  half.type.dtype = HX_F16;
  CHECK(why(c.attributes(), half, w) == "convolves floats of one type");
  CHECK(why(c.attributes().set("activation", "elu"), x, w) == "has no activation 'elu'");
  CHECK(why(c.attributes().set("strides", Dims{3, 3}), x, w) ==
        "cuDNN does not take the description: an error");  // a different error code
  emulated::settings().dnn_starts = false;
  CHECK(why(c.attributes(), x, w) == "cuDNN does not start: an error");
  emulated::settings().has_dnn = false;
  CHECK(why(c.attributes(), x, w) == "libcudnn.so.9 is not found");
  CHECK(emulated::settings().convolutions == 0);
}

TEST_CASE("cuda: without cuDNN convolutions become patches and products") {
  const FreshSettings fresh;
  const Conv& c = kConvCases[2];
  Tracer tracer("convolution");
  const HTensor x = tracer.input("x", {DType::F32, Shape(c.x())}),
                w = tracer.input("w", {DType::F32, Shape(c.weight())});
  const Attributes window = Attributes()
                                .set("strides", c.strides)
                                .set("dilation", c.dilation)
                                .set("padding_low", c.low)
                                .set("padding_high", c.high)
                                .set("groups", c.groups);
  tracer.output("y", call1("conv", {x, w}, window));
  const Program program = tracer.take();
  const std::map<std::string, HTensor> given = {{"x", harmonics::engine::testing::noise(Shape(c.x()), 1, 1.0f)},
                                                {"w", harmonics::engine::testing::noise(Shape(c.weight()), 2, 1.0f)}};
  std::vector<HTensor> results;
  for (const bool has : {true, false}) {
    INFO((has ? "with cuDNN" : "without"));
    emulated::settings() = {};
    emulated::settings().has_dnn = has;
    EmulatedDevice with;
    const auto plan = compile(program, nullptr, *with.executor, with.options());
    CHECK(std::any_of(plan->steps().begin(), plan->steps().end(),
                      [](const PlanStep& s) { return s.kernel == "cuDNN convolution"; }) == has);
    plan->run(harmonics::engine::testing::input_pointers(*plan, given).data());
    results.push_back(harmonics::engine::testing::copy_of(plan->output("y")));
    CHECK(emulated::settings().convolutions == (has ? 1 : 0));
    const int handles = emulated::settings().dnn_handles;
    CHECK(handles == (has ? 1 : 0));
    const std::string capability = make_device()->info().capability;
    CHECK(emulated::settings().dnn_handles == handles);  // queries create no handle
    CHECK((capability.find("libcudnn.so.9 is not found") == std::string::npos) == has);
  }
  for (int64_t i = 0; i < results[0].size(); ++i)
    REQUIRE(results[0].data<float>()[i] == Approx(results[1].data<float>()[i]).margin(1e-5));
}
