// Compares small nets, trained for ten steps by every optimizer, with the same run in PyTorch.
#include <catch2/catch.hpp>

#include "backends.hpp"
#include "engine/program/gradient.hpp"
#include "golden.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::parity;

namespace {

using Parameters = std::map<std::string, HTensor>;

HTensor mean_of(const HTensor& x) { return reduce_mean(x, axes_from(x, 0)); }
HTensor dense(const Parameters& p, const std::string& name, const HTensor& x) {
  return linear(x, p.at(name + ".weight"), p.count(name + ".bias") ? p.at(name + ".bias") : HTensor());
}

// Sigmoid and binary cross entropy on one-hot labels: sum over outputs, mean over samples.
HTensor mlp_loss(const Parameters& p, const HTensor& x, const HTensor& y) {
  const HTensor logits = dense(p, "output", call1("relu", {dense(p, "hidden", x)}));
  const HTensor target = call1("one_hot", {y}, Attributes().set("classes", 5).set("dtype", int64_t(x.dtype())));
  return mean_of(reduce_sum(call1("sigmoid_cross_entropy", {logits, target}), {1}));
}

Attributes window(std::vector<int64_t> strides, std::vector<int64_t> padding) {
  return Attributes().set("strides", strides).set("padding_low", padding).set("padding_high", padding);
}
HTensor cnn_loss(const Parameters& p, const HTensor& x, const HTensor& y) {
  HTensor h =
      call1("conv", {x, p.at("conv1.weight"), p.at("conv1.bias")}, window({1, 1}, {1, 1}).set("activation", "relu"));
  h = call1("max_pool", {h}, window({2, 2}, {0, 0}).set("kernel", std::vector<int64_t>{2, 2}));
  h = call1("conv", {h, p.at("conv2.weight")}, window({2, 2}, {1, 1}));
  h = call1("relu",
            {call1("batch_norm", {h, p.at("norm.gain"), p.at("norm.bias")}, Attributes().set("epsilon", 1e-5))});
  h = call1("avg_pool", {h}, window({2, 2}, {0, 0}).set("kernel", std::vector<int64_t>{2, 2}));
  const HTensor logits = dense(p, "output", reshape(h, {h.shape()[0], h.shape().from(1).count()}));
  return mean_of(call1("softmax_cross_entropy", {logits, y}));
}

// One block, two heads, next symbol.
HTensor transformer_loss(const Parameters& p, const HTensor& x, const HTensor& y) {
  const int64_t batch = x.shape()[0], positions = x.shape()[1];
  const Attributes epsilon = Attributes().set("epsilon", 1e-5);
  HTensor h = call1("embedding", {p.at("embed.table"), x});
  HTensor n = call1("layer_norm", {h, p.at("norm1.gain"), p.at("norm1.bias")}, epsilon);
  const auto heads = [&](const char* name) {
    return transpose(reshape(dense(p, name, n), {batch, positions, 2, 4}), {0, 2, 1, 3});
  };
  const HTensor a = call1("attention", {call1("rope", {heads("q")}), call1("rope", {heads("k")}), heads("v")},
                          Attributes().set("causal", true));
  h = h + dense(p, "proj", reshape(transpose(a, {0, 2, 1, 3}), {batch, positions, 8}));
  n = call1("rms_norm", {h, p.at("norm2.gain")}, epsilon);
  h = h + dense(p, "down", call1("gelu", {dense(p, "up", n)}));
  return mean_of(call1("softmax_cross_entropy", {dense(p, "head", h), y}));
}

struct Net {
  const char* name;
  HTensor (*loss)(const Parameters&, const HTensor& x, const HTensor& y);
};
const Net kNets[] = {{"mlp", mlp_loss}, {"cnn", cnn_loss}, {"transformer", transformer_loss}};

struct Rule {  // as in make_golden.py
  const char *name, *functional;
  double lr, momentum;
  bool nesterov;
  double matrix_decay;
};
const Rule kRules[] = {{"sgd", "sgd", 0.0625, 0, false, 0},
                       {"momentum", "sgd", 0.015625, 0.9, false, 0},
                       {"nesterov", "sgd", 0.015625, 0.9, true, 0},
                       {"adam", "adam", 0.00390625, 0, false, 0},
                       {"adamw", "adamw", 0.00390625, 0, false, 0.0625}};

bool is_adam(const Rule& rule) { return std::string(rule.functional) != "sgd"; }

Parameters stored_in(const std::map<std::string, HTensor>& stored, DType dtype) {
  Parameters p;
  for (const auto& [name, value] : stored) p[name] = in_type(value, dtype);
  return p;
}

// Parameters and the rule's moments, initially zero.
Leaves initial_state(const Rule& rule, const Parameters& initial) {
  Leaves held = initial;
  for (const auto& [name, value] : initial) {
    if (rule.momentum != 0) held["velocity/" + name] = zeros_like(value);
    for (const char* moment : {"m/", "v/"})
      if (is_adam(rule)) held[moment + name] = zeros_like(value);
  }
  return held;
}

void update(Tracer& tracer, const Rule& rule, const std::string& name, const HTensor& w, const HTensor& g) {
  const TensorType type = type_of(w);
  const HTensor lr = tracer.input("lr", {DType::F32, {}});
  AttributeMap a = AttributeMap().set("weight_decay", type.shape.rank() >= 2 ? rule.matrix_decay : 0.0);
  std::vector<std::string> moments;
  if (rule.momentum != 0) {
    a.set("momentum", rule.momentum).set("nesterov", rule.nesterov);
    moments = {"velocity/" + name};
  } else if (is_adam(rule)) {
    moments = {"m/" + name, "v/" + name};
  }
  Values in{w, g};
  for (const std::string& moment : moments) in.push_back(tracer.state(moment, type));
  in.push_back(lr);
  if (is_adam(rule)) in.push_back(tracer.input("step", {DType::I64, {}}));
  const Values next = apply(rule.functional, a, in);
  tracer.update(name, next[0]);
  for (size_t i = 0; i < moments.size(); ++i) tracer.update(moments[i], next[i + 1]);
}

// Returns loss, gradients (outputs "gradient/NAME") and updates of a step.
Program step_program(const Net& net, const Rule& rule, const Parameters& initial, const HTensor& x, const HTensor& y) {
  Tracer tracer(net.name);
  Parameters p;
  Values wrt;
  for (const auto& [name, value] : initial) {
    p[name] = tracer.parameter(name, type_of(value));
    wrt.push_back(p[name]);
  }
  const HTensor loss = net.loss(p, tracer.input("x", type_of(x)), tracer.input("y", type_of(y)));
  tracer.output("loss", loss);
  const Values gradients = gradient(tracer, loss, wrt);
  size_t i = 0;
  for (const auto& [name, w] : p) {
    tracer.output("gradient/" + name, gradients[i]);
    update(tracer, rule, name, w, gradients[i++]);
  }
  return tracer.take();
}

void check_run(const std::string& backend, DType dtype, const TensorFile& file, const Net& net, const Rule& rule,
               const Tolerance& tolerance) {
  const std::string path = net.name;
  const Parameters initial = stored_in(below(file, path + "/initial"), dtype);
  const HTensor x = in_type(file.tensors.at(path + "/data/x"), dtype), y = file.tensors.at(path + "/data/y");
  const HTensor& losses = file.tensors.at(path + "/" + rule.name + "/loss");
  const auto runner = make_runner(backend, step_program(net, rule, initial, x, y), initial_state(rule, initial));
  INFO(backend << " " << dtype_name(dtype) << ": " << net.name << " by " << rule.name);
  for (int64_t step = 1; step <= 10; ++step) {
    INFO("step " << step);
    const auto found = runner->step({{"x", x},
                                     {"y", y},
                                     {"lr", HTensor::scalar(static_cast<float>(rule.lr))},
                                     {"step", HTensor::from<int64_t>({}, {step})}});
    const HTensor expected = HTensor::from<double>({}, {losses.data<double>()[step - 1]});
    CHECK(difference(found.at("loss"), expected, tolerance) == "");
    for (const auto& [name, value] : below(file, path + "/gradient")) {
      if (step > 1) break;
      INFO("gradient of " << name);
      CHECK(difference(found.at("gradient/" + name), value, tolerance) == "");
    }
  }
  for (const auto& [name, value] : below(file, path + "/" + rule.name + "/final")) {
    INFO("final " << name);
    CHECK(difference(runner->parameter(name), value, tolerance) == "");
  }
}

void check_all(const std::string& backend, DType dtype, const Tolerance& tolerance) {
  const TensorFile file = golden("nets.safetensors");
  for (const Net& net : kNets)
    for (const Rule& rule : kRules) check_run(backend, dtype, file, net, rule, tolerance);
}

// f32: the tolerance of torch.testing.assert_close, even after ten steps. f64: Adam divides by roots of small squares.
constexpr Tolerance kDoubleTraining{1e-11, 1e-10};
constexpr Tolerance kFloatTraining{1e-5, 1.3e-6};

}  // namespace

TEST_CASE("ten steps of every optimizer equal PyTorch's in double") {
  check_all("interpreter", DType::F64, kDoubleTraining);
}

TEST_CASE("ten steps of every optimizer equal PyTorch's in single precision") {
  check_all("interpreter", DType::F32, kFloatTraining);
}

TEST_CASE("ten compiled steps of every optimizer equal PyTorch's") {
  check_all("reference", DType::F64, kDoubleTraining);
  check_all("cpu", DType::F32, kFloatTraining);
}
