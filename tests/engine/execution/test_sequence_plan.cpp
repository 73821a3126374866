// Growing sequences: caches as states, and calls that must not be offered to older libraries.
#include <catch2/catch.hpp>

#include <cmath>

#include <harmonics/functional.hpp>

#include "engine/contract/plugin_implementation.hpp"
#include "engine/execution/kernel_source.hpp"
#include "engine/execution/selection.hpp"
#include "engine/execution/work.hpp"
#include "tests/engine/execution/allocation_count.hpp"
#include "tests/engine/execution/compiled.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

AttributeMap with_operands(const std::string& names) { return AttributeMap().set("operands", names); }

// One step of a decoder's attention: rotates new keys and values, appends them to caches that are states, and attends.
struct Decoder {
  static constexpr int64_t kBatch = 2, kHeads = 6, kShared = 2, kWidth = 16;
  Builder b;
  int64_t rows, capacity;
  DType dtype;
  std::vector<uint32_t> appends;

  Decoder(int64_t rows, int64_t capacity, DType dtype) : rows(rows), capacity(capacity), dtype(dtype) {
    const AttributeMap turn = with_operands("positions").set("positions_first", true);
    const ValueId q = b.input("q", {kBatch, rows, kHeads, kWidth}), k = b.input("k", row()), v = b.input("v", row());
    const ValueId positions = b.input("positions", {kBatch, rows}, DType::I32),
                  start = b.input("start", {kBatch}, DType::I32), lengths = b.input("lengths", {kBatch}, DType::I32);
    const ValueId keys = append("keys", b.call("rope", {k, positions}, turn), start);
    const ValueId values = append("values", v, start);
    const AttributeMap seen = with_operands("lengths").set("positions_first", true).set("causal", true);
    b.output("y", b.call("attention", {b.call("rope", {q, positions}, turn), keys, values, lengths}, seen));
    b.update("keys", keys);
    b.update("values", values);
  }
  TensorType cache() const { return {dtype, {kBatch, capacity, kShared, kWidth}}; }
  Shape row() const { return {kBatch, rows, kShared, kWidth}; }

  std::map<std::string, HTensor> inputs(std::vector<int32_t> start) const {
    std::map<std::string, HTensor> numbers;
    const auto some = [](const Shape& shape, double step) {
      std::vector<float> x;
      for (int64_t i = 0; i < shape.count(); ++i)
        x.push_back(static_cast<float>(std::sin(step * static_cast<double>(i + 1))));
      return HTensor::from(shape, x);
    };
    numbers["q"] = some({kBatch, rows, kHeads, kWidth}, 0.7 + start[0]);
    numbers["k"] = some(row(), 1.3 + start[0]);
    numbers["v"] = some(row(), 0.37 + start[0]);
    std::vector<int32_t> positions, lengths;
    for (const int32_t s : start) {
      for (int32_t t = 0; t < static_cast<int32_t>(rows); ++t) positions.push_back(s + t);
      lengths.push_back(s + static_cast<int32_t>(rows));
    }
    numbers["positions"] = HTensor::from({kBatch, rows}, positions);
    numbers["start"] = HTensor::from({kBatch}, start);
    numbers["lengths"] = HTensor::from({kBatch}, lengths);
    return numbers;
  }

 private:
  ValueId append(const std::string& name, ValueId added, ValueId start) {
    const ValueId state = b.leaf(Op::state, name, cache());
    appends.push_back(static_cast<uint32_t>(b.program.nodes.size()));
    return b.call("cache_append", {state, added, start});
  }
};

float furthest(const HTensor& a, const HTensor& b) {
  const HTensor x = cast(a, DType::F32), y = cast(b, DType::F32);
  float most = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    const float d = std::abs(x.data<float>()[i] - y.data<float>()[i]);
    most = std::isnan(d) ? INFINITY : std::max(most, d);
  }
  return most;
}

}  // namespace

