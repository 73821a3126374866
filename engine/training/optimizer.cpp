#include "engine/training/optimizer.hpp"

#include <charconv>
#include <fmt/core.h>

#include "engine/base/spelling.hpp"

namespace harmonics {

const std::vector<OptimizerRow>& optimizer_rows() {
  static const std::vector<OptimizerRow> rows = {
      {"sgd", "stochastic gradient descent, with momentum and Nesterov's variant", {"momentum"},
       {{"momentum", 0}, {"nesterov", 0}, {"weight_decay", 0}}, 1e-3, false},
      {"adam", "Adam (Kingma, Ba 2015)", {"m", "v"},
       {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", 0}}, 1e-3, true},
      {"adamw", "Adam with decoupled weight decay (Loshchilov, Hutter 2019)", {"m", "v"},
       {{"beta1", 0.9}, {"beta2", 0.999}, {"epsilon", 1e-8}, {"weight_decay", 0.01}}, 1e-3, true},
  };
  return rows;
}

namespace {

std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

double value_of(std::string_view name, std::string_view text) {
  if (text == "true") return 1;
  if (text == "false") return 0;
  double v = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), v);
  if (error != std::errc() || end != text.data() + text.size() || !(v >= 0) || v > 1e6)
    throw Error(ErrorKind::Type, fmt::format("optimizer setting '{}' has the value '{}'", name, text), {}, {"give a number of at least 0: lr=1e-3"});
  return v;
}

}  // namespace

Optimizer parse_optimizer(std::string_view text) {
  text = trim(text);
  const size_t open = text.find('(');
  const std::string_view name = trim(text.substr(0, open));
  const OptimizerRow* row = nullptr;
  std::vector<std::string> known;
  for (const OptimizerRow& r : optimizer_rows()) {
    known.emplace_back(r.name);
    if (r.name == name) row = &r;
  }
  if (!row) {
    Error e(ErrorKind::Name, fmt::format("unknown optimizer '{}'", name));
    if (auto near = nearest(name, known)) e.note("did you mean '" + *near + "'?");
    else e.note("optimizers are sgd, adam and adamw, e.g. 'adamw(lr=1e-3)'");
    throw e;
  }
  Optimizer o{row, row->lr, false, {}, 0, row->moments};
  std::vector<std::pair<std::string, double>> settings = row->settings;
  if (open != std::string_view::npos) {
    if (text.back() != ')') throw Error(ErrorKind::Syntax, fmt::format("optimizer '{}' lacks its closing parenthesis", text));
    std::string_view rest = text.substr(open + 1, text.size() - open - 2);
    while (!trim(rest).empty()) {
      const size_t comma = rest.find(',');
      const std::string_view part = trim(rest.substr(0, comma));
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
      const size_t eq = part.find('=');
      if (eq == std::string_view::npos) throw Error(ErrorKind::Syntax, fmt::format("optimizer setting '{}' lacks its value", part), {}, {"write NAME=VALUE, e.g. lr=1e-3"});
      const std::string key(trim(part.substr(0, eq)));
      const double v = value_of(key, trim(part.substr(eq + 1)));
      if (key == "lr") {
        o.lr = v;
        o.lr_given = true;
        continue;
      }
      bool found = false;
      std::vector<std::string> names{"lr"};
      for (auto& [k, value] : settings) {
        names.push_back(k);
        if (k == key) value = v, found = true;
      }
      if (found) continue;
      Error e(ErrorKind::Name, fmt::format("optimizer '{}' has no setting '{}'", name, key));
      if (auto near = nearest(key, names)) e.note("did you mean '" + *near + "'?");
      throw e;
    }
  }
  double momentum = 1;
  bool nesterov = false;
  for (const auto& [k, v] : settings) {
    if (k == "weight_decay") o.weight_decay = v;
    else if (k == "nesterov") o.attributes.set(k, v != 0);
    else o.attributes.set(k, v);
    if (k == "momentum") momentum = v;
    if (k == "nesterov") nesterov = v != 0;
    if ((k == "beta1" || k == "beta2" || k == "momentum") && v >= 1)
      throw Error(ErrorKind::Type, fmt::format("optimizer setting '{}' is {:g}; it must be below 1", k, v));
  }
  if (nesterov && momentum == 0) throw Error(ErrorKind::Type, "optimizer 'sgd' has nesterov without momentum", {}, {"write sgd(momentum=0.9, nesterov=true)"});
  if (row->name == "sgd" && momentum == 0) o.moments.clear();
  return o;
}

std::string Optimizer::str() const {
  std::string s = fmt::format("{}(lr={:g}", row->name, lr);
  for (const auto& [k, v] : attributes.entries()) {
    if (const auto* d = std::get_if<double>(&v)) s += fmt::format(", {}={:g}", k, *d);
    if (const auto* b = std::get_if<bool>(&v)) s += fmt::format(", {}={}", k, *b);
  }
  return s + fmt::format(", weight_decay={:g})", weight_decay);
}

}  // namespace harmonics
