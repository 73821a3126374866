// Plugins whose files change during a run, in one process, so that the thread sanitizer sees host and plugin.
#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <future>
#include <thread>

#include <sys/resource.h>

#include "engine/cycle/snapshot.hpp"
#include "engine/plugin/loader.hpp"
#include "engine/serving/predictor.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/journeys/shell.hpp"
#include "tests/variable.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
using journeys::Folder;
namespace fs = std::filesystem;

namespace {

// Several builds of a library under one name.
struct Builds {
  Folder folder;
  std::string library = folder / "libnumbered.so";
  explicit Builds(const char* first) { put(first); }
  void put(const std::string& build) const {  // like a linker: a new file under the same name
    fs::copy_file(HARMONICS_TEST_PLUGINS "/lib" + build + ".so", folder / "new.so",
                  fs::copy_options::overwrite_existing);
    fs::rename(folder / "new.so", library);
  }
};

// Returns a graph with separate function names, since other tests use the same ones.
std::unique_ptr<BoundGraph> graph_with(const Builds& builds, Registry& registry, const char* text) {
  load_plugin(builds.library, registry);
  return std::make_unique<BoundGraph>(make_graph(parse_flow(std::make_shared<SourceText>("test.hmx", text)), registry),
                                      &registry);
}

// The results for `samples` inputs of 1 while the library is replaced, and the messages.
struct Replaced {
  std::vector<float> values;
  std::string said;
};
Replaced replaced_while_running(
    const Builds& builds, Registry& registry, const char* next, size_t samples,
    const std::function<void()>& put = [] {}) {
  auto g =
      graph_with(builds, registry,
                 "harmonic g { producer x {1}; layer o {1}; consumer c; cycle { x -(skip, numbered)-> o -> c; } }");
  const auto rows = std::make_shared<Rows<float>>(Shape{1}, std::vector<float>(samples, 1.0f));
  bind_producer(*g, "x", rows);
  const auto kept = keep(*g, "c");
  CycleRuntime runtime(*g, 0, settings(10));
  Replaced r;
  runtime.on_note([&](const std::string& note) { r.said += note + "\n"; });
  rows->on_sample = [&](size_t at) {
    if (at != 500) return;
    builds.put(next);
    put();
    runtime.reload_plugins();
  };
  runtime.run();
  r.values = kept->values;
  REQUIRE(r.values.size() == samples);
  return r;
}

}  // namespace

TEST_CASE("reload: a new build takes effect between two steps") {
  const Builds builds("build_one");
  Registry registry(&Registry::global());
  const Replaced r = replaced_while_running(builds, registry, "build_two", 20000);
  size_t change = 0;
  while (change < r.values.size() && r.values[change] == 1) ++change;
  CHECK(change % 10 == 0);
  CHECK(change < 20000);
  for (size_t i = change; i < r.values.size(); ++i)
    if (r.values[i] != 0.5f) FAIL("sample " << i << " is " << r.values[i]);
  CHECK(r.said.find("was reloaded after step " + std::to_string(change / 10) + "\n") != std::string::npos);
}

TEST_CASE("reload: predictions use the running build") {
  const Builds builds("build_one");
  Registry registry(&Registry::global());
  auto g =
      graph_with(builds, registry,
                 "harmonic g { producer x {1}; layer o {1}; consumer c; cycle { x -(skip, numbered)-> o -> c; } }");
  const auto rows = std::make_shared<Rows<float>>(Shape{1}, std::vector<float>(20000, 1.0f));
  bind_producer(*g, "x", rows);
  keep(*g, "c");
  const RunSettings s = settings(10);
  CycleRuntime runtime(*g, 0, s);
  Predictor predictor;
  const auto predicted = [&] {
    std::promise<float> answer;
    const float one = 1;
    std::vector<std::byte> bytes(sizeof one);
    std::memcpy(bytes.data(), &one, sizeof one);
    predictor.ask(predictor.ports(), 1, {bytes}, [&](const Prediction* p, const Error*) {
      answer.set_value(p ? *reinterpret_cast<const float*>(p->outputs[0].data()) : -1);
    });
    return answer.get_future().get();
  };
  std::vector<float> seen;
  runtime.keep_snapshots([&](const std::shared_ptr<Snapshots>& kept) {
    predictor.serve(g->model(0), 0, g->compile_options(s), kept);
    seen.push_back(predicted());
  });
  rows->on_sample = [&](size_t at) {
    if (at != 500) return;
    builds.put("build_two");
    runtime.reload_plugins();
  };
  runtime.run();
  CHECK(seen == std::vector<float>{1, 0.5f});
  CHECK(predicted() == 0.5f);
}

