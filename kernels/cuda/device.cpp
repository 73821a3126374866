// The CUDA device: memory, queues and planning of call sites.
#include <harmonics/plugin.hpp>

#include "families.hpp"
#include "kernels/shared/memory_pool.hpp"
#include "kernels/shared/scalar_texts.hpp"

#ifndef HM_CUDA_NAME  // tests define a second device
#define HM_CUDA_NAME "cuda"
#endif

HARMONICS_PLUGIN("harmonics." HM_CUDA_NAME, "0.1.0", "Apache-2.0", "Harmonics");

namespace harmonics::cuda {

const kernels::PlanTable<Plan>& plans() {
  static const kernels::PlanTable<Plan> table = [] {
    kernels::PlanTable<Plan> t;
    for (const char* op : kernels::kScalarOperations) t.add(op, plan_elementwise);
#define HM_FAMILY(name) t.add(name##_plans());
#include "families.inc"
#undef HM_FAMILY
    return t;
  }();
  return table;
}

namespace {

class CudaDevice final : public CapturingDevice {
 public:
  std::string describe() const override {
    const std::string why = unavailable();
    return why.empty() ? machine().facts().name + ", " + capability() + ", " + machine().facts().driver
                       : "not available: " + why;
  }

  hx_device_info info() override {
    hx_device_info i{};
    i.struct_size = sizeof i;
    i.sort = HX_DEVICE_GPU;
    const std::string why = unavailable();
    put_text(i.unavailable, why);
    if (!why.empty()) return i;
    const Facts& facts = machine().facts();
    i.memory = i.most_bytes = facts.memory;
    i.free_memory = machine().driver().free_memory() + memory_.kept_bytes();
    i.alignment = 64;
    put_text(i.name, facts.name);
    put_text(i.driver, facts.driver);
    std::string missing;
    machine().lt(missing);
    const std::string no_dnn = machine().no_dnn();
    const std::string no_compiler = machine().no_compiler();
    put_text(i.capability, capability() + (missing.empty() ? "" : "; " + missing) +
                               (no_dnn.empty() ? "" : "; " + no_dnn) + (no_compiler.empty() ? "" : "; " + no_compiler));
    return i;
  }
  uint32_t roundings() const override {
    if (!unavailable().empty()) return 0;
    const Facts& facts = machine().facts();
    const bool has_fp8 = facts.major * 10 + facts.minor >= 89;
    return HX_SITE_FP16_CHUNKS | HX_SITE_BF16 | (has_fp8 ? uint32_t{HX_SITE_FP8} : 0);
  }

  hx_queue* open_queue() override {
    void* stream = nullptr;
    check(driver().open_stream(&stream), "open a stream");
    return static_cast<hx_queue*>(stream);
  }
  void close_queue(hx_queue* queue) override {
    driver().synchronize(queue);
    driver().close_stream(queue);
  }
  bool native(hx_queue* queue, hx_native& out) override {
    check(driver().become_current(), "become current");
    if (Recording* recording = machine().recording(queue)) check(recording->join(true), "record an operation");
    out = {sizeof out, HX_NATIVE_CUDA, nullptr, nullptr, queue};
    return true;
  }
  uint64_t allocate(uint64_t bytes) override { return memory_.allocate(bytes); }
  void release(uint64_t buffer) override { memory_.release(buffer); }
  void upload(hx_queue* queue, const hx_place& to, const void* from, uint64_t bytes) override {
    copy_memory(queue, address(to), from, bytes, "copy to its memory");
  }
  void download(hx_queue* queue, void* to, const hx_place& from, uint64_t bytes) override {
    copy_memory(queue, to, address(from), bytes, "copy from its memory");
  }
  void copy(hx_queue* queue, const hx_place& to, const hx_place& from, uint64_t bytes) override {
    copy_memory(queue, address(to), address(from), bytes, "copy within its memory");
  }
  void synchronize(hx_queue* queue) override { check(driver().synchronize(queue), "finish what is queued"); }

