// Sliding windows over planes of images.
#pragma once

#include "families.hpp"

namespace harmonics::opencl {

// A buffer and an offset in elements.
struct Place {
  uint32_t buffer;
  int64_t at = 0;
};

class Windows {
 public:
  // Reads the attributes, whose names begin with `prefix`; missing ones have defaults. `image`: shape [N, C, ...].
  Windows(const Site& site, const std::vector<int64_t>& image, std::vector<int64_t> kernel, const char* prefix = "");

  int64_t planes() const { return planes_; }
  int64_t plane() const { return plane_; }  // elements of a plane
  int64_t taps() const { return taps_; }
  int64_t windows() const { return windows_; }  // windows per plane
  std::vector<int64_t> places() const;          // windows by axis
  bool are_elements() const;                    // whether the windows are the elements in order

  Launch patches(Machine& machine, uint32_t dtype, Place from, Place to, double fill) const;
  Launch unpatches(Machine& machine, uint32_t dtype, Place from, Place to) const;
  // `chosen`: indices of the maxima within their planes, i32.
  Launch largest(Machine& machine, uint32_t dtype, Place from, Place to, Place chosen) const;

 private:
  struct Axis {
    int64_t size = 1, kernel = 1, step = 1, low = 0, apart = 1, places = 1;
  };
  std::string text(uint32_t dtype) const;
  Launch launch(Machine& machine, uint32_t dtype, const char* name, Place from, Place to, Place chosen, double fill,
                int64_t threads) const;

  std::vector<Axis> axes_;  // at least three, so that one program covers one to three axes
  size_t real_;             // number of actual axes, the last ones
  int64_t planes_, plane_ = 1, taps_ = 1, windows_ = 1;
};

// Adds the gradients of windows to the chosen elements of their plane, in window order.
Launch spread(Machine& machine, uint32_t dtype, Place chosen, Place gradients, Place to, int64_t planes,
              int64_t windows, int64_t plane);

}  // namespace harmonics::opencl
