// tiny-gpt2 as it was published: with the weights of its Flax file, its vocabulary and its settings, the ids, scores
// and loss are those of an independent reference in double.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include <boost/json.hpp>

#include <harmonics/ops.hpp>

#include "engine/base/file.hpp"
#include "engine/language/tokenizer.hpp"
#include "engine/model/safetensors.hpp"
#include "engine/transformer/architectures.hpp"
#include "engine/transformer/described.hpp"
#include "tests/journeys/shell.hpp"
#include "tests/parity/golden.hpp"
#include "tests/parity/model_results.hpp"
#include "tests/temporary_folder.hpp"

namespace harmonics::engine::parity {

namespace {

namespace fs = std::filesystem;

// The arrays of a Flax file: nested maps in MessagePack, whose arrays are extensions [shape, type, bytes]. Names and
// layouts become those of PyTorch.
class FlaxArrays {
 public:
  explicit FlaxArrays(std::string bytes) : bytes_(std::move(bytes)) { value(""); }
  const std::map<std::string, HTensor>& tensors() const { return tensors_; }

 private:
  uint64_t number(size_t width) {
    uint64_t sum = 0;
    for (; width > 0; --width) sum = sum << 8 | static_cast<uint8_t>(bytes_.at(at_++));
    return sum;
  }
  std::string taken(size_t count) {
    REQUIRE(count <= bytes_.size() - at_);
    at_ += count;
    return bytes_.substr(at_ - count, count);
  }
  // Reads the head of a value and returns its length, or the value of a number. `kind`: 'm' map, 'a' list, 's' string,
  // 'b' bytes, 'e' extension, 'n' number.
  uint64_t head(char kind) {
    const auto code = static_cast<unsigned>(number(1));
    if (kind == 'n' && code < 0x80) return code;
    if (kind == 'm' && code >> 4 == 0x8) return code & 15;
    if (kind == 'a' && code >> 4 == 0x9) return code & 15;
    if (kind == 's' && code >> 5 == 0x5) return code & 31;
    const unsigned first = kind == 'n' ? 0xcc : kind == 'm' ? 0xdd : kind == 's' ? 0xd9 : kind == 'b' ? 0xc4 : 0xc7;
    INFO("code " << code << " at " << at_ << " instead of " << kind);
    REQUIRE((code >= first && code < first + 3));
    return number(size_t{1} << (code - first));
  }
  void value(const std::string& path) {
    const auto code = static_cast<uint8_t>(bytes_.at(at_));
    if (code < 0xc7 || code > 0xc9) {
      for (uint64_t left = head('m'); left > 0; --left) {
        const std::string key = taken(head('s'));
        value(path + (path.empty() ? "" : ".") + key);
      }
      return;
    }
    head('e');
    CHECK(number(1) == 1);
    CHECK(head('a') == 3);
    Shape shape;
    for (uint64_t left = head('a'); left > 0; --left) shape.push_back(static_cast<int64_t>(head('n')));
    CHECK(taken(head('s')) == "float32");
    const std::string data = taken(head('b'));
    REQUIRE(data.size() == static_cast<size_t>(shape.count()) * sizeof(float));
    std::vector<float> numbers(static_cast<size_t>(shape.count()));
    std::memcpy(numbers.data(), data.data(), data.size());
    add(path, HTensor::from(shape, numbers));
  }
  void add(const std::string& path, HTensor tensor) {
    const std::string parent = path.substr(0, path.rfind('.')), name = path.substr(path.rfind('.') + 1);
    if (name == "kernel") tensor = transpose(tensor, {1, 0});
    tensors_.emplace(parent + (name == "bias" ? ".bias" : ".weight"), tensor);
  }

  std::string bytes_;
  size_t at_ = 0;
  std::map<std::string, HTensor> tensors_;
};

}  // namespace

TEST_CASE("folders: tiny-gpt2 has the ids, scores and loss of a reference in double") {
  const std::string data = journeys::data_folder(), from = data + "/tiny-gpt2/";
  if (data.empty() || !fs::exists(from + "flax_model.msgpack")) return;
  if (!is_model(std::string(HARMONICS_SOURCE_DIR) + "/tests/parity/golden/folders/llama3", Registry::global()))
    return;  // built without PCRE2
  const testing::EmptyFolder folder;
  for (const char* name : {"config.json", "vocab.json", "merges.txt", "tokenizer_config.json"})
    fs::copy_file(from + name, folder.path() + "/" + name);
  TensorFile weights;
  weights.tensors = FlaxArrays(read_plain_file(from + "flax_model.msgpack")).tensors();
  CHECK(weights.tensors.size() == 28);
  save_safetensors(weights, folder.path() + "/model.safetensors");

  const boost::json::value expected = boost::json::parse(read_plain_file(from + "expected.json"));
  const auto ids = boost::json::value_to<std::vector<int32_t>>(expected.at("input_ids"));
  const auto tokenizer = Tokenizer::open(folder.path(), Registry::global());
  CHECK(tokenizer->encode(std::string(expected.at("text").as_string()), {false, false, true}) == ids);

  const Model model = model_of(import_language_model(folder.path(), Registry::global()));
  const auto count = static_cast<int64_t>(ids.size());
  const HTensor scores = forward_results(model, HTensor::from(Shape{1, count}, ids)).at("scores");
  REQUIRE(scores.size() == count * 50257);
  double loss = 0;
  for (int64_t t = 0; t < count; ++t) {
    INFO("position " << t);
    const float* row = scores.data<float>() + t * 50257;
    const auto& first = expected.at("logits_first_16_of_each_position").at(static_cast<size_t>(t)).as_array();
    std::vector<float> wanted;
    for (const boost::json::value& one : first) wanted.push_back(one.to_number<float>());
    CHECK(relative_difference({row, wanted.size()}, wanted.data()) < 1e-4);
    CHECK(std::max_element(row, row + 50257) - row ==
          expected.at("argmax_of_each_position").at(static_cast<size_t>(t)).to_number<int64_t>());
    double sum = 0;
    for (int64_t i = 0; i < 50257; ++i) sum += std::exp(static_cast<double>(row[i]));
    CHECK(
        std::log(sum) ==
        Approx(expected.at("logsumexp_of_each_position").at(static_cast<size_t>(t)).to_number<double>()).epsilon(1e-6));
    if (t + 1 < count) loss += std::log(sum) - static_cast<double>(row[ids[static_cast<size_t>(t) + 1]]);
  }
  CHECK(loss / static_cast<double>(count - 1) ==
        Approx(expected.at("mean_nll_of_positions_1_to_4").to_number<double>()).epsilon(1e-6));
}

}  // namespace harmonics::engine::parity
