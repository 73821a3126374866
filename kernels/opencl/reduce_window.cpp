// Sums, maxima and minima of windows over any axes. One thread computes one result, in the order of the window.
#include "families.hpp"

namespace harmonics::opencl {
namespace {

// Returns the initial value of a reduction, which is the result of a window of padding.
std::string least_of(uint32_t dtype, std::string_view reduction) {
  const bool largest = reduction == "max";
  if (reduction == "sum") return "0";
  if (is_float(dtype)) return largest ? "-INFINITY" : "INFINITY";
  const std::string type = type_name(dtype), word = word_name(dtype);
  const std::string least =
      is_signed(dtype) ? "(" + type + ")((" + word + ")1 << (8 * sizeof(" + type + ") - 1))" : "(" + type + ")0";
  return largest ? least : "(" + type + ")~" + least;
}

}  // namespace

bool plan_reduce_window(const Site& site, hx_kernel& out) {
  const hx_type &x = site.in(0), &y = site.out();
  const std::string reduction = site.text("reduction");
  const std::vector<int64_t> lists[] = {dims(y),
                                        dims(x),
                                        site.integers("window"),
                                        site.integers("strides"),
                                        site.integers("padding_low"),
                                        site.integers("dilation")};
  const char* names[] = {"p", "z", "w", "s", "l", "d"};
  for (uint32_t a = 0; a < x.rank; ++a)
    if (kernels::last_of_windows(site, a) >= kMostElements) return declined("counts elements in 31 bits");
  const std::string sum = reduction == "sum" ? sum_name(x.dtype) : type_name(x.dtype);
  std::string parameters, firsts, loops, ends, at = "0";
  for (uint32_t a = 0; a < x.rank; ++a) {
    const std::string k = std::to_string(a);
    for (const char* name : names) parameters += std::string(", int ") + name + k;
    firsts = "  const int f" + k + " = (int)(rest % (uint)p" + k + ") * s" + k + " - l" + k + ";\n  rest /= (uint)p" +
             k + ";\n" + firsts;
    loops += "  for (int k" + k + " = 0; k" + k + " < w" + k + "; ++k" + k + ") {\n  const int x" + k + " = f" + k +
             " + k" + k + " * d" + k + ";\n  if (x" + k + " < 0 || x" + k + " >= z" + k + ") continue;\n";
    ends += "  }\n";
    at = "(" + at + ") * (uint)z" + k + " + (uint)x" + k;
  }
  const std::string body = "kernel void windows(BUFFER(0), BUFFER(1), uint n" + parameters +
                           ") {\n  const uint i = get_global_id(0);\n  if (i >= n) return;\n  uint rest = i;\n" +
                           firsts + "  " + sum + " sum = " + least_of(x.dtype, reduction) + ";\n" + loops + "  const " +
                           sum + " v = " + read(x.dtype, 0, at) + ";\n  " + joining(reduction) + ";\n" + ends + "  " +
                           write(y.dtype, 1, "i", "sum") + "\n}\n";
  const int64_t n = count(y);
  Work work;
  Launch& launch = work.launches.emplace_back(site.machine(), body, "windows", std::vector<uint32_t>{0, 1});
  launch.with(static_cast<cl_uint>(n));
  for (uint32_t a = 0; a < x.rank; ++a)
    for (const auto& list : lists) launch.with(static_cast<cl_int>(list[a]));
  launch.over(n);
  answer(out, std::move(work), "windows");
  return true;
}

HM_PLANS(reduce_window, {"reduce_window", plan_reduce_window})

}  // namespace harmonics::opencl
