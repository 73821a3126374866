#include "kernel_call.hpp"

#include <cpuid.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

#include <harmonics/element_conversion.hpp>
#include <harmonics/function.hpp>

#include "engine/tensor/half.hpp"

namespace harmonics::engine::kernel_tests {
namespace {

// A minimal host for a device: registration and error reporting.
struct FakeHost {
  const hx_device_vt* vt = nullptr;
  void* self = nullptr;
  std::string name, error;
};
FakeHost& host() {
  static FakeHost h;
  return h;
}

hx_status take_item(hx_registry*, const hx_item* item) {
  host().vt = static_cast<const hx_device_vt*>(item->vtable);
  host().self = item->self;
  host().name = item->name;
  return item->kind == HX_DEVICE ? HX_OK : HX_ERROR;
}

const FakeHost& device() {
  static const bool loaded = [] {
    // Tests the emulated kernels if the processor lacks fp16 or bf16 arithmetic, or if a lower instruction set is
    // selected.
    unsigned a = 0, b = 0, c = 0, d = 0;
    const char* isa = std::getenv("HARMONICS_ISA");
    const bool lower = isa && std::string_view(isa) != "avx512";
    if (lower || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d >> 23 & 1)) setenv("HARMONICS_FP16", "emulated", 0);
    const bool has_bf16 = !lower && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);
    if (!has_bf16) setenv("HARMONICS_BF16", "emulated", 0);
    void* library = dlopen(HARMONICS_CPU_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    static hx_api api{};
    api.struct_size = sizeof api;
    api.set_error = [](uint32_t, const char* text) { host().error = text; };
    api.last_error = [](uint32_t*) { return host().error.c_str(); };
    api.register_item = take_item;
    static hx_registration registration{sizeof(hx_registration), &api, nullptr};
    auto enter = reinterpret_cast<void (*)(hx_registration*)>(dlsym(library, "harmonics_register"));
    enter(&registration);
    return true;
  }();
  (void)loaded;
  return host();
}

struct Free {
  void operator()(void* p) const { std::free(p); }
};
using Memory = std::unique_ptr<char, Free>;
// Allocates exactly `bytes` bytes, so that an address sanitizer detects overruns.
Memory aligned(size_t bytes) {
  void* p = nullptr;
  if (posix_memalign(&p, 64, std::max<size_t>(bytes, 1)) != 0) throw std::bad_alloc();
  std::memset(p, 0xff, bytes);  // NaN in every float type
  return Memory(static_cast<char*>(p));
}

}  // namespace

size_t bytes_of(uint32_t dtype, const Dims& dims) { return tensor_bytes(static_cast<DType>(dtype), Shape(dims)); }

hx_type Tensor::type() const {
  hx_type t{};
  t.dtype = dtype;
  t.rank = static_cast<uint32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), t.dims);
  return t;
}

Tensor as_half(const Tensor& x) {
  Tensor result = Tensor::zeros(x.dims, HX_F16);
  auto* to = reinterpret_cast<uint16_t*>(result.bytes.data());
  for (int64_t i = 0; i < x.size(); ++i) to[i] = float_to_half(x[i]);
  return result;
}

namespace {

Tensor encoded(const Tensor& x, DType dtype) {
  Tensor result = Tensor::zeros(x.dims, static_cast<uint32_t>(dtype));
  encode_elements(dtype, x.data<float>(), result.bytes.data(), x.size());
  return result;
}
Tensor widened(const Tensor& x, DType dtype) {
  Tensor result = Tensor::zeros(x.dims);
  decode_elements(dtype, x.bytes.data(), reinterpret_cast<float*>(result.bytes.data()), x.size());
  return result;
}

}  // namespace

Tensor as_eight_bits(const Tensor& x) { return encoded(x, DType::Q8_0); }
Tensor from_eight_bits(const Tensor& x) { return widened(x, DType::Q8_0); }
Tensor as_bfloat(const Tensor& x) { return encoded(x, DType::BF16); }
Tensor from_bfloat(const Tensor& x) { return widened(x, DType::BF16); }

Tensor Random::floats(Dims dims, float low, float high) {
  std::vector<float> v(static_cast<size_t>(elements(dims)));
  for (float& x : v) x = std::uniform_real_distribution<float>(low, high)(engine_);
  return {std::move(dims), v};
}

