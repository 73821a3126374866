// Elementwise operations one after another, as the text of what one thread does for one element.
#pragma once

#include "families.hpp"

namespace harmonics::opencl {

// The expression of an operation on elements; "": there is none in these types.
struct Operation {
  std::string_view op;
  uint32_t operands;  // element type of them
  uint32_t result;    // of it
  std::string a, b, c;
};
std::string text_of(const Operation& operation);

// Element `i` of `whole`: registers r0, r1 ... are the site's inputs, stretched to it, then results in their order.
class Chain {
 public:
  // `words`, by width: types in place of the site's own.
  Chain(const Site& site, const hx_type& whole, const uint32_t* words = nullptr) : site_(site), whole_(whole), words_(words) {}
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  void read_inputs();
  bool compute(std::string_view op, uint32_t a, uint32_t b, uint32_t c, uint32_t result);  // false: declined
  bool compute_all();                                                                     // of the site's own chain
  // The register of a result that no primitive gives, from registers r0, r1, ...
  uint32_t add(uint32_t result, const std::string& text);
  // Writes registers to the first of the site's outputs.
  void store(const std::vector<uint32_t>& registers);

  uint32_t type(uint32_t r) const { return types_.at(r); }
  const std::string& body() const { return body_; }
  const std::string& parameters() const { return parameters_; }
  void give(Launch& launch) const;  // numbers for the parameters
  std::string buffers() const;      // "BUFFER(0), BUFFER(1), " of inputs and outputs
  bool has_room() const;            // for so many buffers; false: declined
  uint32_t in_place() const;        // inputs that lie as the whole does, in elements of the first output's width

 private:
  // How an input lies against the whole: element by element, one number, or stretched.
  struct Lie {
    enum How { same, one, stretched };
    How how = same;
    Walk walk;
  };
  static Lie lie_of(const hx_type& x, const hx_type& y);
  void define(uint32_t r, uint32_t dtype, const std::string& text);

  const Site& site_;
  const hx_type& whole_;
  const uint32_t* words_;
  std::vector<uint32_t> types_;  // by register
  std::vector<Lie> lies_;
  std::string parameters_, body_;
};

}  // namespace harmonics::opencl
