// Random programs of all primitives on all plain element types whose results are exact: kernels that compute in any
// order have to give the bits of the reference. Sums are of small integers.
#pragma once

#include <limits>

#include <harmonics/element_type.hpp>

#include "tests/engine/passes/random_program.hpp"

namespace harmonics::engine::testing {

class WideProgram {
 public:
  explicit WideProgram(uint32_t seed, int size = 40) : random_(seed), b_("wide" + std::to_string(seed)) {
    static const std::vector<int64_t> sizes{1, 2, 3, 4, 5, 7, 8, 16, 17, 33, 64};
    for (int64_t& s : sizes_) s = sizes[below(sizes.size())];
    for (int i = 0; i < 7; ++i) {
      const std::string name = "x" + std::to_string(i);
      const TensorType type{i < 2 ? DType::F32 : some_dtype(), some_shape()};
      numbers_[name] = random_tensor(type);
      b_.leaf(i < 5 ? Op::input : i < 6 ? Op::parameter : Op::state, name, type);
      changed_.push_back(i < 5 ? kNone : static_cast<ValueId>(values() - 1));
    }
    for (int i = 0; i < 2; ++i) b_.literal(random_tensor({some_dtype(), some_shape()}));
    for (int i = 0; i < size; ++i) {
      b_.scope(i < size * 5 / 10   ? pick<std::string>({"hidden", "hidden/attention", "hidden/residual", ""})
               : i < size * 8 / 10 ? "gradient/hidden"
                                   : "optimizer/w");
      step();
    }
    results();
    verify(b_.program);
  }

  const Program& program() const { return b_.program; }
  const std::map<std::string, HTensor>& numbers() const { return numbers_; }

 private:
  static constexpr ValueId kNone = ~0u;
  using Ints = std::vector<int64_t>;

  uint32_t below(size_t n) { return static_cast<uint32_t>(random_() % n); }
  bool one_in(size_t n) { return below(n) == 0; }
  template <typename T>
  T pick(const std::vector<T>& list) {
    return list[below(list.size())];
  }
  size_t values() const { return b_.program.values.size(); }
  const TensorType& type(ValueId v) const { return b_.program.type(v); }
  const Shape& shape(ValueId v) const { return type(v).shape; }

  DType some_dtype() {
    return pick<DType>({DType::F32, DType::F32, DType::F32, DType::F32, DType::F64, DType::F16, DType::BF16, DType::I8,
                        DType::U8, DType::I16, DType::U16, DType::I32, DType::U32, DType::I64, DType::U64,
                        DType::Bool});
  }
  DType some_integer() {
    return pick<DType>({DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::U32, DType::I64, DType::U64});
  }
  DType some_float() { return pick<DType>({DType::F32, DType::F32, DType::F32, DType::F64, DType::F16, DType::BF16}); }
  Shape some_shape() {
    const uint32_t rank = pick<uint32_t>({0, 1, 2, 2, 3, 3, 4});
    Shape s;
    for (uint32_t i = 0; i < rank; ++i) s.push_back(one_in(6) ? 1 : sizes_[below(3)]);
    while (s.count() > 9000) s[below(rank)] = 1;
    return s;
  }

  HTensor random_tensor(const TensorType& type) {
    std::vector<double> list;
    const bool extremes = one_in(4);
    for (int64_t i = 0; i < type.shape.count(); ++i) {
      double x = static_cast<double>(below(33)) / 4 - 4;
      if (is_integer(type.dtype)) x = below(9) - (is_signed(type.dtype) ? 4.0 : 0.0);
      if (extremes && one_in(5)) x = extreme(type.dtype);
      list.push_back(x);
    }
    const HTensor wide = HTensor::from<double>(type.shape, list);
    return type.dtype == DType::Bool ? less(wide, 0.0) : cast(wide, type.dtype);
  }
  static bool is_signed(DType d) { return d == DType::I8 || d == DType::I16 || d == DType::I32 || d == DType::I64; }
  double extreme(DType dtype) {
    if (is_float(dtype))
      return pick<double>({INFINITY, -INFINITY, NAN, -0.0, 1e-40, 1e30, -1e30, 65504, 6e-8, 0.1, -3.3, 2.5, -2.5});
    return pick<double>({127, 128, 255, -128, -1, 32767, -32768, 65535, 2147483647, -2147483648.0, 9e15});
  }

