// Block encoders that search for scales. Each minimises the weighted sum of squared errors: it tries candidates for the
// scale of a run, fits the scale to the indices by least squares, rounds all scales, fits the block's scales to the
// indices and rounds again. More candidates and iterations double the time and lower the error by at most 2 %. Weights
// are a `const float*`, one per element, finite and above zero, or EqualWeights.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include <harmonics/element_blocks.hpp>

namespace harmonics {

namespace detail {

struct EqualWeights {
  HARMONICS_FACE double operator[](int) const { return 1; }
  HARMONICS_FACE EqualWeights operator+(int) const { return {}; }
};

template <typename Weights>
HARMONICS_FACE double weight_at(const Weights& weights, int i) {
  return static_cast<double>(weights[i]);
}

// min(max(round(x), 0), top)
HARMONICS_FACE inline int nearest_index(float x, int top) {
  const float moved = x + 0.5f;
  return !(moved > 0) ? 0 : moved > static_cast<float>(top) ? top : static_cast<int>(moved);
}

// ---- numbers = step * index - least, index in [0, levels]: q2_k, q4_k, q5_k

struct AffineRun {
  float step = 0, least = 0;
};

// Returns the best unrounded pair for a run of n numbers.
template <typename Weights>
HARMONICS_FACE AffineRun affine_run(const float* x, int n, int levels, Weights weights) {
  float low = 0, high = x[0];
  double sum = 0, total = 0;
  for (int i = 0; i < n; ++i) {
    low = std::fmin(low, x[i]);
    high = std::fmax(high, x[i]);
    sum += weight_at(weights, i) * static_cast<double>(x[i]);
    total += weight_at(weights, i);
  }
  AffineRun best{(high - low) / static_cast<float>(levels), -low};  // the result if all numbers are equal
  if (!(high > low)) return best;
  double least_error = HUGE_VAL;
  for (int candidate = -3; candidate <= 3; ++candidate) {
    float offset = low, inverse = (static_cast<float>(levels) + static_cast<float>(candidate) / 3) / (high - low);
    for (int turn = 0; turn < 2; ++turn) {
      double indices = 0, squares = 0, products = 0, all = 0;
      for (int i = 0; i < n; ++i) {
        const double w = weight_at(weights, i), v = static_cast<double>(x[i]),
                     q = nearest_index((x[i] - offset) * inverse, levels);
        indices += w * q;
        squares += w * q * q;
        products += w * q * v;
        all += w * v * v;
      }
      const double determinant = total * squares - indices * indices;
      if (!(determinant > 0)) break;
      double step = (total * products - indices * sum) / determinant, base = (sum - step * indices) / total;
      if (base > 0) base = 0, step = products / squares;
      if (!(step > 0)) break;
      const double error = all + step * step * squares + total * base * base + 2 * step * base * indices -
                           2 * step * products - 2 * base * sum;
      if (error < least_error) least_error = error, best = {static_cast<float>(step), static_cast<float>(-base)};
      offset = static_cast<float>(base);
      inverse = static_cast<float>(1 / step);
    }
  }
  return best;
}

template <int kRuns, int kLevels, int kTop>  // kTop: the largest rounded scale and minimum
struct AffineBlock {
  static constexpr int kRun = 256 / kRuns;
  uint16_t scales = 0, minima = 0;  // f16
  uint8_t steps[kRuns] = {}, leasts[kRuns] = {}, indices[256] = {};

  // Sets the indices of a run for a rounded pair; returns the squared error.
  template <typename Weights>
  HARMONICS_FACE double round_run(const float* x, Weights weights, float step, float least, uint8_t* to) const {
    const float inverse = step != 0 ? 1 / step : 0;
    double error = 0;
    for (int i = 0; i < kRun; ++i) {
      const int q = nearest_index((x[i] + least) * inverse, kLevels);
      const double e = static_cast<double>(step) * q - static_cast<double>(least) - static_cast<double>(x[i]);
      to[i] = static_cast<uint8_t>(q);
      error += weight_at(weights, i) * e * e;
    }
    return error;
  }

