// synth:digits draws handwritten-looking digits from a seed: training data without a download.
#include <harmonics/plugin.hpp>

#include <algorithm>

#include "draw.hpp"

HARMONICS_PLUGIN("harmonics.synth", "0.1.0", "Apache-2.0", "Harmonics");

namespace synth {
namespace {

using harmonics::Arguments;
using harmonics::DType;
using harmonics::Error;
using harmonics::ErrorKind;

class DigitsProducer final : public harmonics::Producer {
 public:
  enum class Field { Picture, Label };
  DigitsProducer(Field field, uint64_t seed, uint64_t size) : field_(field), seed_(seed), size_(size) {}

  harmonics::HTensor next() override {
    uint8_t sample[side * side];
    if (read(1, sample) == 0) return {};
    return harmonics::HTensor(DType::U8, shape(), sample);
  }
  std::size_t size() const override { return size_; }
  bool rewind() override { return at_ = 0, true; }
  bool seek(uint64_t, uint64_t index) override { return at_ = size_ ? std::min(index, size_) : index, true; }
  std::optional<harmonics::StreamInfo> describe() override {
    harmonics::StreamInfo info;
    info.dtype = DType::U8;
    info.sample = shape();
    info.size = size_;
    info.classes = field_ == Field::Label ? 10 : 0;
    return info;
  }
  int64_t read(uint64_t n, void* to) override {
    if (size_) n = std::min(n, size_ - at_);
    auto* bytes = static_cast<uint8_t*>(to);
    for (uint64_t i = 0; i < n; ++i, ++at_) {
      if (field_ == Field::Label)
        bytes[i] = digit_of(seed_, at_);
      else
        draw_digit(seed_, at_, bytes + i * side * side);
    }
    return static_cast<int64_t>(n);
  }

 private:
  harmonics::Shape shape() const { return field_ == Field::Label ? harmonics::Shape{} : harmonics::Shape{side, side}; }

  Field field_;
  uint64_t seed_, size_, at_ = 0;
};

std::shared_ptr<harmonics::Producer> open(const std::string& path, const Arguments& options) {
  if (path != "digits") throw Error(ErrorKind::Name, "synth:" + path + " is unknown; this plugin draws synth:digits");
  const std::string field = options.has("#") ? options.text("#") : "image";
  if (field != "image" && field != "label")
    throw Error(ErrorKind::Name, "synth:digits has no field '" + field +
                                     "'; write synth:digits for the pictures or synth:digits#label for the labels");
  const int64_t size = options.integer("size", 20000);
  if (size < 0)
    throw Error(ErrorKind::Usage,
                "synth:digits: size=" + std::to_string(size) + " is not a number of samples; 0 means endless");
  return std::make_shared<DigitsProducer>(
      field == "label" ? DigitsProducer::Field::Label : DigitsProducer::Field::Picture,
      static_cast<uint64_t>(options.integer("seed", 0)), static_cast<uint64_t>(size));
}

}  // namespace
}  // namespace synth

extern "C" void harmonics_register(harmonics::FunctionRegistry& registry) {
  registry.register_producer("synth", synth::open,
                             "synthetic digits, drawn from a seed; synth:digits#label: their labels",
                             {harmonics::Argument::integer("size", 20000, "samples per pass; 0: endless"),
                              harmonics::Argument::integer("seed", 0, "seed of the digits")});
}
