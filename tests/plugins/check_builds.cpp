// The builds of build_matrix.sh in one process: loaded, run, trained, side by side, and reloaded during training.
#include <catch2/catch.hpp>

#include <algorithm>

#include "tests/journeys/background.hpp"
#include "tests/plugins/every_kind.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
using journeys::Folder;
using journeys::has;
namespace fs = std::filesystem;

namespace {

const std::string kMatrix = HARMONICS_BINARY_DIR "/out_of_tree/matrix/";

std::vector<Build> builds(const std::string& begin) {
  std::vector<Build> found;
  for (const auto& entry : fs::directory_iterator(kMatrix))
    if (const std::string name = entry.path().stem().string(); name.rfind(begin, 0) == 0)
      found.push_back({entry.path().string(), name});
  std::sort(found.begin(), found.end(), [](const Build& a, const Build& b) { return a.prefix < b.prefix; });
  REQUIRE(found.size() == HARMONICS_MATRIX_COMPILERS * 4);
  return found;
}

// Replaces the file like a linker: by a new file with the same name.
void put(const Folder& f, const std::string& build, const std::string& library) {
  fs::copy_file(build, f / "new.so", fs::copy_options::overwrite_existing);
  fs::rename(f / "new.so", library);
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++n;
  return n;
}

// Installs one build after another while the run uses the library.
void reload_all(journeys::Background& run, const Folder& f, const std::string& library,
                const std::vector<std::string>& others) {
  size_t reloaded = 0;
  for (const std::string& other : others) {
    INFO(other);
    put(f, other, library);
    run.signal(SIGUSR1);
    ++reloaded;
    CHECK(run.await([&] { return count(run.errors(), "was reloaded after step ") == reloaded; }));
  }
  CHECK_FALSE(has(run.errors(), "is unchanged"));
}

}  // namespace

TEST_CASE("builds: every build computes the expected values") {
  for (const Build& b : builds("c")) {
    check_functions(b);
    check_metric(b);
  }
}

TEST_CASE("builds: every build trains beside one of another compiler, standard and string ABI") {
  const std::vector<Build> all = builds("c");
  for (size_t i = 0; i < all.size(); ++i) {
    const Pair pair{all[i], all[all.size() - 1 - i]};
    check_training(pair);
    if (i < 2) check_inference(pair);
  }
  check_training({all[0], all[0]});
}

TEST_CASE("builds: all builds train together in one process") {
  const std::vector<Build> all = builds("c"), samples = builds("my_plugin");
  std::string flow = "harmonic g { producer x {2}; producer y {2}; layer o; cycle (steps 5, batch=8) { x -(", plugins;
  for (const Build& b : all) {
    flow += b.prefix + "_gain(1), " + b.prefix + "_swish(slope=100), ";
    plugins += " --plugin " + b.path;
  }
  plugins += " --plugin " + samples.back().path;
  const Folder f;
  const std::string graph = f.write("g.hmx", flow + "affine(4), my_act, affine(2))-> o <-(mse)- y; } }");
  const std::string data =
      " --producer x=" + all.front().prefix + "_ramp: --producer y=" + all.back().prefix + "_ramp: ";
  const journeys::Result r = journeys::harmonics("run " + graph + plugins + data + "--json --quiet");
  REQUIRE(r.code == 0);
  CHECK(std::isfinite(journeys::number(r.out, "loss")));
}

TEST_CASE("builds: every build of the sample is traced and has its gradient") {
  const Floats xs{-3, -0.25f, 0, 4};
  for (const Build& b : builds("my_plugin")) {
    INFO(b.path);
    Registry registry;
    load_plugin(b.path, registry);
    const ItemPtr item = registry.need(HX_ACTIVATION, "my_act");
    const Ran ran = run(
        floats({2, 2}, xs), [&](const HTensor& x) { return call_activation(item, {}, x); }, true);
    CHECK(ran.count(Op::host_call) == 0);
    for (size_t i = 0; i < xs.size(); ++i) {
      const double s = steep(1.702 * xs[i]);
      CHECK(numbers(ran.y)[i] == Approx(xs[i] * s).margin(1e-6));
      CHECK(numbers(ran.dx)[i] == Approx(s + 1.702 * xs[i] * s * (1 - s)).margin(1e-5));
    }
  }
}

TEST_CASE("builds: a training run takes every build of the sample in turn") {
  const std::vector<Build> all = builds("my_plugin");
  const Folder f;
  const std::string library = f / "libmy_plugin.so", weights = f / "w.safetensors";
  put(f, all[0].path, library);
  const std::string flow = f.write("g.hmx",
                                   "harmonic g { producer a; producer b 1/1 a; layer h {16}; layer o; cycle { a "
                                   "-(my_act)-> h -> o; o <-(cross_entropy)- b; } }");
  journeys::Background run(f, "run " + flow + " --plugin " + library +
                                  " --producer 'synth:digits?size=500' --producer 'synth:digits?size=500#label' "
                                  "--epochs 1000000 --batch 50 --threads 1 --json --save " +
                                  weights);
  REQUIRE(run.await([&] { return has(run.errors(), "step "); }));
  std::vector<std::string> others;
  for (size_t i = 1; i < all.size(); ++i) others.push_back(all[i].path);
  reload_all(run, f, library, others);
  run.signal(SIGINT);
  const journeys::Result r = run.end();
  CHECK(r.code == 130);
  CHECK(journeys::number(r.out, "loss") < 1);
}

TEST_CASE("builds: a run that uses every kind of a plugin continues with another build and keeps its state") {
  const Folder f;
  const std::string library = f / "libagain.so", weights = f / "w.safetensors", log = f / "log.csv";
  put(f, kMatrix + "again_a.so", library);
  const Pair pair{{library, "again"}, {library, "again"}};
  const std::string flow = f.write("g.hmx", pair.spell(kFlow));
  std::string training = kTraining;
  training.replace(training.find("every=2"), 7, "every=100000");
  journeys::Background run(f, "run " + flow + pair.plugins() + pair.spell(training) +
                                  " --steps 1000000000 --json --log " + log + " --log-every 1000 --save " + weights);
  REQUIRE(run.await([&] { return fs::exists(log) && fs::file_size(log) > 300; }));
  reload_all(run, f, library, {kMatrix + "again_b.so", kMatrix + "again_a.so"});
  const auto rows = fs::file_size(log);
  CHECK(run.await([&] { return fs::file_size(log) > rows + 300; }));  // the run continues
  run.signal(SIGINT);
  const journeys::Result r = run.end();
  CHECK(r.code == 130);
  const TensorFile saved = read_safetensors(weights);
  CHECK(numbers(saved.tensors.at("x.o.again_gain.steps")).at(0) ==
        static_cast<float>(journeys::number(r.out, "steps")));
  CHECK(std::isfinite(journeys::number(r.out, "loss")));
}
