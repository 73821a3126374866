// Errors as users see them: message, remedy, exit code.
#include "tests/journeys/shell.hpp"

#include <cmath>

using namespace journeys;

namespace {

const std::string kRegression =
    "harmonic g {\n  producer x;\n  producer y 1/1 x;\n  layer h {4};\n  layer o;\n  cycle { x -(relu)-> h -> o; o "
    "<-(mse)- y; }\n}\n";

}  // namespace

TEST_CASE("mistakes: wrong use gives a remedy and exit code 2") {
  CHECK(harmonics("").code == 2);
  CHECK(harmonics("fly").code == 2);
  CHECK(harmonics("run").code == 2);
  CHECK(harmonics("run " + kSamples + "mnist.hmx --epochs -3").code == 2);
  const Result unbound = harmonics("run " + kSamples + "mnist.hmx --producer synth:digits");
  CHECK(unbound.code == 2);
  CHECK(unbound.err ==
        "error: producer 'mnist_label_data' is not bound\nhelp: bind it: --producer mnist_label_data=file:PATH\n");
  const Result name = harmonics("run " + kSamples + "mnist.hmx --producer mnist_label_dat=synth:digits");
  CHECK(name.code == 2);
  CHECK(name.err ==
        "error: 'mnist_train_cycle' has no producer named 'mnist_label_dat'\nhelp: did you mean 'mnist_label_data'?\n");
  const Result condition = harmonics(
      "run " + kSamples + "mnist.hmx --producer synth:digits --producer 'synth:digits#label' --until 'loss=3'");
  CHECK(condition.code == 2);
  CHECK(has(condition.err, "'loss=3' is not a condition"));
  const std::string digits = "run " + kSamples + "mnist.hmx --producer synth:digits --producer 'synth:digits#label' ";
  CHECK(
      has(harmonics(digits + "--optimizer lyon").err, "error: unknown optimizer 'lyon'\nhelp: did you mean 'lion'?\n"));
  CHECK(has(harmonics(digits + "--schedule 'cosine(warmup=fast)'").err,
            "error: schedule setting 'warmup' has the value 'fast'\nhelp: give a whole number of steps, or a fraction "
            "of the run below 1, e.g. warmup=0\n"));
  const Result endless = harmonics(digits + "--schedule cosine --until 'loss<0.1'");
  CHECK(endless.code == 2);
  CHECK(has(endless.err,
            "error: schedule 'cosine(warmup=0, final=0)' depends on the length of the run, which is not known\n"
            "help: give steps, epochs or for, e.g. --steps 1000"));
  CHECK(harmonics(digits + "--accumulate 0").code == 2);
  const std::string help = "help: 'harmonics run --help' shows what it takes\n";
  const Result clip = harmonics(digits + "--clip -1");
  CHECK(clip.code == 2);
  CHECK(clip.err == "error: --clip: '-1' is not a number of at least 0\nhelp: for instance --clip 1\n" + help);
  for (const char* rate : {"0", "-1", "inf", "nan", "fast", "1e999"})
    CHECK(harmonics(digits + "--lr " + rate).err ==
          "error: --lr: '" + std::string(rate) + "' is not a number above 0\nhelp: for instance --lr 0.001\n" + help);
  CHECK(has(harmonics(digits + "--optimizer 'sgd(lr=1e20)'").err,
            "error: optimizer setting 'lr' has the value '1e20'\nhelp: give a number from 0 to 1e6, e.g. lr=0.001\n"));
}

TEST_CASE("mistakes: the error for a file that is not a flow names its format") {
  Folder f;
  const std::string model = "a flow takes it as model(\"FILE\"); harmonics generate, chat and serve take it as it is";
  const std::string configuration =
      "harmonics train takes configurations in YAML; flows are text files such as samples/mnist.hmx";
  const std::string flow = "a flow is a text file such as samples/mnist.hmx; docs/hmx.md describes its language";
  struct Case {
    const char *name, *what;
    std::string help;
  };
  for (const Case& c :
       {Case{"m.yml", "YAML", configuration}, Case{"m.json", "JSON", flow}, Case{"m.gguf", "a model in GGUF", model}}) {
    const std::string path = f.write(c.name, "{\"layers\": []}\n");
    for (const char* verb : {"validate", "run", "explain"}) {
      const Result r = harmonics(verb + (" " + path));
      CHECK(r.code == 78);
      CHECK(r.err == "error: '" + path + "' is " + c.what + " by its name, not a flow\nhelp: " + c.help + "\n");
    }
  }
  CHECK(harmonics("validate " + f.write("flow.json", kRegression)).code == 0);  // any name is accepted for a flow
  CHECK(harmonics("validate " + (f / "none.json")).code == 66);
}

