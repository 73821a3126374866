// The overhead of the contract: a call through the C table compared with a direct call of the object, and a sample
// through a producer's table compared with the object's own.
#include <benchmark/benchmark.h>

#include <harmonics/memory.hpp>

#include "engine/contract/plugin_functions.hpp"
#include "engine/plugin/pending_items.hpp"

namespace {

using namespace harmonics;
using namespace harmonics::engine;

class Same : public ActivationFunction {
 public:
  HTensor operator()(const HTensor& x) const override { return x; }
};

class Endless : public Producer {
 public:
  explicit Endless(HTensor sample) : sample_(std::move(sample)) {}
  HTensor next() override { return sample_; }
  std::size_t size() const override { return 0; }

 private:
  HTensor sample_;
};

// A registration as made by a library.
struct Registered {
  std::shared_ptr<ActivationFunction> activation = std::make_shared<Same>();
  Registry registry;
  Registered() {
    hx_registry pending;
    hx_registration registration{sizeof(hx_registration), harmonics_api(), &pending};
    auto& face = reinterpret_cast<FunctionRegistry&>(registration);
    face.register_activation("same", activation);
    face.register_producer(
        "endless", [](const std::string&, const Arguments&) { return std::make_shared<Endless>(HTensor::scalar(1)); });
    commit_pending(pending, registry);
  }
};

void direct_call(benchmark::State& state) {
  Registered r;
  const HTensor x = HTensor::scalar(1);
  for (auto _ : state) benchmark::DoNotOptimize((*r.activation)(x));
}
BENCHMARK(direct_call)->Name("activation/direct/threads:1");

void contract_call(benchmark::State& state) {
  Registered r;
  const ItemPtr item = r.registry.need(HX_ACTIVATION, "same");
  const HTensor x = HTensor::scalar(1);
  for (auto _ : state) benchmark::DoNotOptimize(call_activation(item, {}, x));
}
BENCHMARK(contract_call)->Name("activation/contract/threads:1");

void direct_sample(benchmark::State& state) {
  const std::shared_ptr<Producer> producer = std::make_shared<Endless>(HTensor::scalar(1));
  for (auto _ : state) benchmark::DoNotOptimize(producer->next());
}
BENCHMARK(direct_sample)->Name("producer/direct/threads:1");

void contract_sample(benchmark::State& state) {
  Registered r;
  const ItemPtr item = r.registry.need(HX_PRODUCER, "endless");
  const hx_producer_vt* table = nullptr;
  void* object = nullptr;
  const hx_attributes none{};
  if (item->table<hx_producer_factory_vt>().open(item->self, "", &none, &table, &object) != HX_OK)
    return state.SkipWithError("the producer does not open");
  for (auto _ : state) {
    hx_value* out = nullptr;
    if (table->next(object, &out) != HX_OK) return state.SkipWithError("no sample came");
    benchmark::DoNotOptimize(HTensor::adopt(out));
  }
  table->destroy(object);
}
BENCHMARK(contract_sample)->Name("producer/contract/threads:1");

}  // namespace

BENCHMARK_MAIN();
