#include <harmonics/ops.hpp>
#include <harmonics/quantity.hpp>

#include "layers.hpp"

namespace layers {

namespace {

// Converts [batch, positions, heads * width] to [batch, positions, heads, width] and back.
HTensor split(const HTensor& x, int64_t heads) {
  const Shape s = x.shape();
  return harmonics::reshape(x, {s[0], s[1], heads, s[2] / heads});
}
HTensor join(const HTensor& x) {
  const Shape s = x.shape();
  return harmonics::reshape(x, {s[0], s[1], s[2] * s[3]});
}

void expect_sequence(const HTensor& x, const char* what) {
  if (x.rank() == 3) return;
  throw Error(ErrorKind::Shape, std::string("attention works on sequences [positions, features]; a sample of ") + what +
                                    " is " + x.shape().from(1).str())
      .note("use a producer of sequences (file:PATH?window=256), or declare one: {*, 64}");
}

void expect_heads(int64_t heads, int64_t kv_heads, int64_t features, bool rope) {
  if (features % heads)
    throw Error(ErrorKind::Shape, "heads is " + std::to_string(heads) + "; it must divide the " +
                                      harmonics::quantity(features, "feature"));
  if (heads % kv_heads)
    throw Error(ErrorKind::Shape, "kv_heads is " + std::to_string(kv_heads) + "; it must divide the " +
                                      harmonics::quantity(heads, "head"));
  if (rope && features / heads % 2)
    throw Error(ErrorKind::Shape,
                "rope rotates pairs of features, but a head has " + std::to_string(features / heads) + " of them");
}

}  // namespace

HTensor attention(Scope& scope, const HTensor& x, const Arguments& a) {
  const bool rope = a.flag("rope"), bias = a.flag("bias", true);
  const HTensor given = a.tensor("memory"), memory = given ? given : x;
  expect_sequence(x, "the source");
  expect_sequence(memory, "memory");
  if (given && rope)
    throw Error(ErrorKind::Type, "rope counts positions of one sequence; it cannot be combined with memory");
  const int64_t features = x.shape()[2], heads = a.integer("heads", 1), kv_heads = a.integer("kv_heads", heads);
  expect_heads(heads, kv_heads, features, rope);
  const int64_t kv_width = features / heads * kv_heads;
  HTensor query = split(project(scope, x, "query", features, bias), heads);
  HTensor key = split(project(scope, memory, "key", kv_width, bias), kv_heads);
  const HTensor value = split(project(scope, memory, "value", kv_width, bias), kv_heads);
  const auto rows = [] { return Attributes().set("positions_first", true); };
  if (rope) {
    query = harmonics::call1("rope", {query}, rows());
    key = harmonics::call1("rope", {key}, rows());
  }
  const HTensor mixed = harmonics::call("attention", {query, key, value}, rows().set("causal", a.flag("causal"))).at(0);
  return project(scope, join(mixed), "output", features, bias);
}

}  // namespace layers
