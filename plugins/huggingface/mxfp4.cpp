#include "mxfp4.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include <harmonics/element_type.hpp>

#include "formats/utf8.hpp"

namespace huggingface {

using namespace harmonics;

namespace {

constexpr uint64_t kHalf = kCodesOfBlock / 2;

bool ends_in_blocks(const std::string& name) { return name.ends_with(kBlocks); }

std::string base_of(const std::string& name) { return name.substr(0, name.size() - std::string_view(kBlocks).size()); }

// Returns the low four bytes of both, in turn.
uint64_t alternating(uint64_t even, uint64_t odd) {
  const auto apart = [](uint64_t four) {
    four &= 0xFFFFFFFF;
    four = (four | four << 16) & 0x0000FFFF0000FFFF;
    return (four | four << 8) & 0x00FF00FF00FF00FF;
  };
  return apart(even) | apart(odd) << 8;
}

}  // namespace

void join_mxfp4(StoredWeights& weights, const ImportSource& source) {
  std::vector<std::string> found;
  for (const auto& [name, weight] : weights)
    if (ends_in_blocks(name) && weight.dtype == DType::U8) found.push_back(name);
  for (const std::string& name : found) {
    const std::string base = base_of(name);
    StoredWeight weight = weights.at(name);
    const auto scales = weights.find(base + kScales);
    if (scales == weights.end())
      refuse(source.path(),
             "has the tensor " + shown_name(name) + " and lacks its scales, " + shown_name(base + kScales));
    if (weight.shape.size() < 2 || weight.shape.back() != kCodesOfBlock)
      refuse(source.path(), "has the tensor " + shown_name(name) + " in blocks that are not of 16 bytes");
    const std::vector<uint64_t> expected(weight.shape.begin(), std::prev(weight.shape.end()));
    if (scales->second.dtype != DType::U8 || scales->second.shape != expected)
      refuse(source.path(), "has the tensor " + shown_name(base + kScales) + " without one byte for each block of " +
                                shown_name(name));
    weight.dtype = DType::MXFP4;
    weight.shape = expected;
    weight.shape.back() *= 2 * kCodesOfBlock;
    weight.scales = scales->second.bytes;
    weights.erase(base + kScales);
    weights.erase(name);
    if (!weights.emplace(base, weight).second)
      refuse(source.path(), "has the tensor " + shown_name(base) + " both whole and in blocks");
  }
}

void join_names_of_blocks(std::vector<std::string>& names) {
  const std::set<std::string> all(names.begin(), names.end());
  for (std::string& name : names)
    if (ends_in_blocks(name) && all.count(base_of(name) + kScales)) name = base_of(name);
  std::erase_if(names,
                [&](const std::string& name) { return name.ends_with(kScales) && all.count(base_of(name) + kBlocks); });
}

void join_blocks(const char* codes, const char* scales, uint64_t blocks, char* gguf) {
  constexpr uint64_t kLow = 0x0F0F0F0F0F0F0F0F;  // the codes of even elements
  for (uint64_t b = 0; b < blocks; ++b, codes += kCodesOfBlock, gguf += kCodesOfBlock + 1) {
    uint64_t first, second;  // the halves of the block
    std::memcpy(&first, codes, kHalf);
    std::memcpy(&second, codes + kHalf, kHalf);
    const uint64_t even = (first & kLow) | (second & kLow) << 4, odd = (first >> 4 & kLow) | (second & ~kLow);
    const uint64_t out[2] = {alternating(even, odd), alternating(even >> 32, odd >> 32)};
    gguf[0] = scales[b];
    std::memcpy(gguf + 1, out, kCodesOfBlock);
  }
}

void part_blocks(const char* gguf, uint64_t blocks, char* codes, char* scales) {
  for (uint64_t b = 0; b < blocks; ++b, codes += kCodesOfBlock, gguf += kCodesOfBlock + 1) {
    uint8_t in[kCodesOfBlock], out[kCodesOfBlock];
    std::copy_n(gguf + 1, kCodesOfBlock, reinterpret_cast<char*>(in));
    for (uint64_t i = 0; i < kHalf; ++i) {
      out[i] = static_cast<uint8_t>((in[2 * i] & 15) | in[2 * i + 1] << 4);
      out[kHalf + i] = static_cast<uint8_t>(in[2 * i] >> 4 | (in[2 * i + 1] & 0xF0));
    }
    scales[b] = gguf[0];
    std::copy_n(reinterpret_cast<const char*>(out), kCodesOfBlock, codes);
  }
}

}  // namespace huggingface
