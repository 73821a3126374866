// Live streams in memory for tests.
#pragma once

#include "tests/engine/runtime/memory_streams.hpp"

namespace harmonics::engine::testing {

// Returns the sample with this index, the same in every stream with the same seed.
inline std::vector<float> live_row(uint64_t index, uint32_t seed = 3) {
  return numbers(4, static_cast<uint32_t>(index) * 7919 + seed);
}

// A live stream of samples f32 [4], whose number is not known in advance.
class LiveRows : public Producer {
 public:
  std::size_t size() const override { return 0; }
  std::optional<StreamInfo> describe() override {
    StreamInfo info;
    info.sample = Shape{4};
    info.live = true;
    return info;
  }

 protected:
  static HTensor sample(uint64_t index, uint32_t seed = 3) {
    return HTensor(DType::F32, Shape{4}, live_row(index, seed).data());
  }
};

}  // namespace harmonics::engine::testing
