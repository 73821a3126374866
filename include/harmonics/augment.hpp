// AugmentProducer: random shifts, rotations, crops and noise, different in each epoch.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <harmonics/quantity.hpp>
#include <harmonics/wrappers.hpp>

namespace harmonics {

// Steps applied to a sample in order: Augmentation().shift(2).noise(0.05), or as text, "shift(2),noise(0.05)".
class Augmentation {
 public:
  enum class Kind : uint32_t { Shift, Rotate, Scale, FlipAcross, FlipDown, Crop, Center, Cutout, Noise };
  struct Step {
    Kind kind;
    double a, b;
    uint32_t ordinal;  // among the steps of this kind, so that two shifts draw different numbers
  };

  // Shifts by up to `pixels` in each direction.
  Augmentation& shift(double pixels) { return add(Kind::Shift, "shift", pixels, pixels, 0, 1 << 20); }
  // Rotates about the centre by up to `degrees` to either side.
  Augmentation& rotate(double degrees) { return add(Kind::Rotate, "rotate", degrees, degrees, 0, 180); }
  // Scales about the centre by a factor from 1 - part to 1 + part.
  Augmentation& scale(double part) { return add(Kind::Scale, "scale", part, part, 0, 0.99); }
  // Mirrors with probability 1/2, horizontally or (`vertical`) vertically.
  Augmentation& flip(bool vertical = false) {
    return add(vertical ? Kind::FlipDown : Kind::FlipAcross, "flip", 0, 0, 0, 0);
  }
  // Crops a random rectangle of this size.
  Augmentation& crop(double height, double width) { return add(Kind::Crop, "crop", height, width, 1, 1 << 20); }
  // Crops the centre to this size, for test data.
  Augmentation& center(double height, double width) { return add(Kind::Center, "center", height, width, 1, 1 << 20); }
  // Sets a square of this size with a random centre to zero.
  Augmentation& cutout(double pixels) { return add(Kind::Cutout, "cutout", pixels, pixels, 1, 1 << 20); }
  // Adds approximately Gaussian noise of this standard deviation, for bytes as a fraction of 255.
  Augmentation& noise(double deviation) { return add(Kind::Noise, "noise", deviation, deviation, 0, 1e6); }

  const std::vector<Step>& steps() const { return steps_; }

  // Returns the steps in the notation that the constructor parses.
  std::string text() const {
    static const char* const names[] = {"shift", "rotate", "scale",  "flip", "flip",
                                        "crop",  "center", "cutout", "noise"};
    std::string all;
    for (const Step& step : steps_) {
      all += (all.empty() ? "" : ",") + std::string(names[static_cast<std::size_t>(step.kind)]);
      if (step.kind == Kind::FlipDown)
        all += "(vertical)";
      else if (step.kind == Kind::Crop || step.kind == Kind::Center)
        all += "(" + exact_text(step.a) + "," + exact_text(step.b) + ")";
      else if (step.kind != Kind::FlipAcross)
        all += "(" + exact_text(step.a) + ")";
    }
    return all;
  }

  static Augmentation parse(const std::string& text) {
    Augmentation all;
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t open = text.find_first_of("(,", at);
      const std::string name = text.substr(at, open - at);
      std::vector<std::string> arguments;
      std::size_t end = std::min(open, text.size());
      if (end < text.size() && text[end] == '(') {
        const std::size_t close = text.find(')', end);
        if (close == std::string::npos) refuse(text, "'" + name + "(' has no closing ')'");
        arguments = split(text.substr(end + 1, close - end - 1));
        end = close + 1;
        if (end < text.size() && text[end] != ',') refuse(text, "a comma is expected behind '" + name + "(...)'");
      }
      all.add_named(text, name, arguments);
      at = end + 1;
    }
    return all;
  }

 private:
  Augmentation& add(Kind kind, const char* name, double a, double b, double least, double most) {
    for (const double value : {a, b})
      if (!(value >= least && value <= most))
        throw Error(ErrorKind::Usage, std::string("augment: ") + name + "(" + number_text(value) +
                                          ") is not offered; from " + number_text(least) + " to " + number_text(most) +
                                          " it is");
    uint32_t ordinal = 0;
    for (const Step& step : steps_) ordinal += step.kind == kind;
    steps_.push_back({kind, a, b, ordinal});
    return *this;
  }

