// Plans convolutions by cuDNN. Other calls are inlined as patches (im2col) and products.
#include "convolution.hpp"

#include "families.hpp"

namespace harmonics::cuda {
namespace {

// Reads shapes and attributes. `x`, `weight`, `y`: types of these tensors or of their gradients.
bool read(const Site& site, const hx_type& x, const hx_type& weight, const hx_type& y, Convolution& c) {
  if (!is_float(x.dtype) || weight.dtype != x.dtype || y.dtype != x.dtype)
    return declined("convolves floats of one type");
  c.dtype = x.dtype;
  if (x.rank < 3 || x.rank > 5) return declined("convolves over one to three axes");
  c.x = dims(x), c.weight = dims(weight), c.y = dims(y);
  const auto axes = [&](const char* name, int64_t otherwise) {
    const auto values = site.integers(name);
    return values.empty() ? std::vector<int64_t>(x.rank - 2, otherwise) : values;
  };
  c.strides = axes("strides", 1), c.dilation = axes("dilation", 1), c.low = axes("padding_low", 0),
  c.high = axes("padding_high", 0);
  if (x.rank == 3) {  // cuDNN needs at least two axes
    for (auto* shape : {&c.x, &c.weight, &c.y}) shape->insert(shape->begin() + 2, 1);
    for (auto* ones : {&c.strides, &c.dilation}) ones->insert(ones->begin(), 1);
    for (auto* zeros : {&c.low, &c.high}) zeros->insert(zeros->begin(), 0);
  }
  c.may_round = site.may_round();
  return true;
}

bool add_step(const Site& site, Work& work, const Convolution& c) {
  std::string why;
  auto step = dnn_step(site, work, c, why);
  if (!step) return declined(why);
  work.add(std::move(step));
  return true;
}

bool answer_gradient(const Site& site, const Convolution& c, hx_kernel& out) {
  Work work(site.machine());
  if (!add_step(site, work, c)) return false;
  answer(out, std::move(work), "cuDNN convolution");
  return true;
}

// Plans the gradient of a weight in f32 over planes, without rounding of operands. cuDNN's deterministic engines
// without tensor cores are several times slower.
bool answer_weight_gradient(const Site& site, const Convolution& c, hx_kernel& out) {
  constexpr int64_t kRun = 32, kBlocks = 384, kLeast = 4 * kRun;  // positions per step; blocks; positions per part
  const auto size = [](int64_t n) { return static_cast<uint32_t>(n); };
  const auto at = [](int64_t n) { return static_cast<int32_t>(n); };
  const int64_t outputs = c.y[1], columns = c.weight[1] * c.weight[2] * c.weight[3],
                positions = c.y[0] * c.y[2] * c.y[3];
  const uint32_t rows = outputs <= 16 ? 16 : outputs <= 32 ? 32 : 64;
  const int64_t across = (columns + kGradientColumns - 1) / kGradientColumns, down = (outputs + rows - 1) / rows;
  const int64_t wanted = std::clamp<int64_t>(kBlocks / (across * down), 1, (positions + kLeast - 1) / kLeast);
  const int64_t part = (positions + wanted * kRun - 1) / (wanted * kRun) * kRun, parts = (positions + part - 1) / part;
  if (down > kMostBlocks || parts > kMostBlocks) return declined("sums over at most 65535 parts");
  const WeightGradientParameters p{size(c.y[0]),      size(c.x[1]),     size(outputs),    size(c.weight[2]),
                                   size(c.weight[3]), size(c.y[2]),     size(c.y[3]),     at(c.x[2]),
                                   at(c.x[3]),        at(c.strides[0]), at(c.strides[1]), at(c.dilation[0]),
                                   at(c.dilation[1]), at(c.low[0]),     at(c.low[1]),     part};
  Work work(site.machine());
  const auto n = size(outputs * columns);
  const Operand result = c.weight_operand,
                sums =
                    parts == 1 ? result : work.take_workspace(site, static_cast<uint64_t>(parts) * n * sizeof(float));
  work.launch(weight_gradient_function(rows), {size(across), size(down), size(parts), kThreads},
              {c.x_operand, c.y_operand, sums}, p);
  if (parts > 1)
    work.launch(sum_parts_function(), {(n + 31) / 32, 1, 1, kThreads}, {sums, result},
                SumPartsParameters{n, size(parts)});
  answer(out, std::move(work), "convolution");
  return true;
}

}  // namespace

bool plan_conv(const Site& site, hx_kernel& out) {
  Convolution c;
  Activation activation = Activation::none;
  if (!activation_of(site, activation) || !read(site, site.in(0), site.in(1), site.out(), c)) return false;
  const Operand y{site.inputs()}, bias{2};
  c.x_operand = {0}, c.weight_operand = {1}, c.y_operand = y;
  Work work(site.machine());
  if (!add_step(site, work, c)) return false;
  const bool has_bias = site.inputs() == 3;
  if (has_bias && site.in(2).dtype != c.dtype) return declined("adds a bias of the result's type");
  if (has_bias || activation != Activation::none) {
    const auto n = static_cast<uint32_t>(count(site.out())), channels = static_cast<uint32_t>(c.y[1]);
    const auto places = n / (static_cast<uint32_t>(c.y[0]) * channels);
    work.over(n, finish_function(c.dtype), {has_bias ? bias : y, y},
              FinishParameters{n, channels, places, activation, has_bias});
  }
  answer(out, std::move(work), "cuDNN convolution");
  return true;
}

bool plan_conv_grad_input(const Site& site, hx_kernel& out) {
  Convolution c;
  if (!read(site, site.out(), site.in(0), site.in(1), c)) return false;
  c.pass = Convolution::Pass::input;
  c.weight_operand = {0}, c.y_operand = {1}, c.x_operand = {2};
  return answer_gradient(site, c, out);
}

bool plan_conv_grad_weight(const Site& site, hx_kernel& out) {
  Convolution c;
  if (!read(site, site.in(0), site.out(), site.in(1), c)) return false;
  c.pass = Convolution::Pass::weight;
  c.x_operand = {0}, c.y_operand = {1}, c.weight_operand = {2};
  if (c.dtype == HX_F32 && !c.may_round && c.x.size() == 4 && c.x[1] == c.weight[1])
    return answer_weight_gradient(site, c, out);
  return answer_gradient(site, c, out);
}

HM_PLANS(convolution, {"conv", plan_conv}, {"conv_grad_input", plan_conv_grad_input},
         {"conv_grad_weight", plan_conv_grad_weight})

}  // namespace harmonics::cuda
