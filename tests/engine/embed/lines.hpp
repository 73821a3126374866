// A straight line, y = 2 a - b + 1, which the graphs of these tests learn.
#pragma once

#include <memory>
#include <string>

#include <harmonics/harmonics.hpp>

namespace harmonics::engine::testing {

// Sequential rows of the line, or their targets; can seek to any of them.
class LinePoints : public Producer {
 public:
  LinePoints(bool targets, std::size_t rows) : targets_(targets), rows_(rows) {}
  HTensor next() override {
    if (at_ == rows_) return {};
    const float a = static_cast<float>(at_ % 7) / 7, b = static_cast<float>(at_ % 5) / 5, y = 2 * a - b + 1;
    ++at_;
    const float xs[] = {a, b};
    return targets_ ? HTensor(DType::F32, Shape{1}, &y) : HTensor(DType::F32, Shape{2}, xs);
  }
  std::size_t size() const override { return rows_; }
  bool rewind() override { return at_ = 0, true; }

 private:
  bool targets_;
  std::size_t rows_, at_ = 0;
};

// `arrow`: functions from x to o, such as "affine(1)".
inline HarmonicGraph line_graph(const std::string& arrow = "affine(1)", const std::string& loss = "mse") {
  return parse_hmx_text("harmonic line { producer x; producer y; layer o {1}; cycle { x -(" + arrow + ")-> o; o <-(" +
                        loss + ")- y; } }");
}
inline void bind_line(HarmonicGraph& g, std::size_t rows = 70) {
  g.bindProducer("x", std::make_shared<LinePoints>(false, rows));
  g.bindProducer("y", std::make_shared<LinePoints>(true, rows));
}
inline FitOptions line_options(int64_t epochs) {
  FitOptions o;
  o.epochs = epochs;
  o.batch = 10;
  o.threads = 1;
  o.optimizer = "adam(lr=0.05)";
  return o;
}
inline HTensor line_row(float a, float b) {
  const float xs[] = {a, b};
  return HTensor(DType::F32, Shape{2}, xs);
}
inline float asked(HarmonicGraph& g, float a, float b) { return g.infer(line_row(a, b)).data<float>()[0]; }
// Returns the error text of `body`; "" if it throws none.
template <typename Body>
std::string refused(Body&& body) {
  try {
    body();
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

}  // namespace harmonics::engine::testing
