// Any text is a list of augmentations and a condition, or an error. An accepted text works on an image.
#include <harmonics/augment.hpp>
#include <harmonics/memory.hpp>
#include <harmonics/select.hpp>

#include "tests/fuzz/guarded_bytes.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

class Picture final : public Producer {
 public:
  HTensor next() override { return {}; }
  size_t size() const override { return 1; }
  bool rewind() override { return true; }
  std::optional<StreamInfo> describe() override {
    StreamInfo info;
    info.sample = Shape{2, 5, 7};
    info.size = 1;
    return info;
  }
  int64_t read(uint64_t n, void* to) override {
    for (uint64_t i = 0; i < n * 70; ++i) static_cast<float*>(to)[i] = static_cast<float>(i);
    return static_cast<int64_t>(n);
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto picture = std::make_shared<Picture>();
  if (text.size() < 200)  // thousands of steps are valid, but slow
    refusing([&] {
      AugmentProducer augmented(picture, Augmentation::parse(text), 1);
      std::vector<char> sample(augmented.describe()->sample_bytes());
      require(augmented.read(1, sample.data()) == 1, "a sample that is not there");
    });
  const std::vector<float> numbers(70, 1.0f);
  return refusing([&] { Condition(text, *picture->describe())(numbers.data()); });
}
