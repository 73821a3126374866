// Measures an accelerator's kernels and steps: bench_gpu [--device NAME] [--plugin FILE] [--seconds S] [--small]
// [--only NAME] prints one JSON object per line, {"id", "seconds", "work"}: seconds per call of many calls queued
// together, and FLOPs or bytes per call. Sizes equal those of peer.py in this folder; --small makes them tiny, to check
// that everything runs.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>

#include <fmt/core.h>
#include <harmonics/philox.hpp>

#include "engine/execution/device_memory.hpp"
#include "engine/execution/kernel_source.hpp"
#include "engine/plugin/loader.hpp"
#include "tests/bench/workload.hpp"

namespace harmonics::engine::bench {
namespace {

struct Options {
  std::string device = "cuda", plugin;
  double seconds = 1;
  bool small = false;
  std::string only;  // prefix of the ids to run
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Returns the median time per call over runs of `times` calls.
template <typename Call, typename Wait>
double time_of(const Options& o, Call call, Wait wait) {
  const auto run = [&](int times) {
    const double start = now();
    for (int i = 0; i < times; ++i) call();
    wait();
    return (now() - start) / times;
  };
  run(3);
  const double once = run(1);
  const int times = std::max(1, static_cast<int>(0.05 * o.seconds / once));
  std::vector<double> all;
  for (const double end = now() + o.seconds; now() < end || all.size() < 5;) all.push_back(run(times));
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

void print(const std::string& id, double seconds, double work) {
  fmt::print("{{\"id\": \"{}\", \"seconds\": {:.9g}, \"work\": {:.9g}}}\n", id, seconds, work);
}

class Bench {
 public:
  explicit Bench(const Options& o)
      : o_(o),
        kernels_(o.device, Registry::global()),
        rounding_(o.device, Registry::global(), Precision::automatic),
        queue_(std::make_shared<DeviceQueue>(kernels_.device())) {}

  void copy(uint64_t bytes) {
    const DeviceBuffer from(queue_, bytes), to(queue_, bytes);
    print("copy",
          time_of(
              o_, [&] { queue_->copy(to.at(0), from.at(0), bytes); }, [&] { queue_->synchronize(); }),
          2 * static_cast<double>(bytes));
  }

  void kernel(const std::string& id, const std::string& op, const AttributeMap& attributes,
              const std::vector<TensorType>& in, const std::vector<TensorType>& out, double work,
              bool may_round = false) {
    if (!id.starts_with(o_.only)) return;
    KernelSource& source = may_round ? rounding_ : kernels_;
    const KernelPtr kernel = source.find(op, attributes, in, out);
    if (!kernel || !kernel->is_queued())
      throw Error(ErrorKind::Device, fmt::format("device '{}' has no kernel for {}: {}", o_.device, id,
                                                 source.why_not(op, attributes, in, out)));
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    std::vector<hx_place> places;
    const auto take = [&](uint64_t bytes) {
      buffers.push_back(std::make_unique<DeviceBuffer>(queue_, bytes));
      places.push_back(buffers.back()->at(0));
    };
    for (const TensorType& t : in) {
      take(t.bytes());
      fill(t, places.back());
    }
    for (const TensorType& t : out) take(t.bytes());
    take(kernel->raw().workspace);
    print(id,
          time_of(
              o_,
              [&] {
                queue_->check(kernel->raw().enqueue(kernel->raw().context, queue_->raw(), places.data()),
                              "queue a kernel");
              },
              [&] { queue_->synchronize(); }),
          work);
  }

 private:
  // Numbers in (0, 1], labels 0. With zeros only, products would draw less power and run faster.
  void fill(const TensorType& t, const hx_place& to) {
    std::vector<char> bytes(t.bytes(), 0);
    if (t.dtype == DType::F32) {
      PhiloxStream random(philox_key(1, 0), 0);
      for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
        const float v = 1 - random.uniform();
        std::memcpy(bytes.data() + i, &v, 4);
      }
    }
    queue_->upload(to, bytes.data(), bytes.size());
    queue_->synchronize();
  }

  Options o_;
  KernelSource kernels_, rounding_;
  DeviceQueuePtr queue_;
};

TensorType f32(const Shape& s) { return {DType::F32, s}; }

void products(Bench& bench, bool small) {
  const int64_t shapes[][3] = {{64, 784, 392}, {8192, 1024, 4096}, {8192, 8192, 8192}};  // rows, in, out
  for (const auto& s : shapes) {
    const int64_t m = small ? 4 : s[0], k = small ? 8 : s[1], n = small ? 5 : s[2];
    const std::string id = fmt::format("{}x{}x{}", s[0], s[1], s[2]);
    const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n);
    bench.kernel("gemm_f32/" + id, "linear", {}, {f32({m, k}), f32({n, k})}, {f32({m, n})}, flops);
    bench.kernel("gemm_tf32/" + id, "linear", {}, {f32({m, k}), f32({n, k})}, {f32({m, n})}, flops, true);
    bench.kernel("gemm_bias_relu_tf32/" + id, "linear", AttributeMap().set("activation", "relu"),
                 {f32({m, k}), f32({n, k}), f32({n})}, {f32({m, n})}, flops, true);
    AttributeMap last;
    last.set("lhs_contract", std::vector<int64_t>{1})
        .set("rhs_contract", std::vector<int64_t>{1})
        .set("lhs_batch", std::vector<int64_t>{})
        .set("rhs_batch", std::vector<int64_t>{});
    bench.kernel("gemm_bf16/" + id, "dot", last, {{DType::BF16, {m, k}}, {DType::BF16, {n, k}}},
                 {{DType::BF16, {m, n}}}, flops);
  }
}

void rows(Bench& bench, bool small) {
  const int64_t m = small ? 8 : 16384, n = small ? 48 : 4096, classes = small ? 50 : 50304, tokens = small ? 4 : 4096;
  const TensorType x = f32({m, n}), gain = f32({n}), statistic = f32({m}), logits = f32({tokens, classes}),
                   labels{DType::I64, {tokens}}, one = f32({tokens});
  const double bytes = static_cast<double>(m * n) * 4, of_logits = static_cast<double>(tokens * classes) * 4;
  bench.kernel("rms_norm", "rms_norm", {}, {x, gain}, {x, statistic}, 2 * bytes);
  bench.kernel("rms_norm_grad", "rms_norm_grad", {}, {x, gain, statistic, x}, {x, gain}, 3 * bytes);
  bench.kernel("layer_norm", "layer_norm", {}, {x, gain, gain}, {x, statistic, statistic}, 2 * bytes);
  bench.kernel("layer_norm_grad", "layer_norm_grad", {}, {x, gain, statistic, statistic, x}, {x, gain, gain},
               3 * bytes);
  bench.kernel("softmax", "softmax", {}, {x}, {x}, 2 * bytes);
  bench.kernel("cross_entropy", "softmax_cross_entropy", {}, {logits, labels}, {one, one}, of_logits);
  bench.kernel("cross_entropy_grad", "softmax_cross_entropy_grad", {}, {logits, labels, one, one}, {logits},
               2 * of_logits);
  bench.kernel("adamw", "adamw", AttributeMap().set("weight_decay", 0.01), {x, x, x, x, f32({}), {DType::I64, {}}},
               {x, x, x}, 7 * bytes);
  bench.kernel("add", "add", {}, {x, x}, {x}, 3 * bytes);
  bench.kernel("bias_gradient", "reduce_sum", AttributeMap().set("axes", std::vector<int64_t>{0}).set("keep", false),
               {x}, {gain}, bytes);
  bench.kernel("transpose", "transpose", AttributeMap().set("permutation", std::vector<int64_t>{1, 0}), {x},
               {f32({n, m})}, 2 * bytes);
}

void steps(const Options& o) {
  for (const char* name : {"mlp_train", "cnn_train", "char_gpt_train", "gpt_train", "llama_train"}) {
    if (o.small && std::string(name) != "mlp_train") continue;
    const Workload workload = read_workload(name);
    const int64_t batch = workload.batches.size() > 1 ? workload.batches[1] : workload.batches[0];
    for (const auto& [kind, precision] :
         {std::pair("step", Precision::fp32), std::pair("step_bf16", Precision::bf16)}) {
      const std::string id = fmt::format("{}/{}/batch:{}", kind, name, batch);
      const bool is_wide = std::string(name) == "gpt_train" || std::string(name) == "llama_train";
      if (!id.starts_with(o.only) || (precision == Precision::bf16 && !is_wide)) continue;
      WorkloadStep step(workload, o.small ? 2 : batch, 1, DeviceSettings{.device = o.device, .precision = precision});
      print(id,
            time_of(
                o, [&] { step.run(); }, [] {}),
            step.flops());
    }
  }
}

Options read(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] {
      if (i + 1 >= argc) throw Error(ErrorKind::Usage, word + " takes a value");
      return std::string(argv[++i]);
    };
    if (word == "--device")
      o.device = value();
    else if (word == "--plugin")
      o.plugin = value();
    else if (word == "--seconds")
      o.seconds = std::stod(value());
    else if (word == "--only")
      o.only = value();
    else if (word == "--small")
      o.small = true;
    else
      throw Error(ErrorKind::Usage,
                  "bench_gpu [--device NAME] [--plugin FILE] [--seconds S] [--small] [--only NAME], not " + word);
  }
  return o;
}

}  // namespace
}  // namespace harmonics::engine::bench

int main(int argc, char** argv) {
  using namespace harmonics;
  using namespace harmonics::engine;
  try {
    const bench::Options o = bench::read(argc, argv);
    if (!o.plugin.empty()) load_plugin(o.plugin);
    bench::Bench kernels(o);
    kernels.copy(o.small ? 1 << 16 : uint64_t{1} << 30);
    bench::products(kernels, o.small);
    bench::rows(kernels, o.small);
    bench::steps(o);
    return 0;
  } catch (const Error& e) {
    fmt::print(stderr, "bench_gpu: {}\n", e.what());
    return 1;
  }
}
