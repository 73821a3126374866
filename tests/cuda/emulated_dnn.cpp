// Emulation of cuDNN's graph API, written from its documentation, so that the device's calls are checked rather than
// repeated: descriptors take attributes of the documented type and count, are validated on finalize and constant
// afterwards; engines report their numerical notes.
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "engine/tensor/half.hpp"
#include "kernels/cuda/dnn.hpp"
#include "tests/cuda/emulated_driver.hpp"

namespace harmonics::cuda {

using namespace engine;
namespace {

constexpr int kNotInitialized = 1001, kBadParameter = 2000, kNotFinalized = 2004, kNotSupported = 3000;

struct Value {
  int type;
  int64_t count;
  std::vector<char> bytes;
};
struct Description {
  int kind = 0;
  bool is_final = false;
  std::map<int, Value> values;
  int engine = -1;                     // for choices, engines and plans
  const Description* graph = nullptr;  // for choices, engines and plans

  bool has(std::initializer_list<int> attributes) const {
    for (const int a : attributes)
      if (!values.count(a)) return false;
    return true;
  }
  template <typename T>
  std::vector<T> all(int attribute) const {
    const auto& v = values.at(attribute);
    std::vector<T> result(static_cast<size_t>(v.count));
    std::memcpy(result.data(), v.bytes.data(), v.bytes.size());
    return result;
  }
  template <typename T>
  T one(int attribute) const {
    return all<T>(attribute).at(0);
  }
  const Description& linked(int attribute) const { return *static_cast<const Description*>(one<void*>(attribute)); }
};
Description& of(dnn::Description d) { return *static_cast<Description*>(d); }

struct Handle {
  void* stream = nullptr;
} the_handle;

// The descriptors that have an attribute, and its type.
struct Rule {
  int kind, type;
  bool is_list;
};
const std::map<int, Rule>& rules() {
  static const std::map<int, Rule> table = {
      {100, {1, dnn::kDataTypes, false}},    {101, {1, dnn::kModes, false}},
      {102, {1, dnn::kInt64s, true}},        {103, {1, dnn::kInt64s, true}},
      {104, {1, dnn::kInt64s, true}},        {105, {1, dnn::kInt64s, true}},
      {106, {1, dnn::kInt64s, false}},       {200, {4, dnn::kHeuristicModes, false}},
      {201, {4, dnn::kDescriptions, false}}, {400, {5, dnn::kHandles, false}},
      {401, {5, dnn::kDescriptions, false}}, {800, {15, dnn::kHandles, false}},
      {801, {15, dnn::kDescriptions, true}}, {900, {17, dnn::kInt64s, false}},
      {901, {17, dnn::kDataTypes, false}},   {902, {17, dnn::kInt64s, true}},
      {903, {17, dnn::kInt64s, true}},       {906, {17, dnn::kInt64s, false}},
      {907, {17, dnn::kFlags, false}},       {908, {17, dnn::kFlags, false}},
      {1000, {16, dnn::kInt64s, true}},      {1001, {16, dnn::kAddresses, true}},
      {1003, {16, dnn::kAddresses, false}},  {2811, {41, dnn::kDescriptions, false}},
      {2812, {41, dnn::kInt64s, false}},     {2813, {41, dnn::kInt64s, false}},
      {3007, {44, dnn::kComparisons, false}}};
  return table;
}
// Attributes of convolutions: two factors, then four descriptors. Attributes of attention and masks: descriptors.
bool operation_rule(int attribute, int type, Rule& rule) {
  if (attribute >= 2800 && attribute <= 2805)
    rule = {41, dnn::kDescriptions, false};
  else if (attribute >= 3000 && attribute <= 3006)
    rule = {44, dnn::kDescriptions, false};
  else if (attribute >= 700 && attribute <= 717) {
    const int which = (attribute - 700) / 6, kinds[] = {10, 12, 11};
    const bool is_factor = (attribute - 700) % 6 < 2;
    rule = {kinds[which], is_factor ? (type == dnn::kDoubles ? dnn::kDoubles : dnn::kFloats) : dnn::kDescriptions,
            false};
  } else
    return false;
  return true;
}
size_t width_of(int type) {
  switch (type) {
    case dnn::kHandles:
    case dnn::kInt64s:
    case dnn::kDoubles:
    case dnn::kAddresses:
    case dnn::kDescriptions:
      return 8;
    case dnn::kFlags:
      return 1;
    default:
      return 4;
  }
}

int set(dnn::Description d, int attribute, int type, int64_t count, const void* values) {
  Rule rule{};
  if (const auto at = rules().find(attribute); at != rules().end())
    rule = at->second;
  else if (!operation_rule(attribute, type, rule))
    return kNotSupported;
  if (of(d).is_final || rule.kind != of(d).kind || rule.type != type || count < 1 || (!rule.is_list && count != 1) ||
      !values)
    return kBadParameter;
  const auto* bytes = static_cast<const char*>(values);
  of(d).values[attribute] = {type, count, {bytes, bytes + width_of(type) * static_cast<size_t>(count)}};
  return 0;
}

struct Tensor {
  std::vector<int64_t> dims, strides;
  int64_t number;
  int type;
  bool is_virtual, is_by_value;
  explicit Tensor(const Description& d)
      : dims(d.all<int64_t>(902)),
        strides(d.all<int64_t>(903)),
        number(d.one<int64_t>(906)),
        type(d.one<int32_t>(901)),
        is_virtual(d.has({907}) && d.one<uint8_t>(907)),
        is_by_value(d.has({908}) && d.one<uint8_t>(908)) {}
  double at(const void* p, int64_t i) const {
    switch (type) {
      case dnn::kF32:
        return static_cast<double>(static_cast<const float*>(p)[i]);
      case dnn::kF64:
        return static_cast<const double*>(p)[i];
      case dnn::kF16:
        return static_cast<double>(half_to_float(static_cast<const uint16_t*>(p)[i]));
      case dnn::kBf16:
        return static_cast<double>(bfloat_to_float(static_cast<const uint16_t*>(p)[i]));
      default:
        return static_cast<const int32_t*>(p)[i];
    }
  }
  void put(void* p, int64_t i, double value) const {
    const auto narrow = static_cast<float>(value);
    switch (type) {
      case dnn::kF32:
        static_cast<float*>(p)[i] = narrow;
        break;
      case dnn::kF64:
        static_cast<double*>(p)[i] = value;
        break;
      case dnn::kF16:
        static_cast<uint16_t*>(p)[i] = float_to_half(narrow);
        break;
      default:
        static_cast<uint16_t*>(p)[i] = float_to_bfloat(narrow);
    }
  }
  int64_t place(const std::vector<int64_t>& index) const {
    int64_t n = 0;
    for (size_t i = 0; i < index.size(); ++i) n += index[i] * strides[i];
    return n;
  }
  int64_t reach() const {
    int64_t n = 1;
    for (size_t i = 0; i < dims.size(); ++i) n += (dims[i] - 1) * strides[i];
    return n;
  }
};
struct Window {
  std::vector<int64_t> dilation, strides, high, low;
  explicit Window(const Description& d)
      : dilation(d.all<int64_t>(102)),
        strides(d.all<int64_t>(103)),
        high(d.all<int64_t>(104)),
        low(d.all<int64_t>(105)) {}
};
// An operation. Its attributes start at `first`, with the two factors.
struct Operation {
  int first;
  const Description& it;
  explicit Operation(const Description& d) : first(d.kind == 10 ? 700 : d.kind == 12 ? 706 : 712), it(d) {}
  const Description& window() const { return it.linked(first + 2); }
  const Description& x() const { return it.linked(first == 700 ? 704 : first == 706 ? 710 : 716); }
  const Description& weight() const { return it.linked(first == 700 ? 703 : first == 706 ? 709 : 715); }
  const Description& y() const { return it.linked(first == 700 ? 705 : first == 706 ? 711 : 717); }
};

bool fits(const Description& d) {
  for (int a = Operation(d).first; a < Operation(d).first + 6; ++a)
    if (!d.has({a})) return false;
  const Operation o(d);
  for (const Description* t : {&o.x(), &o.weight(), &o.y()})
    if (t->kind != 17 || !t->is_final) return false;
  const bool wide = d.values.at(o.first).type == dnn::kDoubles;
  const auto factor = [&](int a) { return wide ? d.one<double>(a) : static_cast<double>(d.one<float>(a)); };
  if (o.window().kind != 1 || !o.window().is_final || factor(o.first) != 1 || factor(o.first + 1) != 0) return false;
  if (wide != (o.window().one<int32_t>(100) == dnn::kF64) || wide != (Tensor(o.x()).type == dnn::kF64)) return false;
  if (Tensor(o.x()).type != Tensor(o.weight()).type || Tensor(o.x()).type != Tensor(o.y()).type) return false;
  const Tensor x(o.x()), w(o.weight()), y(o.y());
  const Window window(o.window());
  const size_t axes = window.strides.size();
  if (x.dims.size() != axes + 2 || w.dims.size() != axes + 2 || y.dims.size() != axes + 2) return false;
  if (x.dims[0] != y.dims[0] || w.dims[0] != y.dims[1] || x.dims[1] % w.dims[1] || w.dims[0] % (x.dims[1] / w.dims[1]))
    return false;
  for (size_t i = 0; i < axes; ++i) {
    const int64_t room = x.dims[i + 2] + window.low[i] + window.high[i] - (w.dims[i + 2] - 1) * window.dilation[i] - 1;
    if (room < 0 || y.dims[i + 2] != room / window.strides[i] + 1) return false;
  }
  return true;
}

// Returns whether the graph is a single mask, from scores to scores, with a right bound.
bool masks(const Description& d) {
  if (!d.has({3000, 3004, 3005, 3006, 3007}) || d.one<int32_t>(3007) != dnn::kGreaterOrEqual) return false;
  const Tensor x(d.linked(3000)), bound(d.linked(3004)), fill(d.linked(3005)), y(d.linked(3006));
  return x.is_virtual && y.is_virtual && x.dims == y.dims && x.type == dnn::kF32 && bound.is_by_value &&
         bound.type == dnn::kI32 && fill.is_by_value && fill.type == dnn::kF32;
}
bool attends(const Description& d) {
  if (!d.has({2800, 2801, 2802, 2803, 2804, 2805})) return false;
  for (int a = 2800; a <= 2805; ++a)
    if (d.linked(a).kind != 17 || !d.linked(a).is_final) return false;
  const Tensor q(d.linked(2800)), k(d.linked(2801)), v(d.linked(2802)), out(d.linked(2803)), lse(d.linked(2804)),
      scale(d.linked(2805));
  for (const Tensor* t : {&q, &k, &v, &out})
    if (t->dims.size() != 4 || t->type != q.type || (t->type != dnn::kF16 && t->type != dnn::kBf16) || t->dims[3] % 8 ||
        t->strides[3] != 1)
      return false;
  if (!scale.is_by_value || scale.type != dnn::kF32 || lse.type != dnn::kF32 ||
      lse.dims != std::vector<int64_t>{q.dims[0], q.dims[1], q.dims[2], 1})
    return false;
  if (q.dims[0] != k.dims[0] || q.dims[1] % k.dims[1] || q.dims[3] != k.dims[3] || k.dims[1] != v.dims[1] ||
      k.dims[2] != v.dims[2])
    return false;
  if (out.dims != std::vector<int64_t>{q.dims[0], q.dims[1], q.dims[2], v.dims[3]}) return false;
  if (!d.has({2811})) return true;
  const Description& change = d.linked(2811);
  if (change.kind != 15 || !change.is_final || change.linked(801).kind != 44 || !d.has({2812, 2813})) return false;
  const Description& mask = change.linked(801);
  return Tensor(mask.linked(3000)).number == d.one<int64_t>(2812) &&
         Tensor(mask.linked(3006)).number == d.one<int64_t>(2813) &&
         Tensor(mask.linked(3000)).dims == std::vector<int64_t>{q.dims[0], q.dims[1], q.dims[2], k.dims[2]};
}

int finalize(dnn::Description d) {
  Description& it = of(d);
  const auto same = [&](int a, int b) { return it.has({a, b}) && it.values[a].count == it.values[b].count; };
  bool good = !it.is_final;
  switch (it.kind) {
    case 1:
      good = good && it.has({100, 101, 106}) && same(102, 103) && same(103, 104) && same(104, 105) &&
             it.values[102].count == it.one<int64_t>(106) && it.one<int32_t>(101) == 1;
      break;
    case 4:
      good = good && it.has({200, 201}) && it.linked(201).is_final && it.linked(201).kind == 15;
      break;
    case 5:
      good = good && it.has({400, 401}) && it.one<void*>(400) == &the_handle && it.linked(401).kind == 3 &&
             it.linked(401).engine >= 0;
      if (good) it.engine = it.linked(401).engine, it.graph = it.linked(401).graph;
      break;
    case 10:
    case 11:
    case 12:
      good = good && fits(it);
      break;
    case 41:
      good = good && attends(it);
      break;
    case 44:
      good = good && masks(it);
      break;
    case 15:
      good = good && it.has({800, 801}) && it.one<void*>(800) == &the_handle && it.values[801].count == 1 &&
             it.linked(801).is_final;
      break;
    case 16:
      good = good && it.has({1003}) && same(1000, 1001);
      break;
    case 17:
      good = good && it.has({900, 901, 906}) && same(902, 903) && it.values[902].count >= 4 &&
             (it.one<int64_t>(900) & (it.one<int64_t>(900) - 1)) == 0;
      break;
    default:
      good = false;
  }
  it.is_final = good;
  return good ? 0 : kBadParameter;
}

// Engines. Offered first: one with unspecified summation order, one on tensor cores. Then: one with transformed tiles,
// one in plain f32 with a workspace.
enum : int { kAnyOrder, kOnTensorCores, kPlain, kByTiles };
constexpr int64_t kWorkspace = 1000;

int get(dnn::Description d, int attribute, int type, int64_t wanted, int64_t* count, void* values) {
  const Description& it = of(d);
  if (attribute == 202 && type == dnn::kDescriptions && it.kind == 4) {
    if (!it.is_final) return kNotFinalized;
    const std::vector<int> offered = it.one<int32_t>(200) == 3        ? std::vector<int>{kAnyOrder, kOnTensorCores}
                                     : emulated::settings().dnn_knows ? std::vector<int>{kByTiles, kPlain}
                                                                      : std::vector<int>{kByTiles};
    *count = static_cast<int64_t>(offered.size());
    for (size_t i = 0; i < offered.size() && static_cast<int64_t>(i) < wanted; ++i) {
      Description& choice = of(static_cast<void**>(values)[i]);
      if (choice.kind != 3) return kBadParameter;
      choice.engine = offered[i], choice.graph = &it.linked(201), choice.is_final = true;
    }
    return 0;
  }
  if (attribute == 300 && type == dnn::kDescriptions && it.kind == 3 && wanted == 1 &&
      of(*static_cast<void**>(values)).kind == 2) {
    of(*static_cast<void**>(values)).engine = it.engine;
    return *count = 1, 0;
  }
  if (attribute == 1303 && type == dnn::kNotes && it.kind == 2 && wanted >= 2 && it.engine >= 0) {
    auto* notes = static_cast<int32_t*>(values);
    *count = 0;
    if (it.engine == kAnyOrder) notes[(*count)++] = 4;
    if (it.engine == kOnTensorCores) notes[(*count)++] = 0;
    if (it.engine == kByTiles) notes[(*count)++] = 5, notes[(*count)++] = 7;
    return 0;
  }
  if (attribute == 402 && type == dnn::kInt64s && it.kind == 5 && it.is_final && wanted == 1) {
    *static_cast<int64_t*>(values) = it.engine == kPlain ? kWorkspace : 0;
    return *count = 1, 0;
  }
  return kNotSupported;
}

// Calls f for every index below `dims`.
void each(const std::vector<int64_t>& dims, const std::function<void(const std::vector<int64_t>&)>& f) {
  std::vector<int64_t> at(dims.size(), 0);
  for (;;) {
    f(at);
    size_t axis = dims.size();
    while (axis > 0 && ++at[axis - 1] == dims[axis - 1]) at[--axis] = 0;
    if (axis == 0) return;
  }
}

// The kind of operation determines which operand accumulates; the others are read.
void convolve(int kind, const Tensor& x, const Tensor& w, const Tensor& y, const Window& window, void* at_x, void* at_w,
              void* at_y) {
  const Tensor& result = kind == 10 ? y : kind == 12 ? x : w;
  void* to = kind == 10 ? at_y : kind == 12 ? at_x : at_w;
  std::vector<double> sums(static_cast<size_t>(result.reach()), 0.0);
  const size_t axes = window.strides.size();
  const int64_t group = w.dims[0] / (x.dims[1] / w.dims[1]);
  each(y.dims, [&](const std::vector<int64_t>& p) {
    each({w.dims.begin() + 1, w.dims.end()}, [&](const std::vector<int64_t>& t) {
      int64_t i = p[0] * x.strides[0] + (p[1] / group * w.dims[1] + t[0]) * x.strides[1],
              j = p[1] * w.strides[0] + t[0] * w.strides[1], k = p[0] * y.strides[0] + p[1] * y.strides[1];
      for (size_t a = 0; a < axes; ++a) {
        const int64_t place = p[a + 2] * window.strides[a] - window.low[a] + t[a + 1] * window.dilation[a];
        if (place < 0 || place >= x.dims[a + 2]) return;
        i += place * x.strides[a + 2], j += t[a + 1] * w.strides[a + 2], k += p[a + 2] * y.strides[a + 2];
      }
      if (kind == 10)
        sums[static_cast<size_t>(k)] += x.at(at_x, i) * w.at(at_w, j);
      else if (kind == 12)
        sums[static_cast<size_t>(i)] += w.at(at_w, j) * y.at(at_y, k);
      else
        sums[static_cast<size_t>(j)] += x.at(at_x, i) * y.at(at_y, k);
    });
  });
  for (size_t i = 0; i < sums.size(); ++i) result.put(to, static_cast<int64_t>(i), sums[i]);
}

// Computes attention. Without a mask, all keys are visible.
void attend(const Description& d, const std::function<void*(const Tensor&)>& given) {
  const Tensor q(d.linked(2800)), k(d.linked(2801)), v(d.linked(2802)), out(d.linked(2803)), lse(d.linked(2804)),
      scale(d.linked(2805));
  const double factor = scale.at(given(scale), 0);
  int64_t reach = std::numeric_limits<int32_t>::max();
  double fill = 0;
  if (d.has({2811})) {
    const Description& mask = d.linked(2811).linked(801);
    const Tensor bound(mask.linked(3004)), other(mask.linked(3005));
    reach = static_cast<int64_t>(bound.at(given(bound), 0)), fill = other.at(given(other), 0);
  }
  each({q.dims[0], q.dims[1], q.dims[2]}, [&](const std::vector<int64_t>& row) {
    const int64_t shared = row[1] / (q.dims[1] / k.dims[1]);
    std::vector<double> scores;
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t s = 0; s < k.dims[2]; ++s) {
      double score = 0;
      for (int64_t i = 0; i < q.dims[3]; ++i)
        score += q.at(given(q), q.place({row[0], row[1], row[2], i})) * k.at(given(k), k.place({row[0], shared, s, i}));
      scores.push_back(row[2] + reach >= s ? score * factor : fill);
      largest = std::max(largest, scores.back());
    }
    for (double& score : scores) sum += score = std::exp(score - largest);
    lse.put(given(lse), lse.place({row[0], row[1], row[2], 0}), largest + std::log(sum));
    for (int64_t i = 0; i < v.dims[3]; ++i) {
      double value = 0;
      for (int64_t s = 0; s < k.dims[2]; ++s)
        value += scores[static_cast<size_t>(s)] / sum * v.at(given(v), v.place({row[0], shared, s, i}));
      out.put(given(out), out.place({row[0], row[1], row[2], i}), value);
    }
  });
}

int execute(dnn::Handle, dnn::Description p, dnn::Description pack) {
  const Description &plan = of(p), &given = of(pack);
  if (!plan.is_final || !given.is_final || plan.kind != 5 || given.kind != 16) return kNotFinalized;
  const Description& operation = plan.graph->linked(801);
  // By-value numbers are read immediately, all others when the job runs.
  const auto numbers = given.all<int64_t>(1000);
  const auto addresses = given.all<void*>(1001);
  const auto at = [=](const Tensor& t) -> void* {
    for (size_t i = 0; i < numbers.size(); ++i)
      if (numbers[i] == t.number) return addresses[i];
    return nullptr;
  };
  void* workspace = given.one<void*>(1003);
  const bool works = plan.engine == kPlain;
  if (works && !workspace) return kBadParameter;
  std::function<void()> job;
  if (operation.kind == 41) {
    for (int a = 2800; a <= 2805; ++a)
      if (!at(Tensor(operation.linked(a)))) return kBadParameter;
    job = [&operation, at] { attend(operation, at); };
    ++emulated::settings().attentions;
  } else {
    const Operation o(operation);
    const Tensor x(o.x()), w(o.weight()), y(o.y());
    void *at_x = at(x), *at_w = at(w), *at_y = at(y);
    if (!at_x || !at_w || !at_y) return kBadParameter;
    job = [=, kind = operation.kind, window = Window(o.window())] {
      convolve(kind, x, w, y, window, at_x, at_w, at_y);
    };
    ++emulated::settings().convolutions;
  }
  emulated::settings().last_engine = plan.engine;
  emulated::put(the_handle.stream, [=] {
    if (works) std::memset(workspace, 0xff, kWorkspace);
    job();
  });
  return 0;
}

const DnnFunctions kFunctions = [] {
  DnnFunctions f{};
  f.version = []() -> size_t { return emulated::settings().dnn_version; };
  f.create = [](dnn::Handle* out) {
    if (!emulated::settings().dnn_starts) return kNotInitialized;
    ++emulated::settings().dnn_handles;
    return *out = &the_handle, 0;
  };
  f.set_stream = [](dnn::Handle h, void* stream) { return static_cast<Handle*>(h)->stream = stream, 0; };
  f.status_text = [](int code) { return code == kNotSupported ? "not supported" : "an error"; };
  f.make = [](int kind, dnn::Description* out) {
    auto made = std::make_unique<Description>();
    made->kind = kind;
    ++emulated::settings().dnn_descriptions;
    return *out = made.release(), 0;
  };
  f.destroy = [](dnn::Description d) {
    --emulated::settings().dnn_descriptions;
    return delete static_cast<Description*>(d), 0;
  };
  f.set = set;
  f.get = get;
  f.finalize = finalize;
  f.execute = execute;
  return f;
}();

}  // namespace

const DnnFunctions* open_dnn(std::string& why) {
  if (emulated::settings().has_dnn) return &kFunctions;
  why = "libcudnn.so.9 is not found";
  return nullptr;
}

}  // namespace harmonics::cuda
