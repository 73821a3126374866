// Optimizers, schedules, predicates, augmentations and devices of plugins, as users see them.
#include "tests/journeys/shell.hpp"

#include <cmath>

using namespace journeys;

namespace {

const std::string kKinds = " --plugin " HARMONICS_TEST_PLUGINS "/libkinds.so ";

struct Setup {
  Folder folder;
  std::string producers;
  Setup() {
    std::string x = "a,b,c,d\n", y = "p,q\n";
    for (int i = 0; i < 40; ++i) {
      for (int k = 0; k < 4; ++k) x += std::to_string((i * 7 + k * 3) % 11 * 0.25 - 1) + (k == 3 ? "\n" : ",");
      y += std::to_string(i % 3 * 0.5) + "," + std::to_string(i % 5 * 0.25) + "\n";
    }
    producers = " --producer x=" + folder.write("x.csv", x) + " --producer y=" + folder.write("y.csv", y) + " ";
  }
  std::string graph(const std::string& steps, const std::string& conditions = "steps 20, batch=8") const {
    return folder.write("g.hmx", "harmonic g {\n  producer x {4}; producer y {2};\n  layer h; layer o {2};\n  cycle (" +
                                     conditions + ") {\n    " + steps + "\n  }\n}\n");
  }
  Result run(const std::string& flags, const std::string& steps = "x -(affine(6), tanh)-> h -> o <-(mse)- y;",
             const std::string& conditions = "steps 20, batch=8") const {
    return journeys::harmonics("run " + graph(steps, conditions) + producers + kKinds + "--threads 1 " + flags);
  }
};

}  // namespace

TEST_CASE("kinds: a plugin's optimizer trains like the same rule of the library") {
  const Setup s;
  const Result own = s.run("--json --optimizer 'heavy_ball(lr=0.05, momentum=0.8)'"),
               known = s.run("--json --optimizer 'sgd(lr=0.05, momentum=0.8)'");
  REQUIRE(own.code == 0);
  CHECK(number(own.out, "loss") == Approx(number(known.out, "loss")).epsilon(1e-5));
  CHECK(has(own.err, "by heavy_ball(lr=0.05, momentum=0.8)"));
  CHECK(has(s.run("--quiet --json", "x -(affine(6), tanh)-> h -> o <-(mse)- y;",
                  "steps 20, batch=8, optimizer=\"heavy_ball(lr=0.05, momentum=0.8)\"")
                .out,
            "heavy_ball"));
  CHECK(s.run("--optimizer heavy_ball --lr 0.02 --accumulate 2").code == 0);
}

TEST_CASE("kinds: an optimizer's state is part of a checkpoint") {
  const Setup s;
  const std::string runs = s.folder / "runs", common = "--optimizer heavy_ball --quiet ";
  const auto steps = [](int n) { return "steps " + std::to_string(n) + ", batch=8"; };
  const std::string flow = "x -(affine(6), tanh)-> h -> o <-(mse)- y;";
  REQUIRE(s.run(common + "--save " + (s.folder / "whole.safetensors"), flow, steps(12)).code == 0);
  REQUIRE(s.run(common + "--checkpoint " + runs, flow, steps(6)).code == 0);
  REQUIRE(
      s.run(common + "--checkpoint " + runs + " --resume --save " + (s.folder / "resumed.safetensors"), flow, steps(12))
          .code == 0);
  const auto weights = [&](const char* name) {
    return journeys::harmonics("inspect " + (s.folder / name) + " --json").out;
  };
  CHECK(has(weights("whole.safetensors"), "x.h.affine.weight"));
  CHECK(read(s.folder / "whole.safetensors") == read(s.folder / "resumed.safetensors"));
}

TEST_CASE("kinds: settings of a plugin's optimizer and schedule are checked") {
  const Setup s;
  const Result range = s.run("--optimizer 'heavy_ball(momentum=1)'");
  CHECK(range.code == 78);
  CHECK(has(range.err, "optimizer setting 'momentum' has the value '1'"));
  CHECK(has(range.err, "give a value at least 0 and below 1"));
  CHECK(has(s.run("--optimizer 'heavy_ball(momentun=0.5)'").err, "optimizer 'heavy_ball' has no setting 'momentun'"));
  CHECK(has(s.run("--optimizer heavy_bal").err, "did you mean 'heavy_ball'?"));
  CHECK(has(s.run("--schedule 'halving(every=0.5)'").err, "schedule setting 'every' has the value '0.5'"));
}

TEST_CASE("kinds: a faulty optimizer is named before anything is learned") {
  const Setup s;
  const Result shape = s.run("--optimizer wrong_step");
  CHECK(shape.code == 1);
  CHECK(has(shape.err,
            "optimizer 'wrong_step' of plugin 'org.example.kinds' returned f32[1] for the parameter of 'x.h.affine."));
  const Result reads = s.run("--optimizer 'wrong_step(reads=true)'");
  CHECK(reads.code == 1);
  CHECK(has(reads.err,
            "optimizer 'wrong_step' of plugin 'org.example.kinds' reads values, which an optimizer cannot do"));
}

