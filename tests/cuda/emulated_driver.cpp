#include "tests/cuda/emulated_driver.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <utility>

#include <harmonics/error.hpp>

#include "tests/cuda/emulated_language.hpp"

namespace harmonics::cuda {

namespace emulated {

Settings& settings() {
  static Settings s;
  return s;
}

namespace {

int failing(const char* what) {
  const auto at = settings().fails.find(what);
  return at == settings().fails.end() ? 0 : at->second;
}

// A copy of a launch's arguments.
class Kept {
 public:
  Kept(const Entry& kernel, void** arguments) : kernel_(kernel) {
    for (uint32_t i = 0; i < kernel.count; ++i) bytes_.emplace_back((kernel.sizes[i] + 15) / 16 * 2);
    for (uint32_t i = 0; i < kernel.count; ++i) std::memcpy(bytes_[i].data(), arguments[i], kernel.sizes[i]);
  }
  void run(const Three& blocks, const Three& threads) {
    std::vector<void*> arguments;
    for (auto& b : bytes_) arguments.push_back(b.data());
    emulated::run(kernel_, blocks, threads, arguments.data());
  }

 private:
  const Entry& kernel_;
  std::vector<std::vector<uint64_t>> bytes_;
};

// Several threads fill streams. The first thread that waits runs them.
std::recursive_mutex& order() {
  static std::recursive_mutex m;
  return m;
}
int open_streams = 0;

// A captured job, and the indices of the jobs that it depends on.
struct Node {
  std::function<void()> job;
  std::vector<size_t> after;
};

struct Point;
struct Queue {
  Stream work;
  std::vector<Node> captured;
  std::vector<size_t> front;                     // captured jobs that the next one depends on
  std::vector<std::shared_ptr<Point>> recorded;  // during a capture
  bool captures = false, hurries = false;

  void put(std::function<void()> job) {
    const std::lock_guard lock(order());
    if (captures) {
      captured.push_back({std::move(job), front});
      front = {captured.size() - 1};
      return;
    }
    work.push_back(std::move(job));
    if (hurries) run();
  }
  void run_one() {
    const auto job = std::move(work.front());
    work.pop_front();
    job();
  }
  void run() {
    while (!work.empty()) run_one();
  }
};

// An event: complete once the stream has reached it as often as it was recorded. Jobs share ownership.
struct Point {
  Queue* queue;
  bool keeps_time = false;
  int expected = 0;
  bool reached() const { return expected == 0; }
  std::chrono::steady_clock::time_point time = {};
};
using Event = std::shared_ptr<Point>;

struct Graph {
  Stream jobs;  // in order of execution
  std::vector<Event> events;
};

// Runs the latest ready job first, so that a missing dependency shows.
Stream ordered(std::vector<Node> nodes) {
  Stream jobs;
  std::vector<bool> done(nodes.size());
  while (jobs.size() < nodes.size()) {
    size_t next = nodes.size();
    const auto ready = [&](size_t i) {
      return !done[i] && std::all_of(nodes[i].after.begin(), nodes[i].after.end(), [&](size_t a) { return done[a]; });
    };
    while (!ready(--next)) {
    }
    done[next] = true;
    jobs.push_back(std::move(nodes[next].job));
  }
  return jobs;
}

// Lets an emulated driver library (played_cuda.cpp), which emulates others' launches, append them to our streams.
void introduce_played_driver() {
  using Tell = void (*)(void (*)(void* stream, void (*job)(const void*), const void* argument));
  void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  const auto tell = library ? reinterpret_cast<Tell>(dlsym(library, "played_cuda_streams")) : nullptr;
  if (tell)
    tell([](void* stream, void (*job)(const void*), const void* argument) { put(stream, [=] { job(argument); }); });
}

// Functions that compiled chains import from the emulator.
struct ChainLanguage {
  Place* (*place)();
  void (*meet)();
  void (*shuffle)(void* value, size_t bytes, uint32_t apart);
};

class EmulatedDriver final : public Driver {
 public:
  Facts facts() override {
    Facts f;
    f.unavailable = settings().unavailable;
    f.name = "emulated accelerator";
    f.driver = "tests";
    f.major = 9;
    f.units = settings().units;
    f.memory = settings().memory;
    return f;
  }
  uint64_t free_memory() override { return settings().memory; }
  std::string text(int code) override {
    return std::string(code == kOutOfMemory     ? "out of memory"
                       : code == kLaunchFailure ? "unspecified launch failure"
                                                : "some error") +
           " (" + std::to_string(code) + ")";
  }
  bool is_out_of_memory(int code) const override { return code == kOutOfMemory; }

  int become_current() override { return failing("become_current"); }

  int allocate(uint64_t bytes, void** out) override {
    if (const int code = failing("allocate")) return code;
    if (bytes > settings().memory) return kOutOfMemory;
    *out = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    std::memset(*out, 0x7f, bytes);
    ++settings().allocations;
    return 0;
  }
  int release(void* memory) override { return std::free(memory), 0; }
  int allocate_host(uint64_t bytes, void** out) override { return allocate(bytes, out); }
  int release_host(void* memory) override { return release(memory); }

