// Data that differs from the weights' training data: reported, or rejected if the scale would change.
#include <catch2/catch.hpp>

#include "engine/bound/other_functions.hpp"
#include "engine/bound/recorded_streams.hpp"
#include "engine/checkpoint/checkpointer.hpp"
#include "tests/engine/runtime/memory_streams.hpp"
#include "tests/files_in_memory.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

const std::string kFlow =
    "harmonic g { producer x; producer y; layer o {3}; cycle (steps 2) { x -(affine)-> o; o <-(cross_entropy)- y; } }";

template <typename T>
std::unique_ptr<BoundGraph> graph_with(Shape sample, const std::string& flow = kFlow) {
  auto g = graph_of(flow);
  std::vector<T> values(static_cast<size_t>(sample.count()) * 6);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<T>(i % 7);
  bind_rows<T>(*g, "x", sample, values);
  bind_rows<uint8_t>(*g, "y", {}, {0, 1, 2, 0, 1, 2}, 3);
  return g;
}

template <typename T>
TensorFile learned(Shape sample = {4}) {
  auto g = graph_with<T>(sample);
  CycleRuntime(*g, 0, settings(3)).run();
  return g->weights();
}

// Returns what a run with these weights reports about the data, or why it rejects them.
template <typename T>
std::string told(const TensorFile& weights, Shape sample = {4}) {
  auto g = graph_with<T>(sample);
  std::string notes;
  const std::string error = message_of([&] {
    g->load_weights(weights, "w");
    CycleRuntime runtime(*g, 0, settings(3));
    runtime.on_note([&](const std::string& note) { notes += note + "\n"; });
    runtime.run();
  });
  return error == "no error" ? notes : error;
}

// Likewise for a run resumed from a checkpoint.
template <typename T>
std::string told_on_resuming(FilesInMemory& files, Shape sample = {4}) {
  auto g = graph_with<T>(sample);
  std::string notes;
  std::vector<std::string> unused;
  const std::string error = message_of([&] {
    CycleRuntime runtime(*g, 0, settings(3));
    runtime.on_note([&](const std::string& note) { notes += note + "\n"; });
    runtime.resume(*CheckpointFolder("runs", files).newest(unused));
    runtime.run();
  });
  return error == "no error" ? notes : error;
}

}  // namespace

TEST_CASE("weights: integers of another scale are refused, real numbers are reported") {
  const TensorFile bytes = learned<uint8_t>();
  CHECK(told<uint8_t>(bytes) == "");
  CHECK(told<int16_t>(bytes) ==
        "producer 'x' gives i16, used unchanged, but w was trained on u8, scaled to [0, 1]\n"
        "give bytes (u8), or f32 in [0, 1]");
  CHECK(told<float>(bytes) == "producer 'x' gives f32, used unchanged, but w was trained on u8, scaled to [0, 1]\n");
  const TensorFile shorts = learned<int16_t>();
  CHECK(told<uint8_t>(shorts) ==
        "producer 'x' gives u8, scaled to [0, 1], but w was trained on i16, used unchanged\n"
        "give i16 or f32, which are used unchanged");
  CHECK(told<int32_t>(shorts) == "producer 'x' gives i32, but w was trained on i16\n");
  CHECK(told<float>(shorts) == "producer 'x' gives f32, but w was trained on i16\n");
}

TEST_CASE("weights: samples of another shape are reported, or refused if the count differs") {
  const TensorFile flat = learned<float>({4});
  CHECK(told<float>(flat, {2, 2}) ==
        "producer 'x' delivers samples of shape [2, 2], but the weights of w were trained on [4]\n");
  CHECK(told<float>(flat, {5}) ==
        "producer 'x' delivers samples of shape [5], but the weights of w were trained on [4]");
}

