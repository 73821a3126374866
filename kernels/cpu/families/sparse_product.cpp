// C = A B and C += A B without the zeros of A, and SGD steps that are such products.
#include "../family.hpp"
#include "../sparse_product.hpp"

#ifdef HM_ISA

#include "sparse_kernels.hpp"

#else

#include <array>
#include <cstring>
#include <numeric>

#include "../product_costs.hpp"
#include "../rounded_product.hpp"

HM_VECTOR_CODE(sparse_multiply)

namespace harmonics::cpu {
namespace {

constexpr int64_t kLeastColumns = 32;        // narrower products gain nothing
constexpr int64_t kLeastProducts = 1 << 15;  // multiplications of the whole product
constexpr int64_t kLeastDepth = 16;          // for a smaller depth, computing is faster than searching for zeros
constexpr int64_t kFewRows = 4;              // of A: reading B is the bottleneck, so the sparse kernel is never slower
constexpr int64_t kMostSums = 1 << 17;       // limit of the sums for halves: both halves fit the L2 cache

// The sparse product, with a dense kernel as fallback for few zeros.
struct SparseOrDense : SparseContext {
  InnerKernel dense;
  std::array<uint32_t, kMostBuffers> dense_buffers{};  // dense kernel's buffer -> buffer of this kernel
  uint32_t dense_count = 0;                            // number of the dense kernel's buffers without its workspace
  uint64_t dense_offset = 0;                           // offset of its workspace in this kernel's workspace
  // Operands converted for the dense kernel, in the workspace: A as floats; for C += (-rate A) B or C += A (-rate B),
  // the smaller operand times -rate.
  struct Prepared {
    int64_t count = 0;  // floats; 0: the operand is read in place
    bool scaled = false;
    uint64_t offset = 0;
  } a, b;
  std::vector<uint32_t> parts;  // by phase: the larger number of parts of both kernels

