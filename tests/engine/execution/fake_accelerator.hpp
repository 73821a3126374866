// A fake device with its own memory: buffers are handles, not addresses, and queued work runs only when the queue is
// synchronized or another one waits for it. Its kernels are the CPU's, so results are bitwise equal.
#pragma once

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include <harmonics/memory_device.hpp>

#include "engine/plugin/registry.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics::engine::testing {

class FakeAccelerator : public StagingDevice {
 public:
  std::string unavailable;
  std::set<std::string> declined;  // operations without a kernel
  std::string breaks;              // this operation's kernel fails
  uint64_t most_bytes = 1ull << 32;
  size_t uploads = 0, downloads = 0, kernels = 0, synchronized = 0;
  uint64_t uploaded = 0, downloaded = 0;
  bool hurries = false;         // queues other than the first run work immediately
  bool looks = false;           // supports enqueue_if_finite and copy_if_finite,
  std::set<std::string> blind;  // except for these kernels
  size_t waits = 0;             // waits of a queue for another
  size_t awaited = 0;           // events awaited by the host
  bool keeps_times = true;
  std::optional<double> tells;       // reported instead of the elapsed seconds
  bool forgets = false;              // declines to report elapsed times
  std::atomic<int> upload_fails{0};  // count of uploads until one fails, on a queue other than the first

  bool gives_native = false;  // provides handles: the device itself as context, and its queue
  size_t natives = 0;         // jobs queued through these handles

  bool native(hx_queue* queue, hx_native& out) override {
    out = {sizeof out, HX_NATIVE_OPENCL, nullptr, this, queue};
    return gives_native;
  }
  // Acts as a driver function that queues a kernel over the floats in places 0 and 1.
  void queue_native(void* queue, const hx_place* places, size_t count, float (*function)(float)) {
    ++natives;
    put(static_cast<hx_queue*>(queue), [this, from = places[0], to = places[1], count, function] {
      const auto* x = static_cast<const float*>(at(from, count * sizeof(float)));
      auto* y = static_cast<float*>(at(to, count * sizeof(float)));
      for (size_t i = 0; i < count; ++i) y[i] = function(x[i]);
    });
  }

  ~FakeAccelerator() override { leaked = buffers_.size() + host_.size() + events_; }
  inline static size_t leaked = 0;  // buffers, host memory and events that the last device leaked

  std::string describe() const override { return "an accelerator for tests"; }
  hx_device_info info() override {
    hx_device_info i{};
    i.struct_size = sizeof i;
    i.sort = HX_DEVICE_GPU;
    i.memory = i.most_bytes = most_bytes;
    i.alignment = 64;
    put_text(i.name, "fake accelerator");
    put_text(i.driver, "1.0");
    put_text(i.unavailable, unavailable);
    return i;
  }

  hx_queue* open_queue() override {
    const std::lock_guard lock(order_);
    const bool beside = queues_++ > 0;
    return reinterpret_cast<hx_queue*>(new Queue{{}, beside, beside && hurries});
  }
  void close_queue(hx_queue* queue) override {
    const std::lock_guard lock(order_);
    synchronize(queue);
    --queues_;
    delete &of(queue);
  }
  uint64_t allocate(uint64_t bytes) override {
    const std::lock_guard lock(mutex_);
    if (bytes > most_bytes) throw Error(ErrorKind::Device, "out of memory");
    buffers_[++last_].assign(bytes, std::byte{0x7f});
    return last_;
  }
  void release(uint64_t buffer) override {
    const std::lock_guard lock(mutex_);
    buffers_.erase(buffer);
  }
  void upload(hx_queue* queue, const hx_place& to, const void* from, uint64_t bytes) override {
    ++uploads, uploaded += bytes;
    if (of(queue).beside && upload_fails > 0 && --upload_fails == 0) throw Error(ErrorKind::Device, "a cable is out");
    put(queue, [=, this] { std::memcpy(at(to, bytes), from, bytes); });
  }
  void download(hx_queue* queue, void* to, const hx_place& from, uint64_t bytes) override {
    ++downloads, downloaded += bytes;
    put(queue, [=, this] { std::memcpy(to, at(from, bytes), bytes); });
  }
  void copy(hx_queue* queue, const hx_place& to, const hx_place& from, uint64_t bytes) override {
    put(queue, [=, this] { std::memcpy(at(to, bytes), at(from, bytes), bytes); });
  }
  void synchronize(hx_queue* queue) override {
    const std::lock_guard lock(order_);
    ++synchronized;
    of(queue).run();
  }

