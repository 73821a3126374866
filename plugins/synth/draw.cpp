#include "draw.hpp"

#include <algorithm>
#include <cmath>

#include <harmonics/philox.hpp>

#include "glyphs.hpp"

namespace synth {
namespace {

using harmonics::PhiloxStream;

PhiloxStream random_of(uint64_t seed, uint64_t index, uint32_t part) {
  return PhiloxStream(harmonics::philox_key(seed, harmonics::stream_of("synth:digits", 12)), index, part);
}

// Returns an approximately normal number of deviation 1, never beyond 3.5. Uses exact operations only, so the result is
// equal on every machine.
float normal(PhiloxStream& r) { return (r.uniform() + r.uniform() + r.uniform() + r.uniform() - 2.0f) * 1.7320508f; }

// Returns a smooth wave of period 1 between -1 and 1, made of parabolas instead of a sine for the same reason.
float wave(float t) {
  t = t - std::floor(t);
  return t < 0.5f ? 16.0f * t * (0.5f - t) : 16.0f * (t - 0.5f) * (t - 1.0f);
}

// A writer's handwriting.
struct Hand {
  float xx, xy, yx, yy, dx, dy;                            // from unit square to pixels
  float bend_x, bend_y, phase_x, phase_y, turn_x, turn_y;  // wobble of the whole figure
  float radius, pressure, pressure_phase, pressure_turns;
  float jitter;

  explicit Hand(PhiloxStream& r) {
    const float angle = 0.12f * normal(r), shear = 0.18f * normal(r);
    const float width = 20.0f * r.uniform(0.76f, 1.12f), height = 20.0f * r.uniform(0.86f, 1.13f);
    const float s = angle - angle * angle * angle / 6, c = 1 - angle * angle / 2;
    xx = c * width;
    xy = (-s - shear * c) * height;
    yx = s * width;
    yy = (c - shear * s) * height;
    dx = 13.5f + 0.92f * normal(r);
    dy = 13.5f + 0.92f * normal(r);
    bend_x = 0.030f * normal(r);
    bend_y = 0.030f * normal(r);
    phase_x = r.uniform();
    phase_y = r.uniform();
    turn_x = r.uniform(0.5f, 1.3f);
    turn_y = r.uniform(0.5f, 1.3f);
    radius = r.uniform(0.75f, 1.75f);
    pressure = r.uniform(0.0f, 0.35f);
    pressure_phase = r.uniform();
    pressure_turns = r.uniform(0.3f, 1.5f);
    jitter = r.uniform(0.010f, 0.036f);
  }

  Point place(Point p) const {
    const float x = p.x - 0.5f + bend_x * wave(turn_x * p.y + phase_x),
                y = p.y - 0.5f + bend_y * wave(turn_y * p.x + phase_y);
    return {xx * x + xy * y + dx, yx * x + yy * y + dy};
  }
  float radius_at(float along) const { return radius * (1 + pressure * wave(pressure_turns * along + pressure_phase)); }
};

class Canvas {
 public:
  // Draws a straight line with round ends; its thickness changes evenly along it.
  void segment(Point a, Point b, float radius_a, float radius_b, float ink) {
    const float reach = std::max(radius_a, radius_b) + 0.5f;
    const int x0 = std::max(static_cast<int>(std::floor(std::min(a.x, b.x) - reach)), 0),
              x1 = std::min(static_cast<int>(std::max(a.x, b.x) + reach) + 1, side - 1);
    const int y0 = std::max(static_cast<int>(std::floor(std::min(a.y, b.y) - reach)), 0),
              y1 = std::min(static_cast<int>(std::max(a.y, b.y) + reach) + 1, side - 1);
    const float ux = b.x - a.x, uy = b.y - a.y, length2 = ux * ux + uy * uy,
                inverse = length2 > 1e-8f ? 1 / length2 : 0;
    for (int y = y0; y <= y1; ++y)
      for (int x = x0; x <= x1; ++x) {
        const float px = static_cast<float>(x) - a.x, py = static_cast<float>(y) - a.y;
        const float t = std::clamp((px * ux + py * uy) * inverse, 0.0f, 1.0f), ex = px - t * ux, ey = py - t * uy;
        const float cover =
            std::clamp(radius_a + t * (radius_b - radius_a) + 0.5f - std::sqrt(ex * ex + ey * ey), 0.0f, 1.0f);
        pixels_[y][x] = std::max(pixels_[y][x], cover * ink);
      }
  }

  // Blends every pixel with its neighbours.
  void blur(float amount) {
    float from[side + 2][side + 2] = {};
    for (int y = 0; y < side; ++y) std::copy_n(pixels_[y], side, from[y + 1] + 1);
    const float near = amount * 0.15f, far = amount * 0.1f, own = 1 - amount;
    for (int y = 0; y < side; ++y)
      for (int x = 0; x < side; ++x)
        pixels_[y][x] = own * from[y + 1][x + 1] +
                        near * (from[y][x + 1] + from[y + 2][x + 1] + from[y + 1][x] + from[y + 1][x + 2]) +
                        far * (from[y][x] + from[y][x + 2] + from[y + 2][x] + from[y + 2][x + 2]);
  }

