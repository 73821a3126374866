// Row-wise kernels: softmax and its losses, layer_norm, rms_norm. Several threads (lanes) of a work-group share a row.
// Their number, and so the order of summation, depends only on the length of the row.
#include "rows.hpp"

namespace harmonics::opencl {
namespace {

constexpr uint32_t kRowGroup = 64;

// Lanes beyond the last row participate in barriers and reductions, but write nothing.
const char* kRow = R"(
#define GROUP 64
#if LANES == 1
#define ROOM
#define TOTAL(x) (x)
#define LARGEST(x) (x)
#else
#define ROOM local T parts[GROUP];
#define JOINED(name, expression)                          \
  T name(T x, local T* parts, uint lane) {                \
    const uint me = get_local_id(0);                      \
    parts[me] = x;                                        \
    for (uint stride = 1; stride < LANES; stride *= 2) {  \
      barrier(CLK_LOCAL_MEM_FENCE);                       \
      if (lane % (2 * stride) == 0) {                     \
        const T a = parts[me], b = parts[me + stride];    \
        parts[me] = expression;                           \
      }                                                   \
    }                                                     \
    barrier(CLK_LOCAL_MEM_FENCE);                         \
    const T y = parts[me - lane];                         \
    barrier(CLK_LOCAL_MEM_FENCE);                         \
    return y;                                             \
  }
JOINED(total_of, a + b)
JOINED(largest_of, b > a ? b : a)
#define TOTAL(x) total_of(x, parts, lane)
#define LARGEST(x) largest_of(x, parts, lane)
#endif
#define ROW                                                                     \
  ROOM const uint lane = get_local_id(0) % LANES, number = get_global_id(0) / LANES; \
  const uint r = number < rows ? number : rows - 1, start = r * n;              \
  const bool inside = number < rows;
#define EACH for (uint i = lane; i < n; i += LANES)
)";

uint32_t lanes_of(int64_t columns) { return columns <= 32 ? 1 : 32; }

}  // namespace

Launch row_launch(Machine& machine, const std::string& head, const std::string& statements,
                  const std::vector<uint32_t>& buffers, int64_t rows, int64_t columns, uint32_t variant) {
  const uint32_t lanes = lanes_of(columns);
  std::string body = head + "#define LANES " + std::to_string(lanes) + "\n" + kRow +
                     "kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))\nvoid rows_of(";
  for (size_t i = 0; i < buffers.size(); ++i) body += "BUFFER(" + std::to_string(i) + "), ";
  Launch launch(machine, body + "uint rows, uint n, uint variant) {\n  ROW\n" + statements + "}\n", "rows_of", buffers);
  launch.with(static_cast<cl_uint>(rows)).with(static_cast<cl_uint>(columns)).with(variant);
  launch.groups(static_cast<size_t>((rows * lanes + kRowGroup - 1) / kRowGroup), 1, 1, kRowGroup);
  return launch;
}

std::vector<uint32_t> all_buffers(const Site& site) {
  std::vector<uint32_t> all;
  for (uint32_t i = 0; i < site.inputs() + site.outputs(); ++i) all.push_back(i);
  return all;
}

namespace {

const char* const kOnlyFloatRows = "takes rows of floats only";

int64_t columns_of(const Site& site) { return site.in(0).dims[site.in(0).rank - 1]; }

hx_kernel& answer_rows(const Site& site, const std::string& head, const std::string& statements, const char* name,
                       hx_kernel& out, uint32_t variant = 0) {
  const int64_t columns = columns_of(site);
  Work work;
  work.launches.push_back(row_launch(site.machine(), head + "#define T " + type_name(site.in(0).dtype) + "\n",
                                     statements, all_buffers(site), count(site.in(0)) / columns, columns, variant));
  return answer(out, std::move(work), name);
}

// The maximum ignores NaN, which the exponentials propagate.
const char* const kExponentials = R"(
  T shift = -INFINITY, sum = 0;
  EACH { const T x = X_READ(0, start + i); shift = x > shift ? x : shift; }
  shift = LARGEST(shift);
  EACH sum += exp(X_READ(0, start + i) - shift);
  sum = TOTAL(sum);
)";

}  // namespace

bool plan_softmax(const Site& site, hx_kernel& out) {
  const hx_type &x = site.in(0), &last = site.in(site.inputs() - 1);
  if (!is_float(x.dtype) || x.rank == 0) return declined(kOnlyFloatRows);
  const bool gradient = site.inputs() == 2, logarithm = site.op().substr(0, 3) == "log";
  const std::string head =
      element_macros("X", x.dtype) + element_macros("D", last.dtype) + element_macros("Y", site.out().dtype);
  const std::string statements = gradient ? R"(
  T sum = 0;
  EACH { const T d = D_READ(1, start + i); sum += variant ? d : X_READ(0, start + i) * d; }
  sum = TOTAL(sum);
  if (inside) EACH {
    const T y = X_READ(0, start + i), d = D_READ(1, start + i);
    Y_WRITE(2, start + i, variant ? d - exp(y) * sum : y * (d - sum));
  }
)"
                                          : std::string(kExponentials) + R"(
  const T all = log(sum);
  if (inside) EACH {
    const T x = X_READ(0, start + i) - shift;
    Y_WRITE(1, start + i, variant ? x - all : exp(x) / sum);
  }
)";
  answer_rows(site, head, statements, logarithm ? "log softmax" : "softmax", out, logarithm).in_place =
      gradient ? (x.dtype == last.dtype ? 3 : 1) : 1;
  return true;
}

// A label out of range has probability 0, so its loss is infinite. The loss is not computed from lse, so that large
// logits lose no precision. In the gradient, exponentials relative to lse are divided by their sum, which cancels the
// rounding error of lse.
bool plan_softmax_cross_entropy(const Site& site, hx_kernel& out) {
  const hx_type& x = site.in(0);
  if (!is_float(x.dtype) || is_float(site.in(1).dtype)) return declined(kOnlyFloatRows);
  const bool gradient = site.inputs() == 4;
  std::string head = element_macros("X", x.dtype) + element_macros("Y", site.out().dtype),
              statements = "  const long label = " + read(site.in(1).dtype, 1, "r") + ";\n";
  if (gradient) {
    head += element_macros("LSE", site.in(2).dtype) + element_macros("D", site.in(3).dtype);
    statements += R"(  const T lse = LSE_READ(2, r), dl = D_READ(3, r);
  T sum = 0;
  EACH sum += exp(X_READ(0, start + i) - lse);
  sum = TOTAL(sum);
  if (inside) EACH Y_WRITE(4, start + i, (exp(X_READ(0, start + i) - lse) / sum - ((long)i == label ? 1 : 0)) * dl);
)";
  } else {
    head += element_macros("LSE", site.out(1).dtype);
    statements += kExponentials + std::string(R"(  const T all = log(sum);
  if (!inside || lane != 0) return;
  Y_WRITE(2, r, label >= 0 && label < (long)n ? all + (shift - X_READ(0, start + label)) : INFINITY);
  LSE_WRITE(3, r, all + shift);
)");
  }
  answer_rows(site, head, statements, "softmax cross entropy", out).in_place = gradient ? 1 : 0;
  return true;
}

HM_PLANS(rows, {"softmax", plan_softmax}, {"softmax_grad", plan_softmax}, {"log_softmax", plan_softmax},
         {"log_softmax_grad", plan_softmax}, {"softmax_cross_entropy", plan_softmax_cross_entropy},
         {"softmax_cross_entropy_grad", plan_softmax_cross_entropy})

}  // namespace harmonics::opencl