KernelCall& KernelCall::set(const char* name, int64_t value) {
  hx_attribute a{name, HX_ATTR_INT, 0, {}};
  a.as.i = value;
  return attributes_.push_back(a), *this;
}
KernelCall& KernelCall::set(const char* name, double value) {
  hx_attribute a{name, HX_ATTR_FLOAT, 0, {}};
  a.as.f = value;
  return attributes_.push_back(a), *this;
}
KernelCall& KernelCall::set(const char* name, const char* value) {
  hx_attribute a{name, HX_ATTR_STRING, 0, {}};
  a.as.s = kept_->texts.emplace_back(value).c_str();
  return attributes_.push_back(a), *this;
}
KernelCall& KernelCall::set(const char* name, Dims values) {
  kept_->int_lists.push_back(std::move(values));
  hx_attribute a{name, HX_ATTR_INTS, static_cast<uint32_t>(kept_->int_lists.back().size()), {}};
  a.as.ints = kept_->int_lists.back().data();
  return attributes_.push_back(a), *this;
}
KernelCall& KernelCall::step(const char* op, std::vector<uint32_t> operands, uint32_t dtype) {
  operands.resize(3);
  chain_.push_back({op, operands[0], operands[1], operands[2], dtype});
  return *this;
}

bool KernelCall::find(hx_kernel& kernel) {
  std::vector<hx_type> in, out;
  for (const Tensor& t : inputs_) in.push_back(t.type());
  for (const Tensor& t : outputs_) out.push_back(t.type());
  const hx_attributes attributes{attributes_.data(), static_cast<uint32_t>(attributes_.size())};
  hx_call_site site{};
  site.struct_size = sizeof site;
  site.flags = flags_;
  site.op = op_.c_str();
  site.attributes = &attributes;
  site.n_inputs = static_cast<uint32_t>(in.size());
  site.n_outputs = static_cast<uint32_t>(out.size());
  site.inputs = in.data();
  site.outputs = out.data();
  site.n_chain = static_cast<uint32_t>(chain_.size());
  site.chain = chain_.data();
  site.chain_outputs = chain_outputs_.data();
  site.constants = constants_;
  site.changed_bytes = changed_bytes_;
  const hx_status status = device().vt->find(device().self, &site, &kernel);
  INFO(op_ << ": " << host().error);
  REQUIRE(status != HX_ERROR);
  return status == HX_OK;
}

bool is_baseline() {
  const char* isa = std::getenv("HARMONICS_ISA");
  return isa ? std::string(isa) == "baseline" : !__builtin_cpu_supports("avx2");
}

bool KernelCall::served() {
  hx_kernel kernel{};
  if (!find(kernel)) return false;
  if (kernel.destroy) kernel.destroy(kernel.context);
  return true;
}

uint64_t KernelCall::workspace() {
  hx_kernel kernel{};
  REQUIRE(find(kernel));
  if (kernel.destroy) kernel.destroy(kernel.context);
  return kernel.workspace;
}

void KernelCall::once(const hx_kernel& kernel, Order order, std::vector<Tensor>& outputs) {
  std::vector<Memory> memory;
  std::vector<void*> buffers;
  for (const Tensor& t : inputs_) {
    memory.push_back(aligned(t.bytes.size()));
    std::memcpy(memory.back().get(), t.bytes.data(), t.bytes.size());
    buffers.push_back(memory.back().get());
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    memory.push_back(aligned(outputs_[i].bytes.size()));
    buffers.push_back(memory.back().get());
    for (const auto& [output, input] : aliases_)
      if (output == i) buffers.back() = buffers[input];
  }
  memory.push_back(aligned(kernel.workspace));
  buffers.push_back(memory.back().get());
  if (kernel.packed_bytes) {  // the kernel must not read the input after packing
    REQUIRE((constants_ >> kernel.packed_input & 1));
    memory.push_back(aligned(kernel.packed_bytes));
    buffers.push_back(memory.back().get());
    REQUIRE(kernel.packed_piece > 0);
    for (uint64_t i = (kernel.packed_bytes - 1) / kernel.packed_piece + 1; i-- > 0;)
      kernel.pack(kernel.context, buffers[kernel.packed_input], i,
                  static_cast<char*>(buffers.back()) + i * kernel.packed_piece);
    std::memset(buffers[kernel.packed_input], 0xff, inputs_[kernel.packed_input].bytes.size());
  }

  std::mt19937 engine(17);
  for (uint32_t phase = 0; phase < kernel.phases; ++phase) {
    std::vector<uint32_t> parts(kernel.parts[phase]);
    std::iota(parts.begin(), parts.end(), 0);
    if (order == Order::reversed) std::reverse(parts.begin(), parts.end());
    if (order == Order::shuffled) std::shuffle(parts.begin(), parts.end(), engine);
    const auto some = [&](size_t first, size_t step) {
      for (size_t i = first; i < parts.size(); i += step) kernel.run(kernel.context, buffers.data(), phase, parts[i]);
    };
    if (order == Order::two_threads) {
      std::thread other([&] { some(1, 2); });
      some(0, 2);
      other.join();
    } else if (order == Order::two_ends) {
      std::mutex mutex;
      size_t first = 0, last = parts.size();
      const auto next = [&](bool from_end) -> std::optional<uint32_t> {
        const std::lock_guard lock(mutex);
        if (first == last) return std::nullopt;
        return parts[from_end ? --last : first++];
      };
      const auto run_parts = [&](bool from_end) {
        while (const auto part = next(from_end)) kernel.run(kernel.context, buffers.data(), phase, *part);
      };
      std::thread other([&] { run_parts(true); });
      run_parts(false);
      other.join();
    } else {
      some(0, 1);
    }
  }
  outputs = outputs_;
  for (size_t i = 0; i < outputs.size(); ++i)
    std::memcpy(outputs[i].bytes.data(), buffers[inputs_.size() + i], outputs[i].bytes.size());
}

