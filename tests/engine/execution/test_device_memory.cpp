// Programs on a device with its own memory: fake_accelerator.hpp.
#include <catch2/catch.hpp>
#include <cmath>

#include "engine/execution/device_memory.hpp"
#include "engine/execution/kernel_source.hpp"
#include "engine/model/parameter_store.hpp"
#include "tests/engine/execution/arriving.hpp"
#include "tests/engine/execution/fake_accelerator.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

struct Accelerated {
  Registry registry{&Registry::global()};
  std::shared_ptr<FakeAccelerator> device;
  std::unique_ptr<Executor> executor = make_sequential_executor();
  explicit Accelerated(bool stages = false, bool looks = false)
      : device(add_fake_accelerator(registry, "fake", stages, looks)) {}
  ItemPtr item() { return registry.need(HX_DEVICE, "fake"); }
  CompileOptions options() {
    CompileOptions o = on("fake");
    o.registry = &registry;
    return o;
  }
};

// A device whose function table is a prefix of another device's.
struct HalfDevice {
  Accelerated accelerated{true};
  Item item;
  HalfDevice() {
    item.kind = HX_DEVICE;
    item.name = "half";
    item.self = new std::shared_ptr<MemoryDevice>(accelerated.device);
  }
  const Item& with(const hx_device_vt& table) {
    item.vtable = &table;
    return item;
  }
};

const TrainingStep& step() {
  static const TrainingStep s = training_step(16, {24, 32, 10});
  return s;
}

std::map<std::string, HTensor> trained_on_cpu(int steps) {
  ParameterStore store;
  declare(store, step());
  const auto executor = make_sequential_executor();
  const auto plan = compile(step().program, &store, *executor, on("cpu"));
  const auto inputs = input_pointers(*plan, step().numbers);
  for (int i = 0; i < steps; ++i) plan->run(inputs.data());
  return all_of(store);
}

}  // namespace

TEST_CASE("random programs give the same bits on a device with its own memory") {
  Accelerated with;
  with.device->declined = {"transpose", "concat"};  // runs on the host
  for (uint32_t seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed);
    const RandomProgram random(seed, 25);
    const Values expected = run_compiled(random.program(), random.numbers(), *with.executor, on("cpu"));
    CHECK(same_bits(run_compiled(random.program(), random.numbers(), *with.executor, with.options()), expected));
  }
}

TEST_CASE("device memory: weights stay on the device until they are read") {
  const auto expected = trained_on_cpu(5);
  Accelerated with;
  ParameterStore store;
  declare(store, step());
  {
    CompileOptions options = with.options();
    options.poison = false;
    const auto plan = compile(step().program, &store, *with.executor, options);
    for (const PlanStep& s : plan->steps()) CHECK_FALSE(s.on_host);
    const auto inputs = input_pointers(*plan, step().numbers);
    plan->run_forward(inputs.data());
    CHECK(std::isfinite(*plan->output("loss").data<float>()));
    plan->run_rest(inputs.data());
    with.device->uploaded = with.device->downloaded = 0;
    for (int i = 1; i < 5; ++i) plan->run(inputs.data());
    uint64_t input_bytes = 0, output_bytes = 0;
    for (size_t i = 0; i < plan->input_names().size(); ++i) input_bytes += plan->input_type(i).bytes();
    for (const NamedValue& v : step().program.outputs) output_bytes += step().program.type(v.value).bytes();
    // weights stay; learning rate and step number are packed
    CHECK(with.device->uploaded == 4 * (input_bytes + kSmallInput - sizeof(float)));
    CHECK(with.device->downloaded == 4 * output_bytes);
    CHECK(same(all_of(store), expected));
  }
  CHECK(same(all_of(store), expected));
}