  // Returns a value for which `fits` holds, one of the last ones more often than not, or kNone.
  template <typename Fits>
  ValueId find(Fits&& fits) {
    std::vector<ValueId> found;
    for (ValueId v = 0; v < values(); ++v)
      if (fits(v)) found.push_back(v);
    if (found.empty()) return kNone;
    const size_t n = found.size();
    return found[one_in(3) ? below(n) : n - 1 - below(std::min<size_t>(n, 10))];
  }
  ValueId any() {
    return find([](ValueId) { return true; });
  }
  ValueId converted(ValueId v, DType dtype) {
    if (type(v).dtype == dtype) return v;
    return b_.apply(Op::cast, {v}, AttributeMap().set("dtype", static_cast<int64_t>(dtype)));
  }
  ValueId of(DType dtype) {
    const ValueId v = find([&](ValueId id) { return type(id).dtype == dtype; });
    return v == kNone || one_in(8) ? converted(any(), dtype) : v;
  }
  template <typename Fits>
  ValueId with_rank(uint32_t least, Fits&& fits) {
    const ValueId v = find([&](ValueId id) { return shape(id).rank() >= least && fits(id); });
    if (v != kNone) return v;
    Shape s;
    for (uint32_t i = 0; i < std::max(least, 1u); ++i) s.push_back(sizes_[i % 3]);
    return b_.literal(random_tensor({some_dtype(), s}));
  }
  ValueId with_rank(uint32_t least) {
    return with_rank(least, [](ValueId) { return true; });
  }
  // Returns a value of this type: another one, a broadcast one, a constant.
  ValueId like(TensorType wanted) {
    if (one_in(5) && wanted.dtype != DType::Bool)
      return b_.full(wanted.shape, pick<double>({0, 1, -1, 2, 0.5, 3}), wanted.dtype);
    const ValueId v = find([&](ValueId id) {
      const Shape& s = shape(id);
      bool fits = s.rank() <= wanted.shape.rank();
      for (uint32_t i = 0; fits && i < s.rank(); ++i) {
        const int64_t to = wanted.shape[wanted.shape.rank() - 1 - i];
        fits = s[s.rank() - 1 - i] == 1 || s[s.rank() - 1 - i] == to;
      }
      return fits && (type(id).dtype == wanted.dtype || one_in(3));
    });
    if (v == kNone) return b_.literal(random_tensor(wanted));
    const ValueId c = converted(v, wanted.dtype);
    if (shape(c) == wanted.shape) return c;
    return b_.apply(Op::broadcast, {c}, AttributeMap().set("shape", wanted.shape.vector()));
  }
  // Returns integers in [-2, 2], of a type in which sums of them are exact.
  ValueId small(ValueId x) {
    DType d = type(x).dtype;
    if (d == DType::Bool) x = converted(x, d = DType::F32);
    if (is_float(d)) x = b_.apply(Op::round, {x});
    const bool negative = is_float(d) || is_signed(d);
    x = b_.apply(Op::minimum, {x, b_.full(shape(x), 2, d)});
    return negative ? b_.apply(Op::maximum, {x, b_.full(shape(x), -2, d)}) : x;
  }
  ValueId indices(const Shape& s) {
    const DType d = some_integer();
    const ValueId v = find([&](ValueId id) { return type(id) == TensorType{d, s}; });
    return v != kNone ? v : b_.literal(random_tensor({d, s}));
  }
  static AttributeMap axes(Ints list) { return AttributeMap().set("axes", std::move(list)); }

