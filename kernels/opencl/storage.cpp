// quantize and dequantize, with one scale and zero point per tensor or per index of an axis.
#include "families.hpp"

namespace harmonics::opencl {
namespace {

// Plans a kernel in which `statement` writes element i of channel c.
bool answer_channels(const Site& site, const std::string& statement, const char* name, hx_kernel& out) {
  const hx_type& x = site.in(0);
  const bool one = site.in(1).rank == 0;
  const auto axis = static_cast<size_t>(site.integer("axis"));
  const std::string body =
      "kernel void channels(BUFFER(0), BUFFER(1), BUFFER(2), BUFFER(3), uint n, uint size, uint inner) {\n  const uint "
      "i = get_global_id(0);\n"
      "  if (i >= n) return;\n  const uint c = i / inner % size;\n" +
      statement + "}\n";
  Work work;
  Launch& launch = work.launches.emplace_back(site.machine(), body, "channels", std::vector<uint32_t>{0, 1, 2, 3});
  launch.with(static_cast<cl_uint>(count(x)))
      .with(static_cast<cl_uint>(one ? 1 : x.dims[axis]))
      .with(static_cast<cl_uint>(one ? count(x) : strides(x)[axis]))
      .over(count(x));
  answer(out, std::move(work), name);
  return true;
}

}  // namespace

// y = saturate(round_half_to_even(x / scale) + zero); NaN gives the zero point.
bool plan_quantize(const Site& site, hx_kernel& out) {
  const uint32_t real = site.in(0).dtype, whole = site.out().dtype;
  const std::string type = type_name(real), stored = type_name(whole);
  // A million exceeds the range of every stored type with any zero point.
  return answer_channels(site,
                         "  const " + type + " steps = rint(" +
                             rounded(real, read(real, 0, "i") + " / " + read(site.in(1).dtype, 1, "c")) +
                             ");\n  const " + stored + " zero = " + read(whole, 2, "c") + ";\n  AT(" + stored +
                             ", 3)[i] = steps != steps ? zero : convert_" + stored + "_sat((int)clamp(steps, (" + type +
                             ")-1e6, (" + type + ")1e6) + (int)zero);\n",
                         "quantize", out);
}

bool plan_dequantize(const Site& site, hx_kernel& out) {
  const uint32_t real = site.out().dtype, whole = site.in(0).dtype;
  const std::string steps =
      std::string("(") + type_name(real) + ")((long)" + read(whole, 0, "i") + " - (long)" + read(whole, 2, "c") + ")";
  return answer_channels(site, "  " + write(real, 3, "i", steps + " * " + read(site.in(1).dtype, 1, "c")) + "\n",
                         "dequantize", out);
}

HM_PLANS(storage, {"quantize", plan_quantize}, {"dequantize", plan_dequantize})

}  // namespace harmonics::opencl