TEST_CASE("device memory: host and device see each other's writes") {
  Accelerated with;
  ParameterStore store;
  declare(store, step());
  const auto plan = compile(step().program, &store, *with.executor, with.options());
  const auto inputs = input_pointers(*plan, step().numbers);
  plan->run(inputs.data());
  for (const auto& [name, numbers] : step().numbers)
    if (store.find(name)) store.assign(name, numbers);
  for (int i = 0; i < 3; ++i) plan->run(inputs.data());
  CHECK(same(all_of(store), trained_on_cpu(3)));
}

TEST_CASE("programs of the host, of one device and of another share a store") {
  Accelerated with;
  add_fake_accelerator(with.registry, "other");
  ParameterStore store;
  declare(store, step());
  CompileOptions other = with.options();
  other.device = "other";
  const auto first = compile(step().program, &store, *with.executor, with.options());
  const auto second = compile(step().program, &store, *with.executor, other);
  const auto third = compile(step().program, &store, *with.executor, on("cpu"));
  const auto inputs = input_pointers(*first, step().numbers);
  for (Executable* plan : {third.get(), first.get(), second.get(), first.get(), third.get(), second.get()})
    plan->run(inputs.data());
  CHECK(same(all_of(store), trained_on_cpu(6)));
}

TEST_CASE("device memory: the store keeps its values when the program is destroyed") {
  Accelerated with;
  ParameterStore store;
  declare(store, step());
  for (int i = 0; i < 3; ++i) {
    const auto plan = compile(step().program, &store, *with.executor, with.options());
    plan->run(input_pointers(*plan, step().numbers).data());
  }
  CHECK(same(all_of(store), trained_on_cpu(3)));
}

TEST_CASE("device memory: buffers are released") {
  {
    Accelerated with;
    ParameterStore store;
    declare(store, step());
    const auto plan = compile(step().program, &store, *with.executor, with.options());
    plan->run(input_pointers(*plan, step().numbers).data());
  }
  CHECK(FakeAccelerator::leaked == 0);
}

TEST_CASE("device plan: nodes without a device kernel run on the host") {
  Accelerated with;
  with.device->declined = {"softmax_cross_entropy_grad", "reduce_sum", "exp"};
  ParameterStore store;
  declare(store, step());
  const auto plan = compile(step().program, &store, *with.executor, with.options());
  size_t hosted = 0;
  for (const PlanStep& s : plan->steps()) hosted += s.on_host;
  CHECK(hosted > 0);
  CHECK(hosted < plan->steps().size());
  plan->run(input_pointers(*plan, step().numbers).data());
  const auto expected = trained_on_cpu(1);
  for (const auto& [name, given] : all_of(store))
    for (int64_t i = 0; i < given.size(); ++i)
      REQUIRE(given.data<float>()[i] == Approx(expected.at(name).data<float>()[i]).margin(1e-5));
}

TEST_CASE("device plan: a device failure names device and operation") {
  Accelerated with;
  Builder b;
  b.output("y", b.apply(Op::neg, {b.input("x", {4})}));
  const HTensor numbers = HTensor::from<float>({4}, {1, 2, 3, 4});
  const void* inputs[1] = {numbers.bytes()};
  const auto run = [&] { compile(b.program, nullptr, *with.executor, with.options())->run(inputs); };
  SECTION("when kernels run") {
    with.device->breaks = "neg";
    CHECK(message_of(run) == "device 'fake' could not finish what is queued: a kernel broke");
  }
  SECTION("when memory is exhausted") {
    with.device->most_bytes = 8;
    CHECK(message_of(run) == "device 'fake' could not give 64 bytes of memory: out of memory");
  }
  SECTION("when the device is missing") {
    with.device->unavailable = "no driver is installed; install one";
    CHECK(message_of(run) ==
          "device 'fake' cannot be used: no driver is installed; install one\n"
          "'--device auto' uses an accelerator if there is one, otherwise the CPU");
  }
}

