// Numbers kept in few bits, with a scale and a zero point for all or for each place along an axis.
#include "families.hpp"

namespace harmonics::opencl {
namespace {

// The kernel's element is i, its channel c; `statement` writes it.
bool answer_channels(const Site& site, const std::string& statement, const char* name, hx_kernel& out) {
  const hx_type& x = site.in(0);
  const bool one = site.in(1).rank == 0;
  const auto axis = static_cast<size_t>(site.integer("axis"));
  const std::string body = "kernel void channels(BUFFER(0), BUFFER(1), BUFFER(2), BUFFER(3), uint n, uint size, uint inner) {\n  const uint i = get_global_id(0);\n"
                           "  if (i >= n) return;\n  const uint c = i / inner % size;\n" + statement + "}\n";
  Work work;
  Launch& launch = work.launches.emplace_back(site.machine(), body, "channels", std::vector<uint32_t>{0, 1, 2, 3});
  launch.with(static_cast<cl_uint>(count(x))).with(static_cast<cl_uint>(one ? 1 : x.dims[axis])).with(static_cast<cl_uint>(one ? count(x) : strides(x)[axis])).over(count(x));
  answer(out, std::move(work), name);
  return true;
}

bool computes(const Site& site, uint32_t real) {
  return is_float(site.in(real).dtype) && type_name(site.in(real).dtype) ? true : declined("computes f32 and f64, not f16 and bf16");
}

}  // namespace

// saturate(round half to even(x / scale) + zero); NaN gives the zero point.
bool plan_quantize(const Site& site, hx_kernel& out) {
  if (!computes(site, 0)) return false;
  const std::string real = type_name(site.in(0).dtype), stored = type_name(site.out().dtype);
  // What is beyond a million is beyond every stored type, whatever the zero point.
  return answer_channels(site,
                         "  const " + real + " steps = rint(AT(" + real + ", 0)[i] / AT(" + real + ", 1)[c]);\n  const " + stored + " zero = AT(" + stored + ", 2)[c];\n  AT(" +
                             stored + ", 3)[i] = steps != steps ? zero : convert_" + stored + "_sat((int)clamp(steps, (" + real + ")-1e6, (" + real + ")1e6) + (int)zero);\n",
                         "quantize", out);
}

bool plan_dequantize(const Site& site, hx_kernel& out) {
  if (!computes(site, 1)) return false;
  const std::string real = type_name(site.in(1).dtype), stored = type_name(site.in(0).dtype);
  return answer_channels(site, "  AT(" + real + ", 3)[i] = (" + real + ")((long)AT(" + stored + ", 0)[i] - (long)AT(" + stored + ", 2)[c]) * AT(" + real + ", 1)[c];\n", "dequantize", out);
}

}  // namespace harmonics::opencl
