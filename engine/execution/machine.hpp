// Measured peaks of this machine, for rooflines in profiles and benchmarks.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace harmonics::engine {

// As the system names it; "unknown processor" if it does not.
std::string processor_name();

// "avx512", "avx2" or "none": the loops used for peaks. They are assembly, since a compiler may drop or merge C++
// loops, and a peak measured that way can exceed the hardware's.
std::string peak_instructions();

// Peak of single-precision multiply-adds on `threads` threads at once, 2 FLOP each: the sum of every thread's fastest
// short slice, so that other load on the machine matters little. 0: unknown ("none").
double peak_flops(int threads);

// Bytes per second that `threads` read from `bytes` of memory, each its own share repeatedly.
double read_bandwidth(size_t bytes, int threads);

// Peaks for a number of threads, measured on first use. For devices see device_peaks.hpp.
class MachinePeaks {
 public:
  explicit MachinePeaks(int threads) : threads_(threads) {}
  virtual ~MachinePeaks() = default;
  // Describes how the peaks were measured.
  virtual std::string instructions() const { return peak_instructions(); }
  // Seconds of an empty synchronization, for devices timed by waiting for each step; 0 otherwise.
  virtual double waiting() { return 0; }
  double peak();
  // Bandwidth for memory of this size, rounded up to a power of two from 16 KiB to 512 MiB.
  double bandwidth(double bytes);
  // Measures everything once more and keeps the better result: other load only slows down.
  void again();
  // Roofline: minimum seconds for this arithmetic and traffic.
  double floor(double flops, double bytes);

 protected:
  virtual double measured_peak() { return peak_flops(threads_); }
  virtual double measured_bandwidth(size_t bytes) { return read_bandwidth(bytes, threads_); }

 private:
  int threads_;
  double peak_ = -1;
  std::map<size_t, double> bandwidths_;
};

}  // namespace harmonics::engine