  // Rounds the pairs with the scales of the block, trying both neighbours of each value, and sets the indices.
  template <typename Weights>
  HARMONICS_FACE double round_all(const float* x, Weights weights, const AffineRun* runs) {
    const float d = half_to_float(scales), m = half_to_float(minima);
    double total = 0;
    for (int run = 0; run < kRuns; ++run) {
      const int step = d > 0 ? nearest_index(runs[run].step / d, kTop) : 0,
                least = m > 0 ? nearest_index(runs[run].least / m, kTop) : 0;
      double best = HUGE_VAL;
      for (int s = step > 0 ? step - 1 : 0; s <= step + 1 && s <= kTop; ++s)
        for (int l = least > 0 ? least - 1 : 0; l <= least + 1 && l <= kTop; ++l) {
          uint8_t found[kRun];
          const double error = round_run(x + run * kRun, weights + run * kRun, d * static_cast<float>(s),
                                         m * static_cast<float>(l), found);
          if (!(error < best)) continue;
          best = error;
          steps[run] = static_cast<uint8_t>(s);
          leasts[run] = static_cast<uint8_t>(l);
          std::memcpy(indices + run * kRun, found, kRun);
        }
      total += best;
    }
    return total;
  }

  // Fits the scales of the block to the rounded pairs and the indices by least squares.
  template <typename Weights>
  HARMONICS_FACE bool fit(const float* x, Weights weights) {
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    for (int i = 0; i < 256; ++i) {
      const double a = steps[i / kRun] * indices[i], b = -leasts[i / kRun], v = static_cast<double>(x[i]),
                   w = weight_at(weights, i);
      aa += w * a * a, ab += w * a * b, bb += w * b * b, ax += w * a * v, bx += w * b * v;
    }
    const double determinant = aa * bb - ab * ab;
    double d = aa > 0 ? ax / aa : 0, m = 0;
    if (determinant > 1e-9 * aa * bb) d = (ax * bb - bx * ab) / determinant, m = (bx * aa - ax * ab) / determinant;
    if (!(d > 0) || !(m >= 0)) return false;
    scales = float_to_half(static_cast<float>(d));
    minima = float_to_half(static_cast<float>(m));
    return true;
  }