TEST_CASE("kinds: a plugin's schedule sets the rate of every step") {
  const Setup s;
  CHECK(number(s.run("--json --optimizer 'sgd(lr=0.1)' --schedule 'halving(every=5)'").out, "learning_rate") ==
        Approx(0.1 / 8));
  CHECK(number(s.run("--json --optimizer 'sgd(lr=0.1)' --schedule to_the_end").out, "learning_rate") ==
        Approx(0.1 / 20));
  const Result endless = s.run("--optimizer 'sgd(lr=0.1)' --schedule to_the_end --until 'loss<0.001'",
                               "x -(affine(6), tanh)-> h -> o <-(mse)- y;", "until loss < 0.001, batch=8");
  CHECK(endless.code == 2);
  CHECK(has(endless.err, "schedule 'to_the_end()' depends on the length of the run, which is not known"));
  const Result negative = s.run("--schedule negative");
  CHECK(negative.code == 1);
  CHECK(has(negative.err, "schedule 'negative' of plugin 'org.example.kinds' gives the factor -1 at step 2"));
}

TEST_CASE("kinds: a plugin's predicate is evaluated before every step") {
  const Setup s;
  const std::string branch = "x -(affine(6), tanh)-> h -> o; if PREDICATE { o <-(mse)- y; } else { o <-(mae)- y; }";
  const auto with = [&](std::string predicate, const std::string& flags = "--json") {
    std::string text = branch;
    return s.run(flags, text.replace(text.find("PREDICATE"), 9, predicate));
  };
  const double always = number(with("every_other(steps=1000)").out, "loss"),
               mixed = number(with("every_other(2)").out, "loss"),
               never = number(with("loss_below(value=-1)").out, "loss");
  CHECK(std::isfinite(always));
  CHECK(always != mixed);
  CHECK(mixed != never);
  const Result throws = with("thrower()");
  CHECK(throws.code == 1);
  CHECK(has(throws.err, "predicate 'thrower' of plugin 'org.example.kinds': cannot decide"));
  CHECK(has(with("every_othe()").err, "did you mean 'every_other'?"));
  CHECK(has(with("every_other(0)").err, "give a value at least 1"));
  const Result clock = with("by_clock()", "--deterministic");
  CHECK(clock.code == 2);
  CHECK(has(clock.err, "a deterministic run cannot use predicate 'by_clock': it depends on more than the run"));
}

TEST_CASE("kinds: a plugin's augmentation changes samples equally on every run and thread") {
  const Setup s;
  const auto loss = [&](const std::string& augment, const std::string& flags = "") {
    std::string producers = s.producers;
    const size_t at = producers.find("x.csv") + 5;
    producers.insert(at, "?augment=" + augment + "'");
    producers.insert(producers.find("x="), "'");
    const Result r = journeys::harmonics("run " + s.graph("x -(affine(6), tanh)-> h -> o <-(mse)- y;") + producers +
                                         kKinds + "--json --quiet " + flags);
    REQUIRE(r.code == 0);
    return number(r.out, "loss");
  };
  const double plain = number(s.run("--json --quiet").out, "loss"), jittered = loss("jitter(0.5)");
  CHECK(jittered != plain);
  CHECK(loss("jitter(0.5)", "--threads 2") == jittered);
  CHECK(loss("jitter(most=0.5)&async=7") == jittered);
  CHECK(loss("jitter(0.5)&seed=4") != jittered);
  CHECK(loss("noise(0.1),jitter(0.5),jitter(0.5)") != jittered);
  const std::string file = s.folder / "x.csv";
  CHECK(has(journeys::harmonics("inspect 'file:" + file + "?augment=halve'" + kKinds).out, "f32[2]"));
  const Result wrong = journeys::harmonics("inspect 'file:" + file + "?augment=jitter(-1)'" + kKinds);
  CHECK(wrong.code == 2);
  CHECK(has(wrong.err, "'most' of augmentation 'jitter' is '-1'"));
  CHECK(has(journeys::harmonics("inspect 'file:" + file + "?augment=jiter(1)'" + kKinds).err, "'jiter' is unknown"));
}

TEST_CASE("kinds: a plugin's device without kernels uses the reference") {
  const Setup s;
  CHECK(number(s.run("--json --device no_kernels").out, "loss") ==
        Approx(number(s.run("--json").out, "loss")).epsilon(1e-4));
}

