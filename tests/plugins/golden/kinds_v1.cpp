// One thing of every kind, as it was written for contract 1.0. Frozen: see README.md.
#include <harmonics/plugin.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#ifndef VARIANT  // begins every name, so that builds of this file stand side by side
#define VARIANT "every"
#endif

HARMONICS_PLUGIN("org.example." VARIANT, "1.0.0", "MIT", "Example");

using namespace harmonics;

namespace {

// ---- functions of flows ----

// x sigmoid(slope x), traced.
class Swish : public ActivationFunction {
 public:
  HTensor operator()(const HTensor& x) const override { return x * logistic(x); }
  HTensor operator()(const HTensor& x, const Arguments& a) const override {
    return x * logistic(x * a.number("slope", 1));
  }
};

// Half of x by reading numbers, with the gradient of x: where that counts is seen.
class Half : public ActivationFunction {
 public:
  HTensor operator()(const HTensor& x) const override {
    HTensor y = x;
    float* v = y.mutable_data<float>();
    for (int64_t i = 0; i < y.size(); ++i) v[i] *= 0.5f;
    return y;
  }
  HTensor gradient(const HTensor&, const HTensor&, const HTensor& dy) const override { return dy; }
};

class Square : public LossFunction {
 public:
  HTensor operator()(const HTensor& p, const HTensor& t) const override { return (p - t) * (p - t); }
  HTensor operator()(const HTensor& p, const HTensor& t, const Arguments& a) const override {
    return (*this)(p, t) * a.number("weight", 1);
  }
};

// x times a parameter for each of its numbers; counts its training steps.
class Gain : public LayerFunction {
 public:
  HTensor operator()(Scope& scope, const HTensor& x, const Arguments& a) const override {
    const Shape& shape = x.shape();
    const HTensor steps = scope.state("steps", {1}, constant_init(0));
    if (scope.training()) scope.update("steps", steps + 1);
    return x * scope.parameter("gain", {shape[shape.rank() - 1]}, constant_init(a.number("start", 1)));
  }
};

// ---- operations ----

// x^3 with a gradient of its own.
class Cube : public FunctionalBody {
 public:
  std::vector<HTensor> operator()(const std::vector<HTensor>& in, const Arguments&) const override {
    return {in.at(0) * in[0] * in[0]};
  }
  bool has_gradient() const override { return true; }
  std::vector<HTensor> gradient(const std::vector<HTensor>& in, const std::vector<HTensor>&,
                                const std::vector<HTensor>& dy, const Arguments&) const override {
    return {dy.at(0) * in.at(0) * in[0] * 3.0};
  }
};

// Two inputs, a derived gradient.
class Blend : public FunctionalBody {
 public:
  std::vector<HTensor> operator()(const std::vector<HTensor>& in, const Arguments& a) const override {
    const double part = a.number("part", 0.5);
    return {in.at(0) * part + in.at(1) * (1 - part)};
  }
};

struct Count {
  int64_t n;
};
void run_cube(const void* context, void* const* buffers, uint32_t, uint32_t) {
  const float* x = static_cast<const float*>(buffers[0]);
  float* y = static_cast<float*>(buffers[1]);
  for (int64_t i = 0; i < static_cast<const Count*>(context)->n; ++i) y[i] = x[i] * x[i] * x[i];
}
void run_cube_gradient(const void* context, void* const* buffers, uint32_t, uint32_t) {
  const float *x = static_cast<const float*>(buffers[0]), *dy = static_cast<const float*>(buffers[2]);
  float* dx = static_cast<float*>(buffers[3]);
  for (int64_t i = 0; i < static_cast<const Count*>(context)->n; ++i) dx[i] = dy[i] * 3 * x[i] * x[i];
}
bool fill(const CallSite& site, hx_kernel& out, const char* name,
          void (*run)(const void*, void* const*, uint32_t, uint32_t)) {
  out.phases = 1;
  out.parts[0] = 1;
  out.run = run;
  out.context = new Count{site.input_shape(0).count()};
  out.destroy = [](void* context) { delete static_cast<Count*>(context); };
  out.name = name;
  return true;
}

// Kernels, forward and backward.
class Fast : public Implementation {
 public:
  std::string supports(const CallSite& site) const override {
    return site.input_dtype(0) == DType::F32 ? "" : "computes f32 only";
  }
  bool find(const CallSite& site, hx_kernel& out) const override { return fill(site, out, VARIANT " cube", run_cube); }
  bool has_gradient() const override { return true; }
  bool find_gradient(const CallSite& site, hx_kernel& out) const override {
    return fill(site, out, VARIANT " cube gradient", run_cube_gradient);
  }
};

// Tensors in, tensors out, forward and backward.
class Plain : public Implementation {
 public:
  std::string supports(const CallSite& site) const override {
    return site.input_shape(0).count() <= 64 ? "" : "takes at most 64 numbers";
  }
  std::vector<HTensor> run(const CallSite&, const std::vector<HTensor>& in) const override {
    HTensor y = in.at(0);
    float* v = y.mutable_data<float>();
    for (int64_t i = 0; i < y.size(); ++i) v[i] = v[i] * v[i] * v[i];
    return {y};
  }
  bool has_gradient() const override { return true; }
  std::vector<HTensor> run_gradient(const CallSite&, const std::vector<HTensor>& in, const std::vector<HTensor>&,
                                    const std::vector<HTensor>& dy) const override {
    HTensor dx = dy.at(0);
    const float* x = in.at(0).data<float>();
    float* v = dx.mutable_data<float>();
    for (int64_t i = 0; i < dx.size(); ++i) v[i] *= 3 * x[i] * x[i];
    return {dx};
  }
};

class NoKernels : public Device {
 public:
  std::string describe() const override { return "a device without kernels"; }
  bool find(const hx_call_site&, hx_kernel&) override { return false; }
};

// ---- training ----

class Momentum : public OptimizerFunction {
 public:
  std::vector<Moment> moments(const ParameterInfo& p, const Arguments&) const override {
    return {{"v", p.dtype, p.shape}};
  }
  std::vector<HTensor> step(const ParameterInfo&, const UpdateStep& u, const Arguments& a) const override {
    const HTensor v = u.moments.at(0) * a.number("momentum", 0.9) + u.gradient;
    return {u.value - u.rate * v, v};
  }
};

class Halving : public ScheduleFunction {
 public:
  double factor(const RunPoint& point, const Arguments& a) const override {
    return std::pow(0.5, static_cast<double>(point.step / a.integer("every", 10)));
  }
};

class First : public PredicateFunction {
 public:
  bool operator()(const RunView& run, const Arguments& a) const override {
    double loss = 0;
    if (run.step() > 0 && !run.metric("loss", loss)) throw Error(ErrorKind::Plugin, "there is no loss after a step");
    return run.step() < a.integer("steps", 1);
  }
};

// The largest distance of a prediction from its target.
class Worst : public Metric {
 public:
  void add(const MetricBatch& b) override {
    for (uint64_t i = 0; b.targets && i < b.rows * b.outputs; ++i)
      worst_ = std::max(worst_, std::abs(static_cast<double>(b.predictions[i]) - static_cast<double>(b.targets[i])));
  }
  void reset() override { worst_ = 0; }
  std::vector<Figure> figures() const override { return {{VARIANT "_worst", worst_}}; }
  std::optional<std::vector<std::byte>> save() const override {
    std::vector<std::byte> bytes(sizeof worst_);
    std::memcpy(bytes.data(), &worst_, sizeof worst_);
    return bytes;
  }
  void restore(const std::vector<std::byte>& bytes) override {
    std::memcpy(&worst_, bytes.data(), std::min(bytes.size(), sizeof worst_));
  }