  int open_stream(void** out) override {
    const std::lock_guard lock(order());
    if (open_streams == 0) introduce_played_driver();
    auto* queue = new Queue();
    queue->hurries = settings().hurries && open_streams > 0;
    ++open_streams;
    return *out = queue, 0;
  }
  int close_stream(void* stream) override {
    const std::lock_guard lock(order());
    --open_streams;
    return delete &of(stream), 0;
  }
  int synchronize(void* stream) override {
    const std::lock_guard lock(order());
    of(stream).run();
    return failing("synchronize");
  }
  int copy(void* to, const void* from, uint64_t bytes, void* stream) override {
    if (const int code = failing("copy")) return code;
    return of(stream).put([=] { std::memcpy(to, from, bytes); }), 0;
  }
  int launch(const void* function, const Grid& g, void** arguments, void* stream) override {
    if (const int code = failing("launch")) return code;
    // limits of the driver
    if (g.threads > 1024 || g.y > 65535 || g.z > 65535 || g.x == 0 || g.y == 0 || g.z == 0) return 9;
    ++settings().launches;
    auto kept = std::make_shared<Kept>(*static_cast<const Entry*>(function), arguments);
    return of(stream).put([=] { kept->run({g.x, g.y, g.z}, {g.threads, 1, 1}); }), 0;
  }

  int record(void* stream, bool keeps_time, void** event) override {
    if (const int code = failing("record")) return code;
    const std::lock_guard lock(order());
    Queue& queue = of(stream);
    const auto point = std::make_shared<Point>(Point{&queue, keeps_time});
    *event = new Event(point);
    if (queue.captures)
      queue.recorded.push_back(point);
    else
      point->expected = 1;
    queue.put([=] {
      if (keeps_time) point->time = std::chrono::steady_clock::now();
      --point->expected;
    });
    return 0;
  }
  int elapsed(void* from, void* to, double* seconds) override {
    if (const int code = failing("elapsed")) return code;
    const Point &first = **static_cast<Event*>(from), &last = **static_cast<Event*>(to);
    if (!first.keeps_time || !last.keeps_time) return kInvalidHandle;  // as in the driver
    if (!first.reached() || !last.reached()) return kNotReady;
    *seconds = static_cast<double>(std::chrono::duration<float, std::milli>(last.time - first.time).count()) * 1e-3;
    return 0;
  }
  int wait(void* stream, void* event) override {
    ++settings().waits;
    const Event point = *static_cast<Event*>(event);
    of(stream).put([=] {
      while (!point->reached()) point->queue->run_one();
    });
    return 0;
  }
  int await_event(void* event) override {
    const std::lock_guard lock(order());
    const Event point = *static_cast<Event*>(event);
    while (!point->reached()) point->queue->run_one();
    ++settings().awaited;
    return failing("await_event");
  }
  int release_event(void* event) override { return delete static_cast<Event*>(event), 0; }

  int begin_capture(void* stream) override {
    Queue& queue = of(stream);
    queue.captures = true;
    queue.captured.clear();
    queue.front.clear();
    return 0;
  }
  int front(void* stream, std::vector<void*>& nodes) override {
    nodes.clear();
    for (const size_t i : of(stream).front) nodes.push_back(reinterpret_cast<void*>(i + 1));
    return 0;
  }
  int set_front(void* stream, const std::vector<void*>& nodes) override {
    std::vector<size_t>& front = of(stream).front;
    front.clear();
    for (void* node : nodes) front.push_back(reinterpret_cast<size_t>(node) - 1);
    return 0;
  }
  int end_capture(void* stream, void** graph) override {
    Queue& queue = of(stream);
    queue.captures = false;
    auto captured =
        std::make_unique<Graph>(Graph{ordered(std::exchange(queue.captured, {})), std::exchange(queue.recorded, {})});
    if (const int code = failing("end_capture")) return code;
    *graph = captured.release();
    return 0;
  }
  int launch_graph(void* graph, void* stream) override {
    const std::lock_guard lock(order());
    ++settings().graphs;
    const Graph& g = *static_cast<Graph*>(graph);
    for (const Event& e : g.events) ++e->expected;
    for (const auto& job : g.jobs) of(stream).put(job);
    return 0;
  }
  int release_graph(void* graph) override { return delete static_cast<Graph*>(graph), 0; }

  // An image is a shared library for the processor.
  int load(const std::string& image, void** program) override {
    std::string path = (std::filesystem::temp_directory_path() / "harmonics-chain-XXXXXX").string();
    const int file = mkstemp(path.data());
    if (file < 0) return 1;
    close(file);
    std::ofstream(path, std::ios::binary) << image;
    *program = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    std::filesystem::remove(path);
    if (!*program) return 200;
    const auto take = reinterpret_cast<void (*)(const ChainLanguage*)>(dlsym(*program, "take_language"));
    if (!take) return 200;
    static constexpr ChainLanguage language{[] { return &place; }, meet_block, shuffle};
    take(&language);
    return 0;
  }
  int function(void* program, const char* name, const void** out) override {
    *out = dlsym(program, (std::string(name) + "_entry").c_str());
    return *out ? 0 : 500;
  }
  int unload(void* program) override { return dlclose(program), 0; }

