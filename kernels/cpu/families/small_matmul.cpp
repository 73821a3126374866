// Small products, with a row-major B, or with A and B contiguous along k; and the end of every product: sums of halves,
// bias, activation, chain of elementwise operations. Both are in one source, because a call would cost the smallest
// products more than the end itself.
#include "../family.hpp"
#include "../matmul.hpp"

#ifdef HM_ISA

#include "chain_run.hpp"
#include "gemm.hpp"
#include "vector_math.hpp"

namespace harmonics::cpu::HM_ISA {
namespace {

// Sums of a product before its end, in rows `row` elements apart.
struct Sums {
  const float* at;
  int64_t row;
};

// y = f(sums + more + bias); `more` has the layout of y, which may be `sums`.
template <typename F>
HM_INLINE void map_rows(float* y, Sums sums, const float* more, int64_t rows, int64_t columns, int64_t stride,
                        const float* bias, F f) {
  for (int64_t r = 0; r < rows; ++r, y += stride, sums.at += sums.row) {
    int64_t j = 0;
    for (; j + kWidth <= columns; j += kWidth) {
      vf v = load(sums.at + j);
      if (more) v = v + load(more + j);
      store(y + j, f(bias ? v + load(bias + j) : v));
    }
    if (j < columns) {
      vf v = load_part(sums.at + j, columns - j);
      if (more) v = v + load_part(more + j, columns - j);
      store_part(y + j, f(bias ? v + load_part(bias + j, columns - j) : v), columns - j);
    }
    if (more) more += stride;
  }
}

void map_all(float* y, Sums sums, const float* more, int64_t rows, int64_t columns, int64_t stride, const float* bias,
             int activation) {
  const auto map = [&](auto f) __attribute__((always_inline)) {
    map_rows(y, sums, more, rows, columns, stride, bias, f);
  };
  switch (activation) {
    case kRelu:
      return map([](vf x) { return maximum(x, vf{}); });
    case kTanh:
      return map([](vf x) { return vtanh(x); });
    case kLogistic:
      return map([](vf x) { return vlogistic(x); });
    case kGelu:
      return map([](vf x) { return vgelu(x); });
    default:
      if (bias || more || sums.at != y) map([](vf x) { return x; });
  }
}

// Not inlined, so that the smallest products do not set up its frame.
__attribute__((noinline)) void run_chain(const ChainContext& chain, void* const* buffers, int64_t width, Range rows,
                                         Range columns) {
  ChainRun run(chain, buffers);
  for (int64_t i = rows.begin; i < rows.end; ++i)
    for (int64_t j = columns.begin; j < columns.end; j += chain.block)
      run.piece(i * width + j, columns.end - j < chain.block ? columns.end - j : chain.block);
}

}  // namespace

void epilogue(float* y, int64_t rows, int64_t columns, int64_t stride, const float* bias, int activation) {
  map_all(y, {y, stride}, nullptr, rows, columns, stride, bias, activation);
}

void end_halves(const cpu::Product& p, void* const* buffers, const float* more, uint32_t parts, uint32_t part) {
  const Range rows = share(p.m, parts, part);
  float* const y = static_cast<float*>(buffers[p.c]) + rows.begin * p.n;
  map_all(y, {y, p.n}, more + rows.begin * p.n, rows.end - rows.begin, p.n, p.n,
          p.has_bias ? static_cast<const float*>(buffers[p.bias]) : nullptr, p.activation);
  if (p.chain) run_chain(*p.chain, buffers, p.n, rows, {0, p.n});
}

void end_columns(const cpu::Product& p, void* const* buffers, const float* sums, int64_t sums_row, int64_t column,
                 int64_t column_end) {
  map_all(static_cast<float*>(buffers[p.c]) + column, {sums, sums_row}, nullptr, p.m, column_end - column, p.n,
          p.has_bias ? static_cast<const float*>(buffers[p.bias]) + column : nullptr, p.activation);
  if (p.chain) run_chain(*p.chain, buffers, p.n, {0, p.m}, {column, column_end});
}

void end_product(const cpu::Product& p, void* const* buffers, int64_t row, int64_t row_end, int64_t column,
                 int64_t column_end) {
  if (p.has_bias || p.activation)
    epilogue(static_cast<float*>(buffers[p.c]) + row * p.n + column, row_end - row, column_end - column, p.n,
             p.has_bias ? static_cast<const float*>(buffers[p.bias]) + column : nullptr, p.activation);
  if (p.chain) run_chain(*p.chain, buffers, p.n, {row, row_end}, {column, column_end});
}

void small_matmul(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const MatmulContext*>(context);
  const Product& p = c.product;
  const uint32_t column_part = part % c.column_parts, row_part = part / c.column_parts % c.row_parts;
  const Range batches = share(p.batch, c.batch_parts, part / c.column_parts / c.row_parts);
  const int64_t i = slice_begin(p.m, kRowGranule, c.row_parts, row_part),
                j = slice_begin(p.n, kColumnGranule, c.column_parts, column_part);
  const int64_t rows = slice_begin(p.m, kRowGranule, c.row_parts, row_part + 1) - i;
  const int64_t columns = slice_begin(p.n, kColumnGranule, c.column_parts, column_part + 1) - j;
  for (int64_t batch = batches.begin; batch < batches.end; ++batch) {
    const float* a = static_cast<const float*>(buffers[p.a]) + c.a_offsets[batch] + i * p.a_row;
    const float* b = static_cast<const float*>(buffers[p.b]) + c.b_offsets[batch] + j * p.b_column;
    float* y = static_cast<float*>(buffers[p.c]) + batch * p.m * p.n + i * p.n + j;
    if (p.b_column == 1)
      gemm_broadcast(rows, columns, p.k, {a, p.a_row, p.a_column}, b, p.b_row, y, p.n, p.accumulate);
    else
      gemm_inner(rows, columns, p.k, a, p.a_row, b, p.b_column, y, p.n, p.accumulate);
    end_product(p, buffers, batch * p.m + i, batch * p.m + i + rows, j, j + columns);
  }
}

}  // namespace harmonics::cpu::HM_ISA

