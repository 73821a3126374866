// The device "trace": --device trace:cpu runs on the device cpu and logs every call as a JSON line, to the file in
// HARMONICS_TRACE_FILE (default: device-trace.jsonl). Each call site that requests a kernel has one line:
//   {"asked":"linear","inputs":["f32[64, 784]", ...],"outputs":[...],"kernel":"oneDNN matmul"}
//
// and one for each part of a kernel that ran, in nanoseconds of the steady clock:
//
//   {"ran":"linear","inputs":[...],"outputs":[...],"kernel":"...","phase":0,"part":1,"thread":2,"begin":12,"end":15}
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <harmonics/element_type.hpp>
#include <harmonics/plugin.hpp>

HARMONICS_PLUGIN("harmonics.trace", "0.1.0", "Apache-2.0", "Harmonics");

namespace {

using harmonics::Device;
using harmonics::InnerDevice;

uint64_t now() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

uint32_t thread_number() {
  static std::atomic<uint32_t> count{0};
  thread_local const uint32_t mine = count++;
  return mine;
}

std::string quoted(const std::string& text) {
  std::string all = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') all += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) all += c;
  }
  return all + "\"";
}

std::string types_text(const hx_type* types, uint32_t count) {
  std::string all = "[";
  for (uint32_t i = 0; i < count; ++i) {
    all += i ? ",\"" : "\"";
    all += harmonics::element_type(static_cast<harmonics::DType>(types[i].dtype)).name;
    all += '[';
    for (uint32_t d = 0; d < types[i].rank; ++d) all += (d ? ", " : "") + std::to_string(types[i].dims[d]);
    all += "]\"";
  }
  return all + "]";
}

// Lines of several threads. The file is opened at the first line: a device that no program uses writes none.
class TraceLog {
 public:
  explicit TraceLog(std::string path) : path_(std::move(path)) {}
  ~TraceLog() {
    if (file_) std::fclose(file_);
  }
  TraceLog(const TraceLog&) = delete;
  TraceLog& operator=(const TraceLog&) = delete;
  void write(const std::string& line) {
    const std::lock_guard lock(mutex_);
    if (!file_) open();
    std::fputs(line.c_str(), file_);
  }

 private:
  void open() {
    file_ = std::fopen(path_.c_str(), "w");
    if (!file_)
      throw harmonics::Error(harmonics::ErrorKind::Output, "the log of calls '" + path_ + "' cannot be written", {},
                             {"HARMONICS_TRACE_FILE names another file"});
    std::setvbuf(file_, nullptr, _IOLBF, 1 << 16);  // devices live until the program ends, however it ends
  }

  std::mutex mutex_;
  std::string path_;
  std::FILE* file_ = nullptr;
};

struct TracedKernel {
  hx_kernel inner;
  std::string site;  // fields of its lines, without braces
  std::shared_ptr<TraceLog> log;

  ~TracedKernel() {
    if (inner.destroy) inner.destroy(inner.context);
  }
};

void run_traced(const void* context, void* const* buffers, uint32_t phase, uint32_t part) {
  const auto& traced = *static_cast<const TracedKernel*>(context);
  const uint64_t begin = now();
  traced.inner.run(traced.inner.context, buffers, phase, part);
  const uint64_t end = now();
  traced.log->write("{\"ran\":" + traced.site + ",\"phase\":" + std::to_string(phase) +
                    ",\"part\":" + std::to_string(part) + ",\"thread\":" + std::to_string(thread_number()) +
                    ",\"begin\":" + std::to_string(begin) + ",\"end\":" + std::to_string(end) + "}\n");
}

void pack_traced(const void* context, const void* input, uint64_t piece, void* packed) {
  const auto& traced = *static_cast<const TracedKernel*>(context);
  traced.inner.pack(traced.inner.context, input, piece, packed);
}

class TracingDevice : public Device {
 public:
  explicit TracingDevice(const InnerDevice& inner) : inner_(inner) {
    const char* file = std::getenv("HARMONICS_TRACE_FILE");
    log_ = std::make_shared<TraceLog>(file && *file ? file : "device-trace.jsonl");
  }
  std::string describe() const override { return inner_.describe() + ", every call traced"; }
  uint32_t roundings() const override { return inner_.roundings(); }
  bool find(const hx_call_site& site, hx_kernel& out) override {
    const bool found = inner_.find(site, out);
    std::string text = quoted(site.op) + ",\"inputs\":" + types_text(site.inputs, site.n_inputs) +
                       ",\"outputs\":" + types_text(site.outputs, site.n_outputs) + ",\"kernel\":";
    text += found ? quoted(out.name ? out.name : "") : "null";
    log_->write("{\"asked\":" + text + "}\n");
    if (!found) return false;
    if (!out.run) return true;
    auto traced = std::make_unique<TracedKernel>(TracedKernel{{}, std::move(text), log_});
    traced->inner = out;
    out.run = run_traced;
    out.destroy = [](void* context) { delete static_cast<TracedKernel*>(context); };
    if (out.struct_size > offsetof(hx_kernel, packed_input) && out.pack) out.pack = pack_traced;
    out.context = traced.release();
    return true;
  }

 private:
  InnerDevice inner_;
  std::shared_ptr<TraceLog> log_;
};

// Wraps other devices; has no kernels itself.
class TraceMaker : public Device {
 public:
  std::string describe() const override { return "logs the calls of another device: --device trace:cpu"; }
  bool find(const hx_call_site&, hx_kernel&) override {
    return harmonics::declined("trace has no kernels; --device trace:cpu computes by the device cpu");
  }
  std::shared_ptr<Device> wrap(const InnerDevice& inner) const override {
    return std::make_shared<TracingDevice>(inner);
  }
};

}  // namespace

extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) {
  registry.register_device("trace", std::make_shared<TraceMaker>(), "logs every call of another device");
}
