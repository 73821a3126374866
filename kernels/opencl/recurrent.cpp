// LSTM and GRU scans: a work-group computes one sample over all positions. Sums are in index order.
#include "families.hpp"
#include "kernels/shared/scalar_texts.hpp"

namespace harmonics::opencl {
namespace {

// The last buffer is the workspace. Threads exchange states through memory, with a barrier after each position.
const char* kScans = R"(
#define GROUP 64
#define EACH for (uint j = me; j < width; j += GROUP)
#define SIZES uint positions, uint width, uint reverse, uint given
#define PLACE(step) (row * positions + (reverse ? positions - 1 - (step) : (step)))
#define MEET barrier(CLK_GLOBAL_MEM_FENCE)
#define ALONE kernel __attribute__((reqd_work_group_size(GROUP, 1, 1))) void
#define SQUASH(x) LOGISTIC(T, x)

// x, w, h0, c0 -> y, c, gates
ALONE lstm(BUFFER(0), BUFFER(1), BUFFER(2), BUFFER(3), BUFFER(4), BUFFER(5), BUFFER(6), BUFFER(7), SIZES) {
  const uint me = get_local_id(0), row = get_group_id(0);
  global T* h = AT(T, 7) + row * 2 * width;
  EACH h[j] = X_READ(2, row * width + j);
  MEET;
  for (uint step = 0; step < positions; ++step) {
    const uint at = PLACE(step), gates = at * 4 * width;
    global const T* now = h + (step & 1) * width;
    global T* next = h + (1 - (step & 1)) * width;
    EACH {
      T sums[4];
      for (uint p = 0; p < 4; ++p) {
        T sum = 0;
        for (uint d = 0; d < width; ++d) sum += now[d] * X_READ(1, (p * width + j) * width + d);
        sums[p] = X_READ(0, gates + p * width + j) + sum;
      }
      const T i = SQUASH(sums[0]), f = SQUASH(sums[1]), g = tanh(sums[2]), o = SQUASH(sums[3]);
      const T before = step == 0 ? X_READ(3, row * width + j) : KEPT_READ(5, PLACE(step - 1) * width + j),
        c = f * before + i * g, y = o * tanh(c);
      next[j] = y;
      X_WRITE(4, at * width + j, y);
      KEPT_WRITE(5, at * width + j, c);
      KEPT_WRITE(6, gates + j, i);
      KEPT_WRITE(6, gates + width + j, f);
      KEPT_WRITE(6, gates + 2 * width + j, g);
      KEPT_WRITE(6, gates + 3 * width + j, o);
    }
    MEET;
  }
}

// w, c, gates, c0, dy, dc, dgates -> dx, dh0, dc0; given: how many of dc and dgates
ALONE lstm_grad(BUFFER(0), BUFFER(1), BUFFER(2), BUFFER(3), BUFFER(4), BUFFER(5), BUFFER(6), BUFFER(7), BUFFER(8),
    BUFFER(9), BUFFER(10), SIZES) {
  const uint me = get_local_id(0), row = get_group_id(0);
  global T* before = AT(T, 10) + row * 6 * width;
  global T* dh = before + 4 * width;
  global T* dc = dh + width;
  EACH dh[j] = dc[j] = 0;
  for (uint step = positions; step-- > 0;) {
    const uint at = PLACE(step), gates = at * 4 * width;
    EACH {
      const T i = KEPT_READ(2, gates + j), f = KEPT_READ(2, gates + width + j), g = KEPT_READ(2,
        gates + 2 * width + j), o = KEPT_READ(2, gates + 3 * width + j);
      const T here = X_READ(4, at * width + j) + dh[j], squashed = tanh(KEPT_READ(1, at * width + j));
      T cell = here * o * (1 - squashed * squashed) + dc[j];
      if (given > 0) cell += KEPT_READ(5, at * width + j);
      const T c = step == 0 ? X_READ(3, row * width + j) : KEPT_READ(1, PLACE(step - 1) * width + j);
      T d[4] = {cell * g, cell * c, cell * i, here * squashed};
      if (given > 1)
        for (uint p = 0; p < 4; ++p) d[p] += KEPT_READ(6, gates + p * width + j);
      d[0] *= i * (1 - i);
      d[1] *= f * (1 - f);
      d[2] *= 1 - g * g;
      d[3] *= o * (1 - o);
      for (uint p = 0; p < 4; ++p) {
        before[p * width + j] = d[p];
        X_WRITE(7, gates + p * width + j, d[p]);
      }
      dc[j] = cell * f;
    }
    MEET;
    EACH {
      T sum = 0;
      for (uint k = 0; k < 4 * width; ++k) sum += before[k] * X_READ(0, k * width + j);
      dh[j] = sum;
    }
    MEET;
  }
  EACH {
    X_WRITE(8, row * width + j, dh[j]);
    X_WRITE(9, row * width + j, dc[j]);
  }
}

// x, w, bias, h0 -> y, gates
ALONE gru(BUFFER(0), BUFFER(1), BUFFER(2), BUFFER(3), BUFFER(4), BUFFER(5), BUFFER(6), SIZES) {
  const uint me = get_local_id(0), row = get_group_id(0);
  global T* h = AT(T, 6) + row * 2 * width;
  EACH h[j] = X_READ(3, row * width + j);
  MEET;
  for (uint step = 0; step < positions; ++step) {
    const uint at = PLACE(step), from = at * 3 * width, gates = at * 4 * width;
    global const T* now = h + (step & 1) * width;
    global T* next = h + (1 - (step & 1)) * width;
    EACH {
      T past[3];
      for (uint p = 0; p < 3; ++p) {
        T sum = 0;
        for (uint d = 0; d < width; ++d) sum += now[d] * X_READ(1, (p * width + j) * width + d);
        past[p] = sum + X_READ(2, p * width + j);
      }
      const T r = SQUASH(X_READ(0, from + j) + past[0]), z = SQUASH(X_READ(0, from + width + j) + past[1]),
        n = tanh(X_READ(0, from + 2 * width + j) + r * past[2]);
      const T y = n + z * (now[j] - n);
      next[j] = y;
      X_WRITE(4, at * width + j, y);
      KEPT_WRITE(5, gates + j, r);
      KEPT_WRITE(5, gates + width + j, z);
      KEPT_WRITE(5, gates + 2 * width + j, n);
      KEPT_WRITE(5, gates + 3 * width + j, past[2]);
    }
    MEET;
  }
}

// w, y, gates, h0, dy, dgates -> dx, dpast, dh0
ALONE gru_grad(BUFFER(0), BUFFER(1), BUFFER(2), BUFFER(3), BUFFER(4), BUFFER(5), BUFFER(6), BUFFER(7), BUFFER(8),
    BUFFER(9), SIZES) {
  const uint me = get_local_id(0), row = get_group_id(0);
  global T* past = AT(T, 9) + row * 4 * width;
  global T* dh = past + 3 * width;
  EACH dh[j] = 0;
  for (uint step = positions; step-- > 0;) {
    const uint at = PLACE(step), to = at * 3 * width, gates = at * 4 * width;
    EACH {
      const T r = KEPT_READ(2, gates + j), z = KEPT_READ(2, gates + width + j), n = KEPT_READ(2,
        gates + 2 * width + j), q = KEPT_READ(2, gates + 3 * width + j);
      const T here = X_READ(4, at * width + j) + dh[j], h = step == 0 ? X_READ(3, row * width + j) : X_READ(1,
        PLACE(step - 1) * width + j);
      T more[4] = {0, 0, 0, 0};
      if (given > 0)
        for (uint p = 0; p < 4; ++p) more[p] = KEPT_READ(5, gates + p * width + j);
      const T dn = (here * (1 - z) + more[2]) * (1 - n * n), dz = (here * (h - n) + more[1]) * (z * (1 - z));
      const T dr = (dn * q + more[0]) * (r * (1 - r)), dq = dn * r + more[3];
      X_WRITE(6, to + j, dr);
      X_WRITE(6, to + width + j, dz);
      X_WRITE(6, to + 2 * width + j, dn);
      X_WRITE(7, to + j, dr);
      X_WRITE(7, to + width + j, dz);
      X_WRITE(7, to + 2 * width + j, dq);
      past[j] = dr;
      past[width + j] = dz;
      past[2 * width + j] = dq;
      dh[j] = here * z;
    }
    MEET;
    EACH {
      T sum = 0;
      for (uint k = 0; k < 3 * width; ++k) sum += past[k] * X_READ(0, k * width + j);
      dh[j] += sum;
    }
    MEET;
  }
  EACH X_WRITE(8, row * width + j, dh[j]);
}
)";

struct Scan {
  const char* kernel;
  uint32_t per_position;  // input that defines the sizes: [N, T, parts H]
  uint32_t parts, kept;   // kept: index of an input, or inputs() + index of a result, that is not rounded
  uint32_t least, most;   // number of inputs; the first input stands for missing optional ones
  int64_t workspace;      // in widths, per sample
};

bool answer_scan(const Site& site, const Scan& scan, hx_kernel& out) {
  const hx_type& x = site.in(scan.per_position);
  const uint32_t dtype = site.in(0).dtype, wide = scan.kept < site.inputs() ? site.in(scan.kept).dtype
                                                                            : site.out(scan.kept - site.inputs()).dtype;
  if (!is_float(dtype) || type_name(wide) != std::string(type_name(dtype)))
    return declined("scans within one type of floats only");
  for (uint32_t i = 0; i < site.inputs(); ++i)
    if (site.in(i).dtype != dtype && site.in(i).dtype != wide) return declined("scans within one type of floats only");
  std::vector<uint32_t> buffers;
  for (uint32_t i = 0; i < scan.most; ++i) buffers.push_back(i < site.inputs() ? i : 0);
  for (uint32_t i = 0; i < site.outputs(); ++i) buffers.push_back(site.inputs() + i);
  buffers.push_back(site.workspace());
  const int64_t samples = x.dims[0], width = x.dims[2] / scan.parts;
  if (samples * scan.workspace * width >= kMostElements) return declined("counts elements in 31 bits");
  const std::string text = std::string("#define T ") + type_name(dtype) + "\n" + kernels::kScalarMacros +
                           element_macros("X", dtype) + element_macros("KEPT", wide) + kScans;
  Work work;
  Launch& launch = work.launches.emplace_back(site.machine(), text, scan.kernel, buffers);
  for (const int64_t v : {x.dims[1], width, int64_t{site.flag("reverse")}, int64_t{site.inputs() - scan.least}})
    launch.with(static_cast<cl_uint>(v));
  launch.groups(static_cast<size_t>(samples), 1, 1, 64);
  answer(out, std::move(work), "scan").workspace =
      static_cast<uint64_t>(samples * scan.workspace * width) * (dtype == HX_F64 ? 8 : 4);
  return true;
}

}  // namespace

bool plan_scan(const Site& site, hx_kernel& out) {
  if (site.op() == "lstm_scan") return answer_scan(site, {"lstm", 0, 4, 5, 4, 4, 2}, out);
  if (site.op() == "lstm_scan_grad") return answer_scan(site, {"lstm_grad", 2, 4, 2, 5, 7, 6}, out);
  if (site.op() == "gru_scan") return answer_scan(site, {"gru", 0, 3, 5, 4, 4, 2}, out);
  return answer_scan(site, {"gru_grad", 2, 4, 2, 5, 6, 4}, out);
}

HM_PLANS(recurrent, {"lstm_scan", plan_scan}, {"lstm_scan_grad", plan_scan}, {"gru_scan", plan_scan},
         {"gru_scan_grad", plan_scan})

}  // namespace harmonics::opencl
