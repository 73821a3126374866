// Naive reference of the primitives: one formula per element in double, independent of the engine's loops.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <harmonics/ops.hpp>

#include "engine/tensor/attributes.hpp"

namespace harmonics::engine::conformance {

using Index = std::vector<int64_t>;

struct Grid {
  Index shape;
  std::vector<double> values;

  Grid() = default;
  explicit Grid(const HTensor& x) : shape(x.shape().vector()) {
    const HTensor wide = cast(x, DType::F64);
    values.assign(wide.data<double>(), wide.data<double>() + wide.size());
  }
  Grid(const Index& dims, double value) : shape(dims), values(static_cast<size_t>(Shape(dims).count()), value) {}

  double& at(const Index& index) {
    int64_t place = 0;
    for (size_t i = 0; i < shape.size(); ++i) place = place * shape[i] + index[i];
    return values.at(static_cast<size_t>(place));
  }
  double at(const Index& index) const { return const_cast<Grid*>(this)->at(index); }
  bool inside(const Index& index) const {
    for (size_t i = 0; i < shape.size(); ++i)
      if (index[i] < 0 || index[i] >= shape[i]) return false;
    return true;
  }
};

template <typename Body>
void for_each_index(const Index& shape, Body&& body) {
  for (int64_t n = 0; n < Shape(shape).count(); ++n) {
    Index index(shape.size());
    int64_t rest = n;
    for (size_t i = shape.size(); i-- > 0; rest /= shape[i]) index[i] = rest % shape[i];
    body(index);
  }
}

inline Index joined(const Index& a, const Index& b, const Index& c = {}) {
  Index all = a;
  all.insert(all.end(), b.begin(), b.end());
  all.insert(all.end(), c.begin(), c.end());
  return all;
}
inline Index head(const Index& index, int64_t n) { return Index(index.begin(), index.begin() + n); }
inline Index tail(const Index& index, int64_t n) { return Index(index.begin() + n, index.end()); }

using Grids = std::vector<Grid>;
// Fills results of the correct shape.
using Formula = std::function<void(const AttributeMap&, const Grids& in, Grids& out)>;

// out[i] = element(i)
template <typename Element>
void fill(Grid& out, Element&& element) {
  for_each_index(out.shape, [&](const Index& i) { out.at(i) = element(i); });
}

inline bool reduced(const AttributeMap& a, int64_t axis) {
  const Index& axes = a.integers("axes");
  return std::count(axes.begin(), axes.end(), axis) > 0;
}

inline Formula reduction(double start, double (*join)(double, double)) {
  return [=](const AttributeMap& a, const Grids& in, Grids& out) {
    std::fill(out[0].values.begin(), out[0].values.end(), start);
    for_each_index(in[0].shape, [&](const Index& i) {
      Index place;
      for (size_t axis = 0; axis < i.size(); ++axis) {
        if (!reduced(a, static_cast<int64_t>(axis)))
          place.push_back(i[axis]);
        else if (a.flag("keep"))
          place.push_back(0);
      }
      out[0].at(place) = join(out[0].at(place), in[0].at(i));
    });
  };
}

inline Formula extreme_place(double sign) {
  return [sign](const AttributeMap& a, const Grids& in, Grids& out) {
    const int64_t axis = a.integer("axis");
    fill(out[0], [&](const Index& i) {
      int64_t best = 0;
      const auto value = [&](int64_t k) { return sign * in[0].at(joined(head(i, axis), {k}, tail(i, axis))); };
      for (int64_t k = 0; k < in[0].shape[static_cast<size_t>(axis)]; ++k)
        if (value(k) > value(best)) best = k;
      return static_cast<double>(best);
    });
  };
}

inline void naive_dot(const AttributeMap& a, const Grids& in, Grids& out) {
  const Index &lb = a.integers("lhs_batch"), &rb = a.integers("rhs_batch"), &lc = a.integers("lhs_contract"),
              &rc = a.integers("rhs_contract");
  const auto free_axes = [](const Grid& x, const Index& batch, const Index& contract) {
    Index axes;
    for (int64_t i = 0; i < static_cast<int64_t>(x.shape.size()); ++i)
      if (!std::count(batch.begin(), batch.end(), i) && !std::count(contract.begin(), contract.end(), i))
        axes.push_back(i);
    return axes;
  };
  const Index lf = free_axes(in[0], lb, lc), rf = free_axes(in[1], rb, rc);
  Index inner;
  for (const int64_t axis : lc) inner.push_back(in[0].shape[static_cast<size_t>(axis)]);
  const auto place = [](size_t rank, const Index& axes, const Index& index, size_t first, Index base) {
    base.resize(rank);
    for (size_t i = 0; i < axes.size(); ++i) base[static_cast<size_t>(axes[i])] = index[first + i];
    return base;
  };
  fill(out[0], [&](const Index& i) {
    double sum = 0;
    for_each_index(inner, [&](const Index& k) {
      const size_t l = in[0].shape.size(), r = in[1].shape.size();
      const Index left = place(l, lf, i, lb.size(), place(l, lb, i, 0, place(l, lc, k, 0, {})));
      const Index right = place(r, rf, i, lb.size() + lf.size(), place(r, rb, i, 0, place(r, rc, k, 0, {})));
      sum += in[0].at(left) * in[1].at(right);
    });
    return sum;
  });
}

// Calls visit(patch, image) for every patch element; the image index may be out of range.
template <typename Visit>
void for_each_tap(const AttributeMap& a, const Index& patches, Visit&& visit) {
  const Index& kernel = a.integers("kernel");
  const int64_t taps = Shape(kernel).count();
  for_each_index(patches, [&](const Index& p) {
    Index tap(kernel.size()), image{p[0], p[1] / taps};
    int64_t rest = p[1] % taps;
    for (size_t i = kernel.size(); i-- > 0; rest /= kernel[i]) tap[i] = rest % kernel[i];
    for (size_t i = 0; i < kernel.size(); ++i)
      image.push_back(p[2 + i] * a.integers("strides")[i] + tap[i] * a.integers("dilation")[i] -
                      a.integers("padding_low")[i]);
    visit(p, image);
  });
}

// Returns the index in the scale's vector for element i.
inline Index step_of(const AttributeMap& a, const Grid& scale, const Index& i) {
  return scale.shape.empty() ? Index{} : Index{i[static_cast<size_t>(a.integer("axis"))]};
}

inline Index clamped_starts(const Grid& starts, const Index& shape, const Index& block) {
  Index at;
  for (size_t i = 0; i < shape.size(); ++i)
    at.push_back(std::clamp<int64_t>(static_cast<int64_t>(starts.values[i]), 0, shape[i] - block[i]));
  return at;
}
inline Index sum(Index a, const Index& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

inline std::map<std::string, Formula> layout_formulas() {
  std::map<std::string, Formula> f;
  f["reshape"] = [](const AttributeMap&, const Grids& in, Grids& out) { out[0].values = in[0].values; };
  f["transpose"] = [](const AttributeMap& a, const Grids& in, Grids& out) {
    fill(out[0], [&](const Index& i) {
      Index from(i.size());
      for (size_t k = 0; k < i.size(); ++k) from[static_cast<size_t>(a.integers("permutation")[k])] = i[k];
      return in[0].at(from);
    });
  };
  f["broadcast"] = [](const AttributeMap&, const Grids& in, Grids& out) {
    fill(out[0], [&](const Index& i) {
      Index from = tail(i, static_cast<int64_t>(i.size() - in[0].shape.size()));
      for (size_t k = 0; k < from.size(); ++k) from[k] = std::min(from[k], in[0].shape[k] - 1);
      return in[0].at(from);
    });
  };
  f["slice"] = [](const AttributeMap& a, const Grids& in, Grids& out) {
    fill(out[0], [&](Index i) {
      for (size_t k = 0; k < i.size(); ++k) i[k] = a.integers("starts")[k] + i[k] * a.integers("strides")[k];
      return in[0].at(i);
    });
  };
  f["pad"] = [](const AttributeMap& a, const Grids& in, Grids& out) {
    std::fill(out[0].values.begin(), out[0].values.end(), a.number("value"));
    for_each_index(in[0].shape, [&](const Index& i) {
      Index to = i;
      for (size_t k = 0; k < i.size(); ++k) to[k] = a.integers("low")[k] + i[k] * (1 + a.integers("interior")[k]);
      out[0].at(to) = in[0].at(i);
    });
  };
  f["concat"] = [](const AttributeMap& a, const Grids& in, Grids& out) {
    const auto axis = static_cast<size_t>(a.integer("axis"));
    fill(out[0], [&](Index i) {
      size_t part = 0;
      while (i[axis] >= in[part].shape[axis]) i[axis] -= in[part++].shape[axis];
      return in[part].at(i);
    });
  };
  f["reverse"] = [](const AttributeMap& a, const Grids& in, Grids& out) {
    fill(out[0], [&](Index i) {
      for (const int64_t axis : a.integers("axes")) {
        int64_t& k = i[static_cast<size_t>(axis)];
        k = in[0].shape[static_cast<size_t>(axis)] - 1 - k;
      }
      return in[0].at(i);
    });
  };
  return f;
}

// Returns the position in x that the indices at `place` select: its batch axes, then the indices.
inline Index position(const AttributeMap& a, const Grid& indices, const Index& place) {
  Index at = head(place, a.integer("batch_axes"));
  for (int64_t i = 0; i < indices.shape.back(); ++i) at.push_back(static_cast<int64_t>(indices.at(joined(place, {i}))));
  return at;
}

inline std::map<std::string, Formula> index_formulas() {
  std::map<std::string, Formula> f;
  f["gather"] = [](const AttributeMap& a, const Grids& in, Grids& out) {
    const int64_t axis = a.integer("axis"), rank = static_cast<int64_t>(in[1].shape.size());
    fill(out[0], [&](const Index& i) {
      const auto chosen = static_cast<int64_t>(in[1].at(head(tail(i, axis), rank)));
      return in[0].at(joined(head(i, axis), {chosen}, tail(i, axis + rank)));
    });
  };
  f["scatter_add"] = [](const AttributeMap& a, const Grids& in, Grids& out) {
    const int64_t axis = a.integer("axis"), rank = static_cast<int64_t>(in[1].shape.size());
    out[0].values = in[0].values;
    for_each_index(in[2].shape, [&](const Index& i) {
      const auto chosen = static_cast<int64_t>(in[1].at(head(tail(i, axis), rank)));
      out[0].at(joined(head(i, axis), {chosen}, tail(i, axis + rank))) += in[2].at(i);
    });
  };
  f["gather_nd"] = [](const AttributeMap& a, const Grids& in, Grids& out) {
    const auto places = static_cast<int64_t>(in[1].shape.size()) - 1;
    fill(out[0],
         [&](const Index& i) { return in[0].at(joined(position(a, in[1], head(i, places)), tail(i, places))); });
  };
  f["scatter_nd"] = [](const AttributeMap& a, const Grids& in, Grids& out) {
    const auto places = static_cast<int64_t>(in[1].shape.size()) - 1;
    const std::string& reduction = a.text("reduction");
    out[0].values = in[0].values;
    for_each_index(in[2].shape, [&](const Index& i) {
      double& to = out[0].at(joined(position(a, in[1], head(i, places)), tail(i, places)));
      const double from = in[2].at(i);
      to = reduction == "add"   ? to + from
           : reduction == "max" ? std::max(to, from)
           : reduction == "min" ? std::min(to, from)
                                : from;
    });
  };
  f["dynamic_slice"] = [](const AttributeMap&, const Grids& in, Grids& out) {
    const Index start = clamped_starts(in[1], in[0].shape, out[0].shape);
    fill(out[0], [&](const Index& i) { return in[0].at(sum(i, start)); });
  };
  f["update_slice"] = [](const AttributeMap&, const Grids& in, Grids& out) {
    const Index start = clamped_starts(in[2], in[0].shape, in[1].shape);
    out[0].values = in[0].values;
    for_each_index(in[1].shape, [&](const Index& i) { out[0].at(sum(i, start)) = in[1].at(i); });
  };
  // An element's rank is the number of elements before it in the order.
  f["top_k"] = [](const AttributeMap& a, const Grids& in, Grids& out) {
    for_each_index(in[0].shape, [&](const Index& i) {
      const auto value = [&](int64_t k) { return in[0].at(joined(head(i, static_cast<int64_t>(i.size()) - 1), {k})); };
      int64_t place = 0;
      for (int64_t k = 0; k < in[0].shape.back(); ++k)
        place += value(k) > value(i.back()) || (value(k) == value(i.back()) && k < i.back());
      if (place >= a.integer("k")) return;
      const Index to = joined(head(i, static_cast<int64_t>(i.size()) - 1), {place});
      out[0].at(to) = in[0].at(i);
      out[1].at(to) = static_cast<double>(i.back());
    });
  };
  f["sort"] = [](const AttributeMap& a, const Grids& in, Grids& out) {
    const auto axis = static_cast<size_t>(a.integer("axis"));
    for_each_index(in[0].shape, [&](const Index& i) {
      Index other = i, to = i;
      to[axis] = 0;
      for (other[axis] = 0; other[axis] < in[0].shape[axis]; ++other[axis]) {
        const double difference = in[0].at(other) - in[0].at(i);
        const bool before = a.flag("descending", false) ? difference > 0 : difference < 0;
        to[axis] += before || (difference == 0 && other[axis] < i[axis]);
      }
      out[0].at(to) = in[0].at(i);
      out[1].at(to) = static_cast<double>(i[axis]);
    });
  };
  return f;
}

inline std::map<std::string, Formula> number_formulas() {
  std::map<std::string, Formula> f;
  f["reduce_sum"] = reduction(0, [](double a, double b) { return a + b; });
  f["reduce_prod"] = reduction(1, [](double a, double b) { return a * b; });
  f["reduce_max"] = reduction(-INFINITY, [](double a, double b) { return std::max(a, b); });
  f["reduce_min"] = reduction(INFINITY, [](double a, double b) { return std::min(a, b); });
  f["reduce_window"] = [](const AttributeMap& a, const Grids& in, Grids& out) {
    const std::string& reduction = a.text("reduction");
    const double start = reduction == "sum" ? 0 : reduction == "max" ? -INFINITY : INFINITY;
    fill(out[0], [&](const Index& place) {
      double result = start;
      for_each_index(a.integers("window"), [&](Index i) {
        for (size_t k = 0; k < i.size(); ++k)
          i[k] = place[k] * a.integers("strides")[k] + i[k] * a.integers("dilation")[k] - a.integers("padding_low")[k];
        if (!in[0].inside(i)) return;
        const double x = in[0].at(i);
        result = reduction == "sum" ? result + x : reduction == "max" ? std::max(result, x) : std::min(result, x);
      });
      return result;
    });
  };
  f["argmax"] = extreme_place(1);
  f["argmin"] = extreme_place(-1);
  f["cumsum"] = [](const AttributeMap& a, const Grids& in, Grids& out) {
    const auto axis = static_cast<size_t>(a.integer("axis"));
    fill(out[0], [&](Index i) {
      double total = 0;
      for (; i[axis] >= 0; --i[axis]) total += in[0].at(i);
      return total;
    });
  };
  f["dot"] = naive_dot;
  f["patches"] = [](const AttributeMap& a, const Grids& in, Grids& out) {
    for_each_tap(a, out[0].shape, [&](const Index& patch, const Index& image) {
      out[0].at(patch) = in[0].inside(image) ? in[0].at(image) : a.number("fill");
    });
  };
  f["unpatches"] = [](const AttributeMap& a, const Grids& in, Grids& out) {
    std::fill(out[0].values.begin(), out[0].values.end(), 0.0);
    for_each_tap(a, in[0].shape, [&](const Index& patch, const Index& image) {
      if (out[0].inside(image)) out[0].at(image) += in[0].at(patch);
    });
  };
  f["quantize"] = [](const AttributeMap& a, const Grids& in, Grids& out) {
    fill(out[0], [&](const Index& i) {
      const Index step = step_of(a, in[1], i);
      return std::clamp(std::nearbyint(in[0].at(i) / in[1].at(step)) + in[2].at(step), -128.0, 127.0);
    });
  };
  // Reinterprets i32 as u32, the only case used.
  f["bitcast"] = [](const AttributeMap&, const Grids& in, Grids& out) {
    for_each_index(in[0].shape,
                   [&](const Index& i) { out[0].at(i) = in[0].at(i) + (in[0].at(i) < 0 ? 4294967296.0 : 0); });
  };
  f["dequantize"] = [](const AttributeMap& a, const Grids& in, Grids& out) {
    fill(out[0], [&](const Index& i) {
      const Index step = step_of(a, in[1], i);
      return (in[0].at(i) - in[2].at(step)) * in[1].at(step);
    });
  };
  return f;
}

inline const std::map<std::string, Formula>& formulas() {
  static const std::map<std::string, Formula> all = [] {
    std::map<std::string, Formula> f = layout_formulas();
    f.merge(index_formulas());
    f.merge(number_formulas());
    return f;
  }();
  return all;
}

}  // namespace harmonics::engine::conformance