  void add_named(const std::string& text, const std::string& name, const std::vector<std::string>& arguments) {
    const auto number = [&](std::size_t i) {
      const std::string& word = arguments[i];
      char* end = nullptr;
      const double value = std::strtod(word.c_str(), &end);
      if (word.empty() || *end) refuse(text, "'" + word + "' in '" + name + "(...)' is not a number");
      return value;
    };
    const auto expect = [&](std::size_t least, std::size_t most) {
      if (arguments.size() < least || arguments.size() > most)
        refuse(text, "'" + name + "' takes " + (most > least ? std::to_string(least) + " or " : std::string()) +
                         quantity(most, "number") + ", it has " + std::to_string(arguments.size()));
    };
    if (name == "flip") {
      if (arguments.size() > 1 || (arguments.size() == 1 && arguments[0] != "vertical"))
        refuse(text, "'flip' takes nothing, or 'vertical'");
      flip(arguments.size() == 1);
    } else if (name == "crop" || name == "center") {
      expect(1, 2);
      const double height = number(0), width = arguments.size() == 2 ? number(1) : height;
      name == "crop" ? crop(height, width) : center(height, width);
    } else if (name == "shift" || name == "rotate" || name == "scale" || name == "cutout" || name == "noise") {
      expect(1, 1);
      const double a = number(0);
      name == "shift"    ? shift(a)
      : name == "rotate" ? rotate(a)
      : name == "scale"  ? scale(a)
      : name == "cutout" ? cutout(a)
                         : noise(a);
    } else {
      refuse(text, "'" + name + "' is unknown");
    }
  }

  [[noreturn]] static void refuse(const std::string& text, const std::string& what) {
    throw Error(ErrorKind::Usage,
                "augment=" + text + ": " + what +
                    "; write shift(2), rotate(15), scale(0.1), flip, crop(24), center(24), cutout(8) or "
                    "noise(0.05), with commas between");
  }
  static std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> words(1);
    for (const char c : text) {
      if (c == ',')
        words.emplace_back();
      else if (c != ' ')
        words.back() += c;
    }
    return words;
  }
  static std::string number_text(double value) {
    std::string text = std::to_string(value);
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
    return text;
  }

  static std::string exact_text(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.17g", value);
    return text;
  }

  std::vector<Step> steps_;
};

// Changes each sample by apply(), a function of the seed, the epoch and the record. Type and shape may change.
class AugmentingProducer : public SampleWiseProducer {
 public:
  // Takes effect with the next sample.
  void set_seed(uint64_t seed) {
    if (seed != seed_) seed_ = seed;  // writes only a change, since another thread may be prefetching
  }

  HTensor next() override {
    const HTensor sample = inner_->next();
    if (!sample) return {};
    if (sample.dtype() != from_.dtype || sample.shape() != from_.sample)
      throw Error(ErrorKind::Stream, "augment: a sample of shape " + sample.shape().str() +
                                         " instead of the announced " + from_.sample.str());
    begin_numbers();
    add_numbers(1);
    HTensor out(to_.dtype, to_.sample);
    apply(at_++, sample.bytes(), out.mutable_bytes());
    return out;
  }
  std::optional<StreamInfo> describe() override { return to_; }
  bool restore(uint64_t index, const std::string& position) override {
    at_ = index;
    return SampleWiseProducer::restore(index, position);
  }
  int64_t read(uint64_t n, void* to) override {
    if (n == 0) return inner_->read(0, to);
    begin_numbers();
    auto* out = static_cast<char*>(to);
    uint64_t got = 0;
    while (got < n) {
      const uint64_t wanted = std::min<uint64_t>(n - got, room_);
      const int64_t more = inner_->read(wanted, given_.data());
      if (more < 0) return -1;
      add_numbers(static_cast<uint64_t>(more));
      for (uint64_t i = 0; i < static_cast<uint64_t>(more); ++i, out += to_.sample_bytes())
        apply(at_++, given_.data() + i * from_.sample_bytes(), out);
      got += static_cast<uint64_t>(more);
      if (static_cast<uint64_t>(more) < wanted) break;
    }
    return static_cast<int64_t>(got);
  }
  bool read_at(const uint64_t* numbers, uint64_t n, void* to) override {
    if (n == 0) return inner_->read_at(numbers, 0, to);
    auto* out = static_cast<char*>(to);
    for (uint64_t i = 0; i < n; ++i, out += to_.sample_bytes()) {
      if (!inner_->read_at(numbers + i, 1, given_.data())) return false;
      apply(numbers[i], given_.data(), out);
    }
    return true;
  }