  void step() {
    switch (below(16)) {
      case 0:
        unary();
        break;
      case 1:
      case 2:
      case 3:
        binary();
        break;
      case 4: {
        const TensorType t = type(any());
        const ValueId mask = like({DType::Bool, t.shape});
        b_.apply(Op::select, {mask, like(t), like(t)});
        break;
      }
      case 5:
        converted(any(), some_dtype());
        break;
      case 6:
      case 7:
        layout();
        break;
      case 8:
        reduce();
        break;
      case 9:
        index();
        break;
      case 10:
        product();
        break;
      case 11:
        storage();
        break;
      case 12:
        window();
        break;
      case 13:
        call();
        break;
      case 14:
        source();
        break;
      default:
        again();
    }
  }

  void unary() {
    const ValueId x = any();
    if (type(x).dtype == DType::Bool) {
      b_.apply(Op::logical_not, {x});
    } else if (is_float(type(x).dtype)) {
      b_.apply(pick<Op>({Op::neg, Op::abs, Op::sign, Op::floor, Op::ceil, Op::round, Op::sqrt, Op::is_nan, Op::is_inf,
                         Op::stop_gradient}),
               {x});
    } else {
      b_.apply(pick<Op>({Op::neg, Op::abs, Op::sign}), {x});
    }
  }
  void binary() {
    const ValueId x = any();
    const TensorType t = type(x);
    const ValueId a = one_in(3) ? like(t) : x, c = like(t);
    if (t.dtype == DType::Bool)
      b_.apply(pick<Op>({Op::logical_and, Op::logical_or, Op::logical_xor, Op::equal}), {a, c});
    else if (is_float(t.dtype) || one_in(2))
      b_.apply(pick<Op>({Op::add, Op::sub, Op::mul, Op::div, Op::maximum, Op::minimum, Op::remainder, Op::equal,
                         Op::less, Op::less_equal}),
               {a, c});
    else
      b_.apply(pick<Op>({Op::bit_and, Op::bit_or, Op::bit_xor, Op::shift_left, Op::shift_right_logical,
                         Op::shift_right_arithmetic}),
               {a, c});
  }

  void layout() {
    const ValueId x = with_rank(1);
    const Shape s = shape(x);
    const uint32_t rank = s.rank(), axis = below(rank);
    Ints zeros(rank, 0), ones(rank, 1), all = s.vector();
    switch (below(8)) {
      case 0: {
        Ints dims;
        int64_t left = s.count();
        for (int i = 0; i < 3; ++i) {
          const int64_t d = pick<int64_t>({1, 2, 4, sizes_[0], sizes_[1], sizes_[2]});
          if (left % d == 0) dims.push_back(d), left /= d;
        }
        dims.push_back(left);
        b_.apply(Op::reshape, {x}, AttributeMap().set("shape", dims));
        break;
      }
      case 1:
      case 2: {
        Ints order(rank);
        for (uint32_t i = 0; i < rank; ++i) order[i] = i;
        std::shuffle(order.begin(), order.end(), random_);
        b_.apply(Op::transpose, {x}, AttributeMap().set("permutation", order));
        break;
      }
      case 3: {
        for (uint32_t i = 0; i < rank; ++i) {
          if (s[i] == 0 || one_in(2)) continue;
          zeros[i] = below(static_cast<size_t>(s[i]));
          all[i] = zeros[i] + 1 + below(static_cast<size_t>(s[i] - zeros[i]));
          ones[i] = 1 + below(3);
        }
        b_.apply(Op::slice, {x}, AttributeMap().set("starts", zeros).set("limits", all).set("strides", ones));
        break;
      }
      case 4: {
        Ints low(rank), high(rank), interior(rank);
        for (uint32_t i = 0; i < rank; ++i)
          low[i] = below(3), high[i] = below(3), interior[i] = one_in(3) ? below(3) : 0;
        if (s.count() > 3000) break;
        const double value = is_float(type(x).dtype) ? pick<double>({0, 0, 1, -INFINITY}) : pick<double>({0, 1});
        b_.apply(Op::pad, {x},
                 AttributeMap().set("low", low).set("high", high).set("interior", interior).set("value", value));
        break;
      }
      case 5: {
        TensorType other = type(x);
        other.shape[axis] = pick<int64_t>({1, 2, sizes_[0], s[axis]});
        if (s.count() + other.shape.count() > 20000) break;
        std::vector<ValueId> parts{x, like(other)};
        if (one_in(2)) parts.push_back(x);
        b_.apply(Op::concat, parts, AttributeMap().set("axis", int64_t{axis}));
        break;
      }
      case 6:
        b_.apply(Op::reverse, {x}, axes(one_in(2) || rank == 1 ? Ints{axis} : Ints{axis, (axis + 1) % rank}));
        break;
      default: {
        Shape wide = s;
        if (one_in(2) && s.count() * sizes_[0] < 9000) wide = Shape{sizes_[0]};
        if (wide.rank() == 1 && wide[0] == sizes_[0] && wide != s)
          for (int64_t d : s) wide.push_back(d);
        for (uint32_t i = 0; i < wide.rank(); ++i)
          if (wide[i] == 1 && wide.count() * sizes_[1] < 9000) wide[i] = sizes_[1];
        if (wide.rank() <= HX_MAX_RANK) b_.apply(Op::broadcast, {x}, AttributeMap().set("shape", wide.vector()));
      }
    }
  }

