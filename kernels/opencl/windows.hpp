// Windows that slide over the planes of images.
#pragma once

#include "families.hpp"

namespace harmonics::opencl {

// Elements from one on in a buffer.
struct Place {
  uint32_t buffer;
  int64_t at = 0;
};

class Windows {
 public:
  // Attributes' names begin with `prefix`; `kernel` and what is not given as the site has it. `image` is [N, C, ...].
  Windows(const Site& site, const std::vector<int64_t>& image, std::vector<int64_t> kernel, const char* prefix = "");

  int64_t planes() const { return planes_; }
  int64_t plane() const { return plane_; }  // elements
  int64_t taps() const { return taps_; }
  int64_t windows() const { return windows_; }  // of a plane
  std::vector<int64_t> places() const;          // the same, by axis
  bool are_elements() const;                    // each window is an element, in its place

  Launch patches(Machine& machine, uint32_t dtype, Place from, Place to, double fill) const;
  Launch unpatches(Machine& machine, uint32_t dtype, Place from, Place to) const;
  // `chosen`: indices of the largest within their planes, i32.
  Launch largest(Machine& machine, uint32_t dtype, Place from, Place to, Place chosen) const;

 private:
  struct Axis {
    int64_t size = 1, kernel = 1, step = 1, low = 0, apart = 1, places = 1;
  };
  std::string text(uint32_t dtype) const;
  Launch launch(Machine& machine, uint32_t dtype, const char* name, Place from, Place to, Place chosen, double fill, int64_t threads) const;

  std::vector<Axis> axes_;  // three at least: one program for all that have few
  size_t real_;             // of them, the last ones
  int64_t planes_, plane_ = 1, taps_ = 1, windows_ = 1;
};

// Adds slopes where windows of a plane chose its elements, in the order of the windows.
Launch spread(Machine& machine, uint32_t dtype, Place chosen, Place slopes, Place to, int64_t planes, int64_t windows, int64_t plane);

}  // namespace harmonics::opencl
