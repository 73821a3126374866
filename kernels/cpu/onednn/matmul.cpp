#include "matmul.hpp"

#include "../site.hpp"
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
  std::vector<Slice> slices;  // one per part
  uint64_t scratch = 0;       // bytes of each part
};

dnnl::memory::desc matrix(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  return {{rows, columns}, dnnl::memory::data_type::f32, {row_stride, column_stride}};
}

std::unique_ptr<Execution> make_execution(const Product& p, int64_t rows, int64_t columns, uint64_t& scratch) {
  const auto a = matrix(rows, p.k, p.a_row, p.a_column), b = matrix(p.k, columns, p.b_row, p.b_column);
  const auto c = matrix(rows, columns, p.n, 1);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::matmul::primitive_desc d(dnnl::matmul::desc(a, b, c), attributes, cpu_engine());
  scratch = std::max<uint64_t>(scratch, d.scratchpad_desc().get_size());
  using Pairs = std::initializer_list<std::pair<int, dnnl::memory::desc>>;
  return std::make_unique<Execution>(dnnl::matmul(d), Pairs{{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c},
                                                            {DNNL_ARG_SCRATCHPAD, d.scratchpad_desc()}});
}

void run(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const OneThread one_thread;
  const auto& c = *static_cast<const OneDnnMatmul*>(context);
  const Product& p = c.grid.product;
  const Slice& s = c.slices[part];
  char* scratch = c.scratch ? static_cast<char*>(buffers[(p.has_bias ? p.bias : p.b) + 2]) + part * c.scratch : nullptr;
  for (int64_t batch = s.first_batch; batch < s.last_batch; ++batch) {
    const float* a = static_cast<const float*>(buffers[p.a]) + c.a_offsets[batch] + s.row * p.a_row;
    const float* b = static_cast<const float*>(buffers[p.b]) + c.b_offsets[batch] + s.column * p.b_column;
    float* y = static_cast<float*>(buffers[p.c]) + batch * p.m * p.n + s.row * p.n + s.column;
    s.execution->run({a, b, y, scratch});
    if (p.has_bias || p.activation)
      isa().epilogue(y, s.rows, s.columns, p.n, p.has_bias ? static_cast<const float*>(buffers[p.bias]) + s.column : nullptr, p.activation);
  }
}

}  // namespace

void answer_onednn_matmul(const MatmulContext& grid, hx_kernel& out) {
  const OneThread one_thread;
  const Product& p = grid.product;
  auto c = std::make_unique<OneDnnMatmul>();
  c->grid = grid;
  c->a_offsets.assign(grid.a_offsets, grid.a_offsets + p.batch);
  c->b_offsets.assign(grid.b_offsets, grid.b_offsets + p.batch);
  for (uint32_t b = 0; b < grid.batch_parts; ++b)
    for (uint32_t r = 0; r < grid.row_parts; ++r)
      for (uint32_t n = 0; n < grid.column_parts; ++n) {
        Slice s{r * grid.slice_rows, n * grid.slice_columns, 0, 0, p.batch * b / grid.batch_parts, p.batch * (b + 1) / grid.batch_parts, nullptr};
        s.rows = std::min(grid.slice_rows, p.m - s.row);
        s.columns = std::min(grid.slice_columns, p.n - s.column);
        s.execution = make_execution(p, s.rows, s.columns, c->scratch);
        c->slices.push_back(std::move(s));
      }
  c->scratch = (c->scratch + 63) & ~uint64_t{63};
  const uint64_t workspace = c->scratch * c->slices.size();
  const auto parts = static_cast<uint32_t>(c->slices.size());
  answer(out, std::move(c), run, "oneDNN matmul", {parts}).workspace = workspace;
}

}  // namespace harmonics::cpu
