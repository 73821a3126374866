// Functionals and implementations of plugins, from the command line and from code.
#include "tests/journeys/shell.hpp"

#include "engine/execution/executable.hpp"
#include "engine/execution/selection.hpp"
#include "tests/plugins/traced.hpp"
#include "tests/override_scope.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
using harmonics::engine::testing::error_of;
using harmonics::engine::testing::floats;
using harmonics::engine::testing::Floats;
using harmonics::engine::testing::numbers;
using journeys::Folder;
using journeys::has;
using journeys::number;
using journeys::Result;

namespace {

const std::string kLibrary = HARMONICS_TEST_PLUGINS "/libkinds.so";
const std::string kImplementations = " --plugin " + kLibrary + " ";

void load_once() {
  static const bool loaded = (load_plugin(kLibrary), true);
  CHECK(loaded);
}

std::string flow(const std::string& function, const std::string& settings = "steps 5, batch=8") {
  return "harmonic g {\n  producer x {6}; producer y {2};\n  layer h {6}; layer o {2};\n  cycle (" + settings +
         ") {\n    x -(" + function + ")-> h;\n    h -> o;\n    o <-(mse)- y;\n  }\n}\n";
}

// Data for two producers.
struct Data {
  Folder folder;
  std::string graph, producers;
  explicit Data(const std::string& function, const std::string& settings = "steps 5, batch=8") {
    std::string x = "a,b,c,d,e,f\n", y = "p,q\n";
    for (int i = 0; i < 40; ++i) {
      for (int k = 0; k < 6; ++k) x += std::to_string((i * 7 + k * 3) % 11 * 0.25 - 1) + (k == 5 ? "\n" : ",");
      y += std::to_string(i % 3 * 0.5) + "," + std::to_string(i % 5 * 0.25) + "\n";
    }
    producers = " --producer x=" + folder.write("x.csv", x) + " --producer y=" + folder.write("y.csv", y) + " ";
    graph = folder.write("g.hmx", flow(function, settings));
  }
  Result run(const std::string& flags) const {
    return journeys::harmonics("run " + graph + producers + kImplementations + "--threads 1 " + flags);
  }
  Result explain(const std::string& flags) const {
    return journeys::harmonics("explain " + graph + producers + kImplementations + flags);
  }
};

std::unique_ptr<Executable> compiled(Registry& registry, const Shape& shape, bool training = false) {
  static const std::unique_ptr<Executor> executor = make_sequential_executor();
  Tracer tracer("test");
  tracer.output("y", call1("swish2", {tracer.input("x", {DType::F32, shape})}));
  CompileOptions options;
  options.registry = &registry;
  options.training = training;
  return compile(tracer.take(), nullptr, *executor, options);
}
Selected of_swish(const Executable& executable) {
  for (const Selected& s : executable.selected())
    if (s.op == "swish2") return s;
  return {};
}
std::string kernel_of(const Executable& executable) {
  return executable.steps().empty() ? "" : executable.steps().front().kernel;
}

}  // namespace

TEST_CASE("implementations: a plugin's functional works eagerly and traced, with the derived gradient or its own") {
  load_once();
  const HTensor x = floats({3}, {0, 1, -2});
  const Floats y = numbers(call1("swish2", {x}));
  CHECK(y[1] == Approx(0.731059f));
  const auto ran = harmonics::engine::testing::run(
      x, [](const HTensor& v) { return call1("swish2", {v}); }, true);
  CHECK(numbers(ran.y) == y);
  CHECK(numbers(ran.dx)[0] == Approx(0.5f));
  const auto doubled = harmonics::engine::testing::run(
      x, [](const HTensor& v) { return call1("swish_doubled", {v}, Attributes().set("slope", 1.0)); }, true);
  CHECK(numbers(doubled.dx)[0] == Approx(1.0f));  // its own gradient is twice the correct one
  CHECK(numbers(call("blend", {x, x}, Attributes().set("part", 1.0)).at(1)) == Floats{0, 0, 0});
}

TEST_CASE("implementations: arguments of a plugin's functional are checked and completed") {
  load_once();
  const HTensor x = floats({1}, {1});
  CHECK(error_of([&] { call1("swish2", {x}, Attributes().set("slop", 1.0)); }) ==
        "swish2 has no attribute 'slop'\ndid you mean 'slope'?");
  CHECK(error_of([&] { call1("swish2", {x}, Attributes().set("slope", 0.0)); }) ==
        "swish2: slope is 0.0; give a value above 0 and at most 100");
  CHECK(error_of([&] { call1("swish3", {x}); }) == "there is no operation 'swish3'\ndid you mean 'swish2'?");
  CHECK(error_of([&] {
          Tracer tracer("t");
          call1("reads_numbers", {tracer.input("x", {DType::F32, {1}})});
        }) ==
        "functional 'reads_numbers' of plugin 'org.example.kinds' reads the values of its inputs, which a functional "
        "cannot do\n"
        "write it with the operations of <harmonics/ops.hpp>, and register what reads numbers as an implementation of "
        "it");
}

