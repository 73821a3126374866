// Normalisation of rows over their last axes, and the global norm.
#include "rows.hpp"

namespace harmonics::opencl {
namespace {

bool is_centred(const Site& site) { return site.op().substr(0, 5) == "layer"; }

// Returns the number of elements per statistic; 0: unsupported.
int64_t normalised(const Site& site) {
  const hx_type& x = site.in(0);
  const int64_t axes = is_centred(site) ? site.integer("norm_axes", 1) : 1;
  if (!is_float(x.dtype) || axes < 1 || axes > x.rank) return 0;
  int64_t n = 1;
  for (uint32_t i = x.rank - static_cast<uint32_t>(axes); i < x.rank; ++i) n *= x.dims[i];
  return n;
}

const char* const kOnlyFloats = "normalises floats over their last axes only";

std::string numbered_macros(const char* name, const Site& site, uint32_t input) {
  return element_macros(name, site.in(input).dtype);
}

}  // namespace

bool plan_row_norm(const Site& site, hx_kernel& out) {
  const int64_t columns = normalised(site);
  if (columns == 0) return declined(kOnlyFloats);
  const bool centred = is_centred(site);
  const uint32_t dtype = site.in(0).dtype, first = site.inputs();
  std::string head = std::string("#define T ") + type_name(dtype) + "\n#define EPSILON " +
                     literal(dtype, site.number("epsilon", 1e-5)) + "\n" + numbered_macros("X", site, 0) +
                     numbered_macros("GAIN", site, 1) + element_macros("Y", site.out().dtype) +
                     element_macros("STATISTIC", site.out(1).dtype) + kVariance;
  if (centred) head += numbered_macros("BIAS", site, 2);
  std::string s = "  const T count = n;\n";
  if (centred)
    s += "  T mean = 0, rest = 0;\n  EACH mean += X_READ(0, start + i);\n  mean = TOTAL(mean) / count;\n";
  else
    s += "  const T mean = 0;\n";
  s += std::string("  T square = 0;\n  EACH { const T x = X_READ(0, start + i) - mean; square += x * x;") +
       (centred ? " rest += x;" : "") + " }\n  square = TOTAL(square) / count;\n";
  s += centred ? "  rest = TOTAL(rest) / count;\n  square = variance_of(square, rest);\n" : "  const T rest = 0;\n";
  s += "  const T rstd = 1 / sqrt(square + EPSILON);\n  if (!inside) return;\n  EACH Y_WRITE(" + std::to_string(first) +
       ", start + i, (X_READ(0, start + i) - mean - rest) * rstd * GAIN_READ(1, i)" +
       (centred ? " + BIAS_READ(2, i)" : "") + ");\n  if (lane != 0) return;\n";
  if (centred) s += "  STATISTIC_WRITE(" + std::to_string(first + 1) + ", r, mean + rest);\n";
  s += "  STATISTIC_WRITE(" + std::to_string(first + (centred ? 2 : 1)) + ", r, rstd);\n";
  Work work;
  work.launches.push_back(row_launch(site.machine(), head, s, all_buffers(site), count(site.in(0)) / columns, columns));
  answer(out, std::move(work), centred ? "layer norm" : "rms norm").in_place = 1;
  return true;
}

namespace {

// Gradients of gain and bias: column sums over the rows of each part, then over the parts in order.
const char* kColumns = R"(
kernel void parts(BUFFER(0), BUFFER(1), BUFFER(2), BUFFER(3), BUFFER(4), uint rows, uint n, uint all) {
  const uint i = get_global_id(0) % n, part = get_global_id(0) / n;
  if (part >= all) return;
  const uint each = (rows + all - 1) / all, end = min(rows, (part + 1) * each);
  T gain = 0, bias = 0;
  for (uint r = part * each; r < end; ++r) {
    const T d = D_READ(3, r * n + i);
    gain += d * ((X_READ(0, r * n + i) - MEAN(r)) * STATISTIC_READ(2, r));
    bias += d;
  }
  AT(T, 4)[part * n + i] = gain;
  AT(T, 4)[(all + part) * n + i] = bias;
}
)";
constexpr int64_t kMostNormParts = 64, kRowsOfPart = 16;

}  // namespace

Launch join_parts(Machine& machine, uint32_t sums, uint32_t from, int64_t first, int64_t n, int64_t parts,
                  uint32_t dtype, uint32_t to) {
  static const char* const body = R"(
kernel void join(BUFFER(0), BUFFER(1), uint first, uint n, uint all) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  T sum = 0;
  for (uint part = 0; part < all; ++part) sum += AT(T, 0)[first + part * n + i];
  Y_WRITE(1, i, sum);
}
)";
  Launch join(machine, std::string("#define T ") + type_name(sums) + "\n" + element_macros("Y", dtype) + body, "join",
              {from, to});
  for (const int64_t v : {first, n, parts}) join.with(static_cast<cl_uint>(v));
  join.over(n);
  return join;
}

