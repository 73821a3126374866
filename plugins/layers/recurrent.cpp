// lstm and gru, compatible with PyTorch's modules: parameters weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0;
// suffix _reverse for the backward direction; l1, l2 ... for further layers.
#include <harmonics/checked.hpp>
#include <harmonics/ops.hpp>

#include "layers.hpp"

namespace layers {

namespace {

struct Recurrence {
  const char* name;  // of both layer and functional
  int64_t gates, width;
  bool bias, both_ways, last;

  Recurrence(const char* name, int64_t gates, Scope& scope, const Arguments& a)
      : name(name), gates(gates), bias(a.flag("bias", true)), both_ways(a.flag("bidirectional")), last(a.flag("last")) {
    width = a.has("width") ? a.integer("width") : scope.width() / ways();
    if (width < 1)
      throw Error(ErrorKind::Shape, "a width of " + std::to_string(width) + " is not possible; the minimum is 1");
    if (!harmonics::checked_product(width, 2 * gates))
      throw Error(ErrorKind::Shape, "a width of " + std::to_string(width) + " is larger than any memory");
    if (!a.has("width") && scope.width() % ways())
      throw Error(ErrorKind::Shape, std::string(name) + " goes both ways, but the target's width of " +
                                        std::to_string(scope.width()) + " cannot be halved");
  }
  int64_t ways() const { return both_ways ? 2 : 1; }

  // Runs one direction over the positions: [batch, positions, width].
  HTensor way(Scope& scope, const HTensor& x, const std::string& suffix, bool reverse) const {
    const auto parameter = [&](const char* what, const Shape& shape) {
      return scope.parameter((what + suffix).c_str(), shape, harmonics::kaiming_init(width));
    };
    std::vector<HTensor> inputs{x, parameter("weight_ih_", {gates * width, x.shape()[2]}),
                                parameter("weight_hh_", {gates * width, width})};
    if (bias) {
      inputs.push_back(parameter("bias_ih_", {gates * width}));
      inputs.push_back(parameter("bias_hh_", {gates * width}));
    }
    return harmonics::call(name, inputs, Attributes().set("reverse", reverse)).at(0);
  }
  // Returns all positions, or the state of each direction after its last position.
  HTensor layer(Scope& scope, const HTensor& x, const std::string& suffix, bool only_last) const {
    const auto result = [&](const HTensor& y, bool reverse) {
      return only_last ? position_of(y, reverse ? 0 : y.shape()[1] - 1) : y;
    };
    const HTensor forth = result(way(scope, x, suffix, false), false);
    if (!both_ways) return forth;
    const HTensor back = result(way(scope, x, suffix + "_reverse", true), true);
    return harmonics::concat({forth, back}, static_cast<int64_t>(forth.rank()) - 1);
  }
};

HTensor recurrent(const char* name, int64_t gates, Scope& scope, const HTensor& given, const Arguments& a) {
  const HTensor x = scope.leading() > 1 ? flat(scope, given) : given;
  if (x.rank() != 3)
    throw Error(ErrorKind::Shape, std::string(name) + " works on sequences [positions, features]; a sample here is " +
                                      given.shape().from(1).str())
        .note("use a producer of sequences (file:PATH?window=256), or declare one: {*, 64}");
  const int64_t layers = a.integer("layers", 1);
  const double rate = a.number("dropout", 0);
  const Recurrence r(name, gates, scope, a);
  HTensor y = x;
  for (int64_t i = 0; i < layers; ++i) {
    if (i > 0 && rate > 0 && scope.training())
      y = harmonics::call1("dropout", {y, scope.random(y.shape())}, Attributes().set("rate", rate));
    y = r.layer(scope, y, "l" + std::to_string(i), r.last && i + 1 == layers);
  }
  if (r.last) scope.set_leading(1);
  return y;
}

}  // namespace

HTensor lstm(Scope& scope, const HTensor& x, const Arguments& a) { return recurrent("lstm", 4, scope, x, a); }
HTensor gru(Scope& scope, const HTensor& x, const Arguments& a) { return recurrent("gru", 3, scope, x, a); }

}  // namespace layers
