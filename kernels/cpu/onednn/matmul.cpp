#include "matmul.hpp"

#include "../families.hpp"
#include "onednn.hpp"

namespace harmonics::cpu {
namespace {

struct Slice {
  int64_t row, column, rows, columns, first_batch, last_batch;
  std::unique_ptr<Execution> execution;
};

struct OneDnnMatmul {
  MatmulContext grid;
  std::vector<int64_t> a_offsets, b_offsets;
  std::vector<Slice> slices;    // by part
  uint64_t scratch = 0;         // bytes per part
  CopyContext copies[2];        // of a and b, in the first phase
  uint32_t copy_parts[2] = {};  // 0: no copy
  int64_t copied = 0;           // floats at the start of the workspace
  uint32_t workspace_buffer = 0;
};

dnnl::memory::desc matrix(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  return {{rows, columns}, dnnl::memory::data_type::f32, {row_stride, column_stride}};
}

std::unique_ptr<Execution> make_execution(const Product& p, int64_t rows, int64_t columns, uint64_t& scratch) {
  const auto a = matrix(rows, p.k, p.a_row, p.a_column), b = matrix(p.k, columns, p.b_row, p.b_column);
  const auto c = matrix(rows, columns, p.n, 1);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (p.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1);
    attributes.set_post_ops(sum);
  }
  const dnnl::matmul::primitive_desc d(dnnl::matmul::desc(a, b, c), attributes, cpu_engine());
  scratch = std::max<uint64_t>(scratch, d.scratchpad_desc().get_size());
  using Pairs = std::initializer_list<std::pair<int, dnnl::memory::desc>>;
  return std::make_unique<Execution>(
      dnnl::matmul(d),
      Pairs{{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}, {DNNL_ARG_SCRATCHPAD, d.scratchpad_desc()}});
}

// Rows a multiple of 2 KiB apart map to few sets of the L1 cache, which slows oneDNN down. Such operands are copied to
// a larger leading dimension.
constexpr int64_t kCrowded = 512, kSpacing = 16;

void copy_when_crowded(OneDnnMatmul& c, int which, int64_t rows, int64_t columns, uint32_t buffer, int64_t& row,
                       int64_t column) {
  if (c.grid.product.batch > 1 || column != 1 || row % kCrowded || rows < 64) return;
  Walk walk{{rows, columns}, {{columns + kSpacing, 1}, {row, 1}}, {c.copied, 0}};
  c.copies[which] = copy_context(std::move(walk), sizeof(float), buffer, c.workspace_buffer);
  c.copy_parts[which] = c.copies[which].parts;
  c.copied += rows * (columns + kSpacing);
  row = columns + kSpacing;
}

void run_copy(const OneDnnMatmul& c, void* const* buffers, uint32_t part) {
  const int which = part < c.copy_parts[0] ? 0 : 1;
  chosen::strided_copy()(&c.copies[which], buffers, 0, which ? part - c.copy_parts[0] : part);
}

void run(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& c = *static_cast<const OneDnnMatmul*>(context);
  if (c.copied && phase == 0) return run_copy(c, buffers, part);
  const OneThread one_thread;
  const Product& p = c.grid.product;
  const Slice& s = c.slices[part];
  float* workspace = static_cast<float*>(buffers[c.workspace_buffer]);
  const float* from_a =
      c.copy_parts[0] ? workspace + c.copies[0].view.to_offset : static_cast<const float*>(buffers[p.a]);
  const float* from_b =
      c.copy_parts[1] ? workspace + c.copies[1].view.to_offset : static_cast<const float*>(buffers[p.b]);
  char* scratch = reinterpret_cast<char*>(workspace + c.copied) + part * c.scratch;
  for (int64_t batch = s.first_batch; batch < s.last_batch; ++batch) {
    const float* a = from_a + c.a_offsets[static_cast<size_t>(batch)] + s.row * p.a_row;
    const float* b = from_b + c.b_offsets[static_cast<size_t>(batch)] + s.column * p.b_column;
    float* y = static_cast<float*>(buffers[p.c]) + batch * p.m * p.n + s.row * p.n + s.column;
    s.execution->run({a, b, y, scratch});
    isa().end_product(p, buffers, batch * p.m + s.row, batch * p.m + s.row + s.rows, s.column, s.column + s.columns);
  }
}

}  // namespace

void answer_onednn_matmul(const MatmulContext& grid, hx_kernel& out) {
  const OneThread one_thread;
  auto c = std::make_unique<OneDnnMatmul>();
  c->grid = grid;
  Product& p = c->grid.product;
  c->workspace_buffer = p.c + 1;
  copy_when_crowded(*c, 0, p.k, p.m, p.a, p.a_column, p.a_row);
  copy_when_crowded(*c, 1, p.k, p.n, p.b, p.b_row, p.b_column);
  c->a_offsets.assign(grid.a_offsets, grid.a_offsets + p.batch);
  c->b_offsets.assign(grid.b_offsets, grid.b_offsets + p.batch);
  for (uint32_t b = 0; b < grid.batch_parts; ++b)
    for (uint32_t r = 0; r < grid.row_parts; ++r)
      for (uint32_t n = 0; n < grid.column_parts; ++n) {
        Slice s{slice_begin(p.m, kRowGranule, grid.row_parts, r),
                slice_begin(p.n, kColumnGranule, grid.column_parts, n),
                0,
                0,
                p.batch * b / grid.batch_parts,
                p.batch * (b + 1) / grid.batch_parts,
                nullptr};
        s.rows = slice_begin(p.m, kRowGranule, grid.row_parts, r + 1) - s.row;
        s.columns = slice_begin(p.n, kColumnGranule, grid.column_parts, n + 1) - s.column;
        s.execution = make_execution(p, s.rows, s.columns, c->scratch);
        c->slices.push_back(std::move(s));
      }
  c->scratch = (c->scratch + 63) & ~uint64_t{63};
  c->copied = (c->copied + 15) & ~int64_t{15};
  const uint64_t workspace = static_cast<uint64_t>(c->copied) * sizeof(float) + c->scratch * c->slices.size();
  std::vector<uint32_t> parts;
  if (c->copied) parts.push_back(c->copy_parts[0] + c->copy_parts[1]);
  parts.push_back(static_cast<uint32_t>(c->slices.size()));
  answer(out, std::move(c), run, "oneDNN matmul", parts).workspace = workspace;
}

}  // namespace harmonics::cpu
