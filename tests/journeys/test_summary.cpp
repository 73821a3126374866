// The table at the start of `explain`.
#include "tests/journeys/replies.hpp"
#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

const std::string kFewDigits = " --producer 'synth:digits?size=100' --producer 'synth:digits?size=100#label' ";

json::value summary_of(const std::string& arguments) {
  const Result r = harmonics("explain " + arguments + " --json");
  REQUIRE(r.code == 0);
  const json::value printed = json::parse(r.out);
  for (const std::string& wrong : SchemaCheck::run(schema("explain"), printed)) FAIL_CHECK(wrong);
  return printed.at("summary");
}

}  // namespace

TEST_CASE("summary: layers, shapes, parameters, arithmetic and totals come first") {
  const Result r = harmonics("explain " + kSamples + "mnist.hmx" + kFewDigits);
  REQUIRE(r.code == 0);
  CHECK(r.out.starts_with("summary\n  layer "));
  CHECK(r.out.find("summary") < r.out.find("harmonic mnist_train_cycle"));
  const json::value summary = summary_of(kSamples + "mnist.hmx" + kFewDigits);
  const json::array& layers = summary.at("layers").as_array();
  REQUIRE(layers.size() == 3);
  const int64_t parameters[] = {0, 784 * 392 + 392, 392 * 10 + 10};
  const char* const shapes[] = {"[28,28]", "[392]", "[10]"};
  int64_t total = 0;
  for (size_t i = 0; i < 3; ++i) {
    CHECK(layers[i].at("parameters") == json::value(parameters[i]));
    CHECK(json::serialize(layers[i].at("shape")) == shapes[i]);
    total += parameters[i];
  }
  CHECK(summary.at("parameters") == json::value(total));
  CHECK(summary.at("trained") == json::value(total));
  CHECK(has(r.out, "311,650"));
  // Two per matrix product term, plus a few per element.
  const double products = 2.0 * (784 * 392 + 392 * 10), flops = summary.at("flops").to_number<double>();
  CHECK(flops > products);
  CHECK(flops < 1.05 * products);
  CHECK(layers[1].at("flops").to_number<double>() > 2.0 * 784 * 392);
  const json::value& step = summary.at("steps").at(0);
  CHECK(step.at("flops").to_number<double>() > 2.0 * 64 * products);  // without the gradient of the first input
  CHECK(step.at("flops").to_number<double>() < 2.5 * 64 * products);
  CHECK(step.at("state_bytes").to_number<int64_t>() >= 3 * 4 * total);  // with two moments
  CHECK(step.at("buffer_bytes").to_number<int64_t>() > 0);
}

TEST_CASE("summary: shared parameters count once, frozen ones apart, and inference has no moments") {
  Folder f;
  const std::string flow = f.write("g.hmx",
                                   "harmonic g { producer a; producer b; producer y; layer p {3}; layer q {3}; layer o "
                                   "{1}; cycle { a -(affine(name=\"shared\", freeze=true))-> p "
                                   "-> o; b -(affine(name=\"shared\", freeze=true))-> q -> o; o <-(mse)- y; } }\n");
  const std::string x = f.write("x.csv", "1,2\n3,4\n"), y = f.write("y.csv", "1\n2\n"),
                    bound = " --producer " + x + " --producer " + x + " --producer " + y;
  const json::value summary = summary_of(flow + bound);
  CHECK(summary.at("parameters") == json::value(9 + 4 + 4));
  CHECK(summary.at("frozen") == json::value(9));
  CHECK(summary.at("trained") == json::value(8));
  CHECK(has(harmonics("explain " + flow).out, "harmonic g {"));  // the flow, without data
}