  template <typename Weights>
  HARMONICS_FACE void encode(const float* x, Weights weights) {
    AffineRun runs[kRuns];
    float most_step = 0, most_least = 0;
    for (int run = 0; run < kRuns; ++run) {
      runs[run] = affine_run(x + run * kRun, kRun, kLevels, weights + run * kRun);
      most_step = std::fmax(most_step, runs[run].step);
      most_least = std::fmax(most_least, runs[run].least);
    }
    scales = float_to_half(most_step / kTop);
    minima = float_to_half(most_least / kTop);
    const double error = round_all(x, weights, runs);
    AffineBlock next = *this;
    if (next.fit(x, weights) && next.round_all(x, weights, runs) < error) *this = next;
  }
};

template <typename Weights>
HARMONICS_FACE void encode_q2_k(const float* from, uint8_t* block, Weights weights) {
  if (refuse_block(from, 256, block, 84, 80)) return;
  AffineBlock<16, 3, 15> found;
  found.encode(from, weights);
  std::memset(block, 0, 84);
  for (int run = 0; run < 16; ++run) block[run] = static_cast<uint8_t>(found.steps[run] | found.leasts[run] << 4);
  for (int i = 0; i < 256; ++i)
    block[16 + i / 128 * 32 + i % 32] |= static_cast<uint8_t>(found.indices[i] << (i % 128 / 32 * 2));
  store_u16(block + 80, found.scales);
  store_u16(block + 82, found.minima);
}
HARMONICS_FACE inline void encode_q2_k(const float* from, uint8_t* block) { encode_q2_k(from, block, EqualWeights()); }

// Stores scales and pairs of q4_k and q5_k.
template <int kLevels>
HARMONICS_FACE inline void store_pairs(const AffineBlock<8, kLevels, 63>& found, uint8_t* block) {
  store_u16(block, found.scales);
  store_u16(block + 2, found.minima);
  uint8_t* packed = block + 4;
  for (int run = 0; run < 4; ++run) {
    const int step = found.steps[run + 4], least = found.leasts[run + 4];
    packed[run] = static_cast<uint8_t>(found.steps[run] | step >> 4 << 6);
    packed[run + 4] = static_cast<uint8_t>(found.leasts[run] | least >> 4 << 6);
    packed[run + 8] = static_cast<uint8_t>((step & 15) | (least & 15) << 4);
  }
}

template <typename Weights>
HARMONICS_FACE void encode_q4_k(const float* from, uint8_t* block, Weights weights) {
  if (refuse_block(from, 256, block, 144)) return;
  AffineBlock<8, 15, 63> found;
  found.encode(from, weights);
  store_pairs(found, block);
  for (int i = 0; i < 128; ++i) {
    const uint8_t* low = found.indices + i / 32 * 64 + i % 32;
    block[16 + i] = static_cast<uint8_t>(low[0] | low[32] << 4);
  }
}
HARMONICS_FACE inline void encode_q4_k(const float* from, uint8_t* block) { encode_q4_k(from, block, EqualWeights()); }

template <typename Weights>
HARMONICS_FACE void encode_q5_k(const float* from, uint8_t* block, Weights weights) {
  if (refuse_block(from, 256, block, 176)) return;
  AffineBlock<8, 31, 63> found;
  found.encode(from, weights);
  store_pairs(found, block);
  std::memset(block + 16, 0, 32);
  for (int i = 0; i < 256; ++i) block[16 + i % 32] |= static_cast<uint8_t>(found.indices[i] >> 4 << (i / 32));
  for (int i = 0; i < 128; ++i) {
    const uint8_t* low = found.indices + i / 32 * 64 + i % 32;
    block[48 + i] = static_cast<uint8_t>((low[0] & 15) | (low[32] & 15) << 4);
  }
}
HARMONICS_FACE inline void encode_q5_k(const float* from, uint8_t* block) { encode_q5_k(from, block, EqualWeights()); }

// ---- numbers = step * index, index in [-levels, levels - 1]: q3_k, q6_k; or step * one of sixteen uneven steps:
// iq4_nl, iq4_xs

// Sums over a run in four lanes, in a fixed order: of the weighted squares of the numbers `q`, and of their weighted
// products with x.
struct StepSums {
  double squares = 0, products = 0;
};
template <int kRun, typename Weights>
HARMONICS_FACE StepSums step_sums(const float* x, const float* q, Weights weights) {
  float squares[4] = {}, products[4] = {};
  for (int i = 0; i < kRun; i += 4)
    for (int lane = 0; lane < 4; ++lane) {
      const float wq = static_cast<float>(weights[i + lane]) * q[i + lane];
      squares[lane] += wq * q[i + lane];
      products[lane] += wq * x[i + lane];
    }
  const auto sum = [](const float* lanes) {
    return static_cast<double>(lanes[0] + lanes[2]) + static_cast<double>(lanes[1] + lanes[3]);
  };
  return {sum(squares), sum(products)};
}

template <int kRun, typename Weights>
HARMONICS_FACE float symmetric_run(const float* x, int levels, Weights weights) {
  const float most = largest_of(x, kRun);
  if (most == 0) return 0;
  const float middle = static_cast<float>(levels), top = static_cast<float>(2 * levels - 1);
  float best = 0;
  double best_gain = 0;
  for (const int end : {-levels, levels - 1})
    for (int candidate = -3; candidate <= 3; ++candidate) {
      float inverse = (static_cast<float>(end) + 0.3f * static_cast<float>(candidate)) / most;
      for (int turn = 0; turn < 2; ++turn) {
        float q[kRun];
        for (int i = 0; i < kRun; ++i) {
          float moved = x[i] * inverse + middle + 0.5f;
          moved = moved > 0 ? moved : 0;
          moved = moved < top ? moved : top;
          q[i] = static_cast<float>(static_cast<int>(moved)) - middle;
        }
        const StepSums sums = step_sums<kRun>(x, q, weights);
        if (!(sums.squares > 0) || sums.products == 0) break;
        const double gain = sums.products * sums.products / sums.squares;  // the decrease of the squared error
        if (gain > best_gain) best_gain = gain, best = static_cast<float>(sums.products / sums.squares);
        inverse = static_cast<float>(sums.squares / sums.products);
      }
    }
  return best;
}

// The index of the uneven step nearest to each multiple of 1/2 from -128. Midpoints of two steps are such multiples;
// they are rounded to the lower step.
struct NearestUnevenSteps {
  uint8_t index[512] = {};
  constexpr NearestUnevenSteps() {
    for (int i = 0, step = 0; i < 512; ++i) {
      while (step < 15 && i - 256 > uneven_steps[step] + uneven_steps[step + 1]) ++step;
      index[i] = static_cast<uint8_t>(step);
    }
  }
};
HARMONICS_FACE inline constexpr NearestUnevenSteps nearest_uneven_steps;

HARMONICS_FACE inline int nearest_uneven_step(float x) {
  const float halves = x * 2;
  if (!(halves > -256)) return 0;
  if (halves > 255) return 15;
  const int whole = static_cast<int>(halves);
  return nearest_uneven_steps.index[whole + (halves > static_cast<float>(whole)) + 256];
}

template <typename Weights>
HARMONICS_FACE float uneven_run(const float* x, int n, Weights weights) {
  const float most = largest_of(x, n);
  float best = 0;
  double best_gain = 0;
  for (const int end : {int{uneven_steps[0]}, int{uneven_steps[15]}})
    for (int candidate = -4; most != 0 && candidate <= 4; ++candidate) {
      float inverse = (static_cast<float>(end) + 2.5f * static_cast<float>(candidate)) / most;
      for (int turn = 0; turn < 2; ++turn) {
        double squares = 0, products = 0;
        for (int i = 0; i < n; ++i) {
          const double q = uneven_steps[nearest_uneven_step(x[i] * inverse)];
          squares += weight_at(weights, i) * q * q;
          products += weight_at(weights, i) * q * static_cast<double>(x[i]);
        }
        if (products == 0) break;
        const double gain = products * products / squares;
        if (gain > best_gain) best_gain = gain, best = static_cast<float>(products / squares);
        inverse = static_cast<float>(squares / products);
      }
    }
  return best;
}

// The multiples of a step: the integers from -kLevels to kLevels - 1, or the uneven steps.
template <int kLevels>
struct EvenSteps {
  HARMONICS_FACE static int index(float x) {
    float moved = x + static_cast<float>(kLevels) + 0.5f;
    moved = moved > 0 ? moved : 0;
    moved = moved < static_cast<float>(2 * kLevels - 1) ? moved : static_cast<float>(2 * kLevels - 1);
    return static_cast<int>(moved);
  }
  HARMONICS_FACE static int number(int index) { return index - kLevels; }
  template <int kRun, typename Weights>
  HARMONICS_FACE static float step(const float* x, Weights weights) {
    return symmetric_run<kRun>(x, kLevels, weights);
  }
};
struct UnevenSteps {
  HARMONICS_FACE static int index(float x) { return nearest_uneven_step(x); }
  HARMONICS_FACE static int number(int index) { return uneven_steps[index]; }
  template <int kRun, typename Weights>
  HARMONICS_FACE static float step(const float* x, Weights weights) {
    return uneven_run(x, kRun, weights);
  }
};

template <typename Steps, int kRun, int kTop>  // rounded steps are in [-kTop, kTop - 1]
struct RunsOfOneScale {
  static constexpr int kRuns = 256 / kRun;
  uint16_t scale = 0;  // f16
  int8_t steps[kRuns] = {};
  uint8_t indices[256] = {};  // unsigned