 private:
  double worst_ = 0;
};

// ---- streams ----

// Number k of sample i is (i width + k) / 8 - 1.
class Ramp : public Producer {
 public:
  Ramp(uint64_t size, int64_t width) : size_(size), width_(width) {}
  HTensor next() override {
    std::vector<float> sample(static_cast<size_t>(width_));
    return read(1, sample.data()) == 1 ? HTensor::from<float>({width_}, sample) : HTensor();
  }
  std::size_t size() const override { return size_; }
  bool rewind() override { return at_ = 0, true; }
  std::optional<StreamInfo> describe() override {
    StreamInfo info;
    info.sample = {width_};
    info.size = size_;
    info.notes = "numbers that rise";
    return info;
  }
  int64_t read(uint64_t n, void* to) override {
    n = std::min(n, size_ - at_);
    for (uint64_t i = 0; i < n; ++i) put(at_ + i, i, to);
    at_ += n;
    return static_cast<int64_t>(n);
  }
  bool read_at(const uint64_t* numbers, uint64_t n, void* to) override {
    for (uint64_t i = 0; i < n; ++i) put(numbers[i], i, to);
    return true;
  }

 private:
  void put(uint64_t number, uint64_t place, void* to) const {
    for (int64_t k = 0; k < width_; ++k)
      static_cast<float*>(to)[static_cast<int64_t>(place) * width_ + k] =
          static_cast<float>(static_cast<int64_t>(number) * width_ + k) / 8 - 1;
  }

