// Convolutions as im2col in the workspace and a matrix product per sample and group. With max pooling, the result of
// the convolution stays in the workspace.
#include "product.hpp"
#include "windows.hpp"

namespace harmonics::opencl {
namespace {

constexpr int64_t kMostParts = 16;  // parts of the samples, whose weight gradients are computed in parallel

class Convolution {
 public:
  // `x`, `weight`: shapes.
  Convolution(const Site& site, const std::vector<int64_t>& x, const std::vector<int64_t>& weight)
      : site_(site),
        windows_(site, x, {weight.begin() + 2, weight.end()}),
        dtype_(site.out().dtype),
        samples_(x[0]),
        groups_(site.integer("groups", 1)),
        outputs_(weight[0]),
        own_(outputs_ / groups_),
        rows_(weight[1] * windows_.taps()) {}

  bool is_served(std::initializer_list<uint32_t> inputs) const {
    for (const uint32_t i : inputs)
      if (!is_float(site_.in(i).dtype) || site_.in(i).dtype != dtype_)
        return declined("convolves within one type of floats only");
    return std::max(all_columns(), results()) < kMostElements || declined("counts elements in 31 bits");
  }
  const Windows& windows() const { return windows_; }
  int64_t results() const { return samples_ * outputs_ * windows_.windows(); }
  std::vector<int64_t> result_shape() const {
    std::vector<int64_t> shape{samples_, outputs_};
    for (const int64_t d : windows_.places()) shape.push_back(d);
    return shape;
  }
  Place take(int64_t elements, uint32_t dtype) { return {site_.workspace(), room_.take(elements, dtype)}; }
  Work work;

  void forward(Place x, Place weight, Place y, const Ending& ending) {
    const Place columns = columns_of(x);
    const int64_t places = windows_.windows();
    add({{weight.buffer, dtype_, rows_, 1},
         {columns.buffer, dtype_, places, 1},
         own_,
         places,
         rows_,
         1,
         {{samples_, groups_},
          {{0, own_ * rows_}, {groups_ * rows_ * places, rows_ * places}},
          {weight.at, columns.at}},
         dtype_,
         y.buffer,
         y.at},
        ending);
  }
  void gradient_of_input(Place weight, Place dy, Place dx) {
    const int64_t places = windows_.windows();
    const Place columns = windows_.are_elements() ? dx : take(all_columns(), dtype_);
    add({{weight.buffer, dtype_, 1, rows_},
         {dy.buffer, dtype_, places, 1},
         rows_,
         places,
         own_,
         1,
         {{samples_, groups_}, {{0, own_ * rows_}, {outputs_ * places, own_ * places}}, {weight.at, dy.at}},
         dtype_,
         columns.buffer,
         columns.at});
    if (!windows_.are_elements()) work.launches.push_back(windows_.unpatches(site_.machine(), dtype_, columns, dx));
  }
  // Adds samples in order within parts, then the parts in order. 16-bit results have a single part, so that partial
  // sums are not rounded.
  void gradient_of_weight(Place x, Place dy, Place dweight) {
    const Place columns = columns_of(x);
    const int64_t each = is_half(dtype_) ? samples_ : (samples_ + kMostParts - 1) / kMostParts,
                  parts = (samples_ + each - 1) / each, n = outputs_ * rows_;
    const Place sums = parts == 1 ? dweight : take(parts * n, dtype_);
    const int64_t whole = samples_ / each;
    add_gradients(columns, dy, sums, each, 0, whole);
    if (whole < parts)
      add_gradients(columns, dy, {sums.buffer, sums.at + whole * n}, samples_ - whole * each, whole * each, 1);
    if (parts > 1)
      work.launches.push_back(
          join_parts(site_.machine(), dtype_, sums.buffer, sums.at, n, parts, dtype_, dweight.buffer));
  }

  bool give(hx_kernel& out, const char* name) {
    answer(out, std::move(work), name).workspace = room_.bytes();
    return true;
  }

 private:
  int64_t all_columns() const { return samples_ * groups_ * rows_ * windows_.windows(); }
  void add(Product p, const Ending& ending = {}) {
    work.launches.push_back(product(site_.machine(), std::move(p), ending));
  }

