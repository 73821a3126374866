// The windows of images as columns, and back: a convolution is these and a product.
#include "families.hpp"

namespace harmonics::opencl {
namespace {

// What a window is, axis by axis, as text with numbers: geometries are few, and compilers make more of what they know.
struct Windows {
  std::vector<int64_t> image, kernel, steps, low, dilation, places;
  int64_t planes, taps = 1, plane = 1, windows = 1;

  Windows(const Site& site, const hx_type& picture, const hx_type& columns)
      : kernel(site.integers("kernel")), steps(site.integers("strides")), low(site.integers("padding_low")), dilation(site.integers("dilation")), planes(picture.dims[0] * picture.dims[1]) {
    for (uint32_t i = 2; i < picture.rank; ++i) {
      image.push_back(picture.dims[i]);
      places.push_back(columns.dims[i]);
      plane *= picture.dims[i];
      windows *= columns.dims[i];
      taps *= kernel[i - 2];
    }
  }
  std::string parameters() const {
    std::string s;
    for (size_t a = 0; a < image.size(); ++a)
      for (const char* name : {"size", "kernel", "step", "low", "apart", "places"}) s += ", int " + std::string(name) + std::to_string(a);
    return s;
  }
  void give(Launch& launch) const {
    for (size_t a = 0; a < image.size(); ++a)
      for (const int64_t v : {image[a], kernel[a], steps[a], low[a], dilation[a], places[a]}) launch.with(static_cast<cl_int>(v));
  }
};

std::string with_axis(std::string text, size_t axis) {
  for (size_t at = text.find('#'); at != std::string::npos; at = text.find('#', at)) text.replace(at, 1, std::to_string(axis));
  return text;
}

bool answer_windows(const Site& site, const Windows& w, const std::string& body, int64_t threads, const char* name, hx_kernel& out) {
  Work work;
  Launch& launch = work.launches.emplace_back(site.machine(), body, "windows", std::vector<uint32_t>{0, 1});
  launch.with(static_cast<cl_uint>(threads)).with(static_cast<cl_uint>(w.taps)).with(static_cast<cl_uint>(w.windows)).with(static_cast<cl_uint>(w.plane));
  w.give(launch);
  launch.over(threads);
  answer(out, std::move(work), name);
  return true;
}

}  // namespace

bool plan_patches(const Site& site, hx_kernel& out) {
  const uint32_t dtype = site.in(0).dtype;
  const Windows w(site, site.in(0), site.out());
  std::string body = "kernel void windows(BUFFER(0), BUFFER(1), uint n, uint taps, uint windows, uint plane" + w.parameters() +
                     ") {\n  const uint i = get_global_id(0);\n  if (i >= n) return;\n  int window = i % windows, tap = i / windows % taps, at, from = 0, width = 1, inside = 1;\n";
  for (size_t a = w.image.size(); a-- > 0;)
    body += with_axis("  at = window % places# * step# + tap % kernel# * apart# - low#;\n  inside = inside && at >= 0 && at < size#;\n  from += at * width;\n"
                      "  width *= size#;\n  window /= places#;\n  tap /= kernel#;\n", a);
  body += "  " + write(dtype, 1, "i", "inside ? " + read(dtype, 0, "i / windows / taps * plane + from") + " : " + literal(dtype, site.number("fill"))) + "\n}\n";
  return answer_windows(site, w, body, count(site.out()), "patches", out);
}

// Each element of the image adds the windows it is in, in the order of the taps.
bool plan_unpatches(const Site& site, hx_kernel& out) {
  const uint32_t dtype = site.in(0).dtype;
  const Windows w(site, site.out(), site.in(0));
  std::string body = "kernel void windows(BUFFER(0), BUFFER(1), uint n, uint taps, uint windows, uint plane" + w.parameters() +
                     ") {\n  const uint i = get_global_id(0);\n  if (i >= n) return;\n  const uint first = i / plane * taps;\n  " + sum_name(dtype) +
                     " sum = 0;\n  for (uint t = 0; t < taps; ++t) {\n    int tap = t, rest = i % plane, at, window = 0, width = 1, inside = 1;\n";
  for (size_t a = w.image.size(); a-- > 0;)
    body += with_axis("    at = rest % size# + low# - tap % kernel# * apart#;\n    inside = inside && at >= 0 && at % step# == 0 && at / step# < places#;\n"
                      "    window += at / step# * width;\n    width *= places#;\n    rest /= size#;\n    tap /= kernel#;\n", a);
  body += "    if (inside) sum += " + read(dtype, 0, "(first + t) * windows + window") + ";\n  }\n  " + write(dtype, 1, "i", "sum") + "\n}\n";
  return answer_windows(site, w, body, count(site.out()), "unpatches", out);
}

}  // namespace harmonics::opencl