TEST_CASE("device memory: an incomplete function table is rejected") {
  Accelerated with;
  const auto half = std::make_shared<Item>();
  static const hx_device_vt table = [] {
    hx_device_vt vt = *detail::memory_device_vt();
    vt.download = nullptr;
    return vt;
  }();
  half->kind = HX_DEVICE;
  half->name = "half";
  half->self = new std::shared_ptr<MemoryDevice>(with.device);
  half->vtable = &table;
  CHECK(message_of([&] { has_own_memory(*half); }) ==
        "device 'half' has some of the functions for device memory, but not all\n"
        "open_queue, close_queue, allocate, release, upload, download, copy and synchronize belong together");
}

TEST_CASE("timed and empty runs of a plan on a device") {
  Accelerated with;
  ParameterStore store;
  declare(store, step());
  const auto plan = compile(step().program, &store, *with.executor, with.options());
  const auto inputs = input_pointers(*plan, step().numbers);
  PlanTimes times;
  times.wants_parts = true;
  plan->run_timed(inputs.data(), times);
  CHECK(times.stamps.size() == plan->steps().size() + 1);
  CHECK(times.parts.size() == plan->steps().size());
  CHECK(same(all_of(store), trained_on_cpu(1)));
  const size_t kernels = with.device->kernels;
  plan->run_empty(inputs.data());
  CHECK(with.device->kernels == kernels);
  CHECK(same(all_of(store), trained_on_cpu(1)));
}

TEST_CASE("timed run: device clock if available, else synchronized steps") {
  struct Way {
    bool gives, forgets;
  };
  for (const Way& way : {Way{true, false}, Way{true, true}, Way{false, false}}) {
    INFO(way.gives << way.forgets);
    const bool keeps = way.gives && !way.forgets;
    Accelerated with(true);
    with.device->keeps_times = way.gives;
    with.device->forgets = way.forgets;
    {
      ParameterStore store;
      declare(store, step());
      CompileOptions options = with.options();
      options.poison = false;
      const auto plan = compile(step().program, &store, *with.executor, options);
      const auto inputs = input_pointers(*plan, step().numbers);
      PlanTimes times;
      times.wants_parts = true;
      plan->run_timed(inputs.data(), times);
      const size_t before = with.device->synchronized;
      plan->run_timed(inputs.data(), times);
      CHECK(times.by_device == keeps);
      CHECK(with.device->synchronized - before == (keeps ? 3 : plan->steps().size() + 2));
      REQUIRE(times.stamps.size() == plan->steps().size() + 1);
      for (size_t i = 0; i < plan->steps().size(); ++i) {
        CHECK(times.stamps[i + 1] > times.stamps[i]);
        CHECK(times.parts[i].begin == times.stamps[i]);
        CHECK(times.parts[i].end == times.stamps[i + 1]);
      }
      CHECK(same(all_of(store), trained_on_cpu(2)));
    }
  }
  CHECK(FakeAccelerator::leaked == 0);
}

TEST_CASE("timed run: host steps include their copies") {
  Accelerated with(true);
  with.device->declined = {"softmax_cross_entropy_grad", "reduce_sum"};
  ParameterStore store;
  declare(store, step());
  const auto plan = compile(step().program, &store, *with.executor, with.options());
  PlanTimes times;
  plan->run_timed(input_pointers(*plan, step().numbers).data(), times);
  CHECK(times.by_device);
  for (size_t i = 0; i < plan->steps().size(); ++i) CHECK(times.stamps[i + 1] > times.stamps[i]);
}

TEST_CASE("timed run: impossible times are an error") {
  Accelerated with(true);
  ParameterStore store;
  declare(store, step());
  const auto plan = compile(step().program, &store, *with.executor, with.options());
  const auto inputs = input_pointers(*plan, step().numbers);
  PlanTimes times;
  const auto said = [&] { return message_of([&] { plan->run_timed(inputs.data(), times); }); };
  with.device->tells = std::nan("");
  CHECK(said() == "device 'fake' reports nan seconds between two events of its queue");
  with.device->tells = INFINITY;
  CHECK(said() == "device 'fake' reports inf seconds between two events of its queue");
  with.device->tells = 0;
  plan->run_timed(inputs.data(), times);
  CHECK(times.stamps.back() == times.stamps.front());
  with.device->tells = -0.5;
  CHECK(said() == "device 'fake' reports -0.5 seconds between two events of its queue");
  with.device->forgets = true;
  CHECK(said() == "device 'fake' reported event times before, but no longer does");
}

