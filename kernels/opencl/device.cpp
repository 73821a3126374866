// The OpenCL device: memory, queues and planning of call sites.
#include <map>
#include <utility>

#include <harmonics/plugin.hpp>

#include "families.hpp"
#include "kernels/shared/memory_pool.hpp"
#include "kernels/shared/scalar_texts.hpp"

HARMONICS_PLUGIN("harmonics.opencl", "0.1.0", "Apache-2.0", "Harmonics");

namespace harmonics::opencl {
namespace {

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

// Copies whole words, then the remaining bytes.
const char* kCopyIfFinite = R"(
kernel void copy_if_finite(BUFFER(0), BUFFER(1), BUFFER(2), ulong bytes) {
  const ulong i = get_global_id(0);
  if (!isfinite(AT(float, 2)[0])) return;
  if (4 * i + 4 <= bytes) AT(uint, 1)[i] = AT(uint, 0)[i];
  else for (ulong j = 4 * i; j < bytes; ++j) AT(uchar, 1)[j] = AT(uchar, 0)[j];
}
)";

class OpenClDevice final : public StagingDevice {
 public:
  std::string describe() const override {
    const std::string why = unavailable();
    return why.empty() ? machine().name() + ", " + machine().driver() : "not available: " + why;
  }

  hx_device_info info() override {
    hx_device_info i{};
    i.struct_size = sizeof i;
    const std::string why = unavailable();
    put_text(i.unavailable, why);
    if (!why.empty()) return i;
    const cl_device_type type = machine().type();
    i.sort = type & CL_DEVICE_TYPE_GPU ? HX_DEVICE_GPU : type & CL_DEVICE_TYPE_CPU ? HX_DEVICE_CPU : HX_DEVICE_FPGA;
    i.memory = machine().memory();
    i.most_bytes = machine().most_bytes();
    i.alignment = 64;
    put_text(i.name, machine().name());
    put_text(i.driver, machine().driver());
    put_text(i.capability, machine().capability());
    return i;
  }

  hx_queue* open_queue() override {
    auto opened = std::make_unique<Queue>();
    opened->plain = opened->now = open(0);
    return reinterpret_cast<hx_queue*>(opened.release());
  }
  void close_queue(hx_queue* queue) override {
    const std::unique_ptr<Queue> closed(&queue_of(queue));
    for (const cl_command_queue q : {closed->plain, closed->timed}) {
      if (!q) continue;
      clFinish(q);
      clReleaseCommandQueue(q);
    }
  }

  uint64_t allocate(uint64_t bytes) override { return memory_.allocate(bytes); }
  void release(uint64_t buffer) override { memory_.release(buffer); }

  void upload(hx_queue* queue, const hx_place& to, const void* from, uint64_t bytes) override {
    check(clEnqueueWriteBuffer(of(queue), of(to.buffer), CL_FALSE, to.offset, bytes, from, 0, nullptr, nullptr),
          "copy to its memory");
  }
  void download(hx_queue* queue, void* to, const hx_place& from, uint64_t bytes) override {
    check(clEnqueueReadBuffer(of(queue), of(from.buffer), CL_FALSE, from.offset, bytes, to, 0, nullptr, nullptr),
          "copy from its memory");
  }
  void copy(hx_queue* queue, const hx_place& to, const hx_place& from, uint64_t bytes) override {
    check(clEnqueueCopyBuffer(of(queue), of(from.buffer), of(to.buffer), from.offset, to.offset, bytes, 0, nullptr,
                              nullptr),
          "copy within its memory");
  }
  void synchronize(hx_queue* queue) override {
    Queue& q = queue_of(queue);
    const cl_command_queue used = std::exchange(q.now, q.plain);
    if (used != q.plain) check(clFinish(q.plain), "finish what is queued");
    check(clFinish(used), "finish what is queued");
  }
  bool native(hx_queue* queue, hx_native& out) override {
    out = {sizeof out, HX_NATIVE_OPENCL, machine().device(), machine().context(), queue ? of(queue) : nullptr};
    return true;
  }
  void submit(hx_queue* queue) override { check(clFlush(of(queue)), "start what is queued"); }