TEST_CASE("a decoder's step appends to its caches in place and copies none of them") {
  const auto executor = make_sequential_executor();
  for (const DType dtype : {DType::F32, DType::F16}) {
    double moved = 0;
    for (const int64_t capacity : {64, 512}) {
      INFO(dtype_name(dtype) << ", capacity " << capacity);
      const Decoder step(1, capacity, dtype);
      std::map<std::string, HTensor> numbers = step.inputs({0, 3});
      // Unused memory of a cache may contain any values.
      numbers["keys"] = numbers["values"] = full(dtype, step.cache().shape, NAN);
      MapBinding binding(numbers);
      const void* const keys = binding.parameter("keys", step.cache());
      const auto plan = compile(step.b.program, &binding, *executor, on("cpu"));
      INFO(print_plan(*plan));
      size_t appended = 0;
      for (const PlanStep& s : plan->steps()) {
        CHECK(s.kernel != "copy");
        CHECK(s.kernel != "reference");
        if (s.what != "cache_append") continue;
        CHECK(s.in_place);
        CHECK((s.target == "keys" || s.target == "values"));
        ++appended;
      }
      CHECK(appended == 2);
      if (capacity == 512) CHECK(plan->memory().arena_bytes < step.cache().bytes());
      const double bytes = work_of(step.b.program, step.b.program.nodes.at(step.appends[0])).bytes;
      CHECK(bytes == 2.0 * 4 * Decoder::kBatch * Decoder::kShared * Decoder::kWidth + 4 * Decoder::kBatch);
      if (moved > 0) CHECK(bytes == moved);
      moved = bytes;

      for (int32_t at = 3; at < 40; at += 9) {
        const std::vector<int32_t> start{at - 3, at};
        for (auto& [name, value] : step.inputs(start)) numbers[name] = value;
        // The batch items start with caches of different lengths; earlier rows are 0.
        if (at == 3) {
          for (const char* name : {"keys", "values"}) {
            const HTensor zeros = full(dtype, step.cache().shape, 0);
            numbers[name] = zeros;
            std::memcpy(binding.parameter(name, step.cache()), zeros.bytes(), step.cache().bytes());
          }
        }
        const Values expected = interpret(step.b.program, numbers);
        plan->run(input_pointers(*plan, numbers).data());
        CHECK(furthest(plan->output("y"), expected.at(0)) < 2e-3f);
        CHECK(furthest(binding.tensor("keys", step.cache()), expected.at(1)) < 2e-3f);
        CHECK(same_bits(binding.tensor("values", step.cache()), expected.at(2)));
        CHECK(binding.parameter("keys", step.cache()) == keys);
        numbers["keys"] = copy_of(binding.tensor("keys", step.cache()));
        numbers["values"] = expected.at(2);
      }
      if (kCountsAllocations) {
        const auto pointers = input_pointers(*plan, numbers);
        start_counting();
        for (int i = 0; i < 20; ++i) plan->run(pointers.data());
        CHECK(stop_counting() == 0);
      }
    }
  }
}

TEST_CASE("a prompt gives the same bits whole, in chunks and token by token") {
  const auto executor = make_sequential_executor();
  constexpr int64_t kTokens = 32;
  const Decoder whole(kTokens, 96, DType::F16);
  const std::map<std::string, HTensor> all = whole.inputs({0, 0});
  std::vector<float> expected;
  HTensor expected_keys;
  for (const int64_t chunk : {kTokens, int64_t{8}, int64_t{1}}) {
    const Decoder step(chunk, chunk == 1 ? 640 : 96, DType::F16);
    std::map<std::string, HTensor> numbers = step.inputs({0, 0});
    numbers["keys"] = numbers["values"] = full(DType::F16, step.cache().shape, NAN);
    MapBinding binding(numbers);
    const auto plan = compile(step.b.program, &binding, *executor, on("cpu"));
    std::vector<float> found(static_cast<size_t>(Decoder::kBatch * kTokens * Decoder::kHeads * Decoder::kWidth));
    for (int64_t first = 0; first < kTokens; first += chunk) {
      const auto at = static_cast<int32_t>(first);
      numbers = step.inputs({at, at});
      for (const char* name : {"q", "k", "v"}) numbers[name] = slice_axis(all.at(name), 1, first, first + chunk);
      plan->run(input_pointers(*plan, numbers).data());
      const HTensor& y = plan->output("y");
      const int64_t row = Decoder::kHeads * Decoder::kWidth;
      for (int64_t b = 0; b < Decoder::kBatch; ++b)
        std::copy_n(y.data<float>() + b * chunk * row, chunk * row,
                    found.begin() + static_cast<std::ptrdiff_t>((b * kTokens + first) * row));
    }
    const HTensor keys = copy_of(slice_axis(binding.tensor("keys", step.cache()), 1, 0, kTokens));
    if (expected.empty()) {
      expected = found;
      expected_keys = keys;
    }
    CHECK(std::memcmp(expected.data(), found.data(), found.size() * sizeof(float)) == 0);
    CHECK(same_bits(keys, expected_keys));
  }
}

