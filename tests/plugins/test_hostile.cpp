// Libraries that are broken, declare false facts or compute invalid values: each gives an error, and everything else
// keeps working.
#include <catch2/catch.hpp>

#include <harmonics/graph.hpp>
#include <harmonics/memory.hpp>

#include "tests/journeys/shell.hpp"
#include "tests/plugins/traced.hpp"

using namespace harmonics;
using harmonics::engine::call_activation;
using harmonics::engine::Registry;
using harmonics::engine::testing::error_of;
using harmonics::engine::testing::floats;
using harmonics::engine::testing::Floats;
using harmonics::engine::testing::numbers;
using journeys::Folder;
using journeys::has;
using journeys::Result;
namespace fs = std::filesystem;

namespace {

std::string library(const std::string& name) { return HARMONICS_TEST_PLUGINS "/lib" + name + ".so"; }

// Four inputs, two outputs, forty samples.
struct HostileData {
  Folder folder;
  std::string producers;
  HostileData() {
    std::string x = "a,b\n", y = "p,q\n";
    for (int i = 0; i < 40; ++i) {
      x += std::to_string(i % 7 * 0.25 - 0.5) + "," + std::to_string(i % 5 * 0.25) + "\n";
      y += std::to_string(i % 3 * 0.5) + "," + std::to_string(i % 5 * 0.25) + "\n";
    }
    producers =
        " --producer x=" + folder.write("x.csv", x) + " --producer y=" + folder.write("y.csv", y) + " --threads 1 ";
  }
  std::string graph(const std::string& functions, const std::string& loss = "mse") const {
    return folder.write(
        "g.hmx",
        "harmonic g {\n  producer x {2}; producer y {2};\n  layer o {2};\n  cycle (steps 20, batch=8) {\n    x -(" +
            functions + ")-> o;\n    o <-(" + loss + ")- y;\n  }\n}\n");
  }
  Result run(const std::string& flags, const std::string& functions, const std::string& loss = "mse") const {
    return journeys::harmonics("run " + graph(functions, loss) + producers + flags);
  }
  Result trained(const std::string& functions, const std::string& loss = "mse", const std::string& flags = "") const {
    return run("--plugin " + library("spoils") + " --save " + (folder / "w.safetensors") + " " + flags, functions,
               loss);
  }
};

// Builds, in this process, a graph whose hidden layer ends in this function.
HarmonicGraph embedded(const HostileData& data, const std::string& function) {
  HarmonicGraph g =
      parse_hmx_text("harmonic g { producer x {2}; producer y {2}; layer h {8}; layer o {2}; cycle (batch=8) { x -(" +
                     function + ")-> h -(affine)-> o; o <-(mse)- y; } }");
  g.bindProducer("x", "file:" + (data.folder / "x.csv"));
  g.bindProducer("y", "file:" + (data.folder / "y.csv"));
  return g;
}
FitOptions steps(int64_t n) {
  FitOptions o;
  o.steps = n;
  o.threads = 1;
  o.optimizer = "sgd(lr=0.05)";
  return o;
}
std::vector<Floats> weights_of(const HarmonicGraph& g) {
  std::vector<Floats> all;
  for (const std::string& name : g.weights()) all.push_back(numbers(g.weight(name)));
  return all;
}
struct Identity : ActivationFunction {
  HTensor operator()(const HTensor& x) const override { return x; }
};

}  // namespace

TEST_CASE("hostile libraries: each is refused, and the next good one works") {
  const Folder f;
  const std::string whole = journeys::read(library("functions")),
                    cut = f.write("libcut.so", whole.substr(0, whole.size() / 2));
  const std::string text = f.write("libtext.so", "this is not a library\n"), empty = f.write("libempty.so", "");
  std::string other = whole;
  other[18] = 8;  // MIPS
  const std::string foreign = f.write("libforeign.so", other);
  Registry registry;
  const auto refused = [&](const std::string& path) { return error_of([&] { load_plugin(path, registry); }); };
  CHECK(refused(text) == "'" + text +
                             "' is not a Harmonics plugin: it is not an ELF file\ngive the shared library that was "
                             "built, such as libmine.so");
  CHECK(refused(cut) == "'" + cut +
                            "' is not a Harmonics plugin: it ends before its section header\nthe file is damaged: "
                            "build it or copy it again");
  CHECK(has(refused(foreign),
            "it is built for another machine (number 8), not x86-64\nbuild it for this machine, or get the release "
            "made for it"));
  CHECK(has(refused(empty), "libempty.so"));
  CHECK(refused(library("twice")) ==
        "plugin '" + library("twice") +
            "' failed while registering: cannot register activation 'same': this library has registered one of that "
            "name already; give "
            "one of them another name\nnothing of it is used: correct harmonics_register, or leave the plugin out");
  CHECK(refused(library("missing_dependency")) ==
        "plugin '" + library("missing_dependency") +
            "' cannot be loaded: libgone.so: cannot open shared object file: No such file or directory\n"
            "install the library it needs, or build the plugin with its folder in the run path");
  for (const char* name : {"throws_registering", "throws_int", "bad_name", "missing_symbol", "other_contract",
                           "no_descriptor", "no_entry"})
    CHECK(has(refused(library(name)), "\n"));  // each message has a remedy
  for (uint32_t kind : {HX_ACTIVATION, HX_LOSS, HX_LAYER}) CHECK(registry.names(kind).empty());
  load_plugin(library("functions"), registry);
  const auto ran = harmonics::engine::testing::run(
      floats({1, 2}, {3, -4}),
      [&](const HTensor& x) { return call_activation(registry.need(HX_ACTIVATION, "square"), {}, x); }, true);
  CHECK(numbers(ran.y) == Floats{9, 16});
  CHECK(numbers(ran.dx) == Floats{6, -8});
}

