// im2col (patches), col2im (unpatches), max pooling and its gradient.
#include "windows.hpp"

namespace harmonics::opencl {
namespace {

// One thread computes one result. ELEMENT sets `from` to the element at a tap of a window; WINDOW sets `window` to the
// window that has this tap at an element.
const char* kKernels = R"(
#define TAPS uint n, uint taps, uint windows, uint plane, uint start, uint to, uint to_chosen, T fill AXES_DECLARED
kernel void patches(BUFFER(0), BUFFER(1), BUFFER(2), TAPS) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  int window = i % windows, tap = i / windows % taps, at, from = 0, width = 1, inside = 1;
  ELEMENT
  X_WRITE(1, to + i, inside ? X_READ(0, start + i / windows / taps * plane + from) : fill);
}

kernel void unpatches(BUFFER(0), BUFFER(1), BUFFER(2), TAPS) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  const uint first = i / plane * taps;
  SUM sum = 0;
  for (uint t = 0; t < taps; ++t) {
    int tap = t, rest = i % plane, at, window = 0, width = 1, inside = 1;
    WINDOW
    if (inside) sum += X_READ(0, start + (first + t) * windows + window);
  }
  X_WRITE(1, to + i, sum);
}

#ifdef REAL  // NaN is largest; the first of equals is chosen; what is beyond the image never is
kernel void largest(BUFFER(0), BUFFER(1), BUFFER(2), TAPS) {
  const uint i = get_global_id(0);
  if (i >= n) return;
  T most = -INFINITY;
  int chosen = 0, some = 0;
  for (uint t = 0; t < taps; ++t) {
    int window = i % windows, tap = t, at, from = 0, width = 1, inside = 1;
    ELEMENT
    if (t == 0) chosen = from;
    if (!inside) continue;
    const T x = X_READ(0, start + i / windows * plane + from);
    if (some && !(x > most || (x != x && most == most))) continue;
    most = x;
    chosen = from;
    some = 1;
  }
  X_WRITE(1, to + i, most);
  AT(int, 2)[to_chosen + i] = chosen;
}
#endif
)";

std::string numbered(const std::string& text, size_t axis) {
  std::string s;
  for (const char c : text) s += c == '#' ? std::to_string(axis) : std::string(1, c);
  return s;
}
// Repeats the text for each axis, from the last to the first.
std::string for_axes(size_t axes, const std::string& text) {
  std::string s;
  for (size_t a = axes; a-- > 0;) s += numbered(text, a);
  return s;
}

}  // namespace

Windows::Windows(const Site& site, const std::vector<int64_t>& image, std::vector<int64_t> kernel, const char* prefix)
    : real_(image.size() - 2), planes_(image[0] * image[1]) {
  const auto given = [&](const char* name) { return site.integers((std::string(prefix) + name).c_str()); };
  if (kernel.empty()) kernel = given("kernel");
  const auto steps = given("strides"), low = given("padding_low"), high = given("padding_high"),
             apart = given("dilation");
  axes_.resize(std::max<size_t>(real_, 3));
  for (size_t i = 0; i < real_; ++i) {
    Axis& a = axes_[axes_.size() - real_ + i];
    a.size = image[i + 2];
    a.kernel = kernel[i];
    if (!steps.empty()) a.step = steps[i];
    if (!low.empty()) a.low = low[i];
    if (!apart.empty()) a.apart = apart[i];
    a.places = (a.size + a.low + (high.empty() ? 0 : high[i]) - (a.kernel - 1) * a.apart - 1) / a.step + 1;
    plane_ *= a.size;
    taps_ *= a.kernel;
    windows_ *= a.places;
  }
}

std::vector<int64_t> Windows::places() const {
  std::vector<int64_t> all;
  for (size_t i = axes_.size() - real_; i < axes_.size(); ++i) all.push_back(axes_[i].places);
  return all;
}

bool Windows::are_elements() const {
  return std::all_of(axes_.begin(), axes_.end(),
                     [](const Axis& a) { return a.kernel == 1 && a.step == 1 && a.low == 0 && a.places == a.size; });
}

std::string Windows::text(uint32_t dtype) const {
  const std::string element = for_axes(axes_.size(),
                                       "at = window % places# * step# + tap % kernel# * apart# - low#; inside = inside "
                                       "&& at >= 0 && at < size#; from += at * width; "
                                       "width *= size#; window /= places#; tap /= kernel#; ");
  const std::string window =
      for_axes(axes_.size(),
               "at = rest % size# + low# - tap % kernel# * apart#; inside = inside && at >= 0 && at % step# == 0 && at "
               "/ step# < places#; "
               "window += at / step# * width; width *= places#; rest /= size#; tap /= kernel#; ");
  const std::string declared =
      for_axes(axes_.size(), ", int size#, int kernel#, int step#, int low#, int apart#, int places#");
  return std::string("#define T ") + type_name(dtype) + "\n#define SUM " + sum_name(dtype) + "\n" +
         (is_float(dtype) ? "#define REAL\n" : "") + element_macros("X", dtype) + "#define ELEMENT " + element +
         "\n#define WINDOW " + window + "\n#define AXES_DECLARED " + declared + "\n" + kKernels;
}