// x, gain, mean?, rstd, dy -> dx, dgain, dbias?
bool plan_row_norm_grad(const Site& site, hx_kernel& out) {
  const int64_t columns = normalised(site);
  if (columns == 0) return declined(kOnlyFloats);
  const bool centred = is_centred(site);
  const uint32_t rstd = centred ? 3 : 2, dy = rstd + 1, dx = dy + 1;
  const int64_t rows = count(site.in(0)) / columns, parts = std::clamp<int64_t>(rows / kRowsOfPart, 1, kMostNormParts);
  const std::string head = std::string("#define T ") + type_name(site.in(0).dtype) + "\n" +
                           numbered_macros("X", site, 0) + numbered_macros("GAIN", site, 1) +
                           numbered_macros("STATISTIC", site, 2) + numbered_macros("D", site, dy) + "#define MEAN(r) " +
                           (centred ? "STATISTIC_READ(1, r)" : "0") + "\n";
  const auto numbered = [](uint32_t i) { return std::to_string(i); };
  std::string s =
      std::string("  const T count = n, rstd = STATISTIC_READ(") + numbered(rstd) +
      ", r), mean = " + (centred ? "STATISTIC_READ(2, r)" : "0") + ";\n" +
      "  T sum = 0, product = 0;\n  EACH {\n    const T unit = (X_READ(0, start + i) - mean) * rstd, d = D_READ(" +
      numbered(dy) + ", start + i) * GAIN_READ(1, i);\n" + "    sum += d;\n    product += d * unit;\n  }\n" +
      (centred ? "  sum = TOTAL(sum) / count;\n" : "  sum = 0;\n") + "  product = TOTAL(product) / count;\n" +
      "  if (inside) EACH {\n    const T unit = (X_READ(0, start + i) - mean) * rstd, d = D_READ(" + numbered(dy) +
      ", start + i) * GAIN_READ(1, i);\n    X_WRITE(" + numbered(dx) +
      ", start + i, rstd * (d - sum - unit * product));\n  }\n";
  Work work;
  work.launches.push_back(row_launch(site.machine(), head, s, all_buffers(site), rows, columns));
  Launch& sums = work.launches.emplace_back(site.machine(), head + kColumns, "parts",
                                            std::vector<uint32_t>{0, centred ? 2u : 0u, rstd, dy, site.workspace()});
  sums.with(static_cast<cl_uint>(rows))
      .with(static_cast<cl_uint>(columns))
      .with(static_cast<cl_uint>(parts))
      .over(columns * parts);
  for (uint32_t of = 0; of < (centred ? 2u : 1u); ++of)
    work.launches.push_back(join_parts(site.machine(), site.in(0).dtype, site.workspace(), of * parts * columns,
                                       columns, parts, site.in(1).dtype, dx + 1 + of));
  answer(out, std::move(work), centred ? "layer norm" : "rms norm").workspace =
      static_cast<uint64_t>(2 * parts * columns) * (site.in(0).dtype == HX_F64 ? 8 : 4);
  return true;
}

namespace {

// Each work-group sums the squares of its part in a fixed order; the last kernel adds the parts of all tensors.
const char* kSquares = R"(
#define GROUP 64
kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void squares(BUFFER(0), BUFFER(1), uint n, uint first) {
  local T parts[GROUP];
  const uint me = get_local_id(0), part = get_group_id(0), start = part * PART, end = min(n, start + PART);
  T sum = 0;
  for (uint i = start + me; i < end; i += GROUP) { const T x = X_READ(0, i); sum += x * x; }
  parts[me] = sum;
  for (uint stride = 1; stride < GROUP; stride *= 2) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (me % (2 * stride) == 0) parts[me] += parts[me + stride];
  }
  if (me == 0) AT(T, 1)[first + part] = parts[0];
}
)";
const char* kLength = R"(
kernel void total(BUFFER(0), BUFFER(1), uint first, uint n, uint at) {
  if (get_global_id(0) > 0) return;
  T sum = 0;
  for (uint i = 0; i < n; ++i) sum += AT(T, 0)[first + i];
  AT(T, 1)[at] = sqrt(sum);
}
)";
constexpr int64_t kSquaresOfPart = 8192;

}  // namespace

int64_t norm_parts(int64_t n) { return (n + kSquaresOfPart - 1) / kSquaresOfPart; }

Launch squares(Machine& machine, uint32_t dtype, uint32_t from, uint32_t sums, int64_t n, uint32_t to, int64_t first) {
  const std::string head =
      std::string("#define T ") + type_name(sums) + "\n#define PART " + std::to_string(kSquaresOfPart) + "u\n";
  Launch launch(machine, head + element_macros("X", dtype) + kSquares, "squares", {from, to});
  launch.with(static_cast<cl_uint>(n)).with(static_cast<cl_uint>(first));
  launch.groups(static_cast<size_t>(norm_parts(n)), 1, 1, 64);
  return launch;
}

Launch root_of_sum(Machine& machine, uint32_t dtype, uint32_t from, int64_t first, int64_t n, uint32_t to, int64_t at) {
  Launch launch(machine, std::string("#define T ") + type_name(dtype) + "\n" + kLength, "total", {from, to});
  for (const int64_t v : {first, n, at}) launch.with(static_cast<cl_uint>(v));
  launch.over(1);
  return launch;
}

bool plan_global_norm(const Site& site, hx_kernel& out) {
  const uint32_t result = site.out().dtype;
  if (result != HX_F32 && result != HX_F64) return declined("computes norms in f32 and f64 only");
  Work work;
  int64_t parts = 0;
  for (uint32_t i = 0; i < site.inputs(); ++i) {
    work.launches.push_back(
        squares(site.machine(), site.in(i).dtype, i, result, count(site.in(i)), site.workspace(), parts));
    parts += norm_parts(count(site.in(i)));
  }
  work.launches.push_back(root_of_sum(site.machine(), result, site.workspace(), 0, parts, site.inputs(), 0));
  answer(out, std::move(work), "global norm").workspace = static_cast<uint64_t>(parts) * width(result);
  return true;
}

HM_PLANS(norms, {"global_norm", plan_global_norm}, {"layer_norm", plan_row_norm},
         {"layer_norm_grad", plan_row_norm_grad}, {"rms_norm", plan_row_norm}, {"rms_norm_grad", plan_row_norm_grad})

}  // namespace harmonics::opencl