  template <typename Weights>
  HARMONICS_FACE double round_run(const float* x, Weights weights, float step, uint8_t* to) const {
    const float inverse = step != 0 ? 1 / step : 0;
    int q[kRun];
    for (int i = 0; i < kRun; ++i) q[i] = Steps::index(x[i] * inverse);
    double error[4] = {};  // in lanes, as above
    for (int i = 0; i < kRun; i += 4)
      for (int lane = 0; lane < 4; ++lane) {
        const double e = static_cast<double>(step) * Steps::number(q[i + lane]) - static_cast<double>(x[i + lane]);
        error[lane] += weight_at(weights, i + lane) * e * e;
      }
    for (int i = 0; i < kRun; ++i) to[i] = static_cast<uint8_t>(q[i]);
    return (error[0] + error[2]) + (error[1] + error[3]);
  }

  template <typename Weights>
  HARMONICS_FACE double round_all(const float* x, Weights weights, const float* runs) {
    const float d = half_to_float(scale);
    double total = 0;
    for (int run = 0; run < kRuns; ++run) {
      const int step = d != 0 ? nearest_index(runs[run] / d + static_cast<float>(kTop), 2 * kTop - 1) - kTop : 0;
      double best = HUGE_VAL;
      for (int s = step - 1; s <= step + 1; ++s) {
        if (s < -kTop || s >= kTop) continue;
        uint8_t found[kRun];
        const double error = round_run(x + run * kRun, weights + run * kRun, d * static_cast<float>(s), found);
        if (!(error < best)) continue;
        best = error;
        steps[run] = static_cast<int8_t>(s);
        std::memcpy(indices + run * kRun, found, kRun);
      }
      total += best;
    }
    return total;
  }

  template <typename Weights>
  HARMONICS_FACE bool fit(const float* x, Weights weights) {
    double squares = 0, products = 0;
    for (int i = 0; i < 256; ++i) {
      const double a = steps[i / kRun] * Steps::number(indices[i]);
      squares += weight_at(weights, i) * a * a;
      products += weight_at(weights, i) * a * static_cast<double>(x[i]);
    }
    if (!(squares > 0)) return false;
    scale = float_to_half(static_cast<float>(products / squares));
    return true;
  }