  void reduce() {
    const ValueId x = with_rank(1, [&](ValueId v) { return shape(v).count() > 0; });
    const uint32_t rank = shape(x).rank(), axis = below(rank);
    Ints list;
    for (uint32_t i = 0; i < rank; ++i)
      if (i == axis || one_in(3)) list.push_back(i);
    const AttributeMap a = axes(list).set("keep", one_in(2));
    switch (below(6)) {
      case 0:
      case 1:
        b_.apply(Op::reduce_sum, {small(x)}, a);
        break;
      case 2:
        b_.apply(pick<Op>({Op::reduce_max, Op::reduce_min}), {x}, a);
        break;
      case 3:
        b_.apply(pick<Op>({Op::argmax, Op::argmin}), {x}, AttributeMap().set("axis", int64_t{axis}));
        break;
      case 4:
        b_.apply(Op::cumsum, {small(x)}, AttributeMap().set("axis", int64_t{axis}));
        break;
      default: {
        // Signs and zeros: products are exact.
        const ValueId n = type(x).dtype == DType::Bool ? converted(x, DType::I32) : x;
        b_.apply(Op::reduce_prod, {b_.apply(Op::sign, {n})}, a);
      }
    }
  }

  void index() {
    const ValueId x = with_rank(1, [&](ValueId v) { return shape(v).count() > 0; });
    const Shape s = shape(x);
    const uint32_t rank = s.rank(), axis = below(rank);
    const AttributeMap at = AttributeMap().set("axis", int64_t{axis});
    switch (below(7)) {
      case 0: {
        const ValueId i = indices(one_in(3) ? Shape{2, 3} : Shape{sizes_[below(3)]});
        if (s.count() / std::max<int64_t>(1, s[axis]) * shape(i).count() < 9000 &&
            rank + shape(i).rank() <= HX_MAX_RANK + 1)
          b_.apply(Op::gather, {x, i}, at);
        break;
      }
      case 1: {
        const ValueId n = small(x), i = indices({sizes_[below(3)]});
        TensorType updates = type(n);
        updates.shape[axis] = shape(i)[0];
        if (updates.shape.count() < 9000) b_.apply(Op::scatter_add, {n, i, small(like(updates))}, at);
        break;
      }
      case 2: {
        const uint32_t k = 1 + below(rank);
        const ValueId i = indices({sizes_[below(3)], int64_t{k}});
        Shape y{shape(i)[0]};
        for (int64_t d : s.from(k)) y.push_back(d);
        if (y.count() > 9000) break;
        if (one_in(2) || type(x).dtype == DType::Bool) {
          b_.apply(Op::gather_nd, {x, i});
        } else {
          const ValueId n = small(x);
          const std::string how = pick<std::string>({"add", "max", "min"});
          b_.apply(Op::scatter_nd, {n, i, small(like({type(n).dtype, y}))}, AttributeMap().set("reduction", how));
        }
        break;
      }
      case 3: {
        Shape block = s;
        for (uint32_t i = 0; i < rank; ++i) block[i] = s[i] ? 1 + below(static_cast<size_t>(s[i])) : 0;
        const ValueId starts = indices({int64_t{rank}});
        if (one_in(2))
          b_.apply(Op::dynamic_slice, {x, starts}, AttributeMap().set("sizes", block.vector()));
        else
          b_.apply(Op::update_slice, {x, like({type(x).dtype, block}), starts});
        break;
      }
      case 4:
        if (type(x).dtype != DType::Bool)
          b_.apply_all(Op::top_k, {x}, AttributeMap().set("k", int64_t{below(static_cast<size_t>(s.back() + 1))}));
        break;
      default:
        if (type(x).dtype != DType::Bool) b_.apply_all(Op::sort, {x}, AttributeMap(at).set("descending", one_in(2)));
    }
  }