 private:
  static Queue& of(void* stream) { return *static_cast<Queue*>(stream); }
};

// Text before and after a chain, which makes the kernel an entry.
const char* kBefore = R"(#define HM_EMULATED
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define __global__
#define __device__
struct Three { unsigned x, y, z; };
struct Place { Three thread, block, threads, blocks; };
struct Language {
  Place* (*place)();
  void (*meet)();
  void (*shuffle)(void* value, unsigned long bytes, unsigned apart);
};
const Language* language;
#define threadIdx (language->place()->thread)
#define blockIdx (language->place()->block)
#define blockDim (language->place()->threads)
#define __shared__ static thread_local
static inline void __syncthreads() { language->meet(); }
template <typename T> static T __shfl_xor_sync(unsigned, T value, unsigned apart) {
  language->shuffle(&value, sizeof value, apart);
  return value;
}
static inline float __int_as_float(int b) { float f; __builtin_memcpy(&f, &b, 4); return f; }
static inline int __float_as_int(float f) { int b; __builtin_memcpy(&b, &f, 4); return b; }
static inline float from_f16(unsigned short h) { _Float16 x; __builtin_memcpy(&x, &h, 2); return (float)x; }
static inline unsigned short to_f16(float f) { _Float16 x = (_Float16)f; unsigned short h; __builtin_memcpy(&h, &x,
    2); return h; }
#define HM_ONE(name) static inline float name(float x) { return __builtin_##name##f(x); \
    } static inline double name(double x) { return __builtin_##name(x); }
HM_ONE(fabs) HM_ONE(floor) HM_ONE(ceil) HM_ONE(rint) HM_ONE(exp) HM_ONE(expm1) HM_ONE(log) HM_ONE(log1p)
    HM_ONE(sqrt) HM_ONE(sin) HM_ONE(cos) HM_ONE(tanh) HM_ONE(erf) HM_ONE(tan) HM_ONE(asin) HM_ONE(acos) HM_ONE(atan)
    HM_ONE(sinh) HM_ONE(cosh) HM_ONE(asinh) HM_ONE(acosh) HM_ONE(atanh)
#define HM_TWO(name) static inline float name(float x, float y) { return __builtin_##name##f(x, \
    y); } static inline double name(double x, double y) { return __builtin_##name(x, y); }
HM_TWO(pow) HM_TWO(fmod) HM_TWO(atan2)
)";
const char* kAfter = R"(
template <unsigned long... i> struct Numbers {};
template <typename F> struct Called;
template <typename... A> struct Called<void(A...)> {
  template <unsigned long... i> static void call(void** a, Numbers<i...>) { chain(*(A*)a[i]...); }
  static void run(void** a) { call(a, Numbers<__integer_pack(sizeof...(A))...>()); }
  static constexpr unsigned long sizes[] = {sizeof(A)...};
};
struct Entry { void (*run)(void**); unsigned count; const unsigned long* sizes; };
using C = Called<decltype(chain)>;
extern "C" __attribute__((visibility("default"))) Entry chain_entry;
Entry chain_entry{C::run, sizeof C::sizes / sizeof(unsigned long), C::sizes};
extern "C" __attribute__((visibility("default"))) void take_language(const Language* l) { language = l; }
)";

class HostCompiler final : public Compiler {
 public:
  std::string unavailable() override { return settings().has_compiler ? "" : "libnvrtc.so.13 is not found"; }
  std::string version() override { return "processor, hidden"; }
  std::string target(const Facts&) override { return "processor"; }
  std::string compile(const std::string& source, const Facts&) override {
    namespace fs = std::filesystem;
    ++settings().compiled;
    std::string folder = (fs::temp_directory_path() / "harmonics-compile-XXXXXX").string();
    if (!mkdtemp(folder.data())) throw Error(ErrorKind::Device, "no folder to compile in");
    const std::string from = folder + "/chain.cpp", to = folder + "/chain.so";
    std::ofstream(from) << kBefore << source << kAfter;
    // Uses hidden symbols: two chains have types of the same name, which the loader would merge. The program's
    // libraries resolve the rest.
    const std::string command =
        HARMONICS_HOST_COMPILER
        " -std=c++17 -O1 -shared -nostdlib -fPIC -fvisibility=hidden -fno-math-errno -ffp-contract=off -w -o " +
        to + " " + from + " -lgcc 2>" + folder + "/log";
    const int code = std::system(command.c_str());
    std::ifstream result(code == 0 ? to : folder + "/log", std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(result), {}};
    fs::remove_all(folder);
    if (code != 0) throw Error(ErrorKind::Device, "the compiler cannot compile a generated program: " + text + source);
    return text;
  }
};

}  // namespace

void put(void* stream, std::function<void()> job) { static_cast<Queue*>(stream)->put(std::move(job)); }

}  // namespace emulated

std::unique_ptr<Driver> open_driver() { return std::make_unique<emulated::EmulatedDriver>(); }
std::unique_ptr<Compiler> open_compiler() { return std::make_unique<emulated::HostCompiler>(); }

}  // namespace harmonics::cuda
