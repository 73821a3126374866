// Typical first use of the command line, from training to inference.
#include "tests/journeys/shell.hpp"

#include <cmath>

using namespace journeys;

namespace {

const std::string kTrainedDigits =
    "--producer 'synth:digits?size=2000&seed=1' --producer 'synth:digits?size=2000&seed=1#label' ";
const std::string kDigitsTest = "--test 'synth:digits?size=500&seed=2' --test 'synth:digits?size=500&seed=2#label' ";

std::string without_tap(const std::string& flow) {
  const size_t at = flow.find("output <-(");
  const size_t end = flow.find('\n', at);
  REQUIRE(at != std::string::npos);
  return flow.substr(0, at) + flow.substr(end + 1);
}

}  // namespace

TEST_CASE("run: a flow learns drawn digits, reports its decisions, and prints one object") {
  const Result r = harmonics("run " + kSamples + "mnist.hmx " + kTrainedDigits + kDigitsTest + "--epochs 3 --json");
  REQUIRE(r.code == 0);
  for (const char* key : {"epochs", "steps", "samples", "seconds", "samples_per_second", "loss", "accuracy",
                          "test_loss", "test_accuracy"}) {
    INFO(key);
    CHECK(std::isfinite(number(r.out, key)));
  }
  CHECK(number(r.out, "epochs") == 3);
  CHECK(number(r.out, "steps") == 3 * 32);
  CHECK(number(r.out, "samples") == 6000);
  CHECK(number(r.out, "test_accuracy") > 0.7);
  CHECK(has(
      r.err,
      "layer 'output' is 10 wide because of the 10 classes of 'mnist_label_data'; 1/2 of 'hidden' would suggest 196"));
  CHECK(has(r.err, "the bytes of 'mnist_training_data' are scaled to [0, 1]"));
}

TEST_CASE("run: equal seeds give equal bits on one thread and on two, another seed does not") {
  Folder f;
  const std::string common = "run " + kSamples + "mnist.hmx " + kTrainedDigits + "--epochs 1 --quiet ";
  REQUIRE(harmonics(common + "--threads 1 --save " + (f / "a.safetensors")).code == 0);
  REQUIRE(harmonics(common + "--threads 2 --save " + (f / "b.safetensors")).code == 0);
  REQUIRE(harmonics(common + "--threads 2 --save " + (f / "c.safetensors")).code == 0);
  REQUIRE(harmonics(common + "--seed 5 --save " + (f / "d.safetensors")).code == 0);
  CHECK(read(f / "a.safetensors") == read(f / "b.safetensors"));
  CHECK(read(f / "b.safetensors") == read(f / "c.safetensors"));
  CHECK(read(f / "a.safetensors") != read(f / "d.safetensors"));
}

TEST_CASE("run: prefetch threads do not change results") {
  Folder f;
  const std::string common = "run " + kSamples + "mnist.hmx --epochs 2 --quiet ";
  REQUIRE(harmonics(common + "--producer 'synth:digits?size=500' --producer 'synth:digits?size=500#label' --save " +
                    (f / "a.safetensors"))
              .code == 0);
  REQUIRE(
      harmonics(common +
                "--producer 'synth:digits?size=500&async=7' --producer 'synth:digits?size=500&async=64#label' --save " +
                (f / "b.safetensors"))
          .code == 0);
  CHECK(read(f / "a.safetensors") == read(f / "b.safetensors"));
}

TEST_CASE("run: convolutions and dropout repeat bit for bit as well") {
  Folder f;
  const std::string digits =
      "--producer 'synth:digits?size=300&seed=1' --producer 'synth:digits?size=300&seed=1#label' ";
  const std::string common = "run " + kSamples + "mnist_cnn.hmx " + digits + "--epochs 1 --quiet ";
  REQUIRE(harmonics(common + "--threads 1 --save " + (f / "a.safetensors")).code == 0);
  REQUIRE(harmonics(common + "--threads 2 --save " + (f / "b.safetensors")).code == 0);
  CHECK(read(f / "a.safetensors") == read(f / "b.safetensors"));
}