  void* allocate_host(uint64_t bytes) override {
    const std::lock_guard lock(mutex_);
    auto memory = std::make_unique<Storage>(bytes);
    void* data = memory->data();
    host_[data] = std::move(memory);
    return data;
  }
  void release_host(void* memory) override {
    const std::lock_guard lock(mutex_);
    host_.erase(memory);
  }
  hx_event* record(hx_queue* queue) override {
    const std::lock_guard lock(order_);
    const auto point = std::make_shared<Point>(Point{&of(queue)});
    put(queue, [=] {
      point->time = std::chrono::steady_clock::now();
      point->reached = true;
    });
    ++events_;
    return reinterpret_cast<hx_event*>(new std::shared_ptr<Point>(point));
  }
  void wait(hx_queue* queue, hx_event* event) override {
    const std::lock_guard lock(order_);
    ++waits;
    put(queue, [point = of(event)] {
      while (!point->reached) point->queue->run_one();
    });
  }
  void release_event(hx_event* event) override {
    const std::lock_guard lock(order_);
    --events_;
    delete &of(event);
  }

  bool looks_at_numbers() const override { return looks; }
  void copy_if_finite(hx_queue* queue, const hx_place& to, const hx_place& from, uint64_t bytes,
                      const hx_place& number) override {
    put(queue, [=, this] {
      if (is_finite(number)) std::memcpy(at(to, bytes), at(from, bytes), bytes);
    });
  }
  void await_event(hx_event* event) override {
    const std::lock_guard lock(order_);
    ++awaited;
    while (!of(event)->reached) of(event)->queue->run_one();
  }
  hx_event* record_time(hx_queue* queue) override { return keeps_times ? record(queue) : nullptr; }
  std::optional<double> elapsed(hx_event* from, hx_event* to) override {
    const std::lock_guard lock(order_);
    if (!of(from)->reached || !of(to)->reached) throw Error(ErrorKind::Device, "the queue has not come there");
    if (forgets) return std::nullopt;
    return tells.value_or(std::chrono::duration<double>(of(to)->time - of(from)->time).count());
  }

  bool find(const hx_call_site& site, hx_kernel& out) override {
    if (declined.count(site.op)) return harmonics::declined("not this one");
    const ItemPtr cpu = Registry::global().need(HX_DEVICE, "cpu");
    auto k = std::make_unique<Queued>();
    k->inner.struct_size = sizeof k->inner;
    if (cpu->table<hx_device_vt>().find(cpu->self, &site, &k->inner) != HX_OK) return false;
    k->device = this;
    k->fails = breaks == site.op;
    for (uint32_t i = 0; i < site.n_inputs; ++i) k->bytes.push_back(bytes_of(site.inputs[i]));
    for (uint32_t i = 0; i < site.n_outputs; ++i) k->bytes.push_back(bytes_of(site.outputs[i]));
    k->bytes.push_back(k->inner.workspace);
    out.workspace = k->inner.workspace;
    out.name = k->inner.name;
    out.in_place = k->inner.in_place;
    out.context = k.release();
    out.destroy = [](void* context) { delete static_cast<Queued*>(context); };
    out.enqueue = [](const void* context, hx_queue* queue, const hx_place* places) {
      return enqueue(context, queue, places, nullptr);
    };
    const std::string_view op = site.op;
    if (looks && !blind.count(site.op) && (op == "sgd" || op == "sgd_outer" || op == "adamw" || op == "update_all"))
      out.enqueue_if_finite = enqueue;
    return true;
  }

