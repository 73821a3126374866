// Source text for chains of elementwise operations, one element per thread.
#pragma once

#include "families.hpp"

namespace harmonics::opencl {

// One operation; text_of returns its expression, or "" if it does not exist for these types.
struct Operation {
  std::string_view op;
  uint32_t operands;  // element type of operands
  uint32_t result;    // element type of the result
  std::string a, b, c;
};
std::string text_of(const Operation& operation);

// Text that computes element `i` of `whole`. Registers r0, r1 ... are the site's inputs, broadcast to `whole`, then
// results in order.
class Chain {
 public:
  // `words`: element types by width that replace the site's types.
  Chain(const Site& site, const hx_type& whole, const uint32_t* words = nullptr)
      : site_(site), whole_(whole), words_(words) {}
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  void read_inputs();
  bool compute(std::string_view op, uint32_t a, uint32_t b, uint32_t c, uint32_t result);  // false: declined
  bool compute_all();                                                                      // the site's chain
  // Adds a register computed by `text` from r0, r1, ...; returns its number.
  uint32_t add(uint32_t result, const std::string& text);
  // Writes registers to the site's outputs in order.
  void store(const std::vector<uint32_t>& registers);

  uint32_t type(uint32_t r) const { return types_.at(r); }
  const std::string& body() const { return body_; }
  const std::string& parameters() const { return parameters_; }
  void give(Launch& launch) const;  // values of the parameters
  std::string buffers() const;      // "BUFFER(0), BUFFER(1), " for inputs and outputs
  bool has_room() const;            // whether there are enough buffer arguments; false: declined
  uint32_t in_place() const;        // mask of inputs with the layout and element width of the first output

 private:
  // Layout of an input relative to `whole`: same, scalar, or broadcast.
  struct Operand {
    enum How { same, one, stretched };
    How how = same;
    Walk walk;
  };
  static Operand operand_of(const hx_type& x, const hx_type& y);
  void define(uint32_t r, uint32_t dtype, const std::string& text);

  const Site& site_;
  const hx_type& whole_;
  const uint32_t* words_;
  std::vector<uint32_t> types_;  // by register
  std::vector<Operand> operands_;
  std::string parameters_, body_;
};

}  // namespace harmonics::opencl