TEST_CASE("infer: removing the tap leaves an inference graph with the trained weights") {
  Folder f;
  const std::string weights = f / "w.safetensors";
  REQUIRE(harmonics("run " + kSamples + "mnist.hmx " + kTrainedDigits + "--epochs 3 --quiet --save " + weights).code ==
          0);
  const std::string flow = f.write("infer.hmx", without_tap(read(kSamples + "mnist.hmx")));
  const Result r = harmonics("run " + flow + " --weights " + weights +
                             " --producer 'synth:digits?size=200&seed=2' --consumer 'stdout:?format=argmax'");
  REQUIRE(r.code == 0);
  CHECK(std::count(r.out.begin(), r.out.end(), '\n') == 200);
  const Result labels =
      harmonics("infer " + kSamples + "mnist.hmx --weights " + weights +
                " --producer 'synth:digits?size=200&seed=2' --consumer 'stdout:?format=argmax' --quiet");
  CHECK(labels.out == r.out);  // infer drops the tap itself
  const Result widths = harmonics("explain " + flow + " --weights " + weights + " --show widths");
  CHECK(has(widths.out, "output               [10]             loaded weights"));
}

TEST_CASE("infer: makes one pass, however long the flow would train") {
  Folder f;
  const std::string flow = f.write("ten.hmx",
                                   "harmonic ten { producer a; producer b; layer o; cycle (epochs 10, steps 3) { a "
                                   "-(affine)-> o; o <-(mse)- b; } }");
  f.write("a.csv", "1,2\n2,3\n3,4\n4,5\n5,6\n");
  const std::string weights = f / "w.safetensors";
  REQUIRE(harmonics("run " + flow + " --quiet --batch 1 --producer " + (f / "a.csv") + " --producer " + (f / "a.csv") +
                    " --save " + weights)
              .code == 0);
  const Result r = harmonics("infer " + flow + " --batch 1 --weights " + weights + " --producer " + (f / "a.csv"));
  REQUIRE(r.code == 0);
  CHECK(std::count(r.out.begin(), r.out.end(), '\n') == 5);
}

TEST_CASE("infer: results of a run without tap go to a file in the format of its ending") {
  Folder f;
  const std::string flow =
      f.write("g.hmx", "harmonic g { producer x; layer s; consumer y; cycle { x -(relu)-> s -(identity)-> y; } }");
  const std::string in = f.write("in.csv", "-1,2\n3,-4\n");
  REQUIRE(harmonics("run " + flow + " --producer " + in + " --consumer y=file:" + (f / "out.csv") + " --quiet").code ==
          0);
  CHECK(read(f / "out.csv") == "0,2\n3,0\n");
}

TEST_CASE("run: a recurrent net learns a text and generates it") {
  Folder f;
  std::string verse;
  for (int i = 0; i < 60; ++i) verse += "the rain falls on the sea and the sea falls on the shore.\n";
  const std::string text = f.write("verse.txt", verse), weights = f / "w.safetensors";
  const std::string common =
      "run " + kSamples + "char_lstm.hmx --producer 'file:" + text + "?window=32&shift=7' --quiet --json --batch 16 ";
  const Result start = harmonics(common + "--steps 2"), end = harmonics(common + "--steps 120 --save " + weights);
  REQUIRE(end.code == 0);
  CHECK(number(start.out, "loss") > 2.5);
  CHECK(number(end.out, "loss") < 0.9 * number(start.out, "loss"));
  const Result written =
      harmonics("infer " + kSamples + "char_lstm.hmx --weights " + weights + " --prompt 'the rain ' --quiet");
  CHECK(written.code == 0);
  CHECK(written.out.size() > 8);
}

TEST_CASE("run: a field of a bound producer needs no second address") {
  Folder f;
  const std::string common = "run " + kSamples + "mnist.hmx --epochs 1 --quiet ";
  REQUIRE(harmonics(common +
                    "--producer 'mnist_training_data=synth:digits?size=300&seed=4' --producer "
                    "'mnist_label_data=synth:digits?size=300&seed=4#label' --save " +
                    (f / "a.safetensors"))
              .code == 0);
  REQUIRE(harmonics(common +
                    "--producer 'mnist_label_data=mnist_training_data#label' --producer "
                    "'mnist_training_data=synth:digits?size=300&seed=4' --save " +
                    (f / "b.safetensors"))
              .code == 0);
  CHECK(read(f / "a.safetensors") == read(f / "b.safetensors"));
}