namespace {

// Accepts every call, like an older device that ignores unknown attributes.
class Careless : public Device {
 public:
  std::vector<std::string> asked;
  std::string describe() const override { return "takes all"; }
  bool find(const hx_call_site& site, hx_kernel& out) override {
    asked.emplace_back(site.op);
    out.phases = out.parts[0] = 1;
    out.run = [](const void*, void* const*, uint32_t, uint32_t) {};
    out.name = "careless";
    return true;
  }
};
class CarelessAttention : public Implementation {
 public:
  std::string supports(const CallSite&) const override { return ""; }
};

const std::vector<TensorType> kOld{{DType::F32, {1, 2, 3, 4}}, {DType::F32, {1, 2, 5, 4}}, {DType::F32, {1, 2, 5, 4}}},
    kResults{{DType::F32, {1, 2, 3, 4}}, {DType::F32, {1, 2, 3}}};
std::vector<TensorType> with_lengths() {
  std::vector<TensorType> types = kOld;
  types.push_back({DType::I32, {1}});
  return types;
}

}  // namespace

TEST_CASE("a device built for an older contract is not offered operands and attributes that came later") {
  const AttributeMap causal = AttributeMap().set("causal", true);
  for (const uint16_t minor : {uint16_t{0}, uint16_t{4}, uint16_t{HX_ABI_MINOR}}) {
    const auto device = std::make_shared<Careless>();
    auto item = std::make_shared<Item>();
    item->kind = HX_DEVICE;
    item->name = "careless";
    item->self = new std::shared_ptr<Device>(device);
    item->vtable = detail::device_vt();
    item->contract_minor = minor;
    Registry registry;
    registry.add(item);
    KernelSource source("careless", registry);
    const bool offered = minor >= 5;
    INFO("contract 1." << minor);
    const auto served = [&](const char* op, const AttributeMap& a, const std::vector<TensorType>& in,
                            const std::vector<TensorType>& out) { return source.find(op, a, in, out) != nullptr; };
    CHECK(served("attention", causal, kOld, kResults));
    CHECK(served("attention", AttributeMap(causal).set("window", int64_t{0}).set("softcap", 0.0), kOld, kResults));
    CHECK(served("attention", with_operands("lengths"), with_lengths(), kResults) == offered);
    CHECK(served("attention", AttributeMap().set("window", int64_t{2}), kOld, kResults) == offered);
    CHECK(served("attention", AttributeMap().set("softcap", 2.0), kOld, kResults) == offered);
    const std::vector<TensorType> x{kOld[0]}, turned{kOld[0], {DType::I32, {3}}};
    CHECK(served("rope", {}, x, x));
    CHECK(served("rope", AttributeMap().set("pairing", std::string("half")), x, x));
    CHECK(served("rope", with_operands("positions"), turned, x) == offered);
    CHECK(served("rope", AttributeMap().set("pairing", std::string("interleaved")), x, x) == offered);
    CHECK(served("rope", AttributeMap().set("rotary_dims", int64_t{2}), x, x) == offered);
    CHECK(served("relu", with_operands("lengths"), x, x));  // not an attribute of relu
    if (offered) continue;
    CHECK(source.why_not("attention", with_operands("lengths"), with_lengths(), kResults) ==
          "it is built for contract 1." + std::to_string(minor) + ", but attributes of this call need contract 1.5");
    CHECK(std::count(device->asked.begin(), device->asked.end(), "attention") == 2);
    CHECK(std::count(device->asked.begin(), device->asked.end(), "rope") == 2);
  }
}

TEST_CASE("an implementation built for an older contract is not offered operands that came later") {
  for (const uint16_t minor : {uint16_t{3}, uint16_t{HX_ABI_MINOR}}) {
    auto item = std::make_shared<Item>();
    item->kind = HX_IMPLEMENTATION;
    item->name = "attention.careless";
    item->self = new std::shared_ptr<Implementation>(std::make_shared<CarelessAttention>());
    item->vtable = detail::implementation_vt();
    item->contract_minor = minor;
    Registry registry(&Registry::global());
    registry.add(item);
    Selection selection(registry, on("cpu"), false);
    Builder b;
    const ValueId q = b.input("q", kOld[0].shape), k = b.input("k", kOld[1].shape);
    const ValueId lengths = b.input("lengths", {1}, DType::I32);
    b.call("attention", {q, k, k});
    b.call("attention", {q, k, k, lengths}, with_operands("lengths"));
    const auto chosen = [&](size_t node) { return selection.choose(b.program, b.program.nodes.at(node)) != nullptr; };
    INFO("contract 1." << minor);
    CHECK(chosen(3));
    CHECK(chosen(4) == (minor >= 5));
    const CallSiteInfo site{"attention", with_operands("lengths"), with_lengths(), kResults, "cpu", 0};
    CHECK(declines(*item, site).has_value() == (minor < 5));
  }
}
