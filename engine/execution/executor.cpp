#include "engine/execution/executable.hpp"

namespace harmonics::engine {

namespace {

class SequentialExecutor final : public Executor {
 public:
  int threads() const override { return 1; }
  void run(uint32_t parts, void (*body)(const void*, uint32_t), const void* context,
           std::span<const ReadAhead>) override {
    for (uint32_t part = 0; part < parts; ++part) body(context, part);
  }
};

}  // namespace

std::unique_ptr<Executor> make_sequential_executor() { return std::make_unique<SequentialExecutor>(); }

}  // namespace harmonics::engine
