// Trains on real digits with default settings. scripts/proof.sh has the full measurements (three seeds, convolutions,
// text).
#include "tests/journeys/shell.hpp"

#include <cmath>

using namespace journeys;

namespace {
std::string mnist(const std::string& folder) {
  const std::string m = folder + "/mnist/";
  return "--producer mnist_training_data=" + m + "train-images-idx3-ubyte.gz --producer mnist_label_data=file:" + m +
         "train-labels-idx1-ubyte.gz --test mnist_training_data=" + m +
         "t10k-images-idx3-ubyte.gz --test mnist_label_data=file:" + m + "t10k-labels-idx1-ubyte.gz ";
}
}  // namespace

TEST_CASE("mnist: the flow reaches its accuracy with defaults") {
  const std::string folder = data_folder();
  if (folder.empty()) return;
  const Result r = harmonics("run " + kSamples + "mnist.hmx " + mnist(folder) + "--json --quiet", 280);
  REQUIRE(r.code == 0);
  CHECK(number(r.out, "epochs") == 10);
  CHECK(number(r.out, "test_accuracy") >= 0.979);
}

TEST_CASE("mnist: two epochs of convolutions on real digits") {
  const std::string folder = data_folder();
  if (folder.empty()) return;
  const std::string m = folder + "/mnist/";
  const Result r =
      harmonics("run " + kSamples + "mnist_cnn.hmx --producer " + m + "train-images-idx3-ubyte.gz --producer " + m +
                    "train-labels-idx1-ubyte.gz --test " + m + "t10k-images-idx3-ubyte.gz --test " + m +
                    "t10k-labels-idx1-ubyte.gz --epochs 2 --json --quiet",
                280);
  REQUIRE(r.code == 0);
  CHECK(number(r.out, "test_accuracy") >= 0.98);
}

TEST_CASE("mnist: a truncated download is refused") {
  const std::string folder = data_folder();
  if (folder.empty()) return;
  const Result r = harmonics("run " + kSamples + "mnist.hmx --producer " + folder +
                             "/malformed/idx/kmnist-train-images-truncated.gz --producer " + folder +
                             "/mnist/train-labels-idx1-ubyte.gz");
  CHECK(r.code == 65);
  CHECK(has(r.err, "truncated"));
}
