// harmonics profile and bench: their output, and the format of a trace.
#include <set>

#include "tests/journeys/replies.hpp"

using namespace journeys;

namespace {

constexpr const char* kProfiledDigits = "-p 'synth:digits?size=400' -p 'synth:digits?size=400#label' ";

double real(const json::object& o, const char* key) { return o.at(key).to_number<double>(); }

}  // namespace

TEST_CASE("profile: shows the cost of each step of the plan against the roofline") {
  const Result r =
      harmonics("profile " + kSamples + "mnist.hmx " + kProfiledDigits + "--batch 16 --threads 1 --steps 20 --json");
  REQUIRE(r.code == 0);
  for (const char* part :
       {"GFLOP/s", "of floor", "functional", "step ", "floor ", "engine ", "in the flow", "allocations "})
    CHECK(has(r.out, part));
  const json::object o = last_line(r.out);
  CHECK(o.at("mode") == "train");
  CHECK(real(o, "batch") == 16);
  CHECK(real(o, "threads") == 1);
  CHECK(real(o, "runs") == 20);
  CHECK(o.at("random_samples") == false);
  CHECK(o.at("clock") == "host");
  CHECK(real(o, "seconds") > 0);
  CHECK(real(o, "median") > 0);
  CHECK(real(o, "in_flow") > 0);
  CHECK(real(o, "engine") > 0);
  CHECK(real(o, "engine") < real(o, "seconds"));
  double kernels = 0, floor = 0, functionals = 0;
  std::set<double> indices;
  for (const json::value& v : o.at("steps").as_array()) {
    const json::object& step = v.as_object();
    kernels += real(step, "seconds");
    floor += real(step, "floor");
    indices.insert(real(step, "index"));
    CHECK(real(step, "bytes") > 0);
    CHECK(real(step, "parts") >= 1);
    CHECK_FALSE(step.at("kernel").as_string().empty());
  }
  CHECK(indices.size() == o.at("steps").as_array().size());
  for (const json::value& v : o.at("functionals").as_array()) functionals += real(v.as_object(), "seconds");
  CHECK(kernels == Approx(real(o, "kernels")));
  CHECK(functionals == Approx(kernels));
  CHECK(floor == Approx(real(o, "floor")));
}

TEST_CASE("profile: a dense layer counts two operations per weight and sample") {
  const Folder f;
  const std::string flow =
      f.write("one.hmx", "harmonic one { producer x {32}; layer a; layer b {16}; cycle { x -> a -> b; } }");
  const Result r = harmonics("profile " + flow + " --batch 8 --threads 1 --steps 5 --infer --json");
  REQUIRE(r.code == 0);
  CHECK(has(r.err, "random numbers"));
  const json::object o = last_line(r.out);
  CHECK(o.at("mode") == "infer");
  CHECK(o.at("random_samples") == true);
  CHECK(o.at("in_flow").is_null());
  double flops = 0, bytes = 0;
  for (const json::value& v : o.at("steps").as_array()) {
    flops += real(v.as_object(), "flops");
    bytes += real(v.as_object(), "bytes");
  }
  CHECK(flops == 2 * 8 * 32 * 16 + 8 * 16);  // and the bias
  CHECK(bytes == 4 * (8 * 32 + 32 * 16 + 16 + 8 * 16));
}

TEST_CASE("profile: a trace holds every step of the plan for each traced run") {
  const Folder f;
  const std::string trace = f / "trace.json";
  const Result r = harmonics("profile " + kSamples + "mnist.hmx " + kProfiledDigits +
                             "--batch 64 --threads 2 --steps 4 --json --trace " + trace);
  REQUIRE(r.code == 0);
  const size_t steps = last_line(r.out).at("steps").as_array().size();
  const json::object o = json::parse(read(trace)).as_object();
  CHECK(o.at("displayTimeUnit") == "ns");
  size_t plan = 0, whole = 0, parts = 0, names = 0;
  for (const json::value& v : o.at("traceEvents").as_array()) {
    const json::object& e = v.as_object();
    CHECK(real(e, "pid") == 1);
    if (e.at("ph") == "M") {
      ++names;
      continue;
    }
    CHECK(e.at("ph") == "X");
    CHECK(real(e, "ts") >= 0);
    CHECK(real(e, "dur") >= 0);
    CHECK_FALSE(e.at("name").as_string().empty());
    plan += e.at("cat") == "plan";
    whole += e.at("cat") == "step";
    parts += e.at("cat") == "part";
  }
  CHECK(whole == 4);
  CHECK(plan == 4 * steps);
  CHECK(parts >= plan);
  CHECK(names >= 2);
}

TEST_CASE("profile: missing data give an error with a remedy") {
  CHECK(harmonics("profile " + kSamples + "mnist.hmx").code == 2);
  CHECK(
      has(harmonics("profile " + kSamples + "mnist.hmx " + kProfiledDigits + "--cycle 2").err, "there is no cycle 2"));
  CHECK(harmonics("profile " + kSamples + "mnist.hmx " + kProfiledDigits + "--batch 4 --steps 2 --trace trace.svg")
            .err.find("--trace 'trace.svg' does not end in .json") != std::string::npos);
  CHECK(harmonics("profile " + kSamples + "mnist.hmx " + kProfiledDigits +
                  "--batch 4 --steps 2 --trace /nowhere/trace.json")
            .code == 73);
}

TEST_CASE("bench: measures training and inference for every batch size and number of threads") {
  const Result r = harmonics("bench " + kSamples + "mnist.hmx " + kProfiledDigits +
                             "--batch 1,8 --threads 1,2 --seconds 0.01 --json");
  REQUIRE(r.code == 0);
  CHECK(has(r.out, "samples/s"));
  const json::object o = last_line(r.out);
  const json::array& rows = o.at("rows").as_array();
  REQUIRE(rows.size() == 8);
  std::set<std::string> cases;
  for (const json::value& v : rows) {
    const json::object& row = v.as_object();
    cases.insert(std::string(row.at("mode").as_string()) + std::to_string(real(row, "batch")) + "/" +
                 std::to_string(real(row, "threads")));
    CHECK(real(row, "median_samples_per_second") > 0);
    CHECK(real(row, "samples_per_second") == Approx(real(row, "batch") / real(row, "seconds")));
    CHECK(real(row, "floor") > 0);
    CHECK(real(row, "steps") >= 5);
  }
  CHECK(cases.size() == 8);
}

TEST_CASE("bench: uses random samples if a flow declares their shape") {
  const Folder f;
  const std::string flow =
      f.write("one.hmx", "harmonic one { producer x {32}; layer a; layer b {16}; cycle { x -> a -> b; } }");
  const Result r = harmonics("bench " + flow + " --batch 4 --threads 1 --seconds 0.01 --json");
  REQUIRE(r.code == 0);
  CHECK(has(r.err, "random numbers"));
  CHECK(last_line(r.out).at("rows").as_array().size() == 1);  // without a tap: inference only
  CHECK(harmonics("bench " + kSamples + "mnist.hmx --seconds 0.01").code == 2);
}
