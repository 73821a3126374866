// linear and embedding over weights of 16-bit floats and stored types, and casts from them.
#include "../family.hpp"
#include "../fetches.hpp"
#include "../typed_weights.hpp"

namespace harmonics::cpu {
namespace {

// Decodes rows of a table.
struct TypedRowsContext {
  int64_t rows, size, width, row_bytes;  // rows: to decode; size: of the table
  uint32_t dtype, index_dtype, parts;
};

}  // namespace
}  // namespace harmonics::cpu

#ifdef HM_ISA

#include "typed_kernels.hpp"

#else

#include <harmonics/element_type.hpp>

HM_VECTOR_CODE(typed_linear)
HM_VECTOR_CODE(typed_embedding)
HM_VECTOR_CODE(typed_cast)

namespace harmonics::cpu {
namespace {

struct TypeRow {
  DType dtype;
  const char *product, *rows;  // names of the kernels
};
constexpr TypeRow kTypes[] = {
    {DType::BF16, "bf16 weights", "bf16 rows"},
    {DType::F16, "f16 weights", "f16 rows"},
    {DType::Q8_0, "q8_0 weights", "q8_0 rows"},
    {DType::Q4_0, "q4_0 weights", "q4_0 rows"},
    {DType::Q4_K, "q4_k weights", "q4_k rows"},
    {DType::Q6_K, "q6_k weights", "q6_k rows"},
    {DType::Q4_1, "q4_1 weights", "q4_1 rows"},
    {DType::Q5_0, "q5_0 weights", "q5_0 rows"},
    {DType::Q5_1, "q5_1 weights", "q5_1 rows"},
    {DType::Q2_K, "q2_k weights", "q2_k rows"},
    {DType::Q3_K, "q3_k weights", "q3_k rows"},
    {DType::Q5_K, "q5_k weights", "q5_k rows"},
    {DType::IQ4_NL, "iq4_nl weights", "iq4_nl rows"},
    {DType::MXFP4, "mxfp4 weights", "mxfp4 rows"},
    {DType::IQ4_XS, "iq4_xs weights", "iq4_xs rows"},
    {DType::F8_E4M3, "f8_e4m3 weights", "f8_e4m3 rows"},
    {DType::F8_E5M2, "f8_e5m2 weights", "f8_e5m2 rows"},
    {DType::NF4, "nf4 weights", "nf4 rows"},
    {DType::I4, "i4 weights", "i4 rows"},
    {DType::NF4_64, "nf4_64 weights", "nf4_64 rows"},
    {DType::FP4_64, "fp4_64 weights", "fp4_64 rows"},
    {DType::E4M3_64, "e4m3_64 weights", "e4m3_64 rows"},
};

const TypeRow* row_of(uint32_t dtype) {
  for (const TypeRow& row : kTypes)
    if (static_cast<uint32_t>(row.dtype) == dtype) return &row;
  return nullptr;
}

// Slices columns of C first: each part streams its own share of the weight. Slices rows only if there are few columns,
// into at least `least_rows`.
void cut(TypedContext& c, uint32_t wanted, int64_t granule, int64_t least_rows) {
  const Product& p = c.product;
  c.row_parts = c.column_parts = 1;
  while (c.row_parts * c.column_parts < wanted) {
    if (p.n >= 2 * c.column_parts * granule)
      c.column_parts *= 2;
    else if (p.m >= 2 * c.row_parts * least_rows)
      c.row_parts *= 2;
    else
      break;
  }
}

}  // namespace

bool multiplies_type(uint32_t dtype) { return row_of(dtype) != nullptr; }

bool multiplies_in_order(uint32_t dtype, int64_t bytes) {
  return kernels::is_half(dtype) && bytes >= kLeastInOrder && prefers_one_stream();
}

bool product_of_typed(const Site& site, Product& p) {
  const hx_type& x = site.in(0);
  const std::string rounded = site.text("activation_type");
  if ((!rounded.empty() && (rounded != "q8_0" || last(x) % 32 != 0)) || site.text("accumulate") == "f64")
    return declined("rounds x to q8_0 only, and sums in f32");
  if (!is_f32(x) || !is_f32(site.out()) || (site.inputs() == 3 && !is_f32(site.in(2))))
    return declined("multiplies f32 by weights of 16-bit floats and stored types");
  if (site.flag("transposed") || site.number("scale") != 0)
    return declined("reads such a weight in the layout of its file, and x unscaled");
  p = {};
  if (!activation_of(site, p.activation)) return false;
  p.k = last(x);
  p.m = count(x) / p.k;
  p.n = site.in(1).dims[0];
  p.batch = 1;
  p.a_row = p.k;
  p.a_column = 1;
  p.b = 1;
  p.has_bias = site.inputs() == 3;
  p.bias = 2;
  p.c = site.inputs();
  return true;
}

namespace {

// Plans a product that reads weights of 16-bit floats as they are stored and rounds its operands. `columns`: whether a
// row of the weight is contiguous along the columns of the product.
bool plan_rounded(const Site& site, Product p, bool columns, hx_kernel& out) {
  const uint32_t dtype = site.in(1).dtype;
  if (!kernels::is_half(dtype) || site.flag("batch_invariant") || !site.text("activation_type").empty()) return false;
  p.half = site.allows_half();
  p.bf16 = site.allows_bf16();
  p.b_type = dtype == HX_F16 ? StoredFloat::f16 : StoredFloat::bf16;
  p.b_row = columns ? p.n : 1;
  p.b_column = columns ? 1 : p.k;
  return answer_rounded_product(p, out);
}

bool answer_in_panels(std::unique_ptr<TypedContext> c, const TypeRow& row, hx_kernel& out) {
  const Product& p = c->product;
  c->in_panels = true;
  c->slice_bytes = static_cast<int64_t>(run_bytes(row.dtype, kDecodedColumns));
  const double products = static_cast<double>(p.m) * static_cast<double>(p.k) * static_cast<double>(p.n);
  cut(*c, parts_for(products / 40, INT32_MAX), kDecodedColumns, kLeastDecodedRows);
  const uint32_t parts = c->row_parts * c->column_parts;
  answer(out, std::move(c), chosen::typed_linear(), row.product, {parts});
  return true;
}

// Smaller weights of 16-bit floats are cast to f32, which the faster kernels of products read.
constexpr int64_t kLeastDecodedHalves = int64_t{1} << 23;  // elements

// a [m, k] times a weight [k, n] of a stored type or 16-bit floats: the input gradient of `linear`.
bool plan_transposed(const Site& site, const TypeRow& row, hx_kernel& out) {
  const hx_type &x = site.in(0), &weight = site.in(1);
  const bool plain = site.text("activation_type").empty() && site.text("accumulate") != "f64" && !site.number("scale");
  if (!plain || site.inputs() != 2 || !is_f32(x) || !is_f32(site.out()) || last(x) == 0 || last(weight) == 0)
    return declined("multiplies f32 by a transposed weight, without more");
  auto c = std::make_unique<TypedContext>();
  Product& p = c->product;
  if (!activation_of(site, p.activation)) return false;
  p.batch = 1;
  p.k = p.a_row = last(x);
  p.a_column = 1;
  p.m = count(x) / p.k;
  p.n = last(weight);
  p.b = 1;
  p.c = 2;
  if (plan_rounded(site, p, true, out)) return true;
  if (kernels::is_half(weight.dtype) &&
      (count(weight) < kLeastDecodedHalves || site.allows_bf16() || site.allows_half()))
    return declined("casts weights of 16-bit floats if they are small, or if operands are rounded");
  c->dtype = weight.dtype;
  c->transposed = true;
  c->row_bytes = static_cast<int64_t>(run_bytes(row.dtype, p.n));
  return answer_in_panels(std::move(c), row, out);
}

// Whether by_tiles() computes the product.
bool multiplies_in_tiles(const TypedContext& c) {
  return isa().vector == 16 && kernels::is_half(c.dtype) && c.row_parts == 1 && c.product.m > kDirectRows &&
         c.product.m <= kMostTiledRows;
}

}  // namespace

bool plan_typed_linear(const Site& site, hx_kernel& out) {
  const TypeRow* row = row_of(site.in(1).dtype);
  if (!row) return declined("multiplies f32 by weights of 16-bit floats and stored types");
  if (site.flag("transposed")) return plan_transposed(site, *row, out);
  auto c = std::make_unique<TypedContext>();
  if (!product_of_typed(site, c->product)) return false;
  const Product& p = c->product;
  if (plan_rounded(site, p, false, out)) return true;
  c->dtype = site.in(1).dtype;
  c->row_bytes = static_cast<int64_t>(run_bytes(row->dtype, p.k));
  const double bytes = static_cast<double>(c->row_bytes) * static_cast<double>(p.n),
               elements = static_cast<double>(p.k) * static_cast<double>(p.n);
  const bool rounds = !site.text("activation_type").empty();
  if (!rounds && !site.flag("batch_invariant") && p.m >= kLeastDecodedRows)
    return answer_in_panels(std::move(c), *row, out);
  c->in_order = multiplies_in_order(c->dtype, c->row_bytes * p.n);
  cut(*c, parts_for(bytes / 10 + elements * static_cast<double>(p.m) / 40, INT32_MAX), kTypedColumnGranule,
      4 * kRowGranule);
  c->round_parts = rounds ? parts_for(static_cast<double>(p.m * p.k), p.m * p.k / 32) : 0;
  if (!rounds && multiplies_in_tiles(*c)) c->copy_parts = parts_for(static_cast<double>(p.m * p.k) / 8, INT32_MAX);
  const int64_t floats = rounds ? p.m * p.k : c->copy_parts ? p.m * ((p.k + 15) / 16 * 16) : 0;
  std::vector<uint32_t> phases{c->row_parts * c->column_parts};
  if (rounds || c->copy_parts) phases.insert(phases.begin(), rounds ? c->round_parts : c->copy_parts);
  answer(out, std::move(c), chosen::typed_linear(), row->product, phases).workspace =
      static_cast<uint64_t>(floats) * sizeof(float);
  return true;
}

bool plan_typed_embedding(const Site& site, hx_kernel& out) {
  const hx_type &table = site.in(0), &ids = site.in(1);
  const TypeRow* row = row_of(table.dtype);
  if (!row || !is_f32(site.out()) || !is_index(ids)) return false;
  auto c = std::make_unique<TypedRowsContext>();
  c->rows = count(ids);
  c->size = table.dims[0];
  c->width = last(table);
  c->row_bytes = static_cast<int64_t>(run_bytes(row->dtype, c->width));
  c->dtype = table.dtype;
  c->index_dtype = ids.dtype;
  c->parts = parts_for(static_cast<double>(c->rows) * (10 + static_cast<double>(c->width)), c->rows);
  answer(out, std::move(c), chosen::typed_embedding(), row->rows);
  return true;
}

bool plan_typed_cast(const Site& site, hx_kernel& out) {
  const TypeRow* row = row_of(site.in(0).dtype);
  if (!row || !kernels::is_stored(site.in(0).dtype) || !is_f32(site.out()))
    return declined("decodes stored types as f32");
  auto c = std::make_unique<TypedRowsContext>();
  c->width = last(site.in(0));
  c->rows = c->size = count(site.in(0)) / c->width;
  c->row_bytes = static_cast<int64_t>(run_bytes(row->dtype, c->width));
  c->dtype = site.in(0).dtype;
  c->parts = parts_for(static_cast<double>(count(site.in(0))), c->rows);
  answer(out, std::move(c), chosen::typed_cast(), row->rows);
  return true;
}

}  // namespace harmonics::cpu

#endif