TEST_CASE("hostile libraries: in a folder of them flows train with the one that works") {
  const HostileData data;
  const Folder place;
  const auto put = [&](const std::string& name) {
    fs::copy_file(library(name), place / ("lib" + name + ".so"));
    place.write("lib" + name + ".manifest", "activation of_" + name + "\n");
  };
  for (const char* name : {"throws_registering", "missing_symbol", "missing_dependency", "other_contract",
                           "no_descriptor", "twice", "crashes_at_load", "leaves_at_load"})
    put(name);
  const std::string whole = journeys::read(library("functions"));
  place.write("libcut.so", whole.substr(0, 4000));
  place.write("libtext.so", "no library\n");
  fs::copy_file(library("own_sigmoid"), place / "libgood.so");
  place.write("libgood.manifest", "activation sigmoid\n");
  const std::string here = "HARMONICS_PLUGIN_PATH=" + (place / "") + " XDG_CACHE_HOME=" + (place / "cache") + " ";

  const Result trained =
      journeys::harmonics_in(here, "run " + data.graph("affine, sigmoid") + data.producers + "--json");
  CHECK(trained.code == 0);
  CHECK(has(trained.out, "\"steps\":20"));
  CHECK(has(journeys::harmonics_in(here, "inspect sigmoid").out, "from org.example.own"));
  const Result listed = journeys::harmonics_in(here, "plugin list");
  CHECK(listed.code == 0);
  CHECK(has(listed.out, "is built for contract 7.3, this program has 1.5"));
  CHECK(has(listed.out, "it is not an ELF file"));
  CHECK(has(listed.out, "it ends before its section header"));
  const Result needed = journeys::harmonics_in(here, "run " + data.graph("affine, of_missing_symbol") + data.producers);
  CHECK(needed.code == 1);
  CHECK(has(needed.err, "undefined symbol: a_function_nobody_has"));

  const Result doctor = journeys::harmonics_in(here, "plugin doctor " + (place / ""));
  CHECK(doctor.code == 1);
  for (const char* said :
       {"libcut.so: '", "build it or copy it again", "give the shared library that was built",
        "libgone.so: cannot open shared object file", "install the library it needs",
        "crashed with SIGABRT while it was loaded", "ended the process while it was loaded",
        "has registered one of that name already", "libgood.so: 1 name", "11 libraries, 10 with problems"}) {
    INFO(said);
    CHECK(has(doctor.out, said));
  }
}

TEST_CASE("hostile libraries: plugin check survives crashes and continues with the next library") {
  const Result r = journeys::harmonics("plugin check " + library("crashes_at_load") + " " + library("leaves_at_load") +
                                           " " + library("missing_dependency") + " " + library("own_sigmoid"),
                                       300);
  CHECK(r.code == 1);
  CHECK(has(r.err, "plugin '" + library("crashes_at_load") +
                       "' crashed with SIGABRT while it was loaded\nhelp: run it under a debugger: gdb --args "
                       "harmonics list --plugin "));
  CHECK(has(r.err, "plugin '" + library("leaves_at_load") + "' ended the process while it was loaded"));
  CHECK(has(r.err, "help: install the library it needs"));
  CHECK(has(r.out, "activation sigmoid\n  ok "));
  CHECK(has(r.out, " passed, 3 failed"));
}