  Place columns_of(Place x) {
    if (windows_.are_elements()) return x;
    const Place columns = take(all_columns(), dtype_);
    work.launches.push_back(windows_.patches(site_.machine(), dtype_, x, columns, 0));
    return columns;
  }
  // Adds `parts` times `each` samples from `first`.
  void add_gradients(Place columns, Place dy, Place to, int64_t each, int64_t first, int64_t parts) {
    const int64_t places = windows_.windows(), of_dy = outputs_ * places, of_columns = groups_ * rows_ * places;
    add({{dy.buffer, dtype_, places, 1, of_dy},
         {columns.buffer, dtype_, 1, places, of_columns},
         own_,
         rows_,
         places,
         each,
         {{parts, groups_},
          {{each * of_dy, own_ * places}, {each * of_columns, rows_ * places}},
          {dy.at + first * of_dy, columns.at + first * of_columns}},
         dtype_,
         to.buffer,
         to.at});
  }

  const Site& site_;
  Windows windows_;
  uint32_t dtype_;
  int64_t samples_, groups_, outputs_, own_, rows_;  // own_: outputs per group; rows_: channels per group times taps
  Room room_;
};

bool ending_of(const Site& site, Ending& ending) {
  if (!activation_number(site, ending.activation)) return false;
  if (site.inputs() < 3) return true;
  ending.kind = Ending::bias_of_rows;
  ending.extra = 2;
  ending.dtype = site.in(2).dtype;
  const int64_t groups = site.integer("groups", 1);
  ending.cycle = groups;
  return true;
}

}  // namespace

bool plan_conv(const Site& site, hx_kernel& out) {
  Convolution conv(site, dims(site.in(0)), dims(site.in(1)));
  Ending ending;
  if (!conv.is_served({0, 1}) || !ending_of(site, ending)) return false;
  conv.forward({0}, {1}, {site.inputs()}, ending);
  return conv.give(out, "convolution");
}

bool plan_conv_grad_input(const Site& site, hx_kernel& out) {
  Convolution conv(site, dims(site.out()), dims(site.in(0)));
  if (!conv.is_served({0, 1})) return false;
  conv.gradient_of_input({0}, {1}, {2});
  return conv.give(out, "convolution");
}

bool plan_conv_grad_weight(const Site& site, hx_kernel& out) {
  Convolution conv(site, dims(site.in(0)), dims(site.out()));
  if (!conv.is_served({0, 1})) return false;
  conv.gradient_of_weight({0}, {1}, {2});
  return conv.give(out, "convolution");
}

bool plan_conv_max_pool(const Site& site, hx_kernel& out) {
  Convolution conv(site, dims(site.in(0)), dims(site.in(1)));
  Ending ending;
  if (!conv.is_served({0, 1}) || !ending_of(site, ending)) return false;
  const uint32_t dtype = site.out().dtype;
  const Place y = conv.take(conv.results(), dtype);
  conv.forward({0}, {1}, y, ending);
  conv.work.launches.push_back(Windows(site, conv.result_shape(), {}, "pool_")
                                   .largest(site.machine(), dtype, y, {site.inputs()}, {site.inputs() + 1}));
  return conv.give(out, "convolution and max pool");
}

// Computes the gradient before pooling: a window's gradient at its maximum, 0 elsewhere.
bool plan_conv_max_pool_grad(const Site& site, hx_kernel& out) {
  const bool of_input = site.op() == "conv_max_pool_grad_input";
  Convolution conv(site, dims(of_input ? site.out() : site.in(0)), dims(of_input ? site.in(0) : site.out()));
  if (!conv.is_served({0, 2})) return false;
  if (site.in(1).dtype != HX_I32) return declined("pools floats only");
  const uint32_t dtype = site.out().dtype;
  const hx_type& pooled = site.in(2);
  const int64_t planes = pooled.dims[0] * pooled.dims[1];
  const Place dy = conv.take(conv.results(), dtype);
  conv.work.launches.push_back(
      spread(site.machine(), dtype, {1}, {2}, dy, planes, count(pooled) / planes, conv.windows().windows()));
  if (of_input)
    conv.gradient_of_input({0}, dy, {3});
  else
    conv.gradient_of_weight({0}, dy, {3});
  return conv.give(out, "convolution and max pool");
}

HM_PLANS(convolution, {"conv", plan_conv}, {"conv_grad_input", plan_conv_grad_input},
         {"conv_grad_weight", plan_conv_grad_weight}, {"conv_max_pool", plan_conv_max_pool},
         {"conv_max_pool_grad_input", plan_conv_max_pool_grad}, {"conv_max_pool_grad_weight", plan_conv_max_pool_grad})

}  // namespace harmonics::opencl
