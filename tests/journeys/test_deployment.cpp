// --deployment FILE: hardware by kind, for a flow by its name.
#include "tests/journeys/shell.hpp"

using namespace journeys;

namespace {

const std::string kFlowOfDigits =
    "explain " + kSamples + "mnist.hmx --producer synth:digits --producer 'synth:digits#label'";

}  // namespace

TEST_CASE("deployment: a kind of hardware that is absent falls back to the CPU, or is refused") {
  const Folder folder;
  const auto explained = [&](const std::string& descriptor) {
    return harmonics(kFlowOfDigits + " --deployment " + folder.write("deploy.json", descriptor));
  };
  CHECK(explained(R"({"backend": "cpu"})").code == 0);
  const Result fallback = explained(R"({"backend": "fpga"})");
  CHECK(fallback.code == 0);
  CHECK(fallback.err.find("there is no FPGA to use") != std::string::npos);
  const Result refused = explained(R"({"backend": "fpga", "fallback": false})");
  CHECK(refused.code != 0);
  CHECK(refused.err.find("deploy.json: there is no FPGA to use") != std::string::npos);
  CHECK(refused.err.find("\"fallback\": true runs on the CPU then") != std::string::npos);
}

TEST_CASE("deployment: a partition applies to the flow of its name") {
  const Folder folder;
  const auto code_with = [&](const std::string& partitions) {
    return harmonics(kFlowOfDigits + " --deployment " +
                     folder.write("deploy.json",
                                  R"({"backend": "fpga", "fallback": false, "partitions": [)" + partitions + "]}"))
        .code;
  };
  CHECK(code_with(R"({"name": "mnist_train_cycle", "backend": "cpu"})") == 0);
  CHECK(code_with(R"({"name": "another", "backend": "cpu"})") != 0);
  CHECK(code_with(R"({"name": "mnist_train_cycle", "backend": "fpga", "fallback": false},
                     {"name": "mnist_train_cycle", "backend": "cpu"})") == 0);
}

TEST_CASE("deployment: errors name the file and what it may hold") {
  const Folder folder;
  const auto says = [&](const std::string& descriptor, const std::string& what) {
    const Result result = harmonics(kFlowOfDigits + " --deployment " + folder.write("deploy.json", descriptor));
    INFO(result.err);
    CHECK(result.code != 0);
    CHECK(result.err.find(what) != std::string::npos);
  };
  says("gpu", "deploy.json: the file is no JSON");
  says("[]", "deploy.json: the descriptor is no object");
  says(R"({"backend": "tpu"})", "deploy.json: 'backend' is \"tpu\"");
  says(R"({"backend": "tpu"})", "it can be auto, cpu, gpu, fpga");
  says(R"({"bakend": "cpu"})", "did you mean 'backend'");
  says(R"({"fallback": 1})", "'fallback' is neither true nor false");
  says(R"({"partitions": [{"backend": "cpu"}]})", "a partition has no 'name'");
  const std::string file = folder.write("deploy.json", R"({"backend": "cpu"})");
  const Result both = harmonics(kFlowOfDigits + " --device cpu --deployment " + file);
  CHECK(both.code == 2);
  CHECK(both.err.find("--device and --deployment both select the hardware") != std::string::npos);
  CHECK(harmonics(kFlowOfDigits + " --deployment " + (folder / "absent.json")).code == 66);
}