TEST_CASE("implementations: the newest that accepts is selected before the device and the body") {
  load_once();
  Registry registry(&Registry::global());
  CHECK(kernel_of(*compiled(registry, {2, 4})) == "fast swish");
  const auto plan = compiled(registry, {2, 4});
  const Selected s = of_swish(*plan);
  CHECK(s.winner == "fast of org.example.kinds");
  CHECK(s.because == "plugin");
  REQUIRE(s.declined.size() == 1);
  CHECK(s.declined[0] ==
        std::pair<std::string, std::string>("plain of org.example.kinds", "available; another comes first"));
  const Floats x{1, 2, 3, 4, 5, 6, 7, 8};
  const void* in = x.data();
  plan->run(&in);
  CHECK(plan->output("y").data<float>()[0] == Approx(0.731059f));
}

TEST_CASE("implementations: an override applies within its scope and to programs compiled in it") {
  load_once();
  Registry registry(&Registry::global()), other(&Registry::global());
  std::unique_ptr<Executable> kept;
  {
    const OverrideScope outer(registry, "swish2", "plain");
    CHECK(kernel_of(*compiled(registry, {2, 4})) == "plugin");
    CHECK(kernel_of(*compiled(other, {2, 4})) == "fast swish");
    {
      const OverrideScope inner(registry, "swish2", "portable");
      const auto plan = compiled(registry, {2, 4});
      CHECK(of_swish(*plan).winner == "portable");
      CHECK(of_swish(*plan).because == "override");
    }
    kept = compiled(registry, {2, 4});
  }
  CHECK(kernel_of(*compiled(registry, {2, 4})) == "fast swish");
  CHECK(of_swish(*kept).winner == "plain of org.example.kinds");  // compiled programs keep it alive
}

TEST_CASE("implementations: an unknown or unusable override is an error with all candidates' answers") {
  load_once();
  Registry registry(&Registry::global());
  const auto refused = [&](const char* functional, const char* name, const Shape& shape = {2, 4},
                           bool training = false) {
    const OverrideScope o(registry, functional, name);
    return error_of([&] { compiled(registry, shape, training); });
  };
  CHECK(refused("swish4", "plain") == "there is no functional 'swish4' to override\ndid you mean 'swish2'?");
  CHECK(refused("swish2", "fest") ==
        "there is no implementation 'fest' of 'swish2'\ndid you mean 'fast'?\n"
        "it has fast, plain, cpu, portable; --plugin PATH loads a plugin with others");
  CHECK(refused("swish2", "plain", {100}) ==
        "the override swish2=plain cannot serve swish2(f32[100]) -> f32[100]: takes at most 64 numbers\n"
        "fast of org.example.kinds would serve\nplain of org.example.kinds declines: takes at most 64 numbers\n"
        "cpu has no kernel for it\nportable would serve");
  CHECK(refused("swish2", "cpu", {3}, true) ==
        "the override swish2=cpu cannot serve swish2(f32[3]) -> f32[3] in a training step: device 'cpu' has no kernel "
        "for it\n"
        "fast of org.example.kinds would serve\nplain of org.example.kinds would serve\ncpu has no kernel for "
        "it\nportable would serve");
}

TEST_CASE("implementations: the reference device uses only those that an override names") {
  load_once();
  Registry registry(&Registry::global());
  static const std::unique_ptr<Executor> executor = make_sequential_executor();
  Tracer tracer("test");
  tracer.output("y", call1("swish2", {tracer.input("x", {DType::F32, {4}})}));
  CompileOptions options;
  options.device = "reference";
  options.registry = &registry;
  const auto plan = compile(tracer.take(), nullptr, *executor, options);
  for (const PlanStep& s : plan->steps()) CHECK(s.kernel == "reference");
}

TEST_CASE("implementations: one of a primitive replaces it, or declines with its reason") {
  load_once();
  Registry registry(&Registry::global());
  static const std::unique_ptr<Executor> executor = make_sequential_executor();
  for (bool training : {false, true}) {
    Tracer tracer("test");
    tracer.output("y", exp(tracer.input("x", {DType::F32, {4}})));
    CompileOptions options;
    options.registry = &registry;
    options.training = training;
    const auto plan = compile(tracer.take(), nullptr, *executor, options);
    CHECK((plan->steps().at(0).kernel == "plugin") == !training);
  }
}

TEST_CASE("implementations: forward and backward are selected as a pair") {
  const Data data("affine(6), swish2");
  const Result fast = data.explain("--show kernels --select");
  REQUIRE(fast.code == 0);
  CHECK(has(fast.out, "fast swish gradient"));
  CHECK(has(fast.out, "fast of org.example.kinds (plugin)"));
  CHECK(has(fast.out, "not plain of org.example.kinds: available; another comes first"));
  const Result plain = data.explain("--show kernels --override swish2=plain");
  REQUIRE(plain.code == 0);
  CHECK_FALSE(has(plain.out, "fast swish"));
  // All three train to the same loss.
  const double by_fast = number(data.run("--json").out, "loss"),
               by_plain = number(data.run("--json --override swish2=plain").out, "loss"),
               by_body = number(data.run("--json --override swish2=portable").out, "loss");
  CHECK(by_fast == Approx(by_plain).epsilon(1e-5));
  CHECK(by_fast == Approx(by_body).epsilon(1e-5));
}