  void* allocate_host(uint64_t bytes) override { return machine().allocate_host(bytes); }
  void release_host(void* memory) override { machine().release_host(memory); }
  // Flushes, because work that another queue waits for must be submitted.
  hx_event* record(hx_queue* queue) override {
    const cl_event event = mark(of(queue));
    check(clFlush(of(queue)), "start what is queued");
    return reinterpret_cast<hx_event*>(event);
  }
  void wait(hx_queue* queue, hx_event* event) override {
    const cl_event waited = of(event);
    check(clEnqueueBarrierWithWaitList(of(queue), 1, &waited, nullptr), "make a queue wait for another");
  }
  void release_event(hx_event* event) override { clReleaseEvent(of(event)); }
  bool looks_at_numbers() const override { return true; }
  void copy_if_finite(hx_queue* queue, const hx_place& to, const hx_place& from, uint64_t bytes,
                      const hx_place& number) override {
    const hx_place places[] = {from, to};
    const std::lock_guard lock(mutex_of_copies_);
    auto at = copies_.find(bytes);
    if (at == copies_.end()) {
      Launch copy(machine(), kCopyIfFinite, "copy_if_finite", {0, 1, kLooked});
      copy.with(static_cast<cl_ulong>(bytes)).over(static_cast<int64_t>((bytes + 3) / 4));
      at = copies_.emplace(bytes, std::move(copy)).first;
    }
    at->second.enqueue(of(queue), places, &number);
  }
  void await_event(hx_event* event) override {
    const cl_event awaited = of(event);
    check(clWaitForEvents(1, &awaited), "finish what is queued");
  }
  hx_event* record_time(hx_queue* queue) override {
    Queue& q = queue_of(queue);
    if (!q.timed) q.timed = open(CL_QUEUE_PROFILING_ENABLE);
    if (q.now != q.timed) {
      hx_event* before = record(queue);
      q.now = q.timed;
      const cl_event waited = of(before);
      const cl_int code = clEnqueueBarrierWithWaitList(q.timed, 1, &waited, nullptr);
      clReleaseEvent(waited);
      check(code, "make a queue wait for another");
    }
    return reinterpret_cast<hx_event*>(mark(q.timed));
  }
  std::optional<double> elapsed(hx_event* from, hx_event* to) override {
    cl_ulong times[2] = {0, 0};
    for (int i = 0; i < 2; ++i)
      if (clGetEventProfilingInfo(of(i ? to : from), CL_PROFILING_COMMAND_END, sizeof times[i], &times[i], nullptr) !=
              CL_SUCCESS ||
          times[i] == 0)
        return std::nullopt;
    return static_cast<double>(static_cast<int64_t>(times[1] - times[0])) * 1e-9;
  }

  bool find(const hx_call_site& raw, hx_kernel& out) override {
    const Site site(raw, machine());
    const Plan plan = plans().find(site.op());
    if (!plan) return declined("has no kernel of its own for it");
    const bool has_caches = site.op() == "attention" || site.op() == "cache_append";
    if (site.has_stored() && !has_caches) return declined("does not support stored element types");
    for (uint32_t i = 0; i < site.workspace(); ++i) {
      const hx_type& t = site.buffer(i);
      if (!kernels::can_index(t)) return false;
      if (has_caches && t.dtype == HX_Q8_0) continue;
      if (!type_name(t.dtype)) return declined("does not support this element type");
      if (t.dtype == HX_F64 && !machine().has_f64()) return declined("this device does not compute in f64");
    }
    return plan(site, out);
  }

 private:
  static cl_command_queue of(hx_queue* queue) { return queue_of(queue).now; }
  static cl_event of(hx_event* event) { return reinterpret_cast<cl_event>(event); }
  static cl_mem of(uint64_t buffer) { return reinterpret_cast<cl_mem>(buffer); }

  cl_command_queue open(cl_command_queue_properties properties) const {
    cl_int code = CL_SUCCESS;
    const cl_command_queue queue = clCreateCommandQueue(machine().context(), machine().device(), properties, &code);
    check(code, "open a queue");
    return queue;
  }
  static cl_event mark(cl_command_queue queue) {
    cl_event event = nullptr;
    check(clEnqueueMarkerWithWaitList(queue, 0, nullptr, &event), "mark a point of a queue");
    return event;
  }

  std::string unavailable() const { return connection_.unavailable(); }
  Machine& machine() const { return connection_.machine(); }

  uint64_t create_buffer(uint64_t bytes) const {
    const Machine& m = machine();
    if (bytes > m.most_bytes())
      throw Error(ErrorKind::Device, "its driver gives " + std::to_string(m.most_bytes()) +
                                         " bytes at most to one buffer; take a smaller batch");
    cl_int code = CL_SUCCESS;
    const cl_mem buffer = clCreateBuffer(m.context(), CL_MEM_READ_WRITE, static_cast<size_t>(bytes), nullptr, &code);
    check(code, "give memory");
    return reinterpret_cast<uint64_t>(buffer);
  }

  kernels::Connection<Machine> connection_{[] { return std::make_unique<Machine>(); }};
  std::mutex mutex_of_copies_;
  std::map<uint64_t, Launch> copies_;  // by size; each has its own kernel arguments
  kernels::MemoryPool memory_{[this](uint64_t bytes) { return create_buffer(bytes); },
                              [](uint64_t buffer) { clReleaseMemObject(of(buffer)); }};
};

}  // namespace
}  // namespace harmonics::opencl

extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) {
  registry.register_memory_device("opencl", std::make_shared<harmonics::opencl::OpenClDevice>(),
                                  "an accelerator by way of its OpenCL driver");
}