  void product() {
    const ValueId x = with_rank(2, [&](ValueId v) { return type(v).dtype != DType::Bool && shape(v).count() < 5000; });
    if (type(x).dtype == DType::Bool) return;
    const ValueId a = small(x);
    const Shape s = shape(a);
    const uint32_t contract = below(s.rank());
    TensorType other{type(a).dtype, {s[contract], sizes_[below(3)]}};
    Ints batch, other_batch, right{0};
    if (s.rank() > 2 && one_in(2)) {
      const uint32_t axis = (contract + 1) % s.rank();
      batch = {axis}, other_batch = {0}, right = {1};
      other.shape = {s[axis], s[contract], sizes_[below(3)]};
    }
    if (one_in(2)) {
      std::swap(other.shape[other.shape.rank() - 1], other.shape[other.shape.rank() - 2]);
      right[0] = other.shape.rank() - 1;
    }
    int64_t cost = s.count() * other.shape.back() * (right[0] ? other.shape[other.shape.rank() - 2] : 1);
    if (cost > 300000 || s[contract] == 0 || s.count() / s[contract] * other.shape.count() / s[contract] > 9000) return;
    AttributeMap m;
    m.set("lhs_contract", Ints{contract})
        .set("rhs_contract", right)
        .set("lhs_batch", batch)
        .set("rhs_batch", other_batch);
    ValueId c = small(like(other));
    if (is_float(other.dtype) && one_in(3)) c = converted(c, some_float());
    if (is_float(other.dtype) && one_in(4)) m.set("out_dtype", std::string(dtype_name(some_float())));
    ValueId y = b_.apply(Op::dot, {a, c}, m);
    if (one_in(2)) y = b_.apply(Op::add, {y, small(like(type(y)))});
    if (one_in(3)) b_.apply(pick<Op>({Op::neg, Op::abs, Op::sign}), {y});
  }

  void storage() {
    const ValueId x = any();
    switch (below(3)) {
      case 0: {
        if (type(x).dtype == DType::Bool) break;
        const size_t bytes = element_bytes(type(x).dtype);
        const DType to = bytes == 1   ? pick<DType>({DType::U8, DType::I8})
                         : bytes == 2 ? pick<DType>({DType::I16, DType::U16})
                         : bytes == 4 ? pick<DType>({DType::I32, DType::U32, DType::F32, DType::U16, DType::U8})
                                      : pick<DType>({DType::I64, DType::U64, DType::F64, DType::U32, DType::U16});
        if (shape(x).rank() < HX_MAX_RANK)
          b_.apply(Op::bitcast, {x}, AttributeMap().set("dtype", static_cast<int64_t>(to)));
        break;
      }
      case 1: {
        const DType real = some_float(), stored = pick<DType>({DType::U8, DType::I8, DType::U16, DType::I16});
        const ValueId r = converted(x, real);
        const bool each = shape(r).rank() > 0 && one_in(2);
        const uint32_t axis = each ? below(shape(r).rank()) : 0;
        const Shape steps = each ? Shape{shape(r)[axis]} : Shape{};
        b_.apply(Op::quantize, {r, b_.full(steps, 0.25, real), like({stored, steps})},
                 AttributeMap().set("axis", int64_t{axis}).set("dtype", static_cast<int64_t>(stored)));
        break;
      }
      default: {
        const DType stored = pick<DType>({DType::U8, DType::I8, DType::U16, DType::I16, DType::I32}),
                    real = some_float();
        const ValueId q = of(stored);
        const bool each = shape(q).rank() > 0 && one_in(2);
        const uint32_t axis = each ? below(shape(q).rank()) : 0;
        const Shape steps = each ? Shape{shape(q)[axis]} : Shape{};
        b_.apply(Op::dequantize, {q, b_.full(steps, 0.5, real), like({stored, steps})},
                 AttributeMap().set("axis", int64_t{axis}));
      }
    }
  }

