// Scalar operations on elements, alone and in chains.
#include "../family.hpp"

#ifdef HM_ISA

#include "chain_run.hpp"
#include "vector_math.hpp"

namespace harmonics::cpu::HM_ISA {

// y = gelu(x), which may replace x, and gradient = dy gelu'(x): another result, although it is in the place of an
// operand.
void gelu_and_gradient(const void* x, const void* dy, const void* gradient, void* y, int64_t n) {
  const float *from = static_cast<const float*>(x), *factor = static_cast<const float*>(dy);
  float *to = static_cast<float*>(y), *dx = const_cast<float*>(static_cast<const float*>(gradient));
  for (int64_t i = 0; i < n; i += kWidth) {
    const int64_t left = n - i;
    const bool is_whole = left >= kWidth;
    const vf v = is_whole ? load(from + i) : load_part(from + i, left);
    const Normal at = normal(v);
    const vf d = (is_whole ? load(factor + i) : load_part(factor + i, left)) * gelu_derivative(v, at);
    if (is_whole) {
      store(dx + i, d), store(to + i, v * at.cumulative);
    } else {
      store_part(dx + i, d, left), store_part(to + i, v * at.cumulative, left);
    }
  }
}

void chain(const void* context, void* const* buffers, uint32_t, uint32_t part) {
  const auto& c = *static_cast<const ChainContext*>(context);
  ChainRun run(c, buffers);
  const Range blocks = share((c.count + c.block - 1) / c.block, c.parts, part);
  for (int64_t k = blocks.begin; k < blocks.end; ++k) {
    const int64_t start = k * c.block;
    run.piece(start, c.count - start < c.block ? c.count - start : c.block);
  }
}

}  // namespace harmonics::cpu::HM_ISA

#else

#include "../chain_builder.hpp"

#include <cstring>

HM_VECTOR_CODE(chain)
HM_VECTOR_FUNCTION(BlockCode, gelu_and_gradient)

