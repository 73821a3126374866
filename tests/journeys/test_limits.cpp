// Untrusted flows: their resources are limited before the run, and the files they name must be in permitted folders.
#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

std::string data(const Folder& f) {
  std::string rows;
  for (int i = 0; i < 12; ++i) rows += std::to_string(i % 5) + "\n";
  return f.write("x.csv", rows);
}

}  // namespace

TEST_CASE("limits: a short flow cannot occupy much memory or time") {
  const Folder f;
  const std::string x = data(f), flow = f.write("g.hmx",
                                                "harmonic g { producer x {*, 1}; layer h {1}; cycle (epochs 1) {\n"
                                                "x -(lstm(1000000, layers=1000000), affine)-> h; h <-(mse)- x; } }\n");
  for (const char* verb : {"run ", "infer ", "explain "}) {
    const Result r = harmonics(verb + flow + " --producer x=" + x, 60);
    CHECK(r.code == 78);
    CHECK(has(r.err, "'x.h.lstm.weight_hh_l0' asks for 16000000000000 bytes for f32[4000000, 1000000]; the limit is "));
    CHECK(has(r.err, "g.hmx:2:5"));
  }
  const std::string narrow = f.write("n.hmx",
                                     "harmonic n { producer x {*, 1}; layer h {1}; cycle (epochs 1) {\n"
                                     "x -(lstm(1, layers=100000000), affine)-> h; h <-(mse)- x; } }\n");
  const Result r = harmonics("explain " + narrow + " --producer x=" + x + " --limits steps=10000", 60);
  CHECK(r.code == 78);
  CHECK(has(r.err,
            "'x.h' asks for 1 step for its next operation; the limit is 10000 steps (of one program), of which 10000 "
            "are used; allow more: --limits steps=N"));
  CHECK(harmonics("explain " + flow + " --limits steps=no").code == 2);
}

TEST_CASE("limits: --limits takes effect") {
  const Folder f;
  const std::string x = data(f), flow = f.write("g.hmx",
                                                "harmonic g { producer x {1}; layer h {100}; layer o {1}; cycle "
                                                "(epochs 1) { x -(relu)-> h -(affine)-> o; o <-(mse)- x; } }\n");
  const std::string run = "run " + flow + " --producer x=" + x + " --quiet";
  CHECK(harmonics(run).code == 0);
  const Result weights = harmonics(run + " --limits weights=500");
  CHECK(weights.code == 78);
  CHECK(has(weights.err, "the limit is 500 bytes"));
  const Result steps = harmonics(run + " --limits steps=5,seconds=100");
  CHECK(steps.code == 78);
  CHECK(has(steps.err, "allow more: --limits steps=N"));
}

TEST_CASE("limits: files named by a flow must be in its folder, or where the user allows") {
  const Folder f;
  fs::create_directory(f / "flow");
  const std::string
      x = data(f),
      other =
          f.write("other.hmx",
                  "harmonic g { producer x {1}; layer o {3}; cycle (epochs 1) { x -(affine)-> o; o <-(mse)- x; } }\n");
  const std::string plain = f.write(
      "plain.hmx", "harmonic g { producer x {1}; layer o {1}; cycle (epochs 1) { x -(affine)-> o; o <-(mse)- x; } }\n");
  REQUIRE(harmonics("run " + plain + " --producer x=" + x + " --quiet --save " + (f / "w.safetensors")).code == 0);
  fs::copy_file(f / "w.safetensors", f / "flow/beside.safetensors");
  fs::create_symlink("../w.safetensors", f / "flow/link.safetensors");
  const auto run = [&](const std::string& weights, const std::string& more = "") {
    const std::string flow =
        f.write("flow/g.hmx", "harmonic g { producer x {1}; layer o {1}; cycle (epochs 1) {\nx -(affine(weights=\"" +
                                  weights + "\"))-> o; o <-(mse)- x; } }\n");
    return harmonics("run " + flow + " --producer x=" + x + " --quiet " + more);
  };
  CHECK(run("beside.safetensors").code == 0);
  CHECK(run("./../flow/beside.safetensors").code == 0);
  for (const std::string& out : {std::string("../w.safetensors"), f / "w.safetensors", std::string("link.safetensors"),
                                 std::string("../../../../../../etc/passwd")}) {
    const Result r = run(out);
    CHECK(r.code == 77);
    CHECK(has(r.err, "weights=\"" + out + "\" is outside the folder of the flow"));
    CHECK(has(r.err, "g.hmx:2:5"));
    CHECK(has(r.err, "allow its folder: --weights-from "));
  }
  CHECK(run("../w.safetensors", "--weights-from " + (f / "")).code == 0);
  CHECK(run("link.safetensors", "--weights-from " + (f / "")).code == 0);
}

