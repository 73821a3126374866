// Convolution and its gradients by oneDNN. Each part is a fixed chunk of the batch, so results do not depend on the
// number of threads. Operands are reordered to oneDNN's preferred layouts; the weight only once per run, in the first
// phase.
#include <optional>

#include "../families.hpp"
#include "../reduce.hpp"
#include "onednn.hpp"

namespace harmonics::cpu {
namespace {

using Desc = dnnl::memory::desc;
using dnnl::memory;

enum class Pass { forward, grad_input, grad_weight };

// A convolution's sizes in oneDNN's terms.
struct Geometry {
  memory::dims x, weight, y;  // weight with groups as [groups, O/groups, C/groups, ...]
  memory::dims strides, dilation, low, high;
  double flops;
};

memory::dims plain_strides(const memory::dims& dims) {
  memory::dims s(dims.size(), 1);
  for (size_t i = dims.size(); i-- > 1;) s[i - 1] = s[i] * dims[i];
  return s;
}
Desc plain(const memory::dims& dims) { return {dims, memory::data_type::f32, plain_strides(dims)}; }
Desc any(const memory::dims& dims) { return {dims, memory::data_type::f32, memory::format_tag::any}; }

std::vector<int64_t> list(const Site& site, const char* name, size_t n, int64_t otherwise) {
  auto v = site.integers(name);
  if (v.empty()) v.assign(n, otherwise);
  return v;
}

std::optional<Geometry> geometry(const Site& site, const std::vector<int64_t>& x, const std::vector<int64_t>& weight,
                                 const std::vector<int64_t>& y) {
  if (x.size() < 3 || x.size() > 5 || weight.size() != x.size() || y.size() != x.size()) return std::nullopt;
  const size_t spatial = x.size() - 2;
  const int64_t groups = site.integer("groups", 1);
  Geometry g{x,
             weight,
             y,
             list(site, "strides", spatial, 1),
             list(site, "dilation", spatial, 1),
             list(site, "padding_low", spatial, 0),
             list(site, "padding_high", spatial, 0),
             2};
  for (int64_t& d : g.dilation) d -= 1;
  for (int64_t n : y) g.flops *= static_cast<double>(n);
  for (size_t i = 1; i < weight.size(); ++i) g.flops *= static_cast<double>(weight[i]);
  if (groups > 1) {
    g.weight[0] /= groups;
    g.weight.insert(g.weight.begin(), groups);
  }
  return g;
}

// An operand of a part: a slice of its buffer, or a reordered copy at `offset` of the workspace.
struct Operand {
  Desc plain, used;
  uint64_t offset = 0;
  std::unique_ptr<Execution> reorder;  // plain -> used, or used -> plain for results
  bool shared = false;                 // reordered in the first phase
};

struct Part {
  int64_t first, samples;
  Operand a, b, result;
  uint64_t scratch = 0;
  std::unique_ptr<Execution> execution;
};

struct Convolution {
  Pass pass;
  Geometry geometry;
  bool has_bias = false;
  int activation = kNone;
  std::vector<Part> parts;
  Operand weight;         // shared by the parts, reordered once
  bool prepares = false;  // whether a first phase reorders the weight
  uint64_t partials = 0;  // grad_weight: offset of the parts' results
  ReduceContext sum{};
  uint64_t workspace = 0;
  uint32_t workspace_buffer = 0;

