#include "engine/program/op.hpp"

#include <array>
#include <unordered_map>

#include "engine/program/chain.hpp"

namespace harmonics::engine {

namespace {

constexpr std::string_view kNames[] = {
#define HM_OP(name, ...) #name,
#include "engine/program/op.def"
#undef HM_OP
};
constexpr Family kFamilies[] = {
#define HM_OP(name, family) Family::family,
#include "engine/program/op.def"
#undef HM_OP
};
constexpr size_t kCount = std::size(kNames);

OpRow functions_of(Op op, Family family) {
  switch (family) {
    case Family::source:
      return source_row(op);
    case Family::unary:
      return unary_row(op);
    case Family::binary:
      return binary_row(op);
    case Family::ternary:
      return ternary_row(op);
    case Family::layout:
      return layout_row(op);
    case Family::index:
      return index_row(op);
    case Family::reduce:
      return reduce_row(op);
    case Family::linear:
      return linear_row(op);
    case Family::storage:
      return storage_row(op);
    case Family::mark:
      return mark_row(op);
    case Family::leaf:
    case Family::control:
      break;
  }
  OpRow row{};
  if (op == Op::fused_elementwise) {
    row.infer = infer_chain;
    row.evaluate = evaluate_chain;
  }
  return row;
}

struct Table {
  std::array<OpRow, kCount> rows{};
  std::unordered_map<std::string_view, const OpRow*> by_name;

  Table() {
    for (size_t i = 0; i < kCount; ++i) {
      const Op op = static_cast<Op>(i);
      rows[i] = functions_of(op, kFamilies[i]);
      rows[i].op = op;
      rows[i].name = kNames[i];
      rows[i].family = kFamilies[i];
      by_name[kNames[i]] = &rows[i];
    }
  }
};

const Table& table() {
  static const Table t;
  return t;
}

}  // namespace

const OpRow& op_row(Op op) { return table().rows[static_cast<size_t>(op)]; }

std::string_view op_name(Op op) { return kNames[static_cast<size_t>(op)]; }

const OpRow* find_any_op(std::string_view name) {
  const auto it = table().by_name.find(name);
  return it == table().by_name.end() ? nullptr : it->second;
}

const OpRow* find_op(std::string_view name) {
  const OpRow* row = find_any_op(name);
  return row && row->family != Family::leaf && row->family != Family::control ? row : nullptr;
}

std::span<const OpRow> op_rows() { return table().rows; }

}  // namespace harmonics::engine