  bool prepares() const { return a.count > 0 || b.count > 0; }
};

void run_dense(const SparseOrDense& c, void* const* buffers, uint32_t phase, uint32_t part) {
  char* workspace = static_cast<char*>(buffers[c.workspace]);
  void* own[kMostBuffers];
  for (uint32_t i = 0; i < c.dense_count; ++i) {
    const uint32_t from = c.dense_buffers[i];
    own[i] = c.a.count && from == c.product.a   ? workspace + c.a.offset
             : c.b.count && from == c.product.b ? workspace + c.b.offset
                                                : buffers[from];
  }
  own[c.dense_count] = workspace + c.dense_offset;
  if (c.dense.packed_bytes > 0) own[c.dense_count + 1] = buffers[c.workspace + 1];
  for (uint32_t i = c.product.c + 3; i < c.product.c + 3 + c.product.extra; ++i) own[i] = buffers[i];
  c.dense.run(c.dense.context, own, phase, part);
}

template <typename T>
void scale_numbers(const T* from, float* to, int64_t n, float by) {
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(from[i]) * by;
}

// Converts one share of the dense kernel's operands. An in-place sum also copies the old C to C.
void prepare(const SparseOrDense& c, void* const* buffers, uint32_t part, uint32_t parts) {
  const Product& p = c.product;
  char* workspace = static_cast<char*>(buffers[c.workspace]);
  const float down = c.update ? -*static_cast<const float*>(buffers[p.rate]) : 1;
  const auto share = [&](int64_t n, auto run) {
    const int64_t begin = n * part / parts;
    run(begin, n * (part + 1) / parts - begin);
  };
  share(c.a.count, [&](int64_t at, int64_t n) {
    float* to = reinterpret_cast<float*>(workspace + c.a.offset) + at;
    if (p.scale == 0) return scale_numbers(static_cast<const float*>(buffers[p.a]) + at, to, n, down);
    scale_numbers(static_cast<const uint8_t*>(buffers[p.a]) + at, to, n, p.scale);
    if (c.a.scaled) scale_numbers(to, to, n, down);
  });
  share(c.b.count, [&](int64_t at, int64_t n) {
    scale_numbers(static_cast<const float*>(buffers[p.b]) + at, reinterpret_cast<float*>(workspace + c.b.offset) + at,
                  n, down);
  });
  if ((c.a.scaled || c.b.scaled) && buffers[p.old] != buffers[p.c])
    share(p.m * p.n, [&](int64_t at, int64_t n) {
      std::memcpy(static_cast<float*>(buffers[p.c]) + at, static_cast<const float*>(buffers[p.old]) + at,
                  static_cast<size_t>(n) * sizeof(float));
    });
}

// Phase 0: marks non-zeros. Phase 1: the sparse product, or preparation of dense operands. Phase 2 adds the halves of a
// sparse product. The phases of the dense kernel begin at 1, or at 2 after preparation.
void run(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const SparseOrDense*>(context);
  if (phase == 0) return chosen::sparse_build()(static_cast<const SparseContext*>(&c), buffers, 0, part);
  if (is_sparse(c, buffers)) {
    const uint32_t own = phase == 1 ? multiply_parts(c) : phase == 2 ? c.sum_parts : 0;
    if (spread(part, c.parts[phase], own))
      chosen::sparse_multiply()(static_cast<const SparseContext*>(&c), buffers, phase - 1, part);
    return;
  }
  const uint32_t before = c.prepares() ? 2 : 1;
  if (phase < before) {
    prepare(c, buffers, part, c.parts[phase]);
  } else if (phase - before < c.dense.phases && spread(part, c.parts[phase], c.dense.parts[phase - before])) {
    run_dense(c, buffers, phase - before, part);
  }
}

uint64_t rounded(uint64_t bytes) { return (bytes + 63) & ~uint64_t{63}; }

// Divides the only row's product. A cold B is sliced by rows, as its update is: reading it takes the time, and each
// thread reads what it wrote. Otherwise by columns, which need no sums.
void cut_list(SparseContext& c, uint32_t columns) {
  using namespace product_costs;
  const Product& p = c.product;
  c.row_parts = c.build_parts = 1;
  const double nanoseconds = static_cast<double>(p.k * p.n) * kReadNanoseconds;
  if (p.cold_b) c.slices = std::min(kMostSlices, parts_for(nanoseconds, p.k / 32, kReadGrain));
  if (c.slices > 1) columns = parts_for(nanoseconds / c.slices, INT32_MAX, kSparseGrain);
  c.column_parts = std::max(1u, static_cast<uint32_t>(std::min<int64_t>(columns, p.n / 96)));
  c.sum_parts = c.slices > 1 ? 1 : 0;
}

void cut(SparseContext& c) {
  using namespace product_costs;
  const Product& p = c.product;
  const double products = static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
  const uint32_t parts = parts_for(products * 2 / kSparseRate, INT32_MAX, kSparseGrain);
  c.pieces = (p.k + kSparsePiece - 1) / kSparsePiece;
  if (is_listed(c)) return cut_list(c, parts);
  const auto at_most = [](uint32_t wanted, int64_t pieces) {
    return std::max(1u, static_cast<uint32_t>(std::min<int64_t>(wanted, pieces)));
  };
  // The product and the update of one weight make the same choice.
  if (parts > 1 && !c.always && !p.accumulate && (c.update ? p.k : p.m) * p.n <= kMostSums) {
    if (c.update && p.m > p.n) c.halves = Halves::rows;
    if (!c.update && p.k > p.n && p.a_column == 1) c.halves = Halves::depth;
  }
  const uint32_t each = c.halves == Halves::none ? parts : parts / 2;
  // Column slices share the mask and divide B and C, but narrow slices read A for little work. A thread gets the same
  // columns in the product and in the update, so its slice of the weight stays in its cache.
  c.column_parts = at_most(each, p.n / 96);
  c.row_parts = at_most(each / c.column_parts, p.m / 32);
  c.build_parts = std::min(kMostVerdicts, parts_for(static_cast<double>(p.m * p.k) * kMarkNanoseconds,
                                                    p.a_column == 1 ? p.m : (p.m + 63) / 64));
  if (c.halves != Halves::depth) return;
  c.pieces += c.pieces % 2;
  c.sum_parts = parts_of_sum(p);
}

bool worth_looking(const Product& p) {
  return p.batch == 1 && p.b_column == 1 && (p.a_column == 1 || (p.a_row == 1 && p.m > 1)) && p.n >= kLeastColumns &&
         p.k > 1 && p.m * p.n * p.k >= kLeastProducts && p.k * p.b_row < INT32_MAX && p.m * p.k < INT32_MAX;
}

double most_nonzeros(const Product& p) {
  const RoundedRoutines* const rounding = rounding_of(p);
  return rounding ? rounding->most_nonzeros : 1;
}

void answer_sparse(std::unique_ptr<SparseOrDense> c, hx_kernel& out) {
  const Product& p = c->product;
  cut(*c);
  c->most_nonzeros = most_nonzeros(p);
  uint64_t marks = kVerdictBytes + static_cast<uint64_t>(marks_bytes(*c));
  if (c->sum_parts > 0) {
    const uint32_t sums = c->halves == Halves::depth ? 1 : c->slices - 1;
    c->sums_offset = static_cast<int64_t>(rounded(marks));
    marks = rounded(marks) + sums * rounded(static_cast<uint64_t>(p.m * p.n) * sizeof(float));
  }
  // The dense kernel overwrites the mask; only the verdicts stay.
  c->a.offset = kVerdictBytes;
  c->b.offset = c->a.offset + rounded(static_cast<uint64_t>(c->a.count) * sizeof(float));
  c->dense_offset = c->b.offset + rounded(static_cast<uint64_t>(c->b.count) * sizeof(float));
  const uint64_t workspace = std::max(marks, c->dense_offset + c->dense.workspace);
  std::vector<uint32_t>& parts = c->parts = {c->build_parts, multiply_parts(*c)};
  if (c->sum_parts > 0) parts.push_back(c->sum_parts);
  const uint32_t before = c->prepares() ? 2 : 1;
  for (uint32_t i = 0; i < c->dense.phases; ++i) {
    if (before + i < parts.size())
      parts[before + i] = std::max(parts[before + i], c->dense.parts[i]);
    else
      parts.push_back(c->dense.parts[i]);
  }
  const RoundedRoutines* const rounding = rounding_of(p);
  const char* name = c->always ? "sparse product" : rounding ? rounding->name_beside_zeros : "sparse or dense product";
  const std::vector<uint32_t> all = parts;
  const uint32_t b = p.b;
  answer(out, std::move(c), run, name, all).workspace = workspace;
  pass_packing<SparseOrDense, &SparseOrDense::dense>(b, out);
}

// Plans the dense kernel of an update: a fused SGD update if supported, else a sum in place.
bool answer_descent(SparseOrDense& c) {
  if (c.product.scale != 0) c.a.count = c.product.m * c.product.k;
  Product step = c.product;
  step.scale = 0;
  step.descends = true;
  if (answer_dense_product(step, {0}, {0}, c.dense)) {
    c.dense_count = c.workspace;
    for (uint32_t i = 0; i < c.dense_count; ++i) c.dense_buffers[i] = i;
    return true;
  }
  Product sum = c.product;  // a, b, w
  sum.scale = 0;
  sum.a = 0, sum.b = 1, sum.c = 2;
  sum.accumulate = true;
  if (!answer_dense_product(sum, {0}, {0}, c.dense)) return false;
  SparseOrDense::Prepared& smaller = sum.m < sum.n ? c.a : c.b;
  smaller.count = std::min(sum.m, sum.n) * sum.k;
  smaller.scaled = true;
  c.dense_buffers = {c.product.a, c.product.b, c.product.c};
  c.dense_count = 3;
  return true;
}

}  // namespace

bool is_sparse(const SparseContext& c, void* const* buffers) {
  const auto* verdicts = static_cast<const int32_t*>(buffers[c.workspace]);
  if (!std::all_of(verdicts, verdicts + c.build_parts, [](int32_t v) { return v != 0; })) return false;
  if (c.most_nonzeros == 1) return true;
  const int64_t count = std::accumulate(verdicts, verdicts + c.build_parts, -int64_t{c.build_parts});
  return static_cast<double>(count) <= c.most_nonzeros * static_cast<double>(c.product.m * c.product.k);
}

bool plan_marks(SparseContext& c) {
  if (!worth_looking(c.product) || c.product.k < kLeastDepth) return false;
  cut(c);
  c.most_nonzeros = most_nonzeros(c.product);
  return true;
}

bool answer_sparse_product(const Product& product, hx_kernel& dense, hx_kernel& out) {
  if (!worth_looking(product) || (product.k < kLeastDepth && product.m > kFewRows)) return false;
  auto c = std::make_unique<SparseOrDense>();
  c->product = product;
  c->workspace = product.c + 1;
  c->always = product.m <= kFewRows;
  if (!c->always) {
    c->dense = std::exchange(dense, hx_kernel{});
    c->dense_count = product.c + 1;
    for (uint32_t i = 0; i < c->dense_count; ++i) c->dense_buffers[i] = i;
    if (product.scale != 0) c->a.count = product.m * product.k;
  }
  answer_sparse(std::move(c), out);
  return true;
}

bool answer_sparse_descent(const Product& product, hx_kernel& out) {
  if (!worth_looking(product)) return false;
  auto c = std::make_unique<SparseOrDense>();
  c->product = product;
  c->update = true;
  c->workspace = product.c + 1;
  c->always = product.k <= kFewRows;
  if (!c->always && !answer_descent(*c)) return false;
  answer_sparse(std::move(c), out);
  return true;
}

}  // namespace harmonics::cpu

#endif
