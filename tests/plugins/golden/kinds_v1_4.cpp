// What contracts 1.1 to 1.4 added: a live source and a device with its own memory, through the C++ face. Frozen: see
// README_v1_4.md.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>

#include <harmonics/memory_device.hpp>
#include <harmonics/plugin.hpp>

#ifndef VARIANT
#define VARIANT "every"
#endif
HARMONICS_PLUGIN("org.example.later." VARIANT, "1.4.0", "MIT", "Example");

using namespace harmonics;

namespace {

// ---- 1.1 and 1.2: a live source: sample i is (i, i / 2), its sender's number is 10 i ----

class Live final : public Producer {
 public:
  explicit Live(uint64_t arrived) : arrived_(arrived) {}
  HTensor next() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (at_ >= arrived_) return {};
    const float values[] = {static_cast<float>(at_), static_cast<float>(at_) / 2};
    ++at_;
    return HTensor(DType::F32, Shape{2}, values);
  }
  std::size_t size() const override { return 0; }
  std::optional<StreamInfo> describe() override {
    StreamInfo info;
    info.dtype = DType::F32;
    info.sample = Shape{2};
    info.live = true;
    return info;
  }
  bool restore(uint64_t index, const std::string& position) override {
    if (index && position != "before " + std::to_string(index)) throw Error(ErrorKind::Stream, "not my position");
    at_ = index;
    return true;
  }
  std::string position(uint64_t index) override { return "before " + std::to_string(index); }
  void durable(uint64_t index) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    durable_ = index;
  }
  bool cancel() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    arrived_ = 0;
    return true;
  }
  std::optional<StreamHealth> health() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    StreamHealth h;
    h.state = StreamHealth::State::Receiving;
    h.senders = 2, h.connected = 1, h.wants_durable = true;
    h.samples = arrived_, h.bytes = 8 * arrived_, h.queued_samples = durable_;
    h.idle_seconds = 0.25, h.last_error = VARIANT;
    return h;
  }
  bool numbers(uint64_t n, SampleNumber* to) override {
    for (uint64_t i = 0; i < n; ++i) to[i] = {10 * (at_ - n + i), 7};
    return true;
  }

 private:
  std::mutex mutex_;
  uint64_t arrived_, at_ = 0, durable_ = 0;
};

// ---- 1.2 to 1.4: a device. Its memory is the host's at other addresses; queued work runs at once or is recorded ----

using Clock = std::chrono::steady_clock;
using Job = std::function<void()>;
constexpr uint64_t kShift = 1ull << 62;  // using a buffer as an address crashes

struct Queue {
  bool recording = false;
  std::vector<Job> recorded;
  void put(Job job) {
    if (recording)
      recorded.push_back(std::move(job));
    else
      job();
  }
};
Queue& of(hx_queue* queue) { return *reinterpret_cast<Queue*>(queue); }
Clock::time_point& of(hx_event* event) { return *reinterpret_cast<Clock::time_point*>(event); }
char* at(const hx_place& place) { return reinterpret_cast<char*>(place.buffer - kShift) + place.offset; }
bool is_finite(const hx_place& number) {
  float value;
  std::memcpy(&value, at(number), sizeof value);
  return std::isfinite(value);
}
float to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

struct Kernel {
  enum Does { adds, multiplies, steps, maps } does;
  bool rounds;
  int64_t rows, in, out;  // of maps; otherwise rows = elements

  void run(const float* const* x, float* y) const {
    if (does != maps) {
      for (int64_t i = 0; i < rows; ++i)
        y[i] = does == adds ? x[0][i] + x[1][i] : does == multiplies ? x[0][i] * x[1][i] : x[0][i] - *x[2] * x[1][i];
      return;
    }
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t o = 0; o < out; ++o) {
        float sum = 0;
        for (int64_t i = 0; i < in; ++i) {
          const float a = x[0][r * in + i], b = x[1][o * in + i];
          sum += rounds ? to_bf16(a) * to_bf16(b) : a * b;
        }
        y[r * out + o] = sum + x[2][o];
      }
  }
};

hx_status enqueue(const void* context, hx_queue* queue, const hx_place* places, const hx_place* number) {
  const auto& kernel = *static_cast<const Kernel*>(context);
  const size_t inputs = kernel.does < Kernel::steps ? 2 : 3;
  const std::vector<hx_place> own(places, places + inputs + 1);
  const hx_place looked = number ? *number : hx_place{};
  of(queue).put([&kernel, own, inputs, looked] {
    if (looked.buffer && !is_finite(looked)) return;
    const float* x[3] = {};
    for (size_t i = 0; i < inputs; ++i) x[i] = reinterpret_cast<const float*>(at(own[i]));
    kernel.run(x, reinterpret_cast<float*>(at(own[inputs])));
  });
  return HX_OK;
}

bool same(const hx_type& a, const hx_type& b) {
  return a.dtype == b.dtype && a.rank == b.rank && std::equal(a.dims, a.dims + a.rank, b.dims);
}
int64_t elements(const hx_type& t) {
  int64_t n = 1;
  for (uint32_t i = 0; i < t.rank; ++i) n *= t.dims[i];
  return n;
}