#else

#include "../product_costs.hpp"
#include "../routes.hpp"

HM_VECTOR_CODE(small_matmul)

namespace harmonics::cpu {

using namespace product_costs;

namespace {

bool broadcasts(const Product& p) { return p.b_column == 1; }
bool is_inner(const Product& p) { return p.b_row == 1 && p.a_column == 1; }

bool suits_small(const Product& p) {
  return (broadcasts(p) || is_inner(p)) && (p.invariant || is_small(p, flops_of(p)));
}
double small_nanoseconds(const Product& p) {
  const double moved = kMoveNanoseconds * static_cast<double>(p.n * p.k + p.m * p.k + p.m * p.n);
  return static_cast<double>(p.batch) * std::max(flops_of(p) / kSmallRate, moved);
}
void answer_small(std::unique_ptr<OwnedGrid> c, double nanoseconds, hx_kernel& out) {
  const Product& p = c->product;
  // The rows of the batch are the rows of A, or the depth of a weight gradient.
  cut_grid(*c, std::max(parts_for(nanoseconds, INT32_MAX), parts_for_rows(nanoseconds, p.a_column == 1 ? p.m : p.k)));
  const uint32_t parts = c->batch_parts * c->row_parts * c->column_parts;
  const char* name = is_inner(p) && !broadcasts(p) ? "inner products" : "small matmul";
  answer<MatmulContext>(out, std::move(c), chosen::small_matmul(), name, {parts});
}

}  // namespace

constinit const Route routes::small{Route::invariant, suits_small, small_nanoseconds, answer_small};
constinit const Route routes::shallow{Route::none,
                                      [](const Product& p) { return broadcasts(p) && p.k < kLeastPackedDepth; },
                                      small_nanoseconds, answer_small};

}  // namespace harmonics::cpu

#endif
