// Calls of the layout, index, reduction, contraction and storage primitives with random odd shapes.
#pragma once

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/tensor/attributes.hpp"
#include "gradcheck.hpp"

namespace harmonics::engine::conformance {

struct PrimitiveCase {
  std::string op;
  AttributeMap attributes;
  Values inputs;

  std::string str() const {
    std::string s = op + attributes.str();
    for (const HTensor& x : inputs) s += " " + type_of(x).str();
    return s;
  }
};

class PrimitiveCases {
 public:
  explicit PrimitiveCases(uint64_t seed) : seed_(seed), random_(philox_key(seed, stream_of("cases", 5)), 0) {
    layout();
    index();
    positions();
    reductions();
    windows();
    contractions();
    storage();
  }
  std::vector<PrimitiveCase> cases;

 private:
  using Ints = std::vector<int64_t>;

  int64_t pick(int64_t low, int64_t high) { return low + random_.below(static_cast<uint32_t>(high - low + 1)); }
  Ints sizes(int64_t rank, int64_t low = 1, int64_t high = 5) {
    Ints dims(static_cast<size_t>(rank));
    for (int64_t& d : dims) d = pick(low, high);
    return dims;
  }
  Ints shuffled(size_t n) {
    Ints order(n);
    std::iota(order.begin(), order.end(), 0);
    for (size_t i = n; i > 1; --i)
      std::swap(order[i - 1], order[static_cast<size_t>(pick(0, static_cast<int64_t>(i) - 1))]);
    return order;
  }
  Ints some_axes(size_t rank) {
    Ints axes = shuffled(rank);
    axes.resize(static_cast<size_t>(pick(0, static_cast<int64_t>(rank))));
    return axes;
  }
  HTensor tensor(const Ints& dims) {
    return testing::random_tensor(Shape(dims), seed_ * 1000 + cases.size() * 10 + serial_++);
  }
  HTensor whole(const Ints& dims, int64_t low, int64_t high) {
    std::vector<int64_t> values(static_cast<size_t>(Shape(dims).count()));
    for (int64_t& v : values) v = pick(low, high);
    return HTensor::from(Shape(dims), values);
  }
  AttributeMap& add(std::string op, Values inputs) {
    cases.push_back({std::move(op), {}, std::move(inputs)});
    return cases.back().attributes;
  }

  void layout() {
    const Ints dims = sizes(pick(1, 4));
    const size_t rank = dims.size();
    add("reshape", {tensor(dims)}).set("shape", Ints{1, Shape(dims).count()});
    add("transpose", {tensor(dims)}).set("permutation", shuffled(rank));

    Ints narrow(dims.begin() + pick(0, static_cast<int64_t>(rank)), dims.end());
    for (int64_t& d : narrow)
      if (pick(0, 1)) d = 1;
    add("broadcast", {tensor(narrow)}).set("shape", dims);

    Ints starts, limits, strides = sizes(static_cast<int64_t>(rank), 1, 3);
    for (const int64_t d : dims) {
      starts.push_back(pick(0, d));
      limits.push_back(pick(starts.back(), d));
    }
    add("slice", {tensor(dims)}).set("starts", starts).set("limits", limits).set("strides", strides);

    const auto padding = [&] { return sizes(static_cast<int64_t>(rank), 0, 2); };
    add("pad", {tensor(dims)})
        .set("low", padding())
        .set("high", padding())
        .set("interior", padding())
        .set("value", -1.5);

    const auto axis = static_cast<size_t>(pick(0, static_cast<int64_t>(rank) - 1));
    Values parts;
    for (int64_t i = pick(1, 3); i > 0; --i) {
      Ints part = dims;
      part[axis] = pick(0, 4);
      parts.push_back(tensor(part));
    }
    add("concat", parts).set("axis", static_cast<int64_t>(axis));
    add("reverse", {tensor(dims)}).set("axes", some_axes(rank));
  }

  void index() {
    const Ints dims = sizes(pick(1, 3));
    const int64_t rank = static_cast<int64_t>(dims.size()), axis = pick(0, rank - 1),
                  size = dims[static_cast<size_t>(axis)];
    const Ints places = sizes(pick(0, 2), 1, 4);
    const HTensor where = whole(places, 0, size - 1);
    add("gather", {tensor(dims), where}).set("axis", axis);
    Ints updates(dims.begin(), dims.begin() + axis);
    updates.insert(updates.end(), places.begin(), places.end());
    updates.insert(updates.end(), dims.begin() + axis + 1, dims.end());
    add("scatter_add", {tensor(dims), where, tensor(updates)}).set("axis", axis);

    Ints block;
    for (const int64_t d : dims) block.push_back(pick(0, d));
    add("dynamic_slice", {tensor(dims), whole({rank}, -2, 6)}).set("sizes", block);
    add("update_slice", {tensor(dims), tensor(block), whole({rank}, -2, 6)});
    add("top_k", {tensor(dims)}).set("k", pick(0, dims.back()));
    add("sort", {tensor(dims)}).set("axis", axis).set("descending", pick(0, 1) == 1);
  }

