#include "engine/training/optimizer.hpp"

#include <fmt/core.h>
#include <harmonics/error.hpp>

#include "engine/tensor/moment_scales.hpp"

namespace harmonics::engine {

namespace {

using Kind = SettingSpec::Kind;

const SettingSpec kMomentum{"momentum", 0, Kind::fraction, {}, "momentum: fraction of the previous step that is kept"};
SettingSpec lr(double otherwise) { return {"lr", otherwise, Kind::number, {}, "the learning rate"}; }
SettingSpec beta1(double otherwise) { return {"beta1", otherwise, Kind::fraction, {}, "decay of the mean gradient"}; }
SettingSpec beta2(double otherwise) { return {"beta2", otherwise, Kind::fraction, {}, "decay of the mean square"}; }
SettingSpec epsilon(double otherwise) {
  return {"epsilon", otherwise, Kind::number, {}, "added to the root of the mean square before dividing"};
}
SettingSpec decay(double otherwise) {
  return {"weight_decay", otherwise, Kind::number, {}, "decay of weights towards 0"};
}

const SettingSpec kMoments{"moments", 0, Kind::choice, "f32|bf16|q8", "type of the moments of large weights"};
enum MomentType { kF32, kBf16, kQ8 };

// Copies settings to attributes of the same names.
void take(UpdateRule& rule, const NamedSettings& from, std::initializer_list<const char*> names) {
  for (const char* name : names) rule.attributes.set(name, from.number(name));
}

UpdateRule adam_like(const char* functional, const TensorType& type) {
  return {functional, {}, {{"m", type}, {"v", type}}, true};
}

// Stores moments in fewer bits. Small parameters and vectors keep f32: the saving would be negligible.
void store_moments(UpdateRule& rule, const NamedSettings& s, const TensorType& type) {
  constexpr int64_t kLeastElements = 4096;
  const auto stored = static_cast<MomentType>(s.number("moments"));
  if (rule.moments.empty() || stored == kF32 || type.dtype != DType::F32 || type.shape.rank() < 2 ||
      type.shape.count() < kLeastElements)
    return;
  rule.counts_steps = true;  // seeds the rounding
  for (UpdateRule::Moment& m : rule.moments) m.type.dtype = stored == kBf16 ? DType::BF16 : DType::U8;
  if (stored == kBf16) return;
  const TensorType scales{DType::U8, moment_scales(type.shape)};
  for (size_t k = 0, own = rule.moments.size(); k < own; ++k)
    rule.moments.push_back({rule.moments[k].name + "_scale", scales});
}

UpdateRule sgd_rule(const NamedSettings& s, const TensorType& type) {
  UpdateRule rule{"sgd", {}, {}, false};
  take(rule, s, {"momentum"});
  rule.attributes.set("nesterov", s.number("nesterov") != 0);
  if (s.number("momentum") != 0) rule.moments.push_back({"momentum", type});
  store_moments(rule, s, type);
  return rule;
}

UpdateRule rmsprop_rule(const NamedSettings& s, const TensorType& type) {
  UpdateRule rule{"rmsprop", {}, {{"v", type}}, false};
  take(rule, s, {"alpha", "epsilon", "momentum"});
  rule.attributes.set("centered", s.number("centered") != 0);
  if (s.number("momentum") != 0) rule.moments.push_back({"momentum", type});
  if (s.number("centered") != 0) rule.moments.push_back({"mean", type});
  return rule;
}

UpdateRule normuon_rule(const NamedSettings& s, const TensorType& type, bool hidden) {
  if (hidden && type.shape.rank() == 2) {
    UpdateRule rule{"normuon", {}, {{"m", type}, {"rows", {type.dtype, {type.shape[0]}}}}, false};
    take(rule, s, {"beta1", "beta2", "epsilon"});
    return rule;
  }
  UpdateRule rule = adam_like("adamw", type);
  rule.attributes.set("beta1", s.number("adam_beta1"))
      .set("beta2", s.number("adam_beta2"))
      .set("epsilon", s.number("epsilon"));
  return rule;
}

}  // namespace

const std::vector<NamedRow>& optimizer_rows() {
  static const std::vector<NamedRow> rows = {
      {"sgd",
       "stochastic gradient descent, optionally with momentum or Nesterov momentum",
       {lr(1e-3), kMomentum, {"nesterov", 0, Kind::flag, {}, "Nesterov momentum"}, decay(0), kMoments}},
      {"rmsprop",
       "divides steps by the root of a running mean square (Hinton 2012), optionally centered",
       {lr(1e-2),
        {"alpha", 0.99, Kind::fraction, {}, "decay of the mean square"},
        epsilon(1e-8),
        kMomentum,
        {"centered", 0, Kind::flag, {}, "divide by the standard deviation instead of the root of the mean square"},
        decay(0)}},
      {"adam", "Adam (Kingma, Ba 2015)", {lr(1e-3), beta1(0.9), beta2(0.999), epsilon(1e-8), decay(0), kMoments}},
      {"adamw",
       "Adam with decoupled weight decay (Loshchilov, Hutter 2019)",
       {lr(1e-3), beta1(0.9), beta2(0.999), epsilon(1e-8), decay(0.01), kMoments}},
      {"lamb",
       "Adam steps scaled to the norm of the weights (You et al. 2020), for large batches",
       {lr(1e-3), beta1(0.9), beta2(0.999), epsilon(1e-6), decay(0.01)}},
      {"lion",
       "steps by the sign of a mixture of gradient and momentum (Chen et al. 2023); use a third to a tenth of adamw's "
       "lr",
       {lr(1e-4),
        {"beta1", 0.9, Kind::fraction, {}, "weight of the momentum in the direction of the step"},
        {"beta2", 0.99, Kind::fraction, {}, "decay of the mean gradient"},
        decay(0),
        kMoments}},
      {"normuon",
       "orthogonalised momentum, normalised per neuron (Li et al. 2025), for hidden matrices; adamw for other weights",
       {lr(1e-3),
        beta1(0.95),
        {"beta2", 0.95, Kind::fraction, {}, "decay of the mean square of a neuron's row"},
        epsilon(1e-8),
        decay(0.01),
        {"adam_beta1", 0.9, Kind::fraction, {}, "beta1 of adamw for other weights"},
        {"adam_beta2", 0.999, Kind::fraction, {}, "beta2 of adamw for other weights"}}},
  };
  return rows;
}

Optimizer parse_optimizer(std::string_view text, Registry& registry) {
  Optimizer o{parse_named_settings("optimizer", text, optimizer_rows(), "adamw(lr=1e-3)", registry, HX_OPTIMIZER), 0};
  o.lr = o.settings.number("lr");
  if (o.settings.row->item) return o;
  if (o.settings.number("nesterov") != 0 && o.settings.number("momentum") == 0)
    throw Error(ErrorKind::Type, "optimizer 'sgd': nesterov needs momentum", {},
                {"write sgd(momentum=0.9, nesterov=true)"});
  if (o.settings.row->name == "sgd" && o.settings.number("moments") != 0 && o.settings.number("momentum") == 0)
    throw Error(ErrorKind::Type, "optimizer 'sgd': moments in fewer bits need momentum", {},
                {"write sgd(momentum=0.9, moments=bf16)"});
  return o;
}

std::string Optimizer::str() const {
  NamedSettings s = settings;
  s.values.at(0).value = lr;
  return s.str();
}

UpdateRule update_rule(const Optimizer& optimizer, const TensorType& parameter, bool hidden) {
  const NamedSettings& s = optimizer.settings;
  const std::string_view name = s.row->name;
  UpdateRule rule;
  if (name == "sgd")
    rule = sgd_rule(s, parameter);
  else if (name == "rmsprop")
    rule = rmsprop_rule(s, parameter);
  else if (name == "normuon")
    rule = normuon_rule(s, parameter, hidden);
  else if (name == "lion") {
    rule = {"lion", {}, {{"m", parameter}}, false};
    take(rule, s, {"beta1", "beta2"});
    store_moments(rule, s, parameter);
  } else {
    rule = adam_like(name == "lamb" ? "lamb" : name == "adam" ? "adam" : "adamw", parameter);
    take(rule, s, {"beta1", "beta2", "epsilon"});
    store_moments(rule, s, parameter);
    if (name == "lamb") rule.attributes.set("adapt", parameter.shape.rank() >= 2);
  }
  rule.attributes.set("weight_decay", parameter.shape.rank() >= 2 ? s.number("weight_decay") : 0.0);
  return rule;
}

}  // namespace harmonics::engine