TEST_CASE("run: streams of different lengths end the pass, and the report counts the remaining samples") {
  const std::string common = "run " + kSamples + "mnist.hmx --epochs 2 --producer 'synth:digits?size=103' ";
  const Result r = harmonics(common +
                             "--producer 'synth:digits?size=100#label' --test 'synth:digits?size=20' --test "
                             "'synth:digits?size=22#label' --json");
  REQUIRE(r.code == 0);
  CHECK(number(r.out, "samples") == 200);
  CHECK(has(r.err,
            "producer 'mnist_training_data' had 3 samples left over at the end of a pass: 'mnist_label_data' ended "
            "after 100"));
  CHECK(has(r.err,
            "test: producer 'mnist_label_data' had 2 samples left over at the end of a pass: 'mnist_training_data' "
            "ended after 20"));
  CHECK(has(r.out,
            "\"left_over\":[{\"of\":\"run\",\"producer\":\"mnist_training_data\",\"samples\":3},{\"of\":\"test\","
            "\"producer\":\"mnist_label_data\",\"samples\":2}]"));
}

TEST_CASE("run: steps, time and a metric stop a run, and the object says which") {
  const std::string common = "run " + kSamples + "mnist.hmx " + kTrainedDigits + "--json --quiet ";
  const Result steps = harmonics(common + "--steps 7");
  CHECK(number(steps.out, "steps") == 7);
  CHECK(has(steps.out, "\"stopped_by\":\"steps\""));
  const Result time = harmonics(common + "--for 500ms");
  CHECK(has(time.out, "\"stopped_by\":\"for\""));
  CHECK(number(time.out, "seconds") < 5);
  const Result metric = harmonics(common + "--until 'loss<2.5' --epochs 50");
  CHECK(has(metric.out, "\"stopped_by\":\"until loss < 2.5\""));
  CHECK(number(metric.out, "loss") < 2.5);
}

TEST_CASE("run: zero epochs save the initial weights without training") {
  Folder f;
  const Result r = harmonics("run " + kSamples + "mnist.hmx " + kTrainedDigits + "--epochs 0 --json --quiet --save " +
                             (f / "w.safetensors"));
  REQUIRE(r.code == 0);
  CHECK(number(r.out, "steps") == 0);
  CHECK(fs::file_size(f / "w.safetensors") > 4 * (784 * 392 + 392 * 10));
}

TEST_CASE("run: several optimizers learn the same flow") {
  for (const char* optimizer :
       {"adamw", "adam(lr=1e-3)", "sgd(lr=0.05, momentum=0.9)", "sgd(lr=0.1, momentum=0.9, nesterov=true)",
        "rmsprop(lr=1e-3, momentum=0.5, centered=true)", "lamb(lr=1e-2)", "lion(lr=1e-3)", "normuon"}) {
    const Result r =
        harmonics("run " + kSamples + "mnist.hmx " + kTrainedDigits + kDigitsTest +
                  "--epochs 3 --json --quiet --schedule 'cosine(warmup=10)' --clip 1 --optimizer '" + optimizer + "'");
    REQUIRE(r.code == 0);
    INFO(optimizer);
    CHECK(number(r.out, "test_accuracy") > 0.6);
  }
}