 protected:
  explicit AugmentingProducer(std::shared_ptr<Producer> inner, uint64_t seed = 0)
      : SampleWiseProducer(std::move(inner)), seed_(seed) {
    const std::optional<StreamInfo> info = known_samples();
    if (!info) throw Error(ErrorKind::Usage, "augment: the producer has no sample");
    from_ = to_ = *info;
    const std::size_t bytes = std::max<std::size_t>(1, from_.sample_bytes());
    room_ = std::max<std::size_t>(1, (1 << 16) / bytes);
    given_.resize(room_ * bytes);
  }
  // Writes the augmented sample with index `record` of pass epoch().
  virtual void apply(uint64_t record, const void* from, void* to) = 0;
  uint64_t seed() const { return seed_; }

  StreamInfo from_, to_;  // samples before and after; constructors of derived classes set to_

 private:
  bool go_to(uint64_t index) override {
    at_ = index;
    return inner_->seek(epoch(), index);
  }

  uint64_t seed_, at_ = 0;
  std::vector<char> given_;
  uint64_t room_ = 1;  // samples that fit in given_
};

// Random numbers depend only on (seed, epoch, record), not on earlier reads, shuffling, prefetch or threads. Streams
// with equal steps are augmented identically, for example images and their masks. Supports u8 and f32; the last two
// axes are height and width. Pixels outside the image are zero.
class AugmentProducer final : public AugmentingProducer {
 public:
  AugmentProducer(std::shared_ptr<Producer> inner, Augmentation steps, uint64_t seed = 0)
      : AugmentingProducer(std::move(inner), seed), text_(steps.text()), steps_(steps.steps()) {
    if (from_.dtype != DType::U8 && from_.dtype != DType::F32)
      throw Error(ErrorKind::Usage, "augment works on u8 and f32; these samples are of another type");
    const uint32_t rank = from_.sample.rank();
    height_ = rank >= 2 ? from_.sample[rank - 2] : 1;
    width_ = rank >= 1 ? from_.sample[rank - 1] : 1;
    planes_ = from_.sample.count() / (height_ * width_);
    for (const Augmentation::Step& step : steps_) check(step, rank);
    for (auto* buffer : {&now_, &then_}) buffer->resize(static_cast<std::size_t>(from_.sample.count()));
  }

  WrapperOption option() const override {
    return {WrapperOption::Acts::Augment, "augment=" + text_ + "&augment-seed=" + std::to_string(seed())};
  }

 private:
  using Kind = Augmentation::Kind;

  // Inverse map from result to source, both relative to the centre: source = matrix * point + move.
  struct Map {
    double a = 1, b = 0, c = 0, d = 1, x = 0, y = 0;
    bool moved = false, turned = false;
    // Composes another step: point before it = further * point after it + (mx, my).
    void then(double fa, double fb, double fc, double fd, double mx, double my) {
      const Map m = *this;
      a = m.a * fa + m.b * fc;
      b = m.a * fb + m.b * fd;
      c = m.c * fa + m.d * fc;
      d = m.c * fb + m.d * fd;
      x = m.a * mx + m.b * my + m.x;
      y = m.c * mx + m.d * my + m.y;
      moved = true;
    }
  };