TEST_CASE("kinds: every kind is listed and inspected") {
  const std::pair<const char*, const char*> kinds[] = {
      {"functionals", "swish2"}, {"implementations", "swish2.fast"}, {"optimizers", "heavy_ball"},
      {"schedules", "halving"},  {"predicates", "every_other"},      {"augmentations", "jitter"},
      {"devices", "no_kernels"}, {"activations", "silu_too"}};
  for (const auto& [kind, name] : kinds) {
    INFO(kind);
    CHECK(has(journeys::harmonics("list " + std::string(kind) + kKinds).out, "  " + std::string(name) + " "));
    const Result text = journeys::harmonics("inspect " + std::string(name) + kKinds),
                 json = journeys::harmonics("inspect " + std::string(name) + kKinds + "--json");
    CHECK(has(text.out, "  from org.example.kinds ("));
    CHECK(has(text.out, "example\n  "));
    CHECK(has(json.out, "\"plugin\":\"org.example.kinds\""));
    CHECK(has(json.out, "\"example\":"));
  }
  CHECK(journeys::harmonics("inspect heavy_ball" + kKinds).out ==
        "optimizer heavy_ball(lr = 0.1, momentum = 0.9)\n  gradient descent with momentum\n  from org.example.kinds "
        "(" HARMONICS_TEST_PLUGINS
        "/libkinds.so)\n"
        "arguments\n  lr             a number       = 0.1        0<..  learning rate\n  momentum       a number       "
        "= 0.9        0..<1  what stays\n"
        "example\n  --optimizer 'heavy_ball(lr=0.1)'\n");
  CHECK(has(journeys::harmonics("inspect swish2.fast" + kKinds).out, "  --override swish2=fast\n"));
  CHECK(has(journeys::harmonics("inspect conv").out, "  a -(conv(16))-> b;\n"));
  CHECK(has(journeys::harmonics("inspect attention").out, "  call(\"attention\", {q, k, v})  // q f32["));
  CHECK(has(journeys::harmonics("inspect blend" + kKinds).out, "  a -(blend(other))-> b;\n"));
  CHECK(has(journeys::harmonics("inspect swish2" + kKinds).out, "  a -(swish2)-> b;\n"));
  CHECK(has(journeys::harmonics("inspect scale").out, "  --producer 'NAME=file:PATH?augment=scale(0.1)'\n"));
  CHECK(has(journeys::harmonics("list predicates").out, "no predicates are registered"));
  for (const char* kind : {"importers", "tokenizers"})
    CHECK(has(journeys::harmonics("list " + std::string(kind)).out, "  llama2c "));
  CHECK(has(journeys::harmonics("inspect llama2c").out, "importer llama2c(rope_base = 10000)"));
  for (const char* name : {"gguf", "safetensors"})
    CHECK(has(journeys::harmonics("list exporters").out, "  " + std::string(name) + " "));
  CHECK(has(journeys::harmonics("inspect safetensors").out, "  harmonics export MODEL FILE --format safetensors\n"));
  const Result kind = journeys::harmonics("list rules");
  CHECK(kind.code == 2);
  CHECK(has(kind.err, "there is no kind 'rules'"));
  CHECK(has(journeys::harmonics("list policies" + kKinds).out, "  wide_in_halves "));
}

TEST_CASE("kinds: a plugin's policy decides about the precision of each product") {
  const Setup s;
  ::setenv("HARMONICS_FP16", "emulated", 1);
  const auto loss = [&](const std::string& flags) {
    const Result r =
        s.run("--json " + flags, "x -(affine(512), tanh)-> h -(affine(256), tanh, affine(2))-> o <-(mse)- y;",
              "steps 5, batch=32");
    return number(r.out, "loss");
  };
  const double f32 = loss(""), fp16 = loss("--precision fp16");
  REQUIRE(f32 != fp16);
  CHECK(loss("--precision-policy wide_in_halves") == fp16);
  CHECK(loss("--precision-policy 'wide_in_halves(least=1000)'") == f32);
  CHECK(loss("--precision fp16 --precision-policy 'wide_in_halves(least=1000)'") == fp16);
  const double mixed = loss("--precision-policy 'wide_in_halves(least=300)'");  // rows of 512, not of 256
  CHECK(mixed != f32);
  CHECK(mixed != fp16);
  ::unsetenv("HARMONICS_FP16");
}

TEST_CASE("kinds: what a policy cannot decide is named with the product") {
  const Setup s;
  const Result lacks = s.run("--precision-policy eight_bits");
  CHECK(lacks.code == 1);
  CHECK(has(lacks.err,
            "policy 'eight_bits' of plugin 'org.example.kinds' rounds linear of 'x.h' to a type that "
            "the device lacks"));
  const Result rows = s.run("--precision-policy 'eight_bits(rows=true)'");
  CHECK(rows.code == 1);
  CHECK(has(rows.err, "quantises the rows of linear of 'x.h' to q8_0, which is not possible"));
  CHECK(has(s.run("--precision-policy wide_in_halve").err, "did you mean 'wide_in_halves'?"));
  CHECK(has(s.run("--precision-policy 'wide_in_halves(least=0)'").err, "policy setting 'least' has the value '0'"));
  const Result unknown = journeys::harmonics("run " + s.graph("x -(affine(6), tanh)-> h -> o <-(mse)- y;") +
                                             s.producers + "--precision-policy mine");
  CHECK(has(unknown.err, "no plugin has a policy 'mine'"));
}
