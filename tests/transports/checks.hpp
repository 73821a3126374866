// Helpers of the transport tests.
#pragma once

#include <catch2/catch.hpp>

#include <cstring>
#include <random>

#include "tests/transports/ends.hpp"

namespace transports {

// Ends the program if a test takes longer: no test may hang.
class Deadline {
 public:
  explicit Deadline(std::chrono::seconds most = std::chrono::seconds(250))
      : thread_([this, most, name = Catch::getResultCapture().getCurrentTestName()] {
          for (const auto end = wire::now() + most; !over_; std::this_thread::sleep_for(std::chrono::milliseconds(20)))
            if (wire::now() > end) std::fprintf(stderr, "'%s' takes too long\n", name.c_str()), std::abort();
        }) {}
  ~Deadline() { over_ = true, thread_.join(); }

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;
};

inline int64_t number(std::span<const std::byte> bytes) {
  int64_t value = 0;
  REQUIRE(bytes.size() >= sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}
// Returns the next sample's number; -1 at the end.
inline int64_t next_number(wire::Inbox& inbox, int reader) {
  const auto sample = inbox.next(reader);
  return sample ? number(sample->bytes.bytes) : -1;
}

// Likewise if the stream may have ended and another sender will come.
inline int64_t next_number_of_any(wire::Inbox& inbox, int reader) {
  int64_t next = next_number(inbox, reader);
  for (; next < 0; next = next_number(inbox, reader)) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return next;
}

}  // namespace transports
