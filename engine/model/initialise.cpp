// Initial values of parameters. Element i depends only on the seed, the tensor's name and i.
#include <cmath>
#include <cstring>
#include <numbers>

#include <harmonics/element_conversion.hpp>

#include "engine/base/philox.hpp"
#include "engine/model/parameter_store.hpp"
#include "engine/program/ops/dispatch.hpp"
#include "engine/program/ops/fill.hpp"

namespace harmonics::engine {

namespace {

// Returns the four random words of elements 4i to 4i+3.
std::array<uint32_t, 4> block(std::array<uint32_t, 2> key, uint64_t i) {
  return philox({static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 0, 0}, key);
}

struct Uniform {
  double low, high;
  std::array<double, 4> operator()(const std::array<uint32_t, 4>& words) const {
    std::array<double, 4> out;
    for (size_t i = 0; i < 4; ++i) out[i] = low + (high - low) * static_cast<double>(unit_float(words[i]));
    return out;
  }
};

// Box-Muller transform: two words give two numbers. The first word is mapped to (0, 1] because of the logarithm.
struct Normal {
  double mean, deviation;
  std::array<double, 4> operator()(const std::array<uint32_t, 4>& words) const {
    std::array<double, 4> out;
    for (size_t i = 0; i < 4; i += 2) {
      const double radius = std::sqrt(-2 * std::log((words[i] + 1.0) * 0x1p-32));
      const double angle = 2 * std::numbers::pi * (words[i + 1] * 0x1p-32);
      out[i] = mean + deviation * (radius * std::cos(angle));
      out[i + 1] = mean + deviation * (radius * std::sin(angle));
    }
    return out;
  }
};

template <typename Distribution>
void draw(void* data, const TensorType& type, std::array<uint32_t, 2> key, const Distribution& distribution) {
  const int64_t count = type.shape.count();
  visit_dtype(type.dtype, [&](auto element) {
    using T = typename decltype(element)::type;
    T* to = static_cast<T*>(data);
    for (int64_t i = 0; i < count; i += 4) {
      const std::array<double, 4> values = distribution(block(key, static_cast<uint64_t>(i) / 4));
      for (int64_t j = i; j < std::min(i + 4, count); ++j)
        to[j] = convert_element<T>(values[static_cast<size_t>(j - i)]);
    }
  });
}

void expect(bool holds, const std::string& name, const std::string& rule, double a, double b) {
  if (!holds)
    throw Error(ErrorKind::Usage,
                "the initialisation of '" + name + "' (" + std::to_string(a) + ", " + std::to_string(b) + ") " + rule);
}

// Fills a tensor of a stored type with a constant.
void fill_stored(void* data, const TensorType& type, double value) {
  const ElementType& element = element_type(type.dtype);
  const std::vector<float> numbers(element.block, static_cast<float>(value));
  std::vector<char> block(element.block_bytes);
  encode_elements(type.dtype, numbers.data(), block.data(), element.block);
  for (size_t at = 0; at < type.bytes(); at += block.size())
    std::memcpy(static_cast<char*>(data) + at, block.data(), block.size());
}

}  // namespace

void initialise(void* data, const TensorType& type, const hx_init& init, uint64_t seed, const std::string& name) {
  if (init.kind == HX_INIT_CONSTANT && is_stored(type.dtype)) return fill_stored(data, type, init.a);
  if (init.kind == HX_INIT_CONSTANT) return fill_elements(type.dtype, data, type.shape.count(), init.a);
  if (!is_float(type.dtype))
    throw Error(ErrorKind::Type,
                "'" + name + "' is " + type.str() + "; only floating-point parameters can begin with random numbers");
  const auto key = philox_key(seed, stream_of(name.data(), name.size()));
  switch (init.kind) {
    case HX_INIT_UNIFORM:
      expect(init.a <= init.b, name, "needs bounds in rising order", init.a, init.b);
      return draw(data, type, key, Uniform{init.a, init.b});
    case HX_INIT_NORMAL:
      expect(init.b >= 0, name, "needs a deviation that is not negative", init.a, init.b);
      return draw(data, type, key, Normal{init.a, init.b});
    case HX_INIT_KAIMING_UNIFORM: {
      expect(init.a > 0, name, "needs a fan-in above 0", init.a, init.b);
      const double bound = 1 / std::sqrt(init.a);
      return draw(data, type, key, Uniform{-bound, bound});
    }
    default:
      throw Error(ErrorKind::Usage,
                  "the initialisation of '" + name + "' has the unknown kind " + std::to_string(init.kind));
  }
}

}  // namespace harmonics::engine