  void* allocate_host(uint64_t bytes) override { return reinterpret_cast<void*>(pinned_.allocate(bytes)); }
  void release_host(void* memory) override { pinned_.release(reinterpret_cast<uint64_t>(memory)); }
  hx_event* record(hx_queue* queue) override { return event_of(queue, false); }
  hx_event* record_time(hx_queue* queue) override { return event_of(queue, true); }
  std::optional<double> elapsed(hx_event* from, hx_event* to) override {
    double seconds = 0;
    check(driver().elapsed(from, to, &seconds), "tell the time between two events");
    return seconds;
  }
  void wait(hx_queue* queue, hx_event* event) override {
    if (Recording* recording = machine().recording(queue)) check(recording->join(true), "record an operation");
    check(driver().wait(queue, event), "wait for an event");
  }
  void release_event(hx_event* event) override { driver().release_event(event); }
  bool looks_at_numbers() const override { return true; }
  void copy_if_finite(hx_queue* queue, const hx_place& to, const hx_place& from, uint64_t bytes,
                      const hx_place& number) override {
    constexpr uint64_t kMost = 4096;  // blocks
    char* buffers[] = {address(from), address(to), address(number)};
    CopyIfFiniteParameters parameters{bytes};
    void* arguments[] = {&buffers[0], &buffers[1], &buffers[2], &parameters};
    const uint64_t blocks = std::clamp<uint64_t>(bytes / 4 / kThreads, 1, kMost);
    recorded(
        queue, {extent(buffers[0], bytes, false), extent(buffers[1], bytes, true), extent(buffers[2], 4, false)},
        [&] {
          return driver().launch(copy_if_finite_function(), {static_cast<uint32_t>(blocks), 1, 1, kThreads}, arguments,
                                 queue);
        },
        "copy within its memory");
  }
  void await_event(hx_event* event) override { check(driver().await_event(event), "finish what is queued"); }
  void begin_capture(hx_queue* queue) override {
    check(driver().begin_capture(queue), "begin a graph");
    machine().begin_recording(queue);
  }
  hx_capture* end_capture(hx_queue* queue) override {
    machine().end_recording(queue);
    void* graph = nullptr;
    return driver().end_capture(queue, &graph) == 0 ? static_cast<hx_capture*>(graph) : nullptr;
  }
  void launch(hx_queue* queue, hx_capture* capture) override {
    check(driver().launch_graph(capture, queue), "start a graph");
  }
  void release_capture(hx_capture* capture) override { driver().release_graph(capture); }

  bool find(const hx_call_site& raw, hx_kernel& out) override {
    const Site site(raw, machine());
    const Plan plan = plans().find(site.op());
    if (!plan) return false;
    const bool has_caches = site.op() == "attention" || site.op() == "cache_append";
    if (site.has_stored() && !has_caches) return declined("does not support stored element types");
    for (uint32_t i = 0; i < site.workspace(); ++i)
      if (!kernels::can_index(site.buffer(i))) return false;
    if (!plan(site, out)) return false;
    static_cast<Work*>(out.context)->set_memory(site, out.workspace);
    return true;
  }

 private:
  static Extent extent(const void* at, uint64_t bytes, bool writes) {
    const auto begin = reinterpret_cast<uint64_t>(at);
    return {begin, begin + bytes, writes};
  }
  // Calls the driver. While the queue is captured, the operation depends on earlier operations on its memory.
  template <typename Call>
  void recorded(hx_queue* queue, const std::vector<Extent>& extents, Call call, const char* what) const {
    Recording* const recording = machine().recording(queue);
    if (recording) check(recording->begin(extents), "record an operation");
    check(call(), what);
    if (recording) check(recording->end(), "record an operation");
  }
  void copy_memory(hx_queue* queue, void* to, const void* from, uint64_t bytes, const char* what) const {
    recorded(
        queue, {extent(from, bytes, false), extent(to, bytes, true)},
        [&] { return driver().copy(to, from, bytes, queue); }, what);
  }

  std::string capability() const {
    const Facts& f = machine().facts();
    return "compute capability " + std::to_string(f.major) + "." + std::to_string(f.minor) + ", " +
           std::to_string(f.units) + " multiprocessors";
  }
  void check(int code, const char* what) const { machine().check(code, what); }
  hx_event* event_of(hx_queue* queue, bool keeps_time) const {
    void* event = nullptr;
    if (Recording* recording = machine().recording(queue)) check(recording->join(false), "record an operation");
    check(driver().record(queue, keeps_time, &event), "record an event");
    return static_cast<hx_event*>(event);
  }
  Driver& driver() const { return machine().driver(); }

  std::string unavailable() const { return connection_.unavailable(); }
  Machine& machine() const { return connection_.machine(); }

  kernels::Connection<Machine> connection_{[] { return std::make_unique<Machine>(open_driver(), open_compiler()); }};
  kernels::MemoryPool memory_{[this](uint64_t bytes) { return reinterpret_cast<uint64_t>(machine().allocate(bytes)); },
                              [this](uint64_t buffer) { driver().release(reinterpret_cast<void*>(buffer)); }};
  kernels::MemoryPool pinned_{[this](uint64_t bytes) {
                                void* memory = nullptr;
                                check(driver().allocate_host(bytes, &memory), "give pinned memory");
                                return reinterpret_cast<uint64_t>(memory);
                              },
                              [this](uint64_t memory) { driver().release_host(reinterpret_cast<void*>(memory)); }};
};

}  // namespace

std::shared_ptr<CapturingDevice> make_device() { return std::make_shared<CudaDevice>(); }

}  // namespace harmonics::cuda

extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) {
  registry.register_memory_device(HM_CUDA_NAME, harmonics::cuda::make_device(), "an NVIDIA accelerator by way of CUDA");
}
