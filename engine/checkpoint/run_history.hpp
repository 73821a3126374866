// RunHistory: figures of a whole run in constant memory. When it is full, every second point is dropped and the
// distance between points doubles.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace harmonics::engine {

class RunHistory {
 public:
  static constexpr size_t kPoints = 512;

  struct Point {
    int64_t step = 0;
    double seconds = 0, samples_per_second = 0, learning_rate = 0;
  };

  // Clears the history. `names` are the names of a point's values.
  void begin(std::vector<std::string> names);
  const std::vector<std::string>& names() const { return names_; }
  bool wants(int64_t step) const { return step >= next_; }
  // Adds a point after a step for which wants() is true. Does not allocate. `values` are in the order of names(); NaN:
  // no value yet.
  void add(const Point& point, const std::vector<double>& values);
  size_t size() const { return size_; }
  const Point& point(size_t i) const { return points_[i]; }
  const double* values(size_t i) const { return values_.data() + i * names_.size(); }

 private:
  void halve();

  std::vector<std::string> names_;
  std::vector<Point> points_;
  std::vector<double> values_;
  size_t size_ = 0;
  int64_t stride_ = 1, next_ = 0;  // next_: the earliest step of the next point
};

// Measures the growth rate of a count over the last seconds.
class Speed {
 public:
  static constexpr double kWindow = 5;

  void begin(double now, double count);
  void add(double now, double count);
  // Returns the rate per second over the last kWindow seconds, counting up to the last add(); 0 after a longer pause.
  double at(double now) const;

 private:
  struct Mark {
    double now = 0, count = 0;
  };
  static constexpr size_t kMarks = 64;
  Mark marks_[kMarks];
  size_t next_ = 0, used_ = 0;
  double count_ = 0, last_ = 0;
};

}  // namespace harmonics::engine
