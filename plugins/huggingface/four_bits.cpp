#include "four_bits.hpp"

#include <cmath>
#include <cstring>

#include <harmonics/element_scaled.hpp>
#include <harmonics/element_type.hpp>
#include <harmonics/quantity.hpp>

#include "formats/utf8.hpp"

namespace huggingface {

using namespace harmonics;

namespace {

constexpr std::string_view kState = ".quant_state.bitsandbytes__";
constexpr size_t kLongestState = 1 << 16;
constexpr uint64_t kBlock = 64, kNestedBlock = 256, kCodes = 256;
constexpr uint64_t kMostRows = uint64_t{1} << 31;

float number_at(std::string_view bytes, uint64_t index) {
  float value;
  std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
  return value;
}

class FourBits {
 public:
  FourBits(StoredWeights& weights, const ImportSource& source, const std::string& state)
      : weights_(weights), source_(source), name_(state.substr(0, state.find(kState))) {
    const std::string_view text = weights.at(state).bytes;
    state_ = Node::parse(text, state, kLongestState);
    const std::string kind = state.substr(name_.size() + kState.size());
    if (kind != "nf4" && kind != "fp4") fail("is of the type " + shown_name(kind) + " of bitsandbytes");
    dtype_ = kind == "nf4" ? DType::NF4_64 : DType::FP4_64;
    taken_.push_back(state);
  }

  void join() {
    if (const int64_t block = state_["blocksize"].integer(); block != static_cast<int64_t>(kBlock))
      fail("has blocks of " + std::to_string(block) + " numbers; those of 64 are implemented");
    const Node shape = state_["shape"];
    if (shape.size() != 2) fail("is not a matrix");
    const uint64_t rows = side(shape[0]), width = side(shape[1]);
    if (width % kBlock != 0)
      fail("has rows of " + std::to_string(width) + " numbers, which are not whole blocks of 64");
    const uint64_t blocks = rows * (width / kBlock);
    const std::string_view codes = part("", DType::U8, blocks * kBlock / 2);
    const std::vector<float> scales = scales_of(blocks);
    const std::string_view map = part("quant_map", DType::F32, 16 * sizeof(float));
    const float* numbers = dtype_ == DType::NF4_64 ? detail::normal_quantiles : detail::four_bit_floats;
    for (uint64_t i = 0; i < 16; ++i)
      if (!(std::fabs(number_at(map, i) - numbers[i]) < 1e-6f)) fail("has a code table other than that of its type");
    const ElementType& type = element_type(dtype_);
    const ImportSource::Memory memory = source_.memory(blocks * type.block_bytes);
    for (uint64_t b = 0; b < blocks; ++b) {
      char* to = memory.data + b * type.block_bytes;
      std::memcpy(to, &scales[b], sizeof(float));
      std::memcpy(to + sizeof(float), codes.data() + b * kBlock / 2, kBlock / 2);
    }
    for (const std::string& name : taken_) weights_.erase(name);
    const std::string_view bytes(memory.data, blocks * type.block_bytes);
    weights_[name_] = {dtype_, {rows, width}, 0, memory.index, bytes};
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    refuse(source_.path(), "has the tensor " + shown_name(name_) + ", which " + what);
  }

  uint64_t side(const Node& number) const {
    const int64_t value = number.integer();
    if (value < 1 || value > static_cast<int64_t>(kMostRows)) fail("has the side " + std::to_string(value));
    return static_cast<uint64_t>(value);
  }

  // Returns the bytes of the tensor "NAME.ending".
  std::string_view part(const std::string& ending, DType dtype, uint64_t bytes) {
    const std::string name = ending.empty() ? name_ : name_ + "." + ending;
    const auto found = weights_.find(name);
    if (found == weights_.end()) fail("lacks its tensor " + shown_name(name));
    if (found->second.dtype != dtype || found->second.bytes.size() != bytes)
      fail("has its tensor " + shown_name(name) + " with " + quantity(found->second.bytes.size(), "byte") +
           "; it must have " + std::to_string(bytes));
    taken_.push_back(name);
    return found->second.bytes;
  }

  // Returns the scale of each block. Decodes scales that are quantised themselves.
  std::vector<float> scales_of(uint64_t blocks) {
    std::vector<float> scales(blocks);
    if (!state_["nested_blocksize"].has()) {
      const std::string_view all = part("absmax", DType::F32, blocks * sizeof(float));
      if (blocks) std::memcpy(scales.data(), all.data(), all.size());
      return scales;
    }
    if (state_["nested_blocksize"].integer() != static_cast<int64_t>(kNestedBlock))
      fail("has scales in blocks of " + state_["nested_blocksize"].shown() + "; those of 256 are implemented");
    const std::string_view codes = part("absmax", DType::U8, blocks);
    const std::string_view outer =
        part("nested_absmax", DType::F32, (blocks + kNestedBlock - 1) / kNestedBlock * sizeof(float));
    const std::string_view table = part("nested_quant_map", DType::F32, kCodes * sizeof(float));
    const auto offset = static_cast<float>(state_["nested_offset"].number());
    for (uint64_t b = 0; b < blocks; ++b) {
      const float scaled = number_at(table, static_cast<uint8_t>(codes[b])) * number_at(outer, b / kNestedBlock);
      scales[b] = scaled + offset;
    }
    return scales;
  }

  StoredWeights& weights_;
  const ImportSource& source_;
  std::string name_;
  Node state_;
  DType dtype_ = DType::NF4_64;
  std::vector<std::string> taken_;
};

}  // namespace

void join_four_bits(StoredWeights& weights, const ImportSource& source) {
  std::vector<std::string> states;
  for (const auto& [name, weight] : weights)
    if (name.find(kState) != std::string::npos) states.push_back(name);
  for (const std::string& state : states) FourBits(weights, source, state).join();
}

}  // namespace huggingface