TEST_CASE("mistakes: missing and broken files have separate exit codes") {
  CHECK(harmonics("run nowhere.hmx --producer synth:digits").code == 66);
  const Result missing =
      harmonics("run " + kSamples + "mnist.hmx --producer nowhere.idx --producer 'synth:digits#label'");
  CHECK(missing.code == 66);
  CHECK(has(missing.err, "nowhere.idx"));
  Folder f;
  const std::string broken = f.write("broken.idx", std::string("\0\0\x08\x03\0\0\x10\0\0\0\0\x1c\0\0\0\x1c", 16));
  const Result lying =
      harmonics("run " + kSamples + "mnist.hmx --producer " + broken + " --producer 'synth:digits#label'");
  CHECK(lying.code == 65);
  const Result weights = harmonics("infer " + kSamples + "mnist.hmx --producer synth:digits --weights " + broken);
  CHECK(weights.code == 65);
  const std::string flow = f.write("bad.hmx", "harmonic g { layer a }");
  CHECK(harmonics("run " + flow + " --producer synth:digits").code == 78);
  CHECK(harmonics("validate " + flow).code == 78);
  const Result save = harmonics("run " + kSamples +
                                "mnist.hmx --producer 'synth:digits?size=64' --producer 'synth:digits?size=64#label' "
                                "--epochs 1 --quiet --save /nowhere/w.safetensors");
  CHECK(save.code == 73);
}

TEST_CASE("mistakes: streams of different lengths are refused before training if requested") {
  const Result r =
      harmonics("run " + kSamples +
                "mnist.hmx --producer 'synth:digits?size=100' --producer 'synth:digits?size=99&unpaired=refuse#label'");
  CHECK(r.code == 65);
  CHECK(has(r.err, "99"));
  CHECK(has(r.err, "100"));
  CHECK(has(r.err, "mnist_label_data"));
}

TEST_CASE("mistakes: labels outside of the declared classes are refused") {
  Folder f;
  const std::string flow = f.write(
      "g.hmx",
      "harmonic g { producer x {784}; producer y {7}; layer o; cycle { x -(affine)-> o; o <-(cross_entropy)- y; } }");
  const Result r =
      harmonics("run " + flow + " --producer 'synth:digits?size=100' --producer 'synth:digits?size=100#label'");
  CHECK(r.code == 78);
  CHECK(has(r.err, "producer 'y' is declared with 7 classes, its source has 10"));
}

TEST_CASE("mistakes: a non-finite loss stops with the weights intact and names the first bad layer") {
  Folder f;
  const std::string flow = f.write("g.hmx", kRegression);
  const std::string x = f.write("x.csv", "1,2\n3,4\n5,6\n7,8\n"), y = f.write("y.csv", "1.5\n2.5\n3.5\n4.5\n");
  const Result blown =
      harmonics("run " + flow + " --producer " + x + " --producer " + y +
                " --batch 2 --epochs 200 --optimizer 'sgd(lr=100000)' --save " + (f / "w.safetensors"));
  CHECK(blown.code == 1);
  CHECK(has(blown.err, "error: the loss is "));
  CHECK(has(blown.err, "first not finite: "));
  CHECK(has(blown.err, "note: the weights are those after step "));
  const std::string nan = f.write("nan.csv", "1,2\n3,nan\n5,6\n7,8\n");
  const Result fed = harmonics("run " + flow + " --producer " + nan + " --producer " + y + " --batch 4 --epochs 1");
  CHECK(fed.code != 0);
}

TEST_CASE("mistakes: weights of another graph are refused by name") {
  Folder f;
  const std::string small = f.write("small.hmx", kRegression);
  const std::string x = f.write("x.csv", "1,2\n3,4\n"), y = f.write("y.csv", "1.5\n2.5\n");
  REQUIRE(harmonics("run " + small + " --producer " + x + " --producer " + y + " --epochs 1 --quiet --save " +
                    (f / "w.safetensors"))
              .code == 0);
  std::string other = kRegression;
  other.replace(other.find("layer h {4}"), 11, "layer h {5}");
  const Result shape =
      harmonics("infer " + f.write("other.hmx", other) + " --producer " + x + " --weights " + (f / "w.safetensors"));
  CHECK(shape.code != 0);
  CHECK(has(shape.err, "'h'"));
  std::string more = kRegression;
  more.replace(more.find("layer o;"), 8, "layer o; layer p {3};");
  more.replace(more.find("-> o;"), 5, "-> o; h -> p;");
  const Result missing =
      harmonics("infer " + f.write("more.hmx", more) + " --producer " + x + " --weights " + (f / "w.safetensors"));
  CHECK(missing.code == 65);
  CHECK(has(missing.err, "lacks weights the graph needs:\n  h.p.affine.weight f32[3, 4]\n  h.p.affine.bias f32[3]"));
}

TEST_CASE("mistakes: unknown options of an address give the nearest one") {
  const Result r =
      harmonics("run " + kSamples + "mnist.hmx --producer 'synth:digits?sized=100' --producer 'synth:digits#label'");
  CHECK(r.code == 2);
  CHECK(has(r.err, "sized"));
  CHECK(has(r.err, "did you mean 'size'"));
  const Result scheme =
      harmonics("run " + kSamples + "mnist.hmx --producer synt:digits --producer 'synth:digits#label'");
  CHECK(scheme.code != 0);
  CHECK(has(scheme.err, "did you mean 'synth'"));
}