  uint64_t size_, at_ = 0;
  int64_t width_;
};

// Writes how many samples came and their sum.
class Sum : public Consumer {
 public:
  explicit Sum(std::string path) : path_(std::move(path)) {}
  void push(const HTensor& sample) override {
    ++samples_;
    for (int64_t i = 0; i < sample.size(); ++i) sum_ += static_cast<double>(sample.data<float>()[i]);
  }
  void finish() override {
    std::FILE* file = std::fopen(path_.c_str(), "w");
    if (!file) throw Error(ErrorKind::Output, "cannot write '" + path_ + "'").note("choose another file");
    std::fprintf(file, "%ld %.6f\n", samples_, sum_);
    std::fclose(file);
  }

 private:
  std::string path_;
  long samples_ = 0;
  double sum_ = 0;
};

// Adds `by`, and a random number below `most`.
class Shift : public AugmentationFunction {
 public:
  SampleType result_type(const SampleType& sample, const Arguments&) const override {
    if (sample.dtype != DType::F32) throw Error(ErrorKind::Usage, "shifts f32 only");
    return sample;
  }
  void operator()(const SampleType& sample, const void* from, PhiloxStream& random, const SampleType&, void* to,
                  const Arguments& a) const override {
    const auto by = static_cast<float>(a.number("by", 0)), most = static_cast<float>(a.number("most", 0));
    for (int64_t i = 0; i < sample.shape.count(); ++i)
      static_cast<float*>(to)[i] = static_cast<const float*>(from)[i] + by + random.uniform(0, most);
  }
};

}  // namespace

extern "C" void harmonics_register(FunctionRegistry& registry) {
  const auto name = [](const char* of) { return std::string(VARIANT "_") + of; };
  registry.register_activation(name("swish"), std::make_shared<Swish>(), "x sigmoid(slope x)",
                               {Argument::number("slope", "1", "steepness").in("0..100")});
  registry.register_activation(name("half"), std::make_shared<Half>(), "half of x, with the gradient of x");
  registry.register_loss(name("square"), std::make_shared<Square>(), "the squared distance",
                         {Argument::number("weight", "1", "of it")});
  registry.register_layer(name("gain"), std::make_shared<Gain>(), "x times a parameter",
                          {Argument::number("start", "1", "of the parameter")});
  registry.register_functional(name("cube"), std::make_shared<Cube>(), "x^3");
  registry.register_functional(
      name("blend"), std::make_shared<Blend>(), "a mixture",
      {Argument::layer("other", "what is mixed in"), Argument::number("part", "0.5", "of the first").in("0..1")});
  registry.register_implementation(name("cube"), "plain", std::make_shared<Plain>(), "tensors in, tensors out");
  registry.register_implementation(name("cube"), "fast", std::make_shared<Fast>(), "one loop each way");
  registry.register_device(name("none"), std::make_shared<NoKernels>(), "runs nothing by itself");
  registry.register_optimizer(name("momentum"), std::make_shared<Momentum>(), "gradient descent with momentum",
                              {Argument::number("lr", "0.1", "learning rate").in("0<.."),
                               Argument::number("momentum", "0.9", "what stays").in("0..<1")});
  registry.register_schedule(name("halving"), std::make_shared<Halving>(), "half of it every so many steps",
                             {Argument::integer("every", 10, "steps").in("1..")});
  registry.register_predicate(name("first"), std::make_shared<First>(), "the first steps",
                              {Argument::integer("steps", 1, "how many").in("1..")});
  registry.register_metric(
      name("worst"), [](const Arguments&) { return std::make_unique<Worst>(); }, "the largest distance", {},
      HX_TAKES_NUMBERS);
  registry.register_producer(name("ramp"),
                             [](const std::string&, const Arguments& o) {
                               return std::make_shared<Ramp>(static_cast<uint64_t>(o.integer("size", 8)),
                                                             o.integer("width", 2));
                             },
                             "numbers that rise",
                             {Argument::integer("size", 8, "samples").in("1.."),
                              Argument::integer("width", 2, "numbers of a sample").in("1..")});
  registry.register_consumer(
      name("sum"), [](const std::string& path, const Arguments&) { return std::make_shared<Sum>(path); },
      "writes a sum to a file");
  registry.register_augmentation(
      name("shift"), std::make_shared<Shift>(), "adds a number",
      {Argument::number("by", "0", "always"), Argument::number("most", "0", "at random, below this").in("0..")});
}