TEST_CASE("run: schedule, clipping and accumulation are visible in the output") {
  Folder f;
  const std::string flow = f.write("g.hmx", R"hmx(harmonic g {
    producer x; producer y 1/1 x;
    layer h {16}; layer o;
    cycle (epochs 2, batch=16, optimizer="lion(lr=1e-3)", schedule="linear(final=0.5)", clip=2,
      accumulate=2) { x -(relu)-> h -> o; o <-(cross_entropy)- y; }
  })hmx");
  const std::string digits = "--producer 'synth:digits?size=160' --producer 'synth:digits?size=160#label' ";
  const Result r = harmonics("run " + flow + " " + digits + "--accumulate 4 --json --report " + (f / "r.html"));
  REQUIRE(r.code == 0);
  CHECK(number(r.out, "steps") == 6);  // 10 batches: two groups of four and one of two
  CHECK(number(r.out, "learning_rate") == Approx(1e-3 * (1 - 0.5 * 5 / 6)));
  const std::string training =
      "lion(lr=0.001, beta1=0.9, beta2=0.99, weight_decay=0), schedule linear(warmup=0, final=0.5), clip 2, 4 batches "
      "per step";
  CHECK(has(r.out, "\"training\":\"" + training + "\""));
  CHECK(has(r.err, "by " + training));
  CHECK(has(r.err, "lr 0.000833"));  // after the first epoch
  CHECK(has(read(f / "r.html"), training));
  const Result explained = harmonics("explain " + flow + " " + digits + "--clip-value 0.5 --schedule 'wsd(decay=0.5)'");
  REQUIRE(explained.code == 0);
  CHECK(has(explained.out,
            "  optimizer            lion(lr=0.001, beta1=0.9, beta2=0.99, weight_decay=0)\n"
            "  schedule             wsd(warmup=0, decay=0.5, final=0)\n"
            "  clip                 gradients by global norm to 2\n"
            "  clip_value           gradients by value to 0.5\n"
            "  batch                16, 2 per step\n"));
  const Result traced = harmonics("explain " + flow + " " + digits + "--show kernels");
  CHECK(has(traced.out, "global norm"));
  CHECK(has(traced.out, "optimizer/x.h.affine.weight"));
  CHECK(has(traced.out, "kernels of each batch\n"));
  CHECK(traced.out.find("kernels of the step\n") < traced.out.find("global norm"));
}

TEST_CASE("run: a report draws the curve and the digits, an svg only the curve") {
  Folder f;
  REQUIRE(harmonics("run " + kSamples + "mnist.hmx " + kTrainedDigits + kDigitsTest + "--epochs 1 --quiet --report " +
                    (f / "r.html"))
              .code == 0);
  const std::string html = read(f / "r.html");
  CHECK(has(html, "<polyline"));
  CHECK(has(html, "<figure class=\"right\">"));
  CHECK(has(html, "test accuracy"));
  CHECK(has(html, "src=\"data:image/png;base64,"));
  CHECK(html.find("src=") == html.find("src=\"data:image/png;base64,"));
  CHECK(!has(html, "href="));
  REQUIRE(harmonics("run " + kSamples + "mnist.hmx " + kTrainedDigits + "--steps 20 --quiet --report " + (f / "r.svg"))
              .code == 0);
  CHECK(read(f / "r.svg").rfind("<svg", 0) == 0);
}

TEST_CASE("run: if chooses per step by a metric") {
  Folder f;
  const std::string flow = f.write("g.hmx", R"(harmonic g {
    producer x; producer y 1/1 x;
    layer h {32}; layer o;
    cycle (epochs 4) {
      x -(relu)-> h -> o;
      if o.accuracy > 0.5 { o <-(cross_entropy(weight=0.5))- y; } else { o <-(cross_entropy)- y; }
    }
  })");
  const Result r = harmonics("run " + flow + " " + kTrainedDigits + "--json --quiet");
  REQUIRE(r.code == 0);
  CHECK(number(r.out, "accuracy") > 0.6);
}

TEST_CASE("run: two cycles run in the order of the text and keep the weights") {
  Folder f;
  const std::string flow = f.write("g.hmx", R"(harmonic g {
    producer x; producer y 1/1 x;
    layer h {32}; layer o;
    x -(relu)-> h -> o;
    cycle (epochs 2, lr=0.003) { o <-(cross_entropy)- y; }
    cycle (epochs 2) { o <-(cross_entropy)- y; }
  })");
  const Result r = harmonics("run " + flow + " " + kTrainedDigits + kDigitsTest + "--json --quiet");
  REQUIRE(r.code == 0);
  CHECK(number(r.out, "test_accuracy") > 0.6);
}

