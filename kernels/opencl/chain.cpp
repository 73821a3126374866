#include "chain.hpp"

#include "rows.hpp"

namespace harmonics::opencl {
namespace {

constexpr uint32_t kMostBuffers = 32;  // drivers accept at least 1024 bytes of arguments

// Cast to bool: not zero. Cast from floats to integers: truncates and saturates; NaN gives 0.
std::string cast_text(const Operation& o) {
  if (o.result == HX_BOOL) return "(uchar)(" + o.a + " != 0)";
  const std::string to = type_name(o.result);
  if (is_float(o.operands) && !is_float(o.result))
    return "(" + o.a + " != " + o.a + " ? (" + to + ")0 : convert_" + to + "_sat_rtz(" + o.a + "))";
  return is_float(o.result) ? "convert_" + to + "(" + o.a + ")" : "(" + to + ")" + o.a;
}

}  // namespace

std::string text_of(const Operation& o) {
  if (o.op == "cast") return cast_text(o);
  return kernels::scalar_text(o.op, kernels::kind_of(o.operands),
                              {o.a, o.b, o.c, type_name(o.operands), word_name(o.operands)});
}

Chain::Operand Chain::operand_of(const hx_type& x, const hx_type& y) {
  Operand operand;
  if (count(x) == count(y)) return operand;
  if (count(x) == 1) {
    operand.how = Operand::one;
    return operand;
  }
  operand.how = Operand::stretched;
  operand.walk = {dims(y), {kernels::broadcast_strides(x, y)}, {0}};
  operand.walk.join();
  return operand;
}

void Chain::read_inputs() {
  for (uint32_t i = 0; i < site_.inputs(); ++i) {
    const uint32_t dtype = site_.in(i).dtype;
    types_.push_back(words_ ? words_[width(dtype)] : dtype);
    operands_.push_back(operand_of(site_.in(i), whole_));
    const std::string k = std::to_string(i);
    std::string place = operands_[i].how == Operand::one ? "0" : "i";
    if (operands_[i].how == Operand::stretched) {
      const std::string prefix = "w" + k + "_";
      place = "x" + k;
      parameters_ += walk_parameters(operands_[i].walk, prefix);
      body_ += walk_text(operands_[i].walk, "i", prefix, {place});
    }
    define(i, types_.back(), read(types_.back(), i, place));
  }
}

bool Chain::compute(std::string_view op, uint32_t a, uint32_t b, uint32_t c, uint32_t result) {
  const auto name = [&](uint32_t r) { return r < types_.size() ? "r" + std::to_string(r) : std::string("0"); };
  const std::string text = text_of({op, types_.at(a), result, name(a), name(b), name(c)});
  if (text.empty()) return declined(std::string("has no ") + std::string(op) + " of these types");
  add(result, text);
  return true;
}

bool Chain::compute_all() {
  const hx_call_site& raw = site_.raw();
  for (uint32_t i = 0; i < raw.n_chain; ++i) {
    const hx_scalar_op& o = raw.chain[i];
    // At call sites only casts and comparisons have a result type; other operations have the type of their operands.
    const bool says = o.dtype == HX_BOOL || std::string_view(o.op) == "cast";
    if (!compute(o.op, o.a, o.b, o.c, says ? o.dtype : types_.at(std::string_view(o.op) == "select" ? o.b : o.a)))
      return false;
  }
  return true;
}

uint32_t Chain::add(uint32_t result, const std::string& text) {
  define(static_cast<uint32_t>(types_.size()), result, rounded(result, text));
  types_.push_back(result);
  return static_cast<uint32_t>(types_.size() - 1);
}

void Chain::store(const std::vector<uint32_t>& registers) {
  for (uint32_t k = 0; k < registers.size(); ++k)
    body_ += "  " + write(types_.at(registers[k]), site_.inputs() + k, "i", "r" + std::to_string(registers[k])) + "\n";
}

void Chain::give(Launch& launch) const {
  for (const Operand& operand : operands_)
    if (operand.how == Operand::stretched) launch.with_all(walk_values(operand.walk));
}

std::string Chain::buffers() const {
  std::string text;
  for (const uint32_t i : all_buffers(site_)) text += "BUFFER(" + std::to_string(i) + "), ";
  return text;
}

bool Chain::has_room() const {
  return site_.inputs() + site_.outputs() <= kMostBuffers || declined("so many operands");
}

uint32_t Chain::in_place() const {
  uint32_t mask = 0;
  for (uint32_t i = 0; i < site_.inputs() && i < 32; ++i)
    if (operands_[i].how == Operand::same && width(site_.in(i).dtype) == width(site_.out().dtype)) mask |= 1u << i;
  return mask;
}

void Chain::define(uint32_t r, uint32_t dtype, const std::string& text) {
  body_ += "  const " + std::string(type_name(dtype)) + " r" + std::to_string(r) + " = " + text + ";\n";
}

}  // namespace harmonics::opencl