  void check(const Augmentation::Step& step, uint32_t rank) {
    if (step.kind == Kind::Noise) return;
    if (rank < 2)
      throw Error(ErrorKind::Usage, "augment: samples of shape " + from_.sample.str() +
                                        " are not pictures; only noise can be applied to them");
    if (step.kind != Kind::Crop && step.kind != Kind::Center) return;
    int64_t& height = to_.sample[rank - 2];
    int64_t& width = to_.sample[rank - 1];
    if (step.a > static_cast<double>(height) || step.b > static_cast<double>(width))
      throw Error(ErrorKind::Usage, "augment: a piece of " + std::to_string(static_cast<int64_t>(step.a)) + " x " +
                                        std::to_string(static_cast<int64_t>(step.b)) +
                                        " does not fit into pictures of " + std::to_string(height) + " x " +
                                        std::to_string(width));
    height = static_cast<int64_t>(step.a);
    width = static_cast<int64_t>(step.b);
  }

  void apply(uint64_t record, const void* from, void* to) override {
    load(from);
    h_ = height_;
    w_ = width_;
    Map map;
    for (const Augmentation::Step& step : steps_) {
      PhiloxStream random(philox_key(seed(), stream_of("augment", 7) ^ splitmix64(epoch())), record,
                          static_cast<uint32_t>(step.kind) << 16 | step.ordinal);
      if (step.kind <= Kind::FlipDown) {
        move(step, random, map);
        continue;
      }
      warp(map);
      if (step.kind == Kind::Noise)
        disturb(step, random);
      else if (step.kind == Kind::Cutout)
        cut_out(static_cast<int64_t>(step.a), random);
      else
        cut(step, random);
    }
    warp(map);
    store(to);
  }

  void move(const Augmentation::Step& step, PhiloxStream& random, Map& map) const {
    const double drawn = 2.0 * static_cast<double>(random.uniform()) - 1.0;
    if (step.kind == Kind::Shift) {
      const auto most = static_cast<uint32_t>(step.a);
      const double right = static_cast<double>(random.below(2 * most + 1)) - most;
      const double down = static_cast<double>(random.below(2 * most + 1)) - most;
      map.then(1, 0, 0, 1, -right, -down);
    } else if (step.kind == Kind::Rotate) {
      const double angle = drawn * step.a * 3.14159265358979323846 / 180, cosine = std::cos(angle),
                   sine = std::sin(angle);
      map.then(cosine, sine, -sine, cosine, 0, 0);
      map.turned = true;
    } else if (step.kind == Kind::Scale) {
      const double factor = 1 / (1 + drawn * step.a);
      map.then(factor, 0, 0, factor, 0, 0);
      map.turned = true;
    } else if (drawn < 0) {
      const bool across = step.kind == Kind::FlipAcross;
      map.then(across ? -1 : 1, 0, 0, across ? 1 : -1, 0, 0);
    }
  }

  // Applies `map` by bilinear interpolation, exact at integer positions.
  void warp(Map& map) {
    if (!map.moved) return;
    const double middle_x = static_cast<double>(w_ - 1) / 2, middle_y = static_cast<double>(h_ - 1) / 2;
    for (int64_t p = 0; p < planes_; ++p) {
      const float* plane = now_.data() + p * h_ * w_;
      float* out = then_.data() + p * h_ * w_;
      for (int64_t y = 0; y < h_; ++y)
        for (int64_t x = 0; x < w_; ++x) {
          const double px = static_cast<double>(x) - middle_x, py = static_cast<double>(y) - middle_y;
          const double sx = map.a * px + map.b * py + map.x + middle_x, sy = map.c * px + map.d * py + map.y + middle_y;
          out[y * w_ + x] = map.turned
                                ? between(plane, sx, sy)
                                : at(plane, static_cast<int64_t>(std::floor(sx)), static_cast<int64_t>(std::floor(sy)));
        }
    }
    std::swap(now_, then_);
    map = Map();
  }
  float at(const float* plane, int64_t x, int64_t y) const {
    return x >= 0 && x < w_ && y >= 0 && y < h_ ? plane[y * w_ + x] : 0.0f;
  }
  float between(const float* plane, double sx, double sy) const {
    const double fx = std::floor(sx), fy = std::floor(sy);
    if (!(fx >= -1 && fx < static_cast<double>(w_) && fy >= -1 && fy < static_cast<double>(h_))) return 0;
    const auto x = static_cast<int64_t>(fx), y = static_cast<int64_t>(fy);
    const auto u = static_cast<float>(sx - fx), v = static_cast<float>(sy - fy);
    const float top = at(plane, x, y) * (1 - u) + at(plane, x + 1, y) * u;
    const float low = at(plane, x, y + 1) * (1 - u) + at(plane, x + 1, y + 1) * u;
    return top * (1 - v) + low * v;
  }