  // Uneven ink: a coarse pattern removes up to `depth` of it.
  void texture(PhiloxStream& r, float depth) {
    constexpr int cells = 7, size = side / cells;
    float grid[cells + 1][cells + 1];
    for (auto& row : grid)
      for (float& g : row) g = 1 - depth * r.uniform();
    for (int y = 0; y < side; ++y)
      for (int x = 0; x < side; ++x) {
        const int gx = x / size, gy = y / size;
        const float fx = static_cast<float>(x % size) / size, fy = static_cast<float>(y % size) / size;
        const float top = grid[gy][gx] + fx * (grid[gy][gx + 1] - grid[gy][gx]),
                    low = grid[gy + 1][gx] + fx * (grid[gy + 1][gx + 1] - grid[gy + 1][gx]);
        pixels_[y][x] *= top + fy * (low - top);
      }
  }

  void store(uint8_t* picture, float gain) const {
    for (int y = 0; y < side; ++y)
      for (int x = 0; x < side; ++x)
        picture[y * side + x] = static_cast<uint8_t>(std::min(pixels_[y][x] * gain, 1.0f) * 255.0f + 0.5f);
  }

 private:
  float pixels_[side][side] = {};
};

// Returns the point of a Catmull-Rom curve between b and c.
Point curve(Point a, Point b, Point c, Point d, float t) {
  const auto blend = [t](float p, float q, float r, float s) {
    return q + 0.5f * t * (r - p + t * (2 * p - 5 * q + 4 * r - s + t * (3 * (q - r) + s - p)));
  };
  return {blend(a.x, b.x, c.x, d.x), blend(a.y, b.y, c.y, d.y)};
}

void draw_stroke(Canvas& canvas, const Hand& hand, const Point* p, int n, float ink) {
  constexpr int pieces = 5;
  Point last = hand.place(p[0]);
  float last_radius = hand.radius_at(p[0].y);
  for (int i = 0; i + 1 < n; ++i)
    for (int k = 1; k <= pieces; ++k) {
      const Point q =
          curve(p[std::max(i - 1, 0)], p[i], p[i + 1], p[std::min(i + 2, n - 1)], static_cast<float>(k) / pieces);
      const Point at = hand.place(q);
      const float radius = hand.radius_at(q.y + 0.3f * q.x);
      canvas.segment(last, at, last_radius, radius, ink);
      last = at;
      last_radius = radius;
    }
}

const Glyph& choose_glyph(const std::vector<Glyph>& glyphs, PhiloxStream& r) {
  uint32_t total = 0;
  for (const Glyph& g : glyphs) total += g.weight;
  uint32_t pick = r.below(total);
  for (const Glyph& g : glyphs) {
    if (pick < g.weight) return g;
    pick -= g.weight;
  }
  return glyphs.back();
}

void draw_glyph(Canvas& canvas, const Glyph& glyph, const Hand& hand, PhiloxStream& r) {
  constexpr int most = 16;
  Point corner{-1, -1}, moved{0, 0};  // end of the last stroke, and where it was moved: strokes stay connected
  for (const Stroke& stroke : glyph.strokes) {
    Point points[most];
    const int n = std::min(static_cast<int>(stroke.size()), most);
    for (int i = 0; i < n; ++i) {
      const Point shift{hand.jitter * normal(r), hand.jitter * normal(r)};
      const bool meets = i == 0 && stroke[0].x == corner.x && stroke[0].y == corner.y;
      points[i] = meets ? moved : Point{stroke[i].x + shift.x, stroke[i].y + shift.y};
    }
    corner = stroke[n - 1];
    moved = points[n - 1];
    draw_stroke(canvas, hand, points, n, 1.0f);
  }
}

// Draws a stray mark: a short arc near the edge of the digit.
void draw_mark(Canvas& canvas, const Hand& hand, PhiloxStream& r) {
  const Point start{r.uniform(-0.1f, 1.1f), r.uniform(-0.1f, 1.1f)};
  const Point step{r.uniform(-0.16f, 0.16f), r.uniform(-0.16f, 0.16f)};
  const Point points[3] = {start,
                           {start.x + step.x, start.y + step.y},
                           {start.x + 1.6f * step.x + 0.3f * step.y, start.y + 1.6f * step.y - 0.3f * step.x}};
  draw_stroke(canvas, hand, points, 3, r.uniform(0.4f, 0.9f));
}

}  // namespace

uint8_t digit_of(uint64_t seed, uint64_t index) { return static_cast<uint8_t>(random_of(seed, index, 0).below(10)); }

void draw_digit(uint64_t seed, uint64_t index, uint8_t* picture) {
  PhiloxStream r = random_of(seed, index, 1);
  Canvas canvas;
  const Hand hand(r);
  draw_glyph(canvas, choose_glyph(glyphs_of(digit_of(seed, index)), r), hand, r);
  if (r.uniform() < 0.08f) draw_mark(canvas, hand, r);
  canvas.blur(r.uniform(0.05f, 0.45f));
  canvas.texture(r, r.uniform(0.0f, 0.45f));
  canvas.store(picture, r.uniform(0.95f, 1.3f));
}

}  // namespace synth
