// What one run of a chat template may do, and what it has done. Work is counted before it is done, so that a refusal
// comes after a bounded number of operations.
#pragma once

#include <cstdint>

namespace harmonics::engine {

// Work of one run. A step is one evaluated node, or as much other work: 64 bytes copied, 16 bytes read one by one.
struct TemplateWork {
  uint64_t steps = 0;
  uint64_t bytes = 0;   // of all values that are made
  uint64_t output = 0;  // bytes
};

namespace jinja {

struct RunLimits {
  TemplateWork most = {40'000, uint64_t{2} << 20, uint64_t{1} << 20};
  int depth = 400;  // of nodes that are evaluated inside one another
};

// The limits for messages and other variables of so many values and bytes of text: they grow with both.
RunLimits limits_for(uint64_t values, uint64_t bytes);

// Throws ErrorKind::Usage for more work than the limits allow.
class Budget {
 public:
  explicit Budget(const RunLimits& limits) : limits_(limits) {}

  void spend(uint64_t steps) {
    if (steps > steps_left()) fail_steps();
    work_.steps += steps;
  }
  // Bytes that are read one by one.
  void scan(uint64_t bytes) { spend(bytes / 16); }
  // Bytes that a new value takes.
  void charge(uint64_t bytes) {
    if (bytes > bytes_left()) fail_bytes();
    work_.bytes += bytes;
    spend(bytes / 64);
  }
  void print(uint64_t bytes) {
    if (bytes > limits_.most.output - work_.output) fail_output();
    work_.output += bytes;
    spend(bytes / 64);
  }
  uint64_t steps_left() const { return limits_.most.steps - work_.steps; }
  uint64_t bytes_left() const { return limits_.most.bytes - work_.bytes; }
  [[noreturn]] void fail_bytes() const;
  const TemplateWork& work() const { return work_; }

  // One more call inside the others.
  class Level {
   public:
    explicit Level(Budget& budget) : budget_(budget) {
      if (++budget_.depth_ > budget_.limits_.depth) budget_.fail_depth();
    }
    ~Level() { --budget_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Budget& budget_;
  };

 private:
  [[noreturn]] void fail_steps() const;
  [[noreturn]] void fail_output() const;
  [[noreturn]] void fail_depth() const;

  const RunLimits limits_;
  TemplateWork work_;
  int depth_ = 0;
};

}  // namespace jinja

}  // namespace harmonics::engine