  void window() {
    const ValueId x = with_rank(
        1, [&](ValueId v) { return shape(v).count() > 0 && type(v).dtype != DType::Bool && shape(v).rank() <= 4; });
    if (type(x).dtype == DType::Bool) return;
    const Shape s = shape(x);
    Ints size, strides, low, high, dilation;
    for (int64_t d : s) {
      const auto w = static_cast<int64_t>(1 + below(3)), l = static_cast<int64_t>(below(2)),
                 h = static_cast<int64_t>(below(2)), t = static_cast<int64_t>(1 + below(2));
      const bool fits = (w - 1) * t < d + l + h;
      size.push_back(fits ? w : 1), strides.push_back(1 + below(3)), low.push_back(l), high.push_back(h),
          dilation.push_back(t);
    }
    const std::string how = pick<std::string>({"sum", "max", "min"});
    b_.apply(Op::reduce_window, {small(x)},
             AttributeMap()
                 .set("reduction", how)
                 .set("window", size)
                 .set("strides", strides)
                 .set("padding_low", low)
                 .set("padding_high", high)
                 .set("dilation", dilation));
  }

  void call() {
    const ValueId x = with_rank(2, [&](ValueId v) { return type(v).dtype == DType::F32 && shape(v).count() < 5000; });
    if (type(x).dtype != DType::F32) return;
    const Shape s = shape(x);
    switch (below(5)) {
      case 0:
        b_.call("relu", {x});
        break;
      case 1: {
        const ValueId w = small(like({DType::F32, {sizes_[below(3)], s.back()}}));
        std::vector<ValueId> operands{small(x), w};
        if (one_in(2)) operands.push_back(small(like({DType::F32, {shape(w)[0]}})));
        const ValueId y = b_.call("linear", operands);
        if (one_in(2)) b_.call("relu", {y});
        break;
      }
      case 2: {
        if (s.rank() != 2) break;
        b_.call("embedding", {x, indices({sizes_[below(3)], 2})});
        break;
      }
      case 3:
        b_.call("hardtanh", {x});
        break;
      default:
        b_.call("leaky_relu", {x}, AttributeMap().set("slope", 0.25));
    }
  }

  void source() {
    const Shape s = some_shape();
    if (one_in(2) && s.rank()) {
      const DType d = pick<DType>({DType::F32, DType::I32, DType::I64, DType::BF16, DType::U8});
      b_.apply(Op::iota, {},
               AttributeMap()
                   .set("dtype", static_cast<int64_t>(d))
                   .set("shape", s.vector())
                   .set("axis", int64_t{below(s.rank())}));
    } else {
      b_.full(s, pick<double>({0, 1, -1, 7, 0.5}), some_dtype());
    }
  }

  // Repeats an earlier node, as a case for cse.
  void again() {
    const Node earlier = b_.program.producer(any());
    if (is_named_leaf(earlier.op)) return;
    std::vector<TensorType> types;
    for (ValueId v : earlier.outputs) types.push_back(type(v));
    b_.append(earlier, types);
  }

  void results() {
    for (int i = 0; i < 6; ++i) b_.output("y" + std::to_string(i), any());
    for (size_t i = 0; i < changed_.size(); ++i)
      if (changed_[i] != kNone) b_.update("x" + std::to_string(i), like(type(changed_[i])));
  }

  std::mt19937 random_;
  Builder b_;
  std::map<std::string, HTensor> numbers_;
  std::vector<ValueId> changed_;
  int64_t sizes_[3];
};

}  // namespace harmonics::engine::testing
