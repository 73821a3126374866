// Resolves `--precision auto`: which products round their operands, by rates that are measured once and stored in a
// file.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "engine/execution/executable.hpp"
#include "engine/passes/precision_recipe.hpp"

namespace harmonics::engine {

// FLOP per second of a matrix product on one thread.
struct ProductRates {
  double f32 = 0;
  std::map<Rounding, double> narrow;  // the roundings that the device has
  friend bool operator==(const ProductRates&, const ProductRates&) = default;
};

struct PrecisionChoice {
  Precision precision = Precision::fp32;
  std::string why;  // "products in fp16 measured 1.72 times the rate of f32; those with a side below 128 stay f32"
  int64_t least_side = 0;
};

// Products round only if they are faster by this factor. bf16, which is less accurate than fp16 chunks, must also reach
// kWorthBf16 on the largest product.
constexpr double kWorthRounding = 1.15, kWorthBf16 = 1.6;
// The least side without a measurement, and the lower bound with one: on several threads, strips of 64 columns in fp16
// divide smaller products unevenly. The choice does not depend on the number of threads, nor do results.
constexpr int64_t fixed_least_side(Rounding rounding) { return rounding == Rounding::bf16 ? 32 : 128; }
// The least side of devices with their own memory, and of checkpoints that record none.
constexpr int64_t usual_least_side(Rounding rounding) { return rounding == Rounding::bf16 ? 32 : 64; }
// Chooses the rounding that is fastest on the largest product. `rates`: of products with 1,024 columns and terms, by
// their number of rows. The least side is the least number of rows from which on rounding is worth it.
PrecisionChoice choose_precision(const std::map<int64_t, ProductRates>& rates);

// Format and parse rates as lines of a file: "KEY\tfp32=1.2e+11\tfp16=2.4e+11\tend". The last line with the key counts.
// Lines that are incomplete or contain a number that is not positive are ignored.
std::string rates_line(const std::string& key, const ProductRates& rates);
std::optional<ProductRates> find_rates(const std::string& text, const std::string& key);
// Returns $XDG_CACHE_HOME/harmonics/product-rates, or the same in ~/.cache; "" without a home directory.
std::string product_rates_path();

// Returns the largest peak_flops(threads) that any run has measured on this processor, or 0 if unknown. Each call
// measures once more (about 10 ms), because other load only slows down, and stores a larger result in the file.
double kept_peak(int threads);

// Resolves Precision::automatic. For devices that compute on this processor, uses the rates in the file and measures
// them if they are missing (less than a second). `deterministic`: bf16 or fp16 by a fixed table, without a measurement,
// because rates would decide the bits of results. For devices with their own memory: fp16, also without a measurement.
PrecisionChoice resolve_precision(const std::string& device, Registry& registry, bool deterministic);

// Replaces Precision::automatic in the settings by the resolved precision and its reason.
void settle_precision(DeviceSettings& settings, Registry& registry, bool deterministic);
// Returns "precision auto: fp16, as products in fp16 measured ...", or "" unless `auto` chose the precision.
std::string precision_text(const DeviceSettings& settings);

// Returns the trivial recipe of a precision, which applies to all products, or to those of at least
// DeviceSettings::least_side.
PrecisionRecipe recipe_of(const DeviceSettings& settings);

}  // namespace harmonics::engine