TEST_CASE("weights: damaged files are refused by every verb") {
  const Folder f;
  const std::string
      x = data(f),
      flow = f.write(
          "g.hmx", "harmonic g { producer x {1}; layer o {1}; cycle (epochs 1) { x -(affine)-> o; o <-(mse)- x; } }\n");
  const std::string weights = f / "w.safetensors";
  REQUIRE(harmonics("run " + flow + " --producer x=" + x + " --quiet --save " + weights).code == 0);
  REQUIRE(harmonics("infer " + flow + " --producer x=" + x + " --quiet --weights " + weights).code == 0);
  std::string bytes = read(weights);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  f.write("w.safetensors", bytes);
  f.write("at.hmx",
          "harmonic g { producer x {1}; layer o {1}; cycle (epochs 1) { x -(affine(weights=\"w.safetensors\"))-> o; o "
          "<-(mse)- x; } }\n");
  for (const std::string& command :
       {"infer " + flow + " --weights " + weights, "run " + flow + " --weights " + weights, "run " + (f / "at.hmx")}) {
    const Result r = harmonics(command + " --producer x=" + x + " --quiet");
    CHECK(r.code == 65);
    CHECK(has(r.err, "is damaged: tensor 'x.o.affine."));
  }
  CHECK(harmonics("serve " + flow + " --weights " + weights + " --listen 127.0.0.1:0", 20).code == 65);
}

TEST_CASE("weights: a file trained with other functions gives a note") {
  const Folder f;
  const std::string x = data(f), weights = f / "w.safetensors";
  const auto flow = [&](const char* name, const std::string& function) {
    return f.write(name, "harmonic g { producer x {1}; layer h {3}; layer o {1}; cycle (epochs 1) { x -(" + function +
                             ")-> h -(affine)-> o; o <-(mse)- x; } }\n");
  };
  const std::string with = " --producer x=" + x + " --quiet";
  REQUIRE(harmonics("run " + flow("a.hmx", "relu") + with + " --save " + weights).code == 0);
  CHECK(!has(harmonics("infer " + flow("b.hmx", "relu") + with + " --weights " + weights).err,
             "was trained differently"));
  const Result r = harmonics("infer " + flow("b.hmx", "tanh") + with + " --weights " + weights);
  CHECK(r.code == 0);
  CHECK(has(r.err, "was trained differently: from 'x' to 'h' by relu, which is tanh now"));
}

TEST_CASE("infer: non-finite results have no class and give a note") {
  const Folder f;
  const std::string x = f.write("x.csv", "1,2\nnan,1\n2,1\n"),
                    flow = f.write(
                        "g.hmx", "harmonic g { producer x {2}; layer o {2}; cycle (epochs 1) { x -(affine)-> o; } }\n");
  const Result r = harmonics("infer --untrained " + flow + " --producer 'x=" + x +
                             "?missing=nan' --consumer 'stdout:?format=argmax'");
  CHECK(r.code == 0);
  CHECK(r.out.find("\n\n") != std::string::npos);
  CHECK(
      has(r.err,
          "1 of 3 results of 'o' are infinite or NaN, the first is number 2; its sample of 'x' is not finite either"));
}