namespace harmonics::cpu {
namespace {

constexpr ScalarRow kRows[] = {
#define HM_ROW(name, operands) {#name, ScalarOp::name##_, operands},
    HM_SCALAR_OPS(HM_ROW)
#undef HM_ROW
};

// Rough nanoseconds per element, for the number of parts.
double cost(ScalarOp op) {
  switch (op) {
    case ScalarOp::pow_:
    case ScalarOp::remainder_:
      return 10;
    case ScalarOp::sin_:
    case ScalarOp::cos_:
    case ScalarOp::asinh_:
    case ScalarOp::acosh_:
    case ScalarOp::atanh_:
      return 1.5;
    case ScalarOp::exp_:
    case ScalarOp::expm1_:
      return 0.45;
    case ScalarOp::log_:
    case ScalarOp::log1p_:
    case ScalarOp::tan_:
    case ScalarOp::asin_:
    case ScalarOp::acos_:
    case ScalarOp::atan_:
    case ScalarOp::atan2_:
    case ScalarOp::sinh_:
    case ScalarOp::cosh_:
    case ScalarOp::tanh_:
    case ScalarOp::erf_:
    case ScalarOp::gelu_:
    case ScalarOp::gelu_grad_:
    case ScalarOp::logistic_:
    case ScalarOp::sigmoid_cross_entropy_:
    case ScalarOp::sigmoid_cross_entropy_grad_:
      return 0.9;
    default:
      return 0.1;
  }
}

}  // namespace

const ScalarRow* scalar_row(std::string_view name) {
  const ScalarRow* end = kRows + std::size(kRows);
  const ScalarRow* row = std::find_if(kRows, end, [&](const ScalarRow& r) { return r.name == name; });
  return row == end ? nullptr : row;
}

uint32_t ChainBuilder::input(uint32_t buffer, const hx_type& type) {
  ChainRegister r{};
  r.buffer = buffer;
  r.width = static_cast<uint8_t>(width(type.dtype));
  r.period = cpu::count(type);
  r.place = r.period == count_ ? Place::input : Place::repeated;
  if (r.place == Place::repeated) stretch_over_shape(r, type);
  return add(r, type.dtype);
}

uint32_t ChainBuilder::constant(float value) {
  ChainRegister r{};
  r.place = Place::constant;
  r.width = 4;
  std::memcpy(&r.bits, &value, sizeof value);
  return add(r, HX_F32);
}

std::optional<uint32_t> ChainBuilder::step(const ScalarRow& row, uint32_t dtype, std::array<uint32_t, 3> operands) {
  for (uint32_t i = 0; i < row.operands; ++i)
    if (operands[i] >= registers_.size()) return std::nullopt;
  for (uint32_t i = row.operands; i < 3; ++i) operands[i] = operands[0];
  const Block block = isa().block(row.op, dtypes_[operands[0]], dtype, width(dtype));
  if (!block) return step_in_f32(row, dtype, operands);
  ChainRegister r{};
  r.place = Place::scratch;
  r.width = static_cast<uint8_t>(width(dtype));
  const uint32_t result = add(r, dtype);
  steps_.push_back({block, result, operands[0], operands[1], operands[2]});
  nanoseconds_ += cost(row.op);
  return result;
}

std::optional<uint32_t> ChainBuilder::gelu_gradient(uint32_t y, uint32_t x, uint32_t dy) {
  const Block gelu = isa().block(ScalarOp::gelu_, HX_F32, HX_F32, width(HX_F32));
  const auto first = std::find_if(steps_.begin(), steps_.end(), [&](const ChainStep& s) { return s.result == y; });
  const Place of_dy = registers_[dy].place;
  if (first == steps_.end() || first->block != gelu || first->a != x || dtypes_[dy] != HX_F32 ||
      of_dy == Place::scratch || of_dy == Place::output)
    return std::nullopt;
  ChainRegister r{};
  r.place = Place::scratch;
  r.width = sizeof(float);
  const uint32_t result = add(r, HX_F32);
  first->block = chosen::gelu_and_gradient();
  first->b = dy, first->c = result;
  nanoseconds_ += cost(ScalarOp::mul_);
  return result;
}

// Returns nullopt for functionals whose body rounds after every primitive: computed in f32 they would round only once.
std::optional<uint32_t> ChainBuilder::step_in_f32(const ScalarRow& row, uint32_t dtype,
                                                  std::array<uint32_t, 3> operands) {
  constexpr ScalarOp kCalls[] = {ScalarOp::gelu_, ScalarOp::gelu_grad_, ScalarOp::sigmoid_cross_entropy_,
                                 ScalarOp::sigmoid_cross_entropy_grad_};
  if (std::find(std::begin(kCalls), std::end(kCalls), row.op) != std::end(kCalls)) return std::nullopt;
  const ScalarRow& cast = *scalar_row("cast");
  bool has_half = false;
  for (uint32_t i = 0; i < row.operands; ++i) {
    if (!kernels::is_half(dtypes_[operands[i]])) continue;
    has_half = true;
    const auto [at, fresh] = widened_.try_emplace(operands[i], 0);
    if (fresh) at->second = step(cast, HX_F32, {operands[i], operands[i], operands[i]}).value();
    operands[i] = at->second;
  }
  const bool rounds = kernels::is_half(dtype);
  if (!has_half && !rounds) return std::nullopt;
  if (row.op == ScalarOp::cast_) {
    if (!has_half && dtypes_[operands[0]] != HX_F32) {
      const auto wide = step(cast, HX_F32, operands);
      return wide ? step(cast, dtype, {*wide, *wide, *wide}) : std::nullopt;
    }
    return step(cast, dtype, operands);
  }
  const auto wide = step(row, rounds ? uint32_t{HX_F32} : dtype, operands);
  return wide && rounds ? step(cast, dtype, {*wide, *wide, *wide}) : wide;
}

bool ChainBuilder::steps_of(const Site& site) {
  const hx_call_site& raw = site.raw();
  for (uint32_t i = 0; i < site.inputs(); ++i) named_.push_back(input(i, site.in(i)));
  return std::all_of(raw.chain, raw.chain + raw.n_chain, [&](const hx_scalar_op& op) {
    const ScalarRow* row = scalar_row(op.op);
    const auto result = row ? step(*row, op.dtype, {named(op.a), named(op.b), named(op.c)}) : std::nullopt;
    if (result) named_.push_back(*result);
    return result.has_value();
  });
}

bool ChainBuilder::output(uint32_t which, uint32_t from) {
  if (from >= registers_.size()) return false;
  if (registers_[from].place != Place::scratch) {  // an input, or already stored
    const auto copy = step(*scalar_row("stop_gradient"), dtypes_[from], {from, from, from});
    return copy && output(which, *copy);
  }
  registers_[from].place = Place::output;
  registers_[from].buffer = inputs_ + which;
  return true;
}

std::vector<int64_t> ChainBuilder::last_uses() const {
  std::vector<int64_t> last(registers_.size(), -1);
  for (size_t s = 0; s < steps_.size(); ++s)
    for (uint32_t r : {steps_[s].a, steps_[s].b, steps_[s].c}) last[r] = static_cast<int64_t>(s);
  if (kept_) last[*kept_] = static_cast<int64_t>(steps_.size());
  return last;
}

// Merges axes that are contiguous in the buffer. A suffix or scalar becomes one axis, a periodic pattern.
void ChainBuilder::stretch_over_shape(ChainRegister& r, const hx_type& type) {
  const std::vector<int64_t> own = strides(type);
  const size_t skip = shape_.size() - type.rank;
  for (size_t i = 0; i < shape_.size(); ++i) {
    if (shape_[i] == 1) continue;
    const int64_t stride = i < skip || type.dims[i - skip] == 1 ? 0 : own[i - skip];
    if (r.rank && r.strides[r.rank - 1] == stride * shape_[i]) {
      r.dims[r.rank - 1] *= shape_[i];
      r.strides[r.rank - 1] = stride;
    } else {
      r.dims[r.rank] = shape_[i];
      r.strides[r.rank++] = stride;
    }
  }
  const bool repeats = r.rank == 1 || (r.rank == 2 && r.strides[0] == 0 && r.strides[1] == 1);
  r.place = repeats ? Place::repeated : Place::stretched;
}

bool ChainBuilder::place_scratch() {
  const std::vector<int64_t> last = last_uses();
  std::vector<int64_t> slot_free;  // by slot: the last step that uses it
  std::vector<int64_t> slot(registers_.size(), -1);
  const auto take = [&](size_t r, int64_t from, int64_t until) {
    size_t s = 0;
    while (s < slot_free.size() && slot_free[s] >= from) ++s;
    if (s == slot_free.size()) slot_free.push_back(0);
    slot_free[s] = until;
    slot[r] = static_cast<int64_t>(s);
  };
  int64_t widest = 1;
  for (size_t r = 0; r < registers_.size(); ++r) {
    const Place p = registers_[r].place;
    if (p == Place::repeated || p == Place::stretched || p == Place::constant) take(r, 0, INT64_MAX);
  }
  for (size_t s = 0; s < steps_.size(); ++s)
    if (registers_[steps_[s].result].place == Place::scratch)
      take(steps_[s].result, static_cast<int64_t>(s),
           std::max<int64_t>(last[steps_[s].result], static_cast<int64_t>(s)));
  for (size_t r = 0; r < registers_.size(); ++r)
    if (slot[r] >= 0) widest = std::max<int64_t>(widest, registers_[r].width);

  const int64_t slots = std::max<int64_t>(1, static_cast<int64_t>(slot_free.size()));
  const int64_t needed = std::max<int64_t>(64, (count_ + 63) & ~int64_t{63});  // no larger: constants fill a block
  const int64_t room = std::min({int64_t{1024}, kScratchBytes / (slots * widest) & ~int64_t{63}, needed});
  if (room < 64) return false;
  // A block holds whole periods of repeated buffers; longer buffers are stretched instead.
  block_ = room;
  for (ChainRegister& r : registers_) {
    if (r.place != Place::repeated || r.period == 1) continue;
    if (kept_ || r.period > room / 2 || (block_ != room && block_ % r.period))
      r.place = Place::stretched;
    else if (block_ == room)
      block_ = room / r.period * r.period;
  }
  for (size_t r = 0; r < registers_.size(); ++r) registers_[r].offset = std::max<int64_t>(0, slot[r]) * room * widest;
  return true;
}

uint32_t ChainBuilder::in_place_mask() const {
  const std::vector<int64_t> last = last_uses();
  int64_t made = -1;
  uint32_t wide = 0;
  for (size_t s = 0; s < steps_.size(); ++s) {
    const ChainRegister& r = registers_[steps_[s].result];
    if (r.place == Place::output && r.buffer == inputs_) made = static_cast<int64_t>(s), wide = r.width;
  }
  uint32_t mask = 0;
  for (size_t r = 0; r < registers_.size(); ++r) {
    if (registers_[r].place != Place::input || registers_[r].buffer >= 32) continue;
    if (last[r] > made) return 0;
    if (registers_[r].width == wide) mask |= 1u << registers_[r].buffer;
  }
  return mask;
}

bool ChainBuilder::fill(ChainContext& context, ChainStorage& storage) {
  if (registers_.size() > kMaxRegisters || !place_scratch()) return false;
  storage.register_storage = registers_;
  storage.step_storage = steps_;
  context.count = count_;
  context.block = block_;
  context.n_registers = static_cast<uint32_t>(registers_.size());
  context.n_steps = static_cast<uint32_t>(steps_.size());
  context.registers = storage.register_storage.data();
  context.steps = storage.step_storage.data();
  return true;
}

double ChainBuilder::nanoseconds() const {
  double bytes = 0;
  for (const ChainRegister& r : registers_)
    if (r.place != Place::scratch && r.place != Place::constant) bytes += r.width;
  return static_cast<double>(count_) * (nanoseconds_ + bytes * 0.03);
}

bool ChainBuilder::finish(hx_kernel& out, const char* name) {
  auto c = std::make_unique<OwnedChain>();
  if (!fill(*c, *c)) return false;
  c->parts = parts_for(nanoseconds(), (count_ + block_ - 1) / block_);
  answer<ChainContext>(out, std::move(c), chosen::chain(), name).in_place = in_place_mask();
  return true;
}

namespace {

bool plan_chain(const Site& site, hx_kernel& out) {
  ChainBuilder builder(dims(site.out()), site.inputs());
  if (!builder.steps_of(site)) return false;
  for (uint32_t i = 0; i < site.outputs(); ++i)
    if (!builder.output(i, builder.named(site.raw().chain_outputs[i]))) return false;
  return builder.finish(out, "fused elementwise");
}

bool plan_elementwise(const Site& site, hx_kernel& out) {
  if (site.has_stored()) return plan_typed_cast(site, out);
  const ScalarRow* row = scalar_row(site.op() == "reshape" ? "stop_gradient" : site.op());
  if (!row || site.inputs() != row->operands || site.outputs() != 1) return false;
  if (site.text("approximate") == "tanh") return false;  // the tanh form of gelu is a chain of primitives
  ChainBuilder builder(dims(site.out()), site.inputs());
  std::array<uint32_t, 3> operands{};
  for (uint32_t i = 0; i < site.inputs(); ++i) {
    if (count(site.in(i)) != count(site.out())) return false;
    operands[i] = builder.input(i, site.in(i));
  }
  const auto result = builder.step(*row, site.out().dtype, operands);
  return result && builder.output(0, *result) && builder.finish(out, "elementwise");
}

// y = random < rate ? 0 : x / (1 - rate); the gradient applies the same function to dy.
bool plan_dropout(const Site& site, hx_kernel& out) {
  if (!site.all_f32() || site.inputs() != 2 || !same_shape(site.in(0), site.in(1))) return false;
  const double rate = site.number("rate");
  ChainBuilder builder(dims(site.out()), 2);
  const uint32_t first = builder.input(0, site.in(0)), second = builder.input(1, site.in(1));
  const bool backward = site.op() == "dropout_grad";
  const uint32_t x = backward ? second : first, random = backward ? first : second;
  const uint32_t limit = builder.constant(static_cast<float>(rate)), zero = builder.constant(0);
  const uint32_t scale = builder.constant(static_cast<float>(1 / (1 - rate)));
  const auto dropped = builder.step(*scalar_row("less"), HX_BOOL, {random, limit, limit});
  const auto scaled = builder.step(*scalar_row("mul"), HX_F32, {x, scale, scale});
  const auto y = builder.step(*scalar_row("select"), HX_F32, {*dropped, zero, *scaled});
  return builder.output(0, *y) && builder.finish(out, "dropout");
}

}  // namespace

#define HM_ROW(name, operands) {#name, plan_elementwise},
HM_PLANS(elementwise, HM_SCALAR_OPS(HM_ROW){"reshape", plan_elementwise}, {"fused_elementwise", plan_chain},
         {"dropout", plan_dropout}, {"dropout_grad", plan_dropout})
#undef HM_ROW

}  // namespace harmonics::cpu

#endif