class Memory final : public CapturingDevice {
 public:
  std::string describe() const override { return "the host's memory under other addresses"; }
  uint32_t roundings() const override { return HX_SITE_BF16 | HX_SITE_FP8; }
  hx_device_info info() override {
    hx_device_info i{};
    i.struct_size = sizeof i;
    i.sort = HX_DEVICE_FPGA;
    i.memory = 1ull << 30, i.free_memory = 1ull << 29, i.most_bytes = 1ull << 28;
    i.alignment = 64;
    put_text(i.name, VARIANT " memory");
    put_text(i.driver, "1.4");
    put_text(i.capability, "four kernels");
    return i;
  }
  hx_queue* open_queue() override { return reinterpret_cast<hx_queue*>(new Queue); }
  void close_queue(hx_queue* queue) override { delete &of(queue); }
  uint64_t allocate(uint64_t bytes) override {
    void* data = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!data) throw Error(ErrorKind::Device, "no memory");
    return reinterpret_cast<uint64_t>(data) + kShift;
  }
  void release(uint64_t buffer) override { std::free(at({buffer, 0})); }
  void upload(hx_queue* queue, const hx_place& to, const void* from, uint64_t bytes) override {
    of(queue).put([=] { std::memcpy(at(to), from, bytes); });
  }
  void download(hx_queue* queue, void* to, const hx_place& from, uint64_t bytes) override {
    of(queue).put([=] { std::memcpy(to, at(from), bytes); });
  }
  void copy(hx_queue* queue, const hx_place& to, const hx_place& from, uint64_t bytes) override {
    of(queue).put([=] { std::memcpy(at(to), at(from), bytes); });
  }
  void synchronize(hx_queue*) override {}
  void* allocate_host(uint64_t bytes) override { return std::aligned_alloc(64, (bytes + 63) / 64 * 64); }
  void release_host(void* memory) override { std::free(memory); }
  hx_event* record(hx_queue* queue) override {
    auto* time = new Clock::time_point;
    of(queue).put([=] { *time = Clock::now(); });
    return reinterpret_cast<hx_event*>(time);
  }
  void wait(hx_queue*, hx_event*) override {}
  void release_event(hx_event* event) override { delete &of(event); }
  hx_event* record_time(hx_queue* queue) override { return record(queue); }
  std::optional<double> elapsed(hx_event* from, hx_event* to) override {
    return std::chrono::duration<double>(of(to) - of(from)).count();
  }
  bool looks_at_numbers() const override { return true; }
  void copy_if_finite(hx_queue* queue, const hx_place& to, const hx_place& from, uint64_t bytes,
                      const hx_place& number) override {
    of(queue).put([=] {
      if (is_finite(number)) std::memcpy(at(to), at(from), bytes);
    });
  }
  void await_event(hx_event*) override {}
  void begin_capture(hx_queue* queue) override { of(queue).recording = true; }
  hx_capture* end_capture(hx_queue* queue) override {
    of(queue).recording = false;
    return reinterpret_cast<hx_capture*>(new std::vector<Job>(std::move(of(queue).recorded)));
  }
  void launch(hx_queue* queue, hx_capture* capture) override {
    for (const Job& job : *reinterpret_cast<std::vector<Job>*>(capture)) of(queue).put(job);
  }
  void release_capture(hx_capture* capture) override { delete reinterpret_cast<std::vector<Job>*>(capture); }

  bool find(const hx_call_site& site, hx_kernel& out) override {
    const std::string op = site.op;
    for (uint32_t i = 0; i < site.n_inputs; ++i)
      if (site.inputs[i].dtype != HX_F32) return declined("computes f32 only");
    for (uint32_t i = 0; site.attributes && i < site.attributes->count; ++i) {
      const hx_attribute& a = site.attributes->items[i];
      const bool zero = a.kind == HX_ATTR_FLOAT ? a.as.f == 0 : a.kind != HX_ATTR_STRING ? a.as.i == 0 : !*a.as.s;
      if (a.kind == HX_ATTR_INTS || a.kind == HX_ATTR_FLOATS || !zero) return declined("takes no attributes");
    }
    const bool two = site.n_inputs == 2 && same(site.inputs[0], site.inputs[1]);
    Kernel k{Kernel::adds, (site.flags & HX_SITE_BF16) != 0, site.n_inputs ? elements(site.inputs[0]) : 0, 0, 0};
    if (op == "mul" && two) {
      k.does = Kernel::multiplies;
    } else if (op == "sgd" && site.n_inputs == 3 && same(site.inputs[0], site.inputs[1]) && !site.inputs[2].rank) {
      k.does = Kernel::steps;
    } else if (op == "linear" && site.n_inputs == 3 && site.inputs[0].rank == 2) {
      k = {Kernel::maps, k.rounds, site.inputs[0].dims[0], site.inputs[0].dims[1], site.inputs[1].dims[0]};
    } else if (op != "add" || !two) {
      return declined("computes sums, products, affine maps and steps");
    }
    out.context = new Kernel(k);
    out.destroy = [](void* context) { delete static_cast<Kernel*>(context); };
    out.name = VARIANT " kernel";
    out.enqueue = [](const void* context, hx_queue* queue, const hx_place* places) {
      return enqueue(context, queue, places, nullptr);
    };
    if (k.does == Kernel::steps) out.enqueue_if_finite = enqueue;
    return true;
  }
};

}  // namespace

extern "C" void harmonics_register(FunctionRegistry& registry) {
  registry.register_producer(VARIANT "_live",
                             [](const std::string&, const Arguments& a) {
                               return std::make_shared<Live>(static_cast<uint64_t>(a.integer("size")));
                             },
                             "numbers as they arrive", {Argument::integer("size", 16, "samples")});
  registry.register_memory_device(VARIANT "_memory", std::make_shared<Memory>(), "a device in the host's memory");
}