TEST_CASE("hostile libraries: the error for non-finite numbers names the plugin's function") {
  const HostileData data;
  const std::string of = "' of plugin 'spoils' made it from finite numbers: remove or correct it";
  const auto named = [&](const Result& r, const std::string& who, bool late = false) {
    CHECK(r.code == 1);
    CHECK(has(r.err, "error: the loss is nan at step "));
    CHECK(has(r.err, "help: " + who + of));
    CHECK(fs::exists(data.folder / "w.safetensors") == late);  // with the weights of the steps before
    fs::remove(data.folder / "w.safetensors");
  };
  named(data.trained("affine, nan_traced"), "activation 'nan_traced");
  named(data.trained("affine, nan_late"), "activation 'nan_late", true);
  named(data.trained("affine, nan_functional"), "functional 'nan_functional");
  named(data.trained("affine, nan_layer"), "layer 'nan_layer");
  named(data.trained("affine", "nan_loss"), "loss 'nan_loss");
  CHECK(has(data.trained("affine, nan_late").err,
            "at step 4 (epoch 1); first not finite: layer 'o', sample 0 of the batch"));
  CHECK_FALSE(
      has(data.trained("affine, fine", "mse", "--optimizer 'sgd(lr=1e30)'").err, "made it from finite numbers"));
}

TEST_CASE("hostile libraries: the error for non-finite gradients and updates names the plugins of the step") {
  const HostileData data;
  const Result gradient = data.trained("affine, nan_gradient");
  CHECK(gradient.code == 1);
  CHECK(has(gradient.err,
            "had a finite loss but made 'optimizer.m.x.o.affine.bias' infinite; the weights are those after step "));
  CHECK(has(gradient.err,
            "the cause may be a gradient or an update of a plugin; this step uses activation 'nan_gradient' of "
            "plugin 'spoils'"));
  const Result update = data.trained("affine", "mse", "--optimizer nan_optimizer");
  CHECK(update.code == 1);
  CHECK(has(update.err, "this step uses optimizer 'nan_optimizer' of plugin 'spoils': remove them one by one"));
}

TEST_CASE("hostile libraries: a function that throws during training ends the run, and its checkpoints stay complete") {
  const HostileData data;
  for (const char* name : {"throws_late", "throws_in_gradient"}) {
    const std::string runs = data.folder / name;
    const Result r = data.trained("affine, " + std::string(name), "mse", "--checkpoint " + runs + " --every 1steps");
    CHECK(r.code == 1);
    CHECK(has(r.err, "activation '" + std::string(name) + "' of plugin 'spoils': no more today"));
    CHECK(has(r.err, "help: come back tomorrow"));
    CHECK(has(r.err, std::string("note: in ") + (name == std::string("throws_late") ? "x.o, " : "gradient/x.o, ")));
    CHECK(has(r.err, ".hmx:5:"));
    CHECK_FALSE(fs::exists(data.folder / "w.safetensors"));
    CHECK(journeys::harmonics("ckpt verify " + runs).code == 0);
  }
  CHECK(data.trained("affine, fine").code == 0);
}

TEST_CASE("hostile libraries: an exception in a step leaves the weights of the step before, and the graph trains on") {
  harmonics::load_plugin(library("spoils"));
  const HostileData data;
  for (const char* name : {"throws_late", "throws_in_gradient"}) {
    INFO(name);
    HarmonicGraph whole = embedded(data, "fine"), broken = embedded(data, name);
    CHECK(
        has(error_of([&] { broken.fit(steps(10)); }),
            "activation '" + std::string(name) + "' of plugin 'spoils': no more today\ncome back tomorrow\nnote: in "));
    whole.fit(steps(std::string(name) == "throws_late" ? 3 : 2));  // its gradient was also called once at compile time
    CHECK(weights_of(broken) == weights_of(whole));
    broken.registerActivation(name, std::make_shared<Identity>());
    const FitReport report = broken.fit(steps(10));
    CHECK(report.steps == 10);
    CHECK(std::isfinite(report.loss));
    CHECK(weights_of(broken) != weights_of(whole));
  }
}

TEST_CASE("hostile libraries: streams and metrics that violate their declarations are named") {
  const HostileData data;
  const auto fed = [&](const std::string& how) {
    std::string producers = data.producers;
    producers.replace(producers.find(" --producer x="), producers.find(" --producer y="),
                      " --producer x=unsteady:" + how + " ");
    return journeys::harmonics("run " + data.graph("affine") + producers + "--plugin " + library("spoils"));
  };
  for (const auto& [how, what] : {std::pair("shape", "f32[3]"), {"dtype", "f64[2]"}}) {
    const Result r = fed(how);
    CHECK(r.code == 65);
    CHECK(has(r.err, "sample 2 is " + std::string(what) +
                         ", the stream was announced as f32[2]; all samples of a stream have one type"));
  }
  CHECK(has(fed("nan").err, "first not finite: producer 'x', "));
  const Result counted = data.trained("affine", "mse", "--metric cannot_count");
  CHECK(counted.code == 1);
  CHECK(has(counted.err, "metric 'cannot_count' of plugin 'spoils': cannot count"));
  CHECK(data.run("--plugin " + library("spoils") + " --metric worthless --quiet", "affine").code == 0);
}