std::vector<Tensor> KernelCall::run() {
  hx_kernel kernel{};
  INFO(op_);
  REQUIRE(find(kernel));
  REQUIRE(kernel.phases >= 1);
  REQUIRE(kernel.phases <= HX_MAX_PHASES);
  parts_ = *std::max_element(kernel.parts, kernel.parts + kernel.phases);
  in_place_ = kernel.in_place;
  packed_bytes_ = kernel.packed_bytes;
  name_ = kernel.name;
  std::vector<Tensor> result, again;
  once(kernel, Order::forward, result);
  for (Order order : {Order::reversed, Order::shuffled, Order::two_threads, Order::two_ends}) {
    once(kernel, order, again);
    for (size_t i = 0; i < result.size(); ++i) REQUIRE(again[i].bytes == result[i].bytes);
  }
  if (kernel.destroy) kernel.destroy(kernel.context);
  return result;
}

double KernelCall::seconds(int repeats) {
  hx_kernel kernel{};
  REQUIRE(find(kernel));
  std::vector<Memory> memory;
  std::vector<void*> buffers;
  for (const auto* list : {&inputs_, &outputs_})
    for (const Tensor& t : *list) {
      memory.push_back(aligned(t.bytes.size()));
      std::memcpy(memory.back().get(), t.bytes.data(), t.bytes.size());
      buffers.push_back(memory.back().get());
    }
  memory.push_back(aligned(kernel.workspace));
  buffers.push_back(memory.back().get());
  std::vector<std::vector<double>> best(kernel.phases);
  for (int r = 0; r < repeats; ++r)
    for (uint32_t phase = 0; phase < kernel.phases; ++phase) {
      best[phase].resize(kernel.parts[phase], 1e9);
      for (uint32_t part = 0; part < kernel.parts[phase]; ++part) {
        const auto start = std::chrono::steady_clock::now();
        kernel.run(kernel.context, buffers.data(), phase, part);
        best[phase][part] = std::min(best[phase][part],
                                     std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      }
    }
  double seconds = 0;
  for (const auto& parts : best) seconds = std::accumulate(parts.begin(), parts.end(), seconds);
  name_ = kernel.name;
  parts_ = *std::max_element(kernel.parts, kernel.parts + kernel.phases);
  if (kernel.destroy) kernel.destroy(kernel.context);
  return seconds;
}

void require_close(const Tensor& actual, const std::vector<double>& expected, double relative, double absolute) {
  REQUIRE(actual.size() == static_cast<int64_t>(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) {
    const double e = expected[i],
                 a = actual.dtype == HX_F64 ? actual.data<double>()[i] : static_cast<double>(actual.data<float>()[i]);
    const bool same = std::isnan(e) ? std::isnan(a) : a == e || std::abs(a - e) <= absolute + relative * std::abs(e);
    if (same) continue;
    INFO("element " << i << ": " << a << " should be " << e);
    REQUIRE(same);
  }
}

std::string device_name() { return device().name; }
std::string device_text() { return device().vt->describe(device().self); }

}  // namespace harmonics::engine::kernel_tests
