// What this machine can do at most, measured: the yardsticks profiles and benchmarks are divided by.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace harmonics {

// "avx512", "avx2" or "none": which loops the yardsticks use. The loops are assembly: a compiler may drop or merge what
// it is given in C++, and a peak measured that way can exceed the hardware's.
std::string peak_instructions();

// Single-precision multiply-adds on all of `threads` at once, 2 FLOP each; the fastest short slice of every thread,
// added up, so that neighbours on the machine cost little. 0: not known ("none").
double peak_flops(int threads);

// Bytes per second that `threads` read from memory of `bytes` in all, each its own share again and again.
double read_bandwidth(size_t bytes, int threads);

// Both for one number of threads, measured when first asked for. Those of devices: device_yardsticks.hpp.
class Yardsticks {
 public:
  explicit Yardsticks(int threads) : threads_(threads) {}
  virtual ~Yardsticks() = default;
  // What they were measured with, for people.
  virtual std::string instructions() const { return peak_instructions(); }
  // Seconds that a wait for next to nothing takes, where single steps are waited for; 0: they are timed while they run.
  virtual double waiting() { return 0; }
  double peak();
  // Of memory of this size, rounded up to a power of two from 16 KiB to 64 MiB.
  double bandwidth(double bytes);
  // Measures what was asked for once more and keeps the better: neighbours only slow things down.
  void again();
  // The least time for this much arithmetic and traffic, in seconds.
  double floor(double flops, double bytes);

 protected:
  virtual double measured_peak() { return peak_flops(threads_); }
  virtual double measured_bandwidth(size_t bytes) { return read_bandwidth(bytes, threads_); }

 private:
  int threads_;
  double peak_ = -1;
  std::map<size_t, double> bandwidths_;
};

}  // namespace harmonics
