// Measured peak rates of this machine, for rooflines in profiles and benchmarks.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace harmonics::engine {

// Returns the name of the processor as reported by the system, or "unknown processor".
std::string processor_name();

// Returns the instruction set of the loops that measure peaks: "avx512", "avx2" or "none". HARMONICS_ISA limits it as
// it limits the device cpu. The loops are assembly, because a compiler may drop or merge C++ loops and a peak measured
// that way can exceed the hardware.
std::string peak_instructions();

// Returns the peak FLOP per second of single-precision multiply-adds (2 FLOP each) on `threads` concurrent threads. The
// sum of the fastest short slice of each thread, so that other load matters little. 0 if unknown ("none").
double peak_flops(int threads);

// Reads this memory once; `bytes` is a multiple of 512.
void read_memory(const std::byte* at, size_t bytes);

// Returns the bytes per second that `threads` read from `bytes` of memory; each thread reads its own share repeatedly.
double read_bandwidth(size_t bytes, int threads);

// Keeps `threads` threads busy until each is about as fast as one alone, at most `seconds` long. A hypervisor or a
// scheduler that wakes them on the hyperthreads of one core moves them apart only after a second or two; until then
// each has half of the core. Returns the rate of the slowest over that of one alone, at most 1; 1 for a single thread
// or unknown instructions ("none"). Does not wait for more threads than the machine has processors.
double spread_over_cores(int threads, double seconds);
constexpr double kMostSpread = 3;  // seconds, for measurements
constexpr double kApart = 0.7;     // half of a core gives less, the lower clock of busy processors more

// Peaks for a number of threads, measured on first use. For devices see device_peaks.hpp.
class MachinePeaks {
 public:
  explicit MachinePeaks(int threads) : threads_(threads) {}
  virtual ~MachinePeaks() = default;
  // Returns how the peaks were measured.
  virtual std::string instructions() const { return peak_instructions(); }
  // Returns the seconds of an empty synchronization, for devices that are timed by waiting for each step; otherwise 0.
  virtual double waiting() { return 0; }
  double peak();
  // Returns the bandwidth for memory of this size, rounded up to a power of two from 16 KiB to 512 MiB.
  double bandwidth(double bytes);
  // Measures everything again and keeps the better results: other load only slows down.
  void again();
  // Returns the roofline: the minimum seconds for this arithmetic and traffic.
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