TEST_CASE("device clock: an incomplete function table is rejected") {
  static const auto tables = [] {
    std::vector<hx_device_vt> vts(4, *detail::staging_device_vt());
    vts[1].elapsed = nullptr;
    vts[2].release_event = nullptr;
    vts[3].struct_size = offsetof(hx_device_vt, record_time);  // built for 1.2
    return vts;
  }();
  HalfDevice half;
  const auto clock = [&](size_t i) { return has_clock(half.with(tables[i])); };
  CHECK(clock(0));
  CHECK_FALSE(clock(3));
  for (const size_t i : {1, 2})
    CHECK(message_of([&] { clock(i); }) ==
          "device 'half' has some of the functions for event times, but not all\nrecord_time, elapsed, record, wait "
          "and release_event belong together");
}

namespace {

// Runs steps, one of them on a batch with NaN; returns the final weights, and counts finite losses.
std::map<std::string, HTensor> trained_past_nan(const CompileOptions& options, Executor& executor, int& finite) {
  ParameterStore store;
  declare(store, step());
  const auto plan = compile(step().program, &store, executor, options);
  const auto at = static_cast<size_t>(std::find(plan->input_names().begin(), plan->input_names().end(), "x") -
                                      plan->input_names().begin());
  const float* loss = plan->output("loss").data<float>();
  for (int i = 0; i < 6; ++i) {
    auto inputs = input_pointers(*plan, step().numbers);
    HTensor x = copy_of(step().numbers.at("x"));
    if (i == 3) x.mutable_data<float>()[5] = std::nanf("");
    inputs[at] = x.bytes();
    const auto before = i == 3 ? all_of(store) : std::map<std::string, HTensor>();
    finite += plan->run_if_finite(inputs.data(), loss);
    CHECK(std::isfinite(*loss) == (i != 3));
    if (i == 3) CHECK(same(all_of(store), before));
  }
  return all_of(store);
}

}  // namespace

TEST_CASE("run_if_finite: one submission, no change if the loss is not finite") {
  const auto executor = make_sequential_executor();
  int finite = 0;
  const auto expected = trained_past_nan(on("cpu"), *executor, finite);
  REQUIRE(finite == 5);
  struct Way {
    bool looks;
    std::set<std::string> declined, blind;
    size_t awaited;
  };
  const std::set<std::string> updates{"adamw", "update_all"};  // their bodies store by copies
  for (const Way& way : {Way{true, {}, {}, 6}, Way{true, {"reduce_sum"}, {}, 0}, Way{true, updates, {}, 6},
                         Way{true, {}, updates, 0}, Way{false, {}, {}, 0}}) {
    INFO(way.looks << way.declined.size() << way.blind.size());
    Accelerated with(true, way.looks);
    with.device->declined = way.declined;
    with.device->blind = way.blind;
    finite = 0;
    const auto given = trained_past_nan(with.options(), *with.executor, finite);
    CHECK(finite == 5);
    CHECK(with.device->awaited == way.awaited);
    if (way.declined.empty()) CHECK(same(given, expected));
  }
  CHECK(FakeAccelerator::leaked == 0);
}