Launch Windows::launch(Machine& machine, uint32_t dtype, const char* name, Place from, Place to, Place chosen,
                       double fill, int64_t threads) const {
  Launch launch(machine, text(dtype), name, {from.buffer, to.buffer, chosen.buffer});
  for (const int64_t v : {threads, taps_, windows_, plane_, from.at, to.at, chosen.at})
    launch.with(static_cast<cl_uint>(v));
  launch.with_number(dtype, fill);
  for (size_t i = axes_.size(); i-- > 0;) {
    const Axis& a = axes_[i];
    for (const int64_t v : {a.size, a.kernel, a.step, a.low, a.apart, a.places}) launch.with(static_cast<cl_int>(v));
  }
  launch.over(threads);
  return launch;
}

Launch Windows::patches(Machine& machine, uint32_t dtype, Place from, Place to, double fill) const {
  return launch(machine, dtype, "patches", from, to, to, fill, planes_ * taps_ * windows_);
}
Launch Windows::unpatches(Machine& machine, uint32_t dtype, Place from, Place to) const {
  return launch(machine, dtype, "unpatches", from, to, to, 0, planes_ * plane_);
}
Launch Windows::largest(Machine& machine, uint32_t dtype, Place from, Place to, Place chosen) const {
  return launch(machine, dtype, "largest", from, to, chosen, 0, planes_ * windows_);
}

// Several threads share a plane; each owns some of its elements.
Launch spread(Machine& machine, uint32_t dtype, Place chosen, Place gradients, Place to, int64_t planes,
              int64_t windows, int64_t plane) {
  static const char* const body = R"(
#define SHARE 16u
kernel void spread(BUFFER(0), BUFFER(1), BUFFER(2), uint planes, uint windows, uint plane, uint from_chosen,
    uint start, uint to) {
  const uint p = get_global_id(0) / SHARE, me = get_global_id(0) % SHARE;
  if (p >= planes) return;
  for (uint i = me; i < plane; i += SHARE) X_WRITE(2, to + p * plane + i, 0);
  for (uint w = 0; w < windows; ++w) {
    const uint at = AT(int, 0)[from_chosen + p * windows + w];
    if (at % SHARE != me || at >= plane) continue;
    X_WRITE(2, to + p * plane + at, X_READ(2, to + p * plane + at) + X_READ(1, start + p * windows + w));
  }
}
)";
  Launch launch(machine, element_macros("X", dtype) + body, "spread", {chosen.buffer, gradients.buffer, to.buffer});
  for (const int64_t v : {planes, windows, plane, chosen.at, gradients.at, to.at}) launch.with(static_cast<cl_uint>(v));
  launch.over(planes * 16);
  return launch;
}

namespace {

bool answer_launch(hx_kernel& out, Launch launch, const char* name) {
  Work work;
  work.launches.push_back(std::move(launch));
  answer(out, std::move(work), name);
  return true;
}

}  // namespace

bool plan_patches(const Site& site, hx_kernel& out) {
  const Windows windows(site, dims(site.in(0)), {});
  return answer_launch(out, windows.patches(site.machine(), site.in(0).dtype, {0}, {1}, site.number("fill")),
                       "patches");
}

// Each element of the image adds the values of its windows in tap order.
bool plan_unpatches(const Site& site, hx_kernel& out) {
  const Windows windows(site, dims(site.out()), {});
  return answer_launch(out, windows.unpatches(site.machine(), site.in(0).dtype, {0}, {1}), "unpatches");
}

bool plan_max_pool(const Site& site, hx_kernel& out) {
  if (!is_float(site.in(0).dtype) || site.out(1).dtype != HX_I32) return declined("pools floats only");
  const Windows windows(site, dims(site.in(0)), {});
  return answer_launch(out, windows.largest(site.machine(), site.in(0).dtype, {0}, {1}, {2}), "max pool");
}

bool plan_max_pool_grad(const Site& site, hx_kernel& out) {
  if (!is_float(site.in(1).dtype) || site.in(0).dtype != HX_I32) return declined("pools floats only");
  const hx_type& x = site.out();
  const int64_t planes = x.dims[0] * x.dims[1];
  return answer_launch(
      out,
      spread(site.machine(), site.in(1).dtype, {0}, {1}, {2}, planes, count(site.in(0)) / planes, count(x) / planes),
      "max pool");
}

HM_PLANS(windows, {"patches", plan_patches}, {"unpatches", plan_unpatches}, {"max_pool", plan_max_pool},
         {"max_pool_grad", plan_max_pool_grad})

}  // namespace harmonics::opencl