  uint64_t take(uint64_t bytes) {
    const uint64_t at = workspace;
    workspace += (bytes + 63) & ~uint64_t{63};
    return at;
  }
};

std::unique_ptr<Execution> reorder(const Desc& from, const Desc& to) {
  using Pairs = std::initializer_list<std::pair<int, Desc>>;
  const dnnl::reorder::primitive_desc d(cpu_engine(), from, cpu_engine(), to);
  return std::make_unique<Execution>(dnnl::reorder(d), Pairs{{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

Operand operand(Convolution& c, const memory::dims& dims, const Desc& used, bool is_result) {
  Operand o{plain(dims), used, 0, nullptr, false};
  if (o.plain == used) return o;
  o.offset = c.take(used.get_size());
  o.reorder = is_result ? reorder(used, o.plain) : reorder(o.plain, used);
  return o;
}

Operand weight_operand(Convolution& c, const Desc& used) {
  if (!c.prepares && c.parts.empty()) {
    c.weight = operand(c, c.geometry.weight, used, false);
    c.prepares = c.weight.reorder != nullptr;
  }
  if (used != c.weight.used)
    return operand(c, c.geometry.weight, used, false);  // oneDNN prefers another layout for this chunk size
  return {c.weight.plain, c.weight.used, c.weight.offset, nullptr, c.prepares};
}

memory::dims with_batch(memory::dims dims, int64_t n) {
  dims[0] = n;
  return dims;
}

void add_part(Convolution& c, int64_t first, int64_t n) {
  using Pairs = std::initializer_list<std::pair<int, Desc>>;
  const Geometry& g = c.geometry;
  const auto x = with_batch(g.x, n), y = with_batch(g.y, n);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const auto direct = dnnl::algorithm::convolution_direct;
  const Desc bias = c.has_bias ? plain({g.y[1]}) : Desc();
  using Forward = dnnl::convolution_forward;
  const auto forward = c.has_bias ? Forward::desc(dnnl::prop_kind::forward_training, direct, any(x), any(g.weight),
                                                  bias, any(y), g.strides, g.dilation, g.low, g.high)
                                  : Forward::desc(dnnl::prop_kind::forward_training, direct, any(x), any(g.weight),
                                                  any(y), g.strides, g.dilation, g.low, g.high);
  const Forward::primitive_desc fd(forward, attributes, cpu_engine());
  Part p{first, n, {}, {}, {}, 0, nullptr};
  if (c.pass == Pass::forward) {
    p.a = operand(c, x, fd.src_desc(), false);
    p.b = weight_operand(c, fd.weights_desc());
    p.result = operand(c, y, fd.dst_desc(), true);
    p.scratch = c.take(fd.scratchpad_desc().get_size());
    p.execution = c.has_bias
                      ? std::make_unique<Execution>(Forward(fd), Pairs{{DNNL_ARG_SRC, fd.src_desc()},
                                                                       {DNNL_ARG_WEIGHTS, fd.weights_desc()},
                                                                       {DNNL_ARG_DST, fd.dst_desc()},
                                                                       {DNNL_ARG_SCRATCHPAD, fd.scratchpad_desc()},
                                                                       {DNNL_ARG_BIAS, bias}})
                      : std::make_unique<Execution>(Forward(fd), Pairs{{DNNL_ARG_SRC, fd.src_desc()},
                                                                       {DNNL_ARG_WEIGHTS, fd.weights_desc()},
                                                                       {DNNL_ARG_DST, fd.dst_desc()},
                                                                       {DNNL_ARG_SCRATCHPAD, fd.scratchpad_desc()}});
  } else if (c.pass == Pass::grad_input) {
    using Back = dnnl::convolution_backward_data;
    const Back::primitive_desc d(
        Back::desc(direct, any(x), any(g.weight), any(y), g.strides, g.dilation, g.low, g.high), attributes,
        cpu_engine(), fd);
    p.b = weight_operand(c, d.weights_desc());
    p.a = operand(c, y, d.diff_dst_desc(), false);
    p.result = operand(c, x, d.diff_src_desc(), true);
    p.scratch = c.take(d.scratchpad_desc().get_size());
    p.execution = std::make_unique<Execution>(Back(d), Pairs{{DNNL_ARG_DIFF_DST, d.diff_dst_desc()},
                                                             {DNNL_ARG_WEIGHTS, d.weights_desc()},
                                                             {DNNL_ARG_DIFF_SRC, d.diff_src_desc()},
                                                             {DNNL_ARG_SCRATCHPAD, d.scratchpad_desc()}});
  } else {
    using Back = dnnl::convolution_backward_weights;
    // A single channel keeps its layout: padding it to a vector of channels would multiply the work.
    const Desc source = g.x[1] == 1 ? plain(x) : any(x);
    const Back::primitive_desc d(
        Back::desc(direct, source, any(g.weight), any(y), g.strides, g.dilation, g.low, g.high), attributes,
        cpu_engine(), fd);
    p.a = operand(c, x, d.src_desc(), false);
    p.b = operand(c, y, d.diff_dst_desc(), false);
    p.result = operand(c, g.weight, d.diff_weights_desc(), true);
    p.scratch = c.take(d.scratchpad_desc().get_size());
    p.execution = std::make_unique<Execution>(Back(d), Pairs{{DNNL_ARG_SRC, d.src_desc()},
                                                             {DNNL_ARG_DIFF_DST, d.diff_dst_desc()},
                                                             {DNNL_ARG_DIFF_WEIGHTS, d.diff_weights_desc()},
                                                             {DNNL_ARG_SCRATCHPAD, d.scratchpad_desc()}});
  }
  c.parts.push_back(std::move(p));
}

const void* ready(const Operand& o, const char* from, char* workspace) {
  if (o.shared) return workspace + o.offset;
  if (!o.reorder) return from;
  o.reorder->run({from, workspace + o.offset});
  return workspace + o.offset;
}

int64_t sample_size(const memory::dims& dims) {
  int64_t n = 1;
  for (size_t i = 1; i < dims.size(); ++i) n *= dims[i];
  return n;
}

void run_part(const Convolution& c, void* const* buffers, const Part& p, uint32_t number) {
  const Geometry& g = c.geometry;
  char* workspace = static_cast<char*>(buffers[c.workspace_buffer]);
  const auto at = [&](uint32_t buffer, const memory::dims& dims) {
    return static_cast<char*>(buffers[buffer]) + p.first * sample_size(dims) * 4;
  };
  // Buffers: forward: x, weight, [bias], y; gradient of input: weight, dy, dx; of weight: x, dy, dweight.
  const bool forward = c.pass == Pass::forward, to_input = c.pass == Pass::grad_input;
  const char* a = to_input ? at(1, g.y) : at(0, g.x);
  const char* b = forward ? static_cast<char*>(buffers[1]) : to_input ? static_cast<char*>(buffers[0]) : at(1, g.y);
  const uint32_t last = forward && c.has_bias ? 3 : 2;
  char* result = forward ? at(last, g.y) : to_input ? at(2, g.x) : static_cast<char*>(buffers[2]);
  if (c.pass == Pass::grad_weight && c.parts.size() > 1)
    result = workspace + c.partials + number * p.result.plain.get_size();

  const void *from_a = ready(p.a, a, workspace), *from_b = ready(p.b, b, workspace);
  char* to = p.result.reorder ? workspace + p.result.offset : result;
  if (forward && c.has_bias)
    p.execution->run({from_a, from_b, to, workspace + p.scratch, buffers[2]});
  else
    p.execution->run({from_a, from_b, to, workspace + p.scratch});
  if (p.result.reorder) p.result.reorder->run({to, result});
  if (c.activation)
    isa().epilogue(reinterpret_cast<float*>(result), 1, p.samples * sample_size(g.y), 0, nullptr, c.activation);
}

void run(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const OneThread one_thread;
  const auto& c = *static_cast<const Convolution*>(context);
  char* workspace = static_cast<char*>(buffers[c.workspace_buffer]);
  if (c.prepares && phase == 0)
    return c.weight.reorder->run({buffers[c.pass == Pass::forward ? 1 : 0], workspace + c.weight.offset});
  if (phase == (c.prepares ? 1u : 0u)) return run_part(c, buffers, c.parts[part], part);
  void* sum_buffers[] = {workspace + c.partials, buffers[2]};
  chosen::reduce()(&c.sum, sum_buffers, 0, part);
}

// Plans the sum of the parts' weight gradients, in a fixed order.
void add_sum(Convolution& c) {
  const int64_t n = c.geometry.weight[0] * sample_size(c.geometry.weight);
  c.partials = c.take(static_cast<uint64_t>(n) * 4 * c.parts.size());
  c.sum.dtype = HX_F32;
  c.sum.reduction = Reduction::sum;
  c.sum.stages = 1;
  ReduceStage& s = c.sum.stage[0];
  s.outer = s.chunks = 1;
  s.rows = static_cast<int64_t>(c.parts.size());
  s.inner = n;
  s.parts = parts_for(0.1 * static_cast<double>(n) * static_cast<double>(s.rows), (n + 63) / 64);
  s.from = 0;
  s.to = 1;
}

bool plan(const Site& site, Pass pass, std::optional<Geometry> geometry, hx_kernel& out) {
  if (!geometry) return false;
  const OneThread one_thread;
  auto c = std::make_unique<Convolution>();
  c->pass = pass;
  c->geometry = std::move(*geometry);
  c->workspace_buffer = site.inputs() + 1;
  if (pass == Pass::forward) {
    if (!activation_of(site, c->activation)) return false;
    c->has_bias = site.inputs() == 3;
  }
  const int64_t samples = c->geometry.x[0];
  const auto chunks_for = pass == Pass::grad_weight ? sums_for : parts_for;
  const uint32_t chunks = chunks_for(c->geometry.flops / 60, samples, 100000);
  const int64_t each = (samples + chunks - 1) / chunks;
  for (int64_t first = 0; first < samples; first += each) add_part(*c, first, std::min(each, samples - first));

  std::vector<uint32_t> parts;
  if (c->prepares) parts.push_back(1);
  parts.push_back(static_cast<uint32_t>(c->parts.size()));
  if (pass == Pass::grad_weight && c->parts.size() > 1) {
    add_sum(*c);
    parts.push_back(c->sum.stage[0].parts);
  }
  const uint64_t workspace = c->workspace;
  answer(out, std::move(c), run, "oneDNN convolution", parts).workspace = workspace;
  return true;
}

}  // namespace

bool plan_convolution(const Site& site, hx_kernel& out) {
  if (!site.all_f32()) return false;
  const auto in = [&](uint32_t i) { return dims(site.in(i)); };
  if (site.op() == "conv" && plan_narrow_convolution(site, out)) return true;
  if (site.op() == "conv") return plan(site, Pass::forward, geometry(site, in(0), in(1), dims(site.out())), out);
  if (site.op() == "conv_grad_input")
    return plan(site, Pass::grad_input, geometry(site, dims(site.out()), in(0), in(1)), out);
  return plan(site, Pass::grad_weight, geometry(site, in(0), dims(site.out()), in(1)), out);
}

HM_PLANS(dense_convolution, {"conv", plan_convolution}, {"conv_grad_input", plan_convolution},
         {"conv_grad_weight", plan_convolution})

}  // namespace harmonics::cpu