  // Positions may be duplicates; `set` then keeps the last.
  void positions() {
    const int64_t batch = pick(0, 1), k = pick(1, 2);
    const Ints dims = sizes(batch + k + pick(0, 2), 1, 4);
    Ints places(dims.begin(), dims.begin() + batch);
    for (const int64_t d : sizes(pick(0, 2), 1, 4)) places.push_back(d);
    std::vector<int64_t> numbers;
    for (int64_t n = Shape(places).count() * k; n > 0; --n)
      numbers.push_back(pick(0, dims[static_cast<size_t>(batch + static_cast<int64_t>(numbers.size()) % k)] - 1));
    Ints updates = places;
    updates.insert(updates.end(), dims.begin() + batch + k, dims.end());
    places.push_back(k);
    const HTensor where = HTensor::from(Shape(places), numbers);
    add("gather_nd", {tensor(dims), where}).set("batch_axes", batch);
    for (const char* reduction : {"set", "add", "max", "min"})
      add("scatter_nd", {tensor(dims), where, tensor(updates)})
          .set("batch_axes", batch)
          .set("reduction", std::string(reduction));
  }

  void windows() {
    const Ints dims = sizes(pick(0, 3), 1, 6);
    Ints window, dilation, low, high;
    // Every window contains an element: the extremes of padding alone are infinite.
    for (const int64_t d : dims) {
      window.push_back(pick(1, 3));
      dilation.push_back(pick(1, 2));
      const int64_t most = dilation.back() == 1 ? window.back() - 1 : 0;
      low.push_back(pick(0, most));
      high.push_back(std::max<int64_t>(pick(0, most), (window.back() - 1) * dilation.back() + 1 - d - low.back()));
    }
    const Ints strides = sizes(static_cast<int64_t>(dims.size()), 1, 3);
    for (const char* reduction : {"sum", "max", "min"}) {
      AttributeMap& a = add("reduce_window", {tensor(dims)});
      a.set("reduction", std::string(reduction)).set("window", window).set("strides", strides);
      a.set("padding_low", low).set("padding_high", high).set("dilation", dilation);
    }
  }

  void reductions() {
    const Ints dims = sizes(pick(1, 4));
    for (const char* op : {"reduce_sum", "reduce_max", "reduce_min", "reduce_prod"})
      add(op, {tensor(dims)}).set("axes", some_axes(dims.size())).set("keep", pick(0, 1) == 1);
    for (const char* op : {"argmax", "argmin", "cumsum"})
      add(op, {tensor(dims)}).set("axis", pick(0, static_cast<int64_t>(dims.size()) - 1));
  }

  // Returns an operand of dot with shuffled axes, and sets its batch and contracted axes.
  HTensor operand(const Ints& batch, const Ints& contract, Ints& batch_axes, Ints& contract_axes) {
    Ints dims = batch;
    dims.insert(dims.end(), contract.begin(), contract.end());
    for (const int64_t d : sizes(pick(0, 2), 1, 4)) dims.push_back(d);
    const Ints places = shuffled(dims.size());
    Ints mixed(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) {
      mixed[static_cast<size_t>(places[i])] = dims[i];
      if (i < batch.size())
        batch_axes.push_back(places[i]);
      else if (i < batch.size() + contract.size())
        contract_axes.push_back(places[i]);
    }
    return tensor(mixed);
  }

  void contractions() {
    const Ints batch = sizes(pick(0, 2), 1, 3), contract = sizes(pick(0, 2), 1, 4);
    Ints lb, lc, rb, rc;
    const HTensor left = operand(batch, contract, lb, lc), right = operand(batch, contract, rb, rc);
    add("dot", {left, right}).set("lhs_batch", lb).set("lhs_contract", lc).set("rhs_batch", rb).set("rhs_contract", rc);

    const int64_t spatial = pick(1, 3);
    AttributeMap window;
    const Ints kernel = sizes(spatial, 1, 3), dilation = sizes(spatial, 1, 2), low = sizes(spatial, 0, 2);
    window.set("kernel", kernel).set("dilation", dilation).set("strides", sizes(spatial, 1, 3));
    window.set("padding_low", low).set("padding_high", sizes(spatial, 0, 2)).set("fill", 0.75);
    Ints image = sizes(2, 1, 3);
    for (size_t i = 0; i < kernel.size(); ++i) image.push_back((kernel[i] - 1) * dilation[i] + 1 + pick(0, 3));
    const HTensor x = tensor(image);
    add("patches", {x}) = window;
    const HTensor patches = apply("patches", window, {x}).at(0);
    add("unpatches", {tensor(patches.shape().vector())}) = window.set("input_shape", image);
  }

  void storage() {
    const Ints dims = sizes(pick(1, 3));
    const int64_t axis = pick(0, static_cast<int64_t>(dims.size()) - 1);
    const Ints steps = pick(0, 1) ? Ints{dims[static_cast<size_t>(axis)]} : Ints{};
    const HTensor scale = testing::random_tensor(Shape(steps), seed_, 0.01, 0.05);
    const HTensor zero = cast(whole(steps, -5, 5), DType::I8);
    add("quantize", {tensor(dims), scale, zero}).set("axis", axis).set("dtype", static_cast<int64_t>(DType::I8));
    add("bitcast", {cast(whole(dims, -128, 127), DType::I32)}).set("dtype", static_cast<int64_t>(DType::U32));
    add("dequantize", {cast(whole(dims, -128, 127), DType::I8), scale, zero}).set("axis", axis);
  }

  uint64_t seed_, serial_ = 0;
  PhiloxStream random_;
};

}  // namespace harmonics::engine::conformance