TEST_CASE("run_if_finite: an incomplete function table is rejected") {
  static const auto tables = [] {
    FakeAccelerator looking;
    looking.looks = true;
    std::vector<hx_device_vt> vts(5, *detail::table_of(looking));
    vts[1].await_event = nullptr;
    vts[2].record = nullptr;
    vts[3].allocate_host = nullptr;
    vts[4].struct_size = offsetof(hx_device_vt, copy_if_finite);  // built for 1.3
    return vts;
  }();
  HalfDevice half;
  const auto looks = [&](size_t i) { return looks_at_numbers(half.with(tables[i])); };
  CHECK(looks(0));
  CHECK_FALSE(looks(4));
  for (const size_t i : {1, 2, 3})
    CHECK(message_of([&] { looks(i); }) ==
          "device 'half' has some of the functions for conditional updates, but not all\ncopy_if_finite, await_event, "
          "record, wait, release_event, allocate_host and release_host belong together");
}

TEST_CASE("input prefetch: batches are complete before the step that takes them") {
  const auto executor = make_sequential_executor();
  const auto expected = trained_on_batches(step(), 8, *executor, on("cpu"), false);
  for (const bool looks : {false, true})
    for (const bool hurries : {false, true}) {
      INFO(looks << hurries);
      Accelerated with(true, looks);
      with.device->hurries = hurries;
      CHECK(same(trained_on_batches(step(), 8, *with.executor, with.options(), false), expected));
      CHECK(with.device->waits == 0);
      CHECK(same(trained_on_batches(step(), 8, *with.executor, with.options(), true), expected));
      CHECK(with.device->waits == 8);
      CHECK(with.device->awaited == (looks ? 16 : 0));
    }
  CHECK(FakeAccelerator::leaked == 0);
}

TEST_CASE("input prefetch: needs pinned memory, events, a free queue and large inputs") {
  Accelerated plain, staging(true);
  const auto open = [](Accelerated& of, const DeviceQueuePtr& steps, const std::vector<uint64_t>& bytes) {
    return InputPrefetch::open(of.item(), steps, bytes, 2);
  };
  CHECK_FALSE(open(plain, std::make_shared<DeviceQueue>(plain.item()), {100}));
  const auto steps = std::make_shared<DeviceQueue>(staging.item());
  CHECK_FALSE(open(staging, steps, {kSmallInput, 1}));
  {
    const auto first = open(staging, steps, {100, 0, 7});
    REQUIRE(first);
    CHECK(InputPrefetch::on(*steps) == first.get());
    CHECK_FALSE(open(staging, steps, {100}));
    for (size_t batch = 0; batch < 2; ++batch)
      for (size_t stream = 0; stream < 3; ++stream)
        CHECK(reinterpret_cast<uintptr_t>(first->host(batch, stream)) % 64 == 0);
    float other = 0;
    const DeviceBuffer room(steps, 128);
    CHECK_FALSE(first->take(&other, room.at(0), sizeof other));
    CHECK_FALSE(first->take(first->host(1, 0), room.at(0), 100));  // no prefetch was started
  }
  CHECK(InputPrefetch::on(*steps) == nullptr);
  CHECK(open(staging, steps, {100}));
}

TEST_CASE("input prefetch: an untaken batch is not overwritten in transit") {
  Accelerated with(true);
  const auto steps = std::make_shared<DeviceQueue>(with.item());
  const auto prefetch = InputPrefetch::open(with.item(), steps, {128}, 1);
  REQUIRE(prefetch);
  std::memset(prefetch->host(0, 0), 1, 128);
  prefetch->start(0, {128});
  const size_t before = with.device->synchronized;
  prefetch->renew(0);
  CHECK(with.device->synchronized == before + 1);
  std::memset(prefetch->host(0, 0), 2, 128);
  prefetch->start(0, {128});
  const DeviceBuffer room(steps, 128);
  REQUIRE(prefetch->take(prefetch->host(0, 0), room.at(0), 128));
  std::vector<std::byte> came(128);
  steps->download(came.data(), room.at(0), 128);
  steps->synchronize();
  CHECK(came == std::vector<std::byte>(128, std::byte{2}));
  prefetch->renew(0);  // does not wait for data that has already arrived
  CHECK(with.device->synchronized == before + 2);
}