  template <typename Weights>
  HARMONICS_FACE void encode(const float* x, Weights weights) {
    float runs[kRuns];
    for (int run = 0; run < kRuns; ++run) runs[run] = Steps::template step<kRun>(x + run * kRun, weights + run * kRun);
    scale = float_to_half(largest_of(runs, kRuns) / -kTop);
    const double error = round_all(x, weights, runs);
    RunsOfOneScale next = *this;
    if (next.fit(x, weights) && next.round_all(x, weights, runs) < error) *this = next;
  }
};

template <typename Weights>
HARMONICS_FACE void encode_q3_k(const float* from, uint8_t* block, Weights weights) {
  if (refuse_block(from, 256, block, 110, 108)) return;
  RunsOfOneScale<EvenSteps<4>, 16, 32> found;
  found.encode(from, weights);
  std::memset(block, 0, 110);
  for (int i = 0; i < 256; ++i) {
    block[i % 32] |= static_cast<uint8_t>(found.indices[i] >> 2 << (i / 32));
    block[32 + i / 128 * 32 + i % 32] |= static_cast<uint8_t>((found.indices[i] & 3) << (i % 128 / 32 * 2));
  }
  for (int run = 0; run < 16; ++run) {
    const int step = found.steps[run] + 32;
    block[96 + run % 8] |= static_cast<uint8_t>((step & 15) << (run / 8 * 4));
    block[104 + run % 4] |= static_cast<uint8_t>(step >> 4 << (run / 4 * 2));
  }
  store_u16(block + 108, found.scale);
}
HARMONICS_FACE inline void encode_q3_k(const float* from, uint8_t* block) { encode_q3_k(from, block, EqualWeights()); }

template <typename Weights>
HARMONICS_FACE void encode_q6_k(const float* from, uint8_t* block, Weights weights) {
  if (refuse_block(from, 256, block, 210, 208)) return;
  RunsOfOneScale<EvenSteps<32>, 16, 128> found;
  found.encode(from, weights);
  std::memset(block, 0, 210);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, q = found.indices[i];
    block[64 * half + quarter % 2 * 32 + i % 32] |= static_cast<uint8_t>((q & 15) << (quarter / 2 * 4));
    block[128 + 32 * half + i % 32] |= static_cast<uint8_t>(q >> 4 << (2 * quarter));
  }
  std::memcpy(block + 192, found.steps, 16);
  store_u16(block + 208, found.scale);
}
HARMONICS_FACE inline void encode_q6_k(const float* from, uint8_t* block) { encode_q6_k(from, block, EqualWeights()); }

template <typename Weights>
HARMONICS_FACE void encode_iq4_nl(const float* from, uint8_t* block, Weights weights) {
  if (refuse_block(from, 32, block, 18)) return;
  const uint16_t scale = float_to_half(uneven_run(from, 32, weights));
  store_u16(block, scale);
  const float inverse = half_to_float(scale) != 0 ? 1 / half_to_float(scale) : 0;
  for (int i = 0; i < 16; ++i)
    block[2 + i] =
        static_cast<uint8_t>(nearest_uneven_step(from[i] * inverse) | nearest_uneven_step(from[i + 16] * inverse) << 4);
}
HARMONICS_FACE inline void encode_iq4_nl(const float* from, uint8_t* block) {
  encode_iq4_nl(from, block, EqualWeights());
}

template <typename Weights>
HARMONICS_FACE void encode_iq4_xs(const float* from, uint8_t* block, Weights weights) {
  if (refuse_block(from, 256, block, 136)) return;
  RunsOfOneScale<UnevenSteps, 32, 32> found;
  found.encode(from, weights);
  std::memset(block, 0, 136);
  store_u16(block, found.scale);
  uint16_t high = 0;
  for (int run = 0; run < 8; ++run) {
    const int step = found.steps[run] + 32;
    block[4 + run / 2] |= static_cast<uint8_t>((step & 15) << (run % 2 * 4));
    high = static_cast<uint16_t>(high | step >> 4 << (2 * run));
    const uint8_t* indices = found.indices + 32 * run;
    for (int i = 0; i < 16; ++i) block[8 + 16 * run + i] = static_cast<uint8_t>(indices[i] | indices[i + 16] << 4);
  }
  store_u16(block + 2, high);
}
HARMONICS_FACE inline void encode_iq4_xs(const float* from, uint8_t* block) {
  encode_iq4_xs(from, block, EqualWeights());
}

}  // namespace detail

}  // namespace harmonics