TEST_CASE("resume: data of another scale are refused, of another type or shape reported") {
  FilesInMemory files;
  {
    auto g = graph_with<uint8_t>({4});
    Checkpointer writer("runs", parse_interval("1steps"), 2, files);
    CycleRuntime runtime(*g, 0, settings(3));
    runtime.set_checkpoints(&writer);
    runtime.run();
  }
  const std::string file = "runs/checkpoint-000002-step-2.safetensors";
  CHECK(told_on_resuming<uint8_t>(files) == "");
  CHECK(told_on_resuming<int16_t>(files).find("producer 'x' gives i16, used unchanged, but " + file +
                                              " was trained on u8, scaled to [0, 1]") == 0);
  CHECK(told_on_resuming<float>(files) ==
        "producer 'x' gives f32, used unchanged, but " + file + " was trained on u8, scaled to [0, 1]\n");
  CHECK(told_on_resuming<uint8_t>(files, {2, 2}) ==
        "producer 'x' delivers samples of shape [2, 2], but the weights of " + file + " were trained on [4]\n");
}

TEST_CASE("labels: class numbers of any type are accepted") {
  auto g = graph_with<float>({4});
  CycleRuntime(*g, 0, settings(3)).run();
  auto other = graph_of(kFlow);
  bind_rows<float>(*other, "x", {4}, numbers(24));
  bind_rows<int64_t>(*other, "y", {}, {0, 1, 2, 0, 1, 2}, 3);
  other->load_weights(g->weights(), "w");
  CHECK(CycleRuntime(*other, 0, settings(3)).run().notes.empty());
}

TEST_CASE("weights: functions other than those trained are reported by arrow") {
  const auto graph = [](const std::string& arrows) {
    return make_graph(
        parse_flow(std::make_shared<SourceText>(
            "test.hmx", "harmonic g { producer x {4}; layer h {3}; layer o {2}; cycle { " + arrows + " } }")),
        Registry::global());
  };
  const auto differ = [&](const std::string& was, const std::string& is) {
    std::string all;
    for (const std::string& text : other_functions(graph(was), graph(is))) all += text + "\n";
    return all;
  };
  CHECK(differ("x -(relu)-> h -> o;", "x -(relu)-> h; h -> o;") == "");
  CHECK(differ("x -(relu)-> h -> o;", "x -(tanh)-> h -> o;") == "from 'x' to 'h' by relu, which is tanh now\n");
  CHECK(differ("x -(leaky_relu(slope=0.1))-> h -> o;", "x -(leaky_relu)-> h -> o;")
            .find("from 'x' to 'h' by leaky_relu{slope = 0.1") == 0);
  CHECK(differ("x -(relu, dropout(0.5))-> h -> o;", "x -(relu)-> h -(noise(0.1))-> o;") == "");
  CHECK(differ("x -(relu)-> h -> o;", "x -(relu)-> h -(softmax)-> o;") ==
        "from 'h' to 'o' by nothing, which is softmax now\n");
}

TEST_CASE("class names: those that no weights file can hold are refused before the run") {
  const auto bound = [](size_t words, size_t letters) {
    auto g = graph_of(kFlow);
    bind_rows<float>(*g, "x", {4}, numbers(24));
    class Words : public Rows<uint8_t> {
     public:
      Words(size_t words, size_t letters)
          : Rows<uint8_t>({}, {0, 1, 2, 0, 1, 2}, 3), words_(words), letters_(letters) {}
      std::optional<StreamInfo> describe() override {
        std::optional<StreamInfo> info = Rows<uint8_t>::describe();
        for (size_t i = 0; i < words_; ++i) info->symbols.push_back(std::to_string(i) + std::string(letters_, 'a'));
        return info;
      }

     private:
      size_t words_, letters_;
    };
    bind_producer(*g, "y", std::make_shared<Words>(words, letters));
    return message_of([&] { g->expect_savable(); });
  };
  CHECK(bound(3, 1000) == "no error");
  CHECK(bound(3, 20'000'000)
            .find("the words of 'y', 3 of 60000003 bytes together, cannot be saved with the weights: the limit is "
                  "50000000 bytes") == 0);
}
