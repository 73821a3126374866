// Strided copies, and fill, iota, random.
#include <cmath>

#include "families.hpp"

namespace harmonics::opencl {
namespace {

const char* kWords[] = {nullptr, "uchar", "ushort", nullptr, "uint", nullptr, nullptr, nullptr, "ulong"};

bool answer_copy(const Site& site, Walk walk, hx_kernel& out) {
  Work work;
  work.launches.push_back(copy_along(site.machine(), width(site.out().dtype), 0, site.inputs(), std::move(walk)));
  answer(out, std::move(work), "copy");
  return true;
}

bool can_hold(uint32_t dtype, double value) {
  if (is_float(dtype) || dtype == HX_BOOL) return true;
  return value > -1e15 && value < 1e15;
}

}  // namespace

Launch fill(Machine& machine, uint32_t dtype, uint32_t to, int64_t n, double value) {
  const std::string body = std::string("kernel void fill(BUFFER(0), uint n, ") + type_name(dtype) +
                           " value) {\n  const uint i = get_global_id(0);\n  if (i < n) " +
                           write(dtype, 0, "i", "value") + "\n}\n";
  Launch launch(machine, body, "fill", {to});
  launch.with(static_cast<cl_uint>(n));
  launch.with_number(dtype, value).over(n);
  return launch;
}

Launch copy_along(Machine& machine, uint32_t bytes, uint32_t from, uint32_t to, Walk walk) {
  walk.join();
  const int64_t n = walk.count();
  const std::string type = kWords[bytes];
  const std::string body = "kernel void copy(BUFFER(0), BUFFER(1), uint n" + walk_parameters(walk, "w_") +
                           ") {\n  const uint i = get_global_id(0);\n  if (i >= n) return;\n" +
                           walk_text(walk, "i", "w_", {"y", "x"}) + "  AT(" + type + ", 1)[y] = AT(" + type +
                           ", 0)[x];\n}\n";
  Launch launch(machine, body, "copy", {from, to});
  launch.with(static_cast<cl_uint>(n)).with_all(walk_values(walk)).over(n);
  return launch;
}

Launch copy_whole(Machine& machine, const hx_type& type, uint32_t from, uint32_t to) {
  const auto all = static_cast<int64_t>(run_bytes(static_cast<DType>(type.dtype), count(type)));
  const uint32_t bytes = all % 8 == 0 ? 8 : all % 4 == 0 ? 4 : all % 2 == 0 ? 2 : 1;
  Launch launch = copy_along(machine, bytes, from, to, {{all / bytes}, {{1}, {1}}, {0, 0}});
  launch.unless_same();
  return launch;
}

bool plan_reshape(const Site& site, hx_kernel& out) {
  Work work;
  work.launches.push_back(copy_whole(site.machine(), site.in(0), 0, 1));
  answer(out, std::move(work), "copy").in_place = 1;
  return true;
}

bool plan_transpose(const Site& site, hx_kernel& out) { return answer_copy(site, kernels::transpose_walk(site), out); }
bool plan_broadcast(const Site& site, hx_kernel& out) { return answer_copy(site, kernels::broadcast_walk(site), out); }
bool plan_slice(const Site& site, hx_kernel& out) { return answer_copy(site, kernels::slice_walk(site), out); }
bool plan_reverse(const Site& site, hx_kernel& out) { return answer_copy(site, kernels::reverse_walk(site), out); }

bool plan_pad(const Site& site, hx_kernel& out) {
  const hx_type& y = site.out();
  const double value = site.number("value");
  if (!can_hold(y.dtype, value)) return declined("pads integers with values in their range only");
  Work work;
  work.launches.push_back(fill(site.machine(), y.dtype, 1, count(y), value));
  work.launches.push_back(copy_along(site.machine(), width(y.dtype), 0, 1, kernels::pad_walk(site)));
  answer(out, std::move(work), "pad");
  return true;
}

bool plan_concat(const Site& site, hx_kernel& out) {
  const auto axis = static_cast<size_t>(site.integer("axis"));
  const hx_type& y = site.out();
  const auto to = strides(y);
  Work work;
  int64_t at = 0;
  for (uint32_t i = 0; i < site.inputs(); ++i) {
    const hx_type& x = site.in(i);
    work.launches.push_back(
        copy_along(site.machine(), width(y.dtype), i, site.inputs(), {dims(x), {to, strides(x)}, {at * to[axis], 0}}));
    at += x.dims[axis];
  }
  answer(out, std::move(work), "concat");
  return true;
}

bool plan_full(const Site& site, hx_kernel& out) {
  const hx_type& y = site.out();
  const double value = site.number("value");
  if (!can_hold(y.dtype, value)) return declined("fills integers with values in their range only");
  Work work;
  work.launches.push_back(fill(site.machine(), y.dtype, 0, count(y), value));
  answer(out, std::move(work), "fill");
  return true;
}

bool plan_iota(const Site& site, hx_kernel& out) {
  const hx_type& y = site.out();
  const auto axis = static_cast<size_t>(site.integer("axis"));
  const std::string body =
      "kernel void numbers(BUFFER(0), uint n, uint inner, uint size) {\n  const uint i = get_global_id(0);\n  if (i < "
      "n) " +
      write(y.dtype, 0, "i", "i / inner % size") + "\n}\n";
  Work work;
  work.launches.emplace_back(site.machine(), body, "numbers", std::vector<uint32_t>{0});
  work.launches.back()
      .with(static_cast<cl_uint>(count(y)))
      .with(static_cast<cl_uint>(strides(y)[axis]))
      .with(static_cast<cl_uint>(y.dims[axis]))
      .over(count(y));
  answer(out, std::move(work), "iota");
  return true;
}

// Philox 4x32-10 as in include/harmonics/philox.hpp: the same numbers on every device.
bool plan_random_uniform(const Site& site, hx_kernel& out) {
  static const char* body = R"(
ulong splitmix64(ulong x) {
  x += 0x9E3779B97F4A7C15UL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9UL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBUL;
  return x ^ (x >> 31);
}
kernel void uniform(BUFFER(0), BUFFER(1), uint n, ulong stream) {
  const uint block = get_global_id(0);
  if (block >= (n + 3) / 4) return;
  const ulong seed = AT(ulong, 0)[0], step = AT(ulong, 0)[1], key = splitmix64(seed ^ splitmix64(stream));
  uint k0 = (uint)key, k1 = (uint)(key >> 32);
  uint c0 = (uint)step, c1 = (uint)(step >> 32), c2 = block, c3 = 0;
  for (int round = 0; round < 10; ++round) {
    const ulong a = (ulong)0xD2511F53U * c0, b = (ulong)0xCD9E8D57U * c2;
    c0 = (uint)(b >> 32) ^ c1 ^ k0;
    c1 = (uint)b;
    c2 = (uint)(a >> 32) ^ c3 ^ k1;
    c3 = (uint)a;
    k0 += 0x9E3779B9U;
    k1 += 0xBB67AE85U;
  }
  global float* y = AT(float, 1) + 4 * block;
  const uint left = n - 4 * block;
  const float scale = 0x1p-24f;
  y[0] = (float)(c0 >> 8) * scale;
  if (left > 1) y[1] = (float)(c1 >> 8) * scale;
  if (left > 2) y[2] = (float)(c2 >> 8) * scale;
  if (left > 3) y[3] = (float)(c3 >> 8) * scale;
}
)";
  if (site.out().dtype != HX_F32) return declined("draws random numbers in f32 only");
  const int64_t n = count(site.out());
  Work work;
  work.launches.emplace_back(site.machine(), body, "uniform", std::vector<uint32_t>{0, 1});
  work.launches.back()
      .with(static_cast<cl_uint>(n))
      .with(static_cast<cl_ulong>(site.integer("stream")))
      .over((n + 3) / 4);
  answer(out, std::move(work), "random uniform");
  return true;
}

HM_PLANS(layout, {"reshape", plan_reshape}, {"stop_gradient", plan_reshape}, {"bitcast", plan_reshape},
         {"transpose", plan_transpose}, {"broadcast", plan_broadcast}, {"slice", plan_slice}, {"reverse", plan_reverse},
         {"pad", plan_pad}, {"concat", plan_concat}, {"full", plan_full}, {"iota", plan_iota},
         {"random_uniform", plan_random_uniform})

}  // namespace harmonics::opencl