TEST_CASE("reload: builds alternate while threads train with them") {
  const Builds builds("build_one");
  Registry registry(&Registry::global());
  auto g = graph_with(builds, registry,
                      "harmonic g { producer x {4}; producer y {1}; layer h {8}; layer o {1}; cycle { x -(affine(8), "
                      "numbered)-> h -> o; o <-(mse)- y; } }");
  bind_rows(*g, "x", {4}, std::vector<float>(4 * 256, 0.5f));
  bind_rows(*g, "y", {1}, std::vector<float>(256, 0.25f));
  RunSettings s = settings(16);
  s.threads = 2;
  s.epochs = 1000000;
  CycleRuntime runtime(*g, 0, s);
  std::atomic<int> reloaded{0};
  std::atomic<bool> refused{false};
  std::string refusal;
  std::atomic<int64_t> steps{0};
  runtime.on_step(1, [&](const StepReport& r) { steps = r.step; });
  runtime.on_note([&](const std::string& note) {
    if (note.find("was reloaded after step") != std::string::npos)
      ++reloaded;
    else
      refusal += note, refused = true;
  });
  CycleReport report;
  std::thread training([&] { report = runtime.run(); });
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(200);
  for (int turn = 1; turn <= 8 && !refused && std::chrono::steady_clock::now() < deadline; ++turn) {
    builds.put(turn % 2 ? "build_two" : "build_one");
    runtime.reload_plugins();
    while (reloaded < turn && !refused && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const int64_t enough = steps + 3000;  // with the last build
  while (steps < enough && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  runtime.stop();
  training.join();
  CHECK(refusal == "");
  CHECK(reloaded == 8);
  CHECK(report.loss < 1e-3);
}

TEST_CASE("reload: a failing build changes nothing") {
  const Builds builds("build_two");
  Registry registry(&Registry::global());
  const Replaced r = replaced_while_running(builds, registry, "build_three", 5000);
  CHECK((r.values == std::vector<float>(5000, 0.5f)));
  CHECK(r.said.find("is unchanged") != std::string::npos);
  CHECK(r.said.find("build 3 is broken") != std::string::npos);
  CHECK(registry.need(HX_ACTIVATION, "numbered")->path == builds.library);
}

TEST_CASE("reload: a missing folder for temporary files is not needed") {
  const Builds builds("build_one");
  Registry registry(&Registry::global());
  const Variable folder("TMPDIR", "/no/such/folder");
  const Replaced r = replaced_while_running(builds, registry, "build_two", 5000);
  CHECK(r.values.back() == 0.5f);
  CHECK(r.said.find("was reloaded after step") != std::string::npos);
}

TEST_CASE("reload: a build for whose copy there is no room changes nothing and leaves no file") {
  const Builds builds("build_one");
  Registry registry(&Registry::global());
  rlimit unlimited{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &unlimited) == 0);
  auto* const former = std::signal(SIGXFSZ, SIG_IGN);
  const Replaced r = replaced_while_running(builds, registry, "build_two", 5000, [&] {
    const rlimit small{4096, unlimited.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  });
  ::setrlimit(RLIMIT_FSIZE, &unlimited);
  std::signal(SIGXFSZ, former);
  CHECK((r.values == std::vector<float>(5000, 1.0f)));
  CHECK(r.said.find("is unchanged: ") != std::string::npos);
  CHECK(r.said.find("cannot be opened a second time: its copy '") != std::string::npos);
  for (const auto& entry : fs::directory_iterator(builds.folder / "")) CHECK(entry.path() == builds.library);
}
