// `--precision auto`: whether products round their operands, by rates that are measured once and kept on disk.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "engine/execution/executable.hpp"
#include "engine/passes/precision_recipe.hpp"

namespace harmonics::engine {

// FLOP per second of a product on one thread.
struct ProductRates {
  double f32 = 0;
  std::map<Rounding, double> narrow;  // of the roundings that the device has
  friend bool operator==(const ProductRates&, const ProductRates&) = default;
};

struct PrecisionChoice {
  Precision precision = Precision::fp32;
  std::string why;  // "products in fp16 measured 1.94 times the rate of f32, and 1.6 is enough"
};

// Rounding costs accuracy and conversions: it is worth this factor in the product's rate.
constexpr double kWorthRounding = 1.6;
PrecisionChoice choose_precision(const ProductRates& rates);

// Rates as lines of a file: "KEY\tfp32=1.2e+11\tfp16=2.4e+11\tend". Of several lines with the key the last counts;
// lines that are incomplete, or have other numbers than positive ones, count as missing.
std::string rates_line(const std::string& key, const ProductRates& rates);
std::optional<ProductRates> find_rates(const std::string& text, const std::string& key);
// $XDG_CACHE_HOME/harmonics/product-rates, or in ~/.cache; "" without a home directory.
std::string product_rates_path();

// peak_flops(threads) of this processor, the largest that any run has measured: the file keeps it, and each call
// measures it once more (about 10 ms), as other load only slows down. 0: unknown.
double kept_peak(int threads);

// The choice for Precision::automatic: on devices that compute on this processor by the rates in the file, which are
// measured where it lacks them (about 0.1 s). `deterministic`: bf16 where the device has it, else fp16, without a
// measurement, since measured rates decide about the bits of results. Devices with their own memory: fp16, likewise.
PrecisionChoice resolve_precision(const std::string& device, Registry& registry, bool deterministic);

// Replaces Precision::automatic in the settings by the choice, with its reason.
void settle_precision(DeviceSettings& settings, Registry& registry, bool deterministic);
// "precision auto: fp16, as products in fp16 measured ..."; "" unless `auto` chose.
std::string precision_text(const DeviceSettings& settings);

// The trivial recipe of a precision: it holds for every product. Of settings that `auto` made (precision_reason), for
// products whose sides are all at least this long: shorter ones are faster in f32, fused with updates.
constexpr int64_t least_mixed_side(Rounding rounding) { return rounding == Rounding::bf16 ? 32 : 64; }
PrecisionRecipe recipe_of(const DeviceSettings& settings);

}  // namespace harmonics::engine
