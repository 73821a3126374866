#include "engine/functional/reference.hpp"

namespace harmonics::engine::reference {
namespace {

Values embedding(const AttributeMap& a, Inputs in) {
  expect(in[0].rank() == 2, "embedding", "the table is [rows, width], not " + text_of(in[0]));
  expect(is_integer(in[1].dtype()), "embedding", "ids are row numbers of an integer type, not " + text_of(in[1]),
         ErrorKind::Type);
  const HTensor rows = gather(in[0], in[1], 0);
  const std::string result = a.text("out_dtype", "");
  expect(result.empty() || is_float(in[0].dtype()) || is_stored(in[0].dtype()), "embedding",
         "out_dtype is for tables of floats, not for " + text_of(in[0]), ErrorKind::Type);
  const DType out = !result.empty() ? dtype_named(result) : is_stored(in[0].dtype()) ? DType::F32 : in[0].dtype();
  return {out == rows.dtype() ? rows : cast(rows, out)};
}
Values embedding_gradient(const AttributeMap&, Inputs in, Inputs, Inputs gradients) {
  if (is_stored(in[0].dtype())) return {HTensor(), HTensor()};
  const HTensor dtable = one("embedding_grad", AttributeMap().set("rows", in[0].shape()[0]), {in[1], gradients[0]});
  return {dtable.dtype() == in[0].dtype() ? dtable : as_type_of(dtable, in[0]), {}};
}
Values embedding_grad(const AttributeMap& a, Inputs in) {
  const HTensor &ids = in[0], &dy = in[1];
  expect(dy.rank() == ids.rank() + 1 && dy.shape().slice(0, ids.rank()) == ids.shape(), "embedding_grad",
         "ids " + text_of(ids) + " and dy " + text_of(dy) + " do not fit: dy has one axis more");
  return {scatter_add(full(dy.dtype(), {a.integer("rows"), dy.shape().back()}, 0), ids, dy, 0)};
}

}  // namespace

std::vector<Functional> embeddings() {
  return {
      {"embedding",
       "rows of a table, selected by index",
       "table [rows, width], ids [...] < rows {out_dtype = \"\" in f32|f16|bf16|f64 since 1.5 (element type of y; if "
       "empty, that of the table, or f32 for a stored type)} -> y [..., width]; the table may have a stored type (q8_0 "
       "...)",
       embedding,
       embedding_gradient,
       {.stored = 0}},
      {"embedding_grad", "gradient of embedding: the sum of the rows of dy for each id, added in the order of ids",
       "ids [...] < rows, dy [..., width] {rows: int in 0..} -> dtable [rows, width]", embedding_grad, nullptr},
  };
}

}  // namespace harmonics::engine::reference