TEST_CASE("implementations: a faulty one is named, and nothing is learned from it") {
  const Data data("affine(6), swish_doubled");
  const auto says = [&](const std::string& name) {
    const Result r = data.run("--override swish_doubled=" + name + " --save " + (data.folder / "w.safetensors"));
    CHECK(r.code == 1);
    CHECK_FALSE(journeys::fs::exists(data.folder / "w.safetensors"));
    return r.err;
  };
  const std::string of = "' of 'swish_doubled' of plugin 'org.example.kinds'";
  CHECK(has(says("wrong_shape"), "implementation 'wrong_shape" + of + " returned f32[3] as result 1 of swish_doubled"));
  CHECK(has(says("wrong_dtype"), "implementation 'wrong_dtype" + of + " returned f64[8, 6] as result 1"));
  CHECK(has(says("empty"), "run() returned an empty tensor"));
  CHECK(has(says("throws"), "implementation 'swish_doubled.throws' of plugin 'org.example.kinds': the moon is full"));
  CHECK(has(says("bad_kernel"),
            "implementation 'bad_kernel" + of + " gave a kernel without function, name, phases or parts"));
  const std::string nan = says("not_finite");
  CHECK(has(nan, "the loss is nan at step 1"));
  CHECK(has(nan, "implementation 'not_finite" + of + " made it from finite numbers"));
  CHECK(has(data.run("--override swish_doubled=portable --json").out, "\"steps\":5"));
  CHECK(has(Data("affine(6), fragile").run("").err, "no answer today"));
}

TEST_CASE("implementations: a functional works as a layer function of flows, with further sources by name") {
  const Data data("affine(6), blend(x, part=0.25)");
  const Result r = data.run("--json");
  CHECK(r.code == 0);
  CHECK(std::isfinite(number(r.out, "loss")));
  const Result bad = Data("blend(x, part=2)").run("");
  CHECK(bad.code == 78);
  CHECK(has(bad.err, "'part' of functional 'blend' is 2"));
  CHECK(has(bad.err, "give a value from 0 to 1"));
}

TEST_CASE("implementations: overrides come from flags, the environment and files") {
  const Data data("affine(6), swish2");
  const std::string file = data.folder.write("c.toml", "[override]\nswish2 = \"plain\"\n");
  CHECK(has(data.explain("--select --config " + file).out, "plain of org.example.kinds (override)"));
  CHECK(has(journeys::harmonics("config show run --origin --config " + file).out, "override = [\"swish2=plain\"]"));
  CHECK(has(data.explain("--select --config " + file + " --override swish2=fast").out,
            "fast of org.example.kinds (override)"));
  CHECK(has(journeys::harmonics_in("HARMONICS_OVERRIDE=swish2=portable",
                                   "explain " + data.graph + data.producers + kImplementations + "--select")
                .out,
            "portable (override)"));
  const Result wrong = data.run("--override swish2");
  CHECK(wrong.code == 2);
  CHECK(has(wrong.err, "'swish2' is not an override"));
  const Result twice = data.run("--override swish2=plain --override swish2=fast");
  CHECK(twice.code == 2);
  CHECK(has(twice.err, "'swish2' is overridden twice, by 'plain' and by 'fast'"));
  const Result wrong_type =
      journeys::harmonics("config show run --config " + data.folder.write("d.toml", "[override]\nswish2 = 3\n"));
  CHECK(wrong_type.code == 78);
  CHECK(has(wrong_type.err, "'swish2' of [override] is the name of an implementation, in quotes"));
}

TEST_CASE("implementations: checkpoints record the selection, and a resumed run reports a change") {
  const Data data("affine(6), swish2", "batch=8");
  const std::string runs = data.folder / "runs";
  REQUIRE(data.run("--steps 5 --checkpoint " + runs).code == 0);
  const Result other = data.run("--steps 10 --checkpoint " + runs + " --resume --override swish2=portable");
  CHECK(other.code == 0);
  CHECK(
      has(other.err,
          "what computes 'swish2' was fast of org.example.kinds when the checkpoint was written and is portable now"));
  const Result same = data.run("--steps 15 --checkpoint " + runs + " --resume --override swish2=portable");
  CHECK_FALSE(has(same.err, "what computes"));
}

TEST_CASE("implementations: a plugin's traced activation compiles to the same program as the built-in one") {
  const auto program = [](const std::string& function) {
    const Data data(function);
    std::string text = data.explain("--after all --show program,kernels").out;
    for (size_t at; (at = text.find("silu_too")) != std::string::npos;) text.replace(at, 8, "silu");
    return text;
  };
  const std::string own = program("silu_too"), builtin = program("silu");
  CHECK(has(builtin, "silu"));
  CHECK(own == builtin);
}
