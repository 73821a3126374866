// Embeds a model in a program: trains a flow with the program's own producers, saves the weights, loads them and
// infers.
//
//   embed_mnist FLOW.hmx [IMAGES.idx LABELS.idx [SECONDS]]
//
// Without files, the digits are synthetic (synth:digits) and training takes 10 seconds.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <vector>

#include <harmonics/harmonics.hpp>

using harmonics::DType;
using harmonics::HarmonicGraph;
using harmonics::HTensor;
using harmonics::Shape;

namespace {

// An IDX file of bytes (yann.lecun.com/exdb/mnist): two zero bytes, the type 8, the number of axes, their big-endian
// sizes, the data.
struct Header {
  std::vector<int64_t> sizes;
  std::size_t bytes = 0;
};

Header read_header(std::ifstream& file) {
  const auto number = [&] {
    unsigned char b[4] = {};
    file.read(reinterpret_cast<char*>(b), 4);
    return static_cast<uint32_t>(b[0]) << 24 | static_cast<uint32_t>(b[1]) << 16 | static_cast<uint32_t>(b[2]) << 8 |
           b[3];
  };
  const uint32_t magic = number();
  if (!file || magic >> 8 != 8 || (magic & 255) == 0 || (magic & 255) > 4)
    throw harmonics::Error(harmonics::ErrorKind::Stream, "the file is not an IDX file of bytes");
  Header h;
  for (uint32_t i = 0; i < (magic & 255); ++i) h.sizes.push_back(number());
  h.bytes = 4 + 4 * h.sizes.size();
  if (!file) throw harmonics::Error(harmonics::ErrorKind::Stream, "the file ends within its header");
  return h;
}

// Returns one record after another. rewind() restarts at the first.
struct FileProducer : harmonics::Producer {
  explicit FileProducer(std::ifstream&& f) : file(std::move(f)), header(read_header(file)) {
    for (std::size_t i = 1; i < header.sizes.size(); ++i) shape.push_back(header.sizes[i]);
    record.resize(static_cast<std::size_t>(shape.count()));
  }
  HTensor next() override {
    if (given == size()) return {};
    ++given;
    if (!file.read(record.data(), static_cast<std::streamsize>(record.size())))
      throw harmonics::Error(harmonics::ErrorKind::Stream, "the file ends within record " + std::to_string(given));
    return HTensor(DType::U8, shape, record.data());
  }
  std::size_t size() const override { return static_cast<std::size_t>(header.sizes[0]); }
  bool rewind() override {
    given = 0;
    file.clear();
    return static_cast<bool>(file.seekg(static_cast<std::streamoff>(header.bytes)));
  }

  std::ifstream file;
  Header header;
  Shape shape;
  std::vector<char> record;
  std::size_t given = 0;
};

// Replaces a built-in function by name. Written with library operations, so the gradient is derived and it runs on
// every device.
struct MyRelu : harmonics::ActivationFunction {
  HTensor operator()(const HTensor& x) const override { return maximum(x, 0.0); }
};

void bind(HarmonicGraph& g, int argc, char** argv) {
  if (argc >= 4) {
    g.bindProducer("mnist_training_data", std::make_shared<FileProducer>(std::ifstream(argv[2], std::ios::binary)));
    g.bindProducer("mnist_label_data", std::make_shared<FileProducer>(std::ifstream(argv[3], std::ios::binary)));
  } else {
    g.bindProducer("mnist_training_data", "synth:digits?size=5000");
    g.bindProducer("mnist_label_data", "synth:digits?size=5000#label");
  }
}

int run(int argc, char** argv) {
  HarmonicGraph g = harmonics::parse_hmx(argv[1]);
  bind(g, argc, argv);
  g.registerActivation("relu", std::make_shared<MyRelu>());
  for (const harmonics::LayerInfo& layer : g.layers())
    std::printf("layer %s %s: %s\n", layer.name.c_str(), layer.shape.str().c_str(), layer.reason.c_str());

  const std::chrono::duration<double> time(argc >= 5 ? std::atof(argv[4]) : 10);
  const harmonics::FitReport report = g.fit(time, harmonics::make_auto_policy());
  std::printf("%lld steps, %.0f samples/s, loss %.4f, accuracy %.1f %%\n", static_cast<long long>(report.steps),
              static_cast<double>(report.samples) / report.seconds, report.loss, 100 * report.accuracy);
  for (const std::string& note : report.notes) std::printf("note: %s\n", note.c_str());
  for (const std::string& name : g.weights())
    std::printf("weight %s %s\n", name.c_str(), g.weight(name).shape().str().c_str());

  // The weights are a single block of bytes in safetensors format.
  std::ofstream("mnist_weights.safetensors", std::ios::binary)
      .write(static_cast<const char*>(g.data()), static_cast<std::streamsize>(g.size()));
  HarmonicGraph again = harmonics::parse_blob(g.data(), g.size());

  const std::vector<uint8_t> blank(28 * 28);
  const HTensor picture(DType::U8, Shape{28, 28}, blank.data());
  const HTensor before = g.infer(picture), after = again.infer(picture);
  for (int64_t i = 0; i < after.size(); ++i) {
    std::printf("%s%.3f", i ? " " : "a blank page is: ", after.data<float>()[i]);
    if (before.data<float>()[i] != after.data<float>()[i])
      throw harmonics::Error(harmonics::ErrorKind::Internal, "loading changed the model");
  }
  std::printf("\n");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 && argc != 4 && argc != 5) {
    std::fprintf(stderr, "usage: embed_mnist FLOW.hmx [IMAGES.idx LABELS.idx [SECONDS]]\n");
    return 2;
  }
  try {
    return run(argc, argv);
  } catch (const harmonics::Error& e) {
    std::fprintf(stderr, "embed_mnist: %s\n", e.what());
    for (const std::string& note : e.notes()) std::fprintf(stderr, "  %s\n", note.c_str());
    return 1;
  }
}
