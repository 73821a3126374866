// Any file of rates gives positive, finite rates that round-trip, or none.
#include <cmath>
#include <cstdlib>
#include <string>

#include "engine/execution/product_rates.hpp"

using namespace harmonics::engine;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  const std::string key = text.substr(0, text.find_first_of("\t\n"));
  const auto rates = find_rates(text, key);
  if (!rates) return 0;
  const auto require = [](double rate) {
    if (!std::isfinite(rate) || rate <= 0) std::abort();
  };
  require(rates->f32);
  for (const auto& [rounding, rate] : rates->narrow) require(rate);
  const auto again = find_rates(rates_line("key", *rates), "key");
  if (!again || again->narrow.size() != rates->narrow.size()) std::abort();
  choose_precision({{256, *rates}});
  return 0;
}