TEST_CASE("run: text is learned in windows, and infer generates some") {
  Folder f;
  std::string text;
  for (int i = 0; i < 600; ++i) text += "abcd efgh\n";
  const std::string file = f.write("t.txt", text), weights = f / "w.safetensors";
  const std::string flow = f.write("g.hmx", R"(harmonic g {
    producer text;
    layer e {*, 16}; layer a {*, 16}; layer next;
    cycle { text -(embed)-> e; e -(norm, attention(heads=2, causal=true, rope=true))-> a; e -(skip)-> a; a -(norm,
      affine)-> next; next <-(next_token)- text; }
  })");
  const Result r = harmonics("run " + flow + " --producer 'file:" + file +
                             "?window=20&shift=3' --epochs 4 --lr 0.01 --json --quiet --save " + weights);
  REQUIRE(r.code == 0);
  CHECK(number(r.out, "loss") < 0.2);
  const Result written =
      harmonics("infer " + flow + " --weights " + weights + " --prompt 'ab' --generate 18 --temperature 0");
  REQUIRE(written.code == 0);
  CHECK(written.out == "abcd efgh\nabcd efgh\n\n");
  CHECK_FALSE(has(written.err, "the whole window is recomputed"));
  const Result longer =
      harmonics("infer " + flow + " --weights " + weights + " --prompt 'ab' --generate 98 --temperature 0");
  std::string lines;
  for (int i = 0; i < 10; ++i) lines += "abcd efgh\n";
  CHECK(longer.out == lines + "\n");
  const Result foreign = harmonics("infer " + flow + " --weights " + weights + " --prompt 'xyz'");
  CHECK(foreign.code == 2);
  CHECK(has(foreign.err, "the prompt has 'x' at byte 0, which the model's 10 symbols do not include"));
}

TEST_CASE("verbs: version, list, inspect, explain and validate print their results") {
  CHECK(has(harmonics("version").out, "plugin contract 1.5"));
  const Result all = harmonics("list functions");
  for (const char* name : {"relu",      "leaky_relu", "sigmoid",  "tanh",     "softmax",       "gelu",
                           "silu",      "elu",        "softplus", "identity", "cross_entropy", "binary_cross_entropy",
                           "mse",       "mae",        "huber",    "affine",   "conv",          "maxpool",
                           "avgpool",   "norm",       "dropout",  "noise",    "flatten",       "embed",
                           "attention", "skip",       "concat",   "lstm",     "gru",           "prelu",
                           "nll",       "hinge"}) {
    INFO(name);
    CHECK(has(all.out, std::string("  ") + name + " "));
  }
  CHECK(has(harmonics("inspect conv").out, "kernel"));
  CHECK(has(harmonics("list devices").out, "\n  reference  "));
  CHECK(has(harmonics("list devices --json").out, "\"name\":\"reference\""));
  CHECK(has(harmonics("run --help").out, "cpu, cuda, opencl, trace, reference"));
  CHECK(has(harmonics("inspect adamw").out, "decoupled"));
  const std::string optimizers = harmonics("list optimizers").out, schedules = harmonics("list schedules").out;
  for (const char* name : {"sgd", "rmsprop", "adam", "adamw", "lamb", "lion", "normuon"})
    CHECK(has(optimizers, std::string("  ") + name + " "));
  for (const char* name : {"constant", "linear", "cosine", "step", "wsd"})
    CHECK(has(schedules, std::string("  ") + name + " "));
  CHECK(has(harmonics("inspect wsd").out, "schedule wsd(warmup = 0, decay = 0.2, final = 0)"));
  CHECK(has(harmonics("list losses --json").out, "\"name\":\"huber\""));
  CHECK(has(harmonics("validate " + kSamples + "mnist.hmx " + kSamples + "mnist_cnn.hmx " + kSamples + "char_gpt.hmx " +
                      kSamples + "char_lstm.hmx")
                .err,
            "char_lstm.hmx: ok"));
  const Result explained =
      harmonics("explain " + kSamples + "mnist.hmx " + kTrainedDigits + "--show widths,program,kernels,memory");
  REQUIRE(explained.code == 0);
  CHECK(has(explained.out, "1/2 of 'input'"));
  CHECK(has(explained.out, "fused elementwise"));
  CHECK(has(explained.out, "arena"));
  const Result traced = harmonics("explain " + kSamples + "mnist.hmx " + kTrainedDigits + "--after trace");
  CHECK(has(traced.out, "adamw("));
  CHECK(has(harmonics("explain " + kSamples + "mnist.hmx " + kTrainedDigits + "--dot").out, "digraph"));
}