  // Adds noise. The sum of eight random bytes has mean 1020 and variance 8 (256^2 - 1) / 12.
  void disturb(const Augmentation::Step& step, PhiloxStream& random) {
    const double unit = from_.dtype == DType::U8 ? 255 : 1;
    const auto factor = static_cast<float>(step.a * unit / std::sqrt(8.0 * (256.0 * 256.0 - 1) / 12.0));
    for (int64_t i = 0; i < planes_ * h_ * w_; ++i) {
      uint32_t sum = 0;
      for (int k = 0; k < 2; ++k) {
        const uint32_t word = random.next(), pairs = (word & 0x00FF00FFu) + (word >> 8 & 0x00FF00FFu);
        sum += (pairs & 0xFFFF) + (pairs >> 16);
      }
      now_[static_cast<std::size_t>(i)] += factor * (static_cast<float>(sum) - 1020.0f);
    }
  }

  void cut_out(int64_t size, PhiloxStream& random) {
    const int64_t y0 = static_cast<int64_t>(random.below(static_cast<uint32_t>(h_))) - size / 2;
    const int64_t x0 = static_cast<int64_t>(random.below(static_cast<uint32_t>(w_))) - size / 2;
    const int64_t x1 = std::min(w_, x0 + size), left = std::max<int64_t>(0, x0);
    for (int64_t p = 0; p < planes_; ++p)
      for (int64_t y = std::max<int64_t>(0, y0); y < std::min(h_, y0 + size); ++y)
        std::fill(now_.data() + (p * h_ + y) * w_ + left, now_.data() + (p * h_ + y) * w_ + x1, 0.0f);
  }

  void cut(const Augmentation::Step& step, PhiloxStream& random) {
    const auto height = static_cast<int64_t>(step.a), width = static_cast<int64_t>(step.b);
    int64_t y0 = (h_ - height) / 2, x0 = (w_ - width) / 2;
    if (step.kind == Kind::Crop) {
      y0 = random.below(static_cast<uint32_t>(h_ - height + 1));
      x0 = random.below(static_cast<uint32_t>(w_ - width + 1));
    }
    for (int64_t p = 0; p < planes_; ++p)
      for (int64_t y = 0; y < height; ++y)
        std::copy_n(now_.data() + (p * h_ + y0 + y) * w_ + x0, width, then_.data() + (p * height + y) * width);
    std::swap(now_, then_);
    h_ = height;
    w_ = width;
  }

  void load(const void* from) {
    if (from_.dtype == DType::F32) {
      std::memcpy(now_.data(), from, from_.sample_bytes());
    } else {
      const auto* bytes = static_cast<const uint8_t*>(from);
      for (std::size_t i = 0; i < now_.size(); ++i) now_[i] = static_cast<float>(bytes[i]);
    }
  }
  void store(void* to) const {
    if (to_.dtype == DType::F32) {
      std::memcpy(to, now_.data(), to_.sample_bytes());
    } else {
      auto* bytes = static_cast<uint8_t*>(to);
      for (std::size_t i = 0; i < to_.sample_bytes(); ++i)
        bytes[i] = static_cast<uint8_t>(std::min(255.0f, std::max(0.0f, now_[i] + 0.5f)));
    }
  }

  std::string text_;
  std::vector<Augmentation::Step> steps_;
  int64_t height_ = 1, width_ = 1, planes_ = 1;  // of input samples
  int64_t h_ = 1, w_ = 1;                        // of the current sample
  std::vector<float> now_, then_;
};

}  // namespace harmonics