 private:
  struct Queue {
    std::deque<std::function<void()>> jobs;
    bool beside = false, hurries = false;
    void run_one() {
      const auto job = std::move(jobs.front());
      jobs.pop_front();
      job();
    }
    void run() {
      while (!jobs.empty()) run_one();
    }
  };
  struct Point {
    Queue* queue;
    bool reached = false;
    std::chrono::steady_clock::time_point time = {};
  };
  struct Queued {
    hx_kernel inner{};
    FakeAccelerator* device = nullptr;
    bool fails = false;
    std::vector<uint64_t> bytes;  // by buffer
    ~Queued() {
      if (inner.destroy) inner.destroy(inner.context);
    }
  };

  static Queue& of(hx_queue* queue) { return *reinterpret_cast<Queue*>(queue); }
  static std::shared_ptr<Point>& of(hx_event* event) { return *reinterpret_cast<std::shared_ptr<Point>*>(event); }
  // Several threads fill queues. The first thread that waits runs them.
  void put(hx_queue* queue, std::function<void()> job) {
    const std::lock_guard lock(order_);
    of(queue).jobs.push_back(std::move(job));
    if (of(queue).hurries) of(queue).run();
  }
  static uint64_t bytes_of(const hx_type& t) {
    uint64_t n = t.dtype == HX_F64 || t.dtype == HX_I64 || t.dtype == HX_U64   ? 8
                 : t.dtype <= HX_I8                                            ? 1
                 : t.dtype == HX_F32 || t.dtype == HX_I32 || t.dtype == HX_U32 ? 4
                                                                               : 2;
    for (uint32_t i = 0; i < t.rank; ++i) n *= static_cast<uint64_t>(t.dims[i]);
    return n;
  }

  void* at(const hx_place& place, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto buffer = buffers_.find(place.buffer);
    if (bytes == 0) return nullptr;
    if (buffer == buffers_.end() || place.offset % 64 != 0 || place.offset + bytes > buffer->second.size())
      throw Error(ErrorKind::Device, "a place that no buffer has");
    return buffer->second.data() + place.offset;
  }

  bool is_finite(const hx_place& number) {
    float value;
    std::memcpy(&value, at(number, sizeof value), sizeof value);
    return std::isfinite(value);
  }

  static hx_status enqueue(const void* context, hx_queue* queue, const hx_place* places, const hx_place* number) {
    const auto& k = *static_cast<const Queued*>(context);
    ++k.device->kernels;
    const std::vector<hx_place> own(places, places + k.bytes.size());
    const std::optional<hx_place> looked = number ? std::optional(*number) : std::nullopt;
    k.device->put(queue, [&k, own, looked] {
      if (looked && !k.device->is_finite(*looked)) return;
      if (k.fails) throw Error(ErrorKind::Device, "a kernel broke");
      std::vector<void*> buffers;
      for (size_t i = 0; i < own.size(); ++i) buffers.push_back(k.device->at(own[i], k.bytes[i]));
      for (uint32_t phase = 0; phase < k.inner.phases; ++phase)
        for (uint32_t part = 0; part < k.inner.parts[phase]; ++part)
          k.inner.run(k.inner.context, buffers.data(), phase, part);
    });
    return HX_OK;
  }

  std::recursive_mutex order_;  // locked before mutex_
  std::mutex mutex_;
  std::map<uint64_t, std::vector<std::byte>> buffers_;
  std::map<void*, std::unique_ptr<Storage>> host_;
  size_t queues_ = 0, events_ = 0;
  uint64_t last_ = 1000;  // not an address
};

// `stages`: has pinned memory, events and times. `looks`: supports updates conditional on a finite number.
inline std::shared_ptr<FakeAccelerator> add_fake_accelerator(Registry& registry, const std::string& name = "fake",
                                                             bool stages = false, bool looks = false) {
  auto device = std::make_shared<FakeAccelerator>();
  device->looks = looks;
  auto item = std::make_shared<Item>();
  item->kind = HX_DEVICE;
  item->name = name;
  item->self = new std::shared_ptr<MemoryDevice>(device);
  item->vtable = stages ? detail::table_of(*device) : detail::memory_device_vt();
  registry.add(item);
  return device;
}

}  // namespace harmonics::engine::testing
