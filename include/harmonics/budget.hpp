// Resource limits of a piece of work: bytes, steps, seconds. Code that allocates or computes by a number from a file, a
// message or a flow reserves the amount first.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include <harmonics/error.hpp>
#include <harmonics/quantity.hpp>

namespace harmonics {

// Not thread-safe; one object per piece of work.
class Budget {
 public:
  struct Terms {
    uint64_t most = std::numeric_limits<uint64_t>::max();
    std::string unit = "bytes";          // a plural that ends in s: "bytes", "steps", "seconds"
    std::string reason;                  // of the limit, for errors: "256 MiB and 64 bytes for each byte of the file"
    std::string remedy;                  // "give memory=2G"
    ErrorKind kind = ErrorKind::Stream;  // of errors
    bool fixed = false;                  // the user has set the limit: allow() has no effect
  };

  explicit Budget(Terms terms) : terms_(std::move(terms)) {}

  uint64_t most() const { return terms_.most; }
  uint64_t used() const { return used_; }
  uint64_t left() const { return used_ < terms_.most ? terms_.most - used_ : 0; }

  // Reserves `amount`. Throws and changes nothing if it exceeds the limit: "'x.npz' asks for 930000000 bytes for its
  // array 'a', ...".
  void take(uint64_t amount, std::string_view who, std::string_view purpose) {
    if (amount > left()) refuse(amount, who, purpose);
    used_ += amount;
  }
  // Reserves `count` * `each`; throws on overflow too.
  void take(uint64_t count, uint64_t each, std::string_view who, std::string_view purpose) {
    uint64_t amount = 0;
    if (__builtin_mul_overflow(count, each, &amount)) amount = std::numeric_limits<uint64_t>::max();
    take(amount, who, purpose);
  }
  // Sets the used amount, for measured quantities (time).
  void reach(uint64_t total, std::string_view who, std::string_view purpose) {
    if (total > terms_.most) refuse(total, who, purpose);
    used_ = total;
  }
  void give_back(uint64_t amount) noexcept { used_ -= amount < used_ ? amount : used_; }
  // Raises the limit, for example for another file.
  void allow(uint64_t more) {
    if (terms_.fixed) return;
    if (__builtin_add_overflow(terms_.most, more, &terms_.most)) terms_.most = std::numeric_limits<uint64_t>::max();
  }

  [[noreturn]] void refuse(uint64_t amount, std::string_view who, std::string_view purpose) const {
    std::string text(who);
    const bool beyond = amount == std::numeric_limits<uint64_t>::max();
    const std::string one = terms_.unit.substr(0, terms_.unit.size() - 1);
    text += " asks for " + (beyond ? "more than 2^64 " + terms_.unit : quantity(amount, one)) + " for " +
            std::string(purpose) + "; the limit is " + quantity(terms_.most, one);
    if (!terms_.reason.empty()) text += " (" + terms_.reason + ")";
    if (used_) text += ", of which " + std::to_string(used_) + " are used";
    if (!terms_.remedy.empty()) text += "; " + terms_.remedy;
    throw Error(terms_.kind, text);
  }

 private:
  Terms terms_;
  uint64_t used_ = 0;
};

}  // namespace harmonics
