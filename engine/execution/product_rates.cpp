#include "engine/execution/product_rates.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <fmt/core.h>

#include "engine/base/foreign_file.hpp"
#include "engine/base/read_file.hpp"
#include "engine/execution/kernel_source.hpp"
#include "engine/execution/machine.hpp"
#include "engine/execution/device_memory.hpp"
#include "engine/plugin/discovery.hpp"

namespace harmonics::engine {

namespace {

constexpr Rounding kCandidates[] = {Rounding::fp16, Rounding::bf16};
// The second operand exceeds the second-level cache, as the weights of a wide net do.
constexpr int64_t kProductRows[] = {32, 64, 128, 256}, kMostRows = 256, kProductDepth = 1024, kProductColumns = 1024;
constexpr int kTimedRuns = 4;
constexpr size_t kLargestRates = 64 << 10;

Precision precision_of(Rounding rounding) { return rounding == Rounding::bf16 ? Precision::bf16 : Precision::fp16; }

KernelPtr product_kernel(KernelSource& kernels, Rounding rounding, int64_t rows = kMostRows) {
  AttributeMap axes;
  axes.set("lhs_contract", std::vector<int64_t>{1}).set("rhs_contract", std::vector<int64_t>{0});
  axes.set("lhs_batch", std::vector<int64_t>{}).set("rhs_batch", std::vector<int64_t>{});
  return kernels.find("dot", axes,
                      {{DType::F32, {rows, kProductDepth}}, {DType::F32, {kProductDepth, kProductColumns}}},
                      {{DType::F32, {rows, kProductColumns}}}, 0, rounding);
}

// Returns the seconds of running all parts in sequence.
double seconds_of_product(const Kernel& kernel, void* const* buffers) {
  const auto start = std::chrono::steady_clock::now();
  for (uint32_t phase = 0; phase < kernel.raw().phases; ++phase)
    for (uint32_t part = 0; part < kernel.raw().parts[phase]; ++part)
      kernel.raw().run(kernel.raw().context, buffers, phase, part);
  return std::max(1e-9, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

HTensor timed_operand(int64_t rows, int64_t columns) {
  HTensor x(DType::F32, {rows, columns});
  for (int64_t i = 0; i < x.size(); ++i) x.mutable_data<float>()[i] = (static_cast<float>(i % 251) - 125.5f) / 128;
  return x;
}

// Alternates the kernels, so that other load affects all of them alike. The fastest run of each counts.
ProductRates measured_rates(KernelSource& kernels, int64_t rows) {
  struct Timed {
    Rounding rounding;
    KernelPtr kernel;
    HTensor workspace;
    double best = 1e300;
  };
  std::vector<Timed> all;
  for (const Rounding rounding : {Rounding::none, kCandidates[0], kCandidates[1]}) {
    if (rounding != Rounding::none && !kernels.has(rounding)) continue;
    const KernelPtr kernel = product_kernel(kernels, rounding, rows);
    if (!kernel || !kernel->raw().run) continue;
    const auto bytes = static_cast<int64_t>(std::max<uint64_t>(64, kernel->raw().workspace));
    all.push_back({rounding, kernel, HTensor(DType::U8, {bytes})});
  }
  HTensor a = timed_operand(rows, kProductDepth), b = timed_operand(kProductDepth, kProductColumns),
          c(DType::F32, {rows, kProductColumns});
  for (int i = 0; i <= kTimedRuns; ++i)  // the first run only touches the memory
    for (Timed& t : all) {
      void* const buffers[] = {a.mutable_bytes(), b.mutable_bytes(), c.mutable_bytes(), t.workspace.mutable_bytes()};
      const double seconds = seconds_of_product(*t.kernel, buffers);
      if (i > 0) t.best = std::min(t.best, seconds);
    }
  ProductRates rates;
  for (const Timed& t : all)
    (t.rounding == Rounding::none ? rates.f32 : rates.narrow[t.rounding]) =
        2.0 * static_cast<double>(rows * kProductDepth * kProductColumns) / t.best;
  return rates;
}

// Returns the key of the rates. It changes with the processor, the instruction set and the kernels, whose names stay
// when their code changes: raise the number then.
std::string key_of_rates(KernelSource& kernels, const std::string& device) {
  std::string key = device + ", 3, " + processor_name();
  for (const Rounding rounding : {Rounding::none, kCandidates[0], kCandidates[1]}) {
    if (rounding != Rounding::none && !kernels.has(rounding)) continue;
    const KernelPtr kernel = product_kernel(kernels, rounding);
    key += fmt::format(", {}: {}", rounding == Rounding::none ? "fp32" : rounding_name(rounding),
                       kernel ? kernel->raw().name : "none");
  }
  key += ", " + kernels.description();
  std::replace_if(
      key.begin(), key.end(), [](char c) { return c == '\t' || c == '\n'; }, ' ');
  return key;
}

// Returns the contents of the file, or "" if another user may have written it.
std::string text_of_rates(const std::string& path) {
  std::error_code failed;
  if (path.empty() || !std::filesystem::is_regular_file(path, failed) || !is_own(path)) return "";
  try {
    return read_file(path, kLargestRates);
  } catch (const Error&) {
    return "";
  }
}

// Appends the line, or replaces the file if `anew`. If the folder is not writable, the next run measures again.
void keep_rates(const std::string& path, const std::string& line, bool anew) {
  if (path.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | (anew ? O_TRUNC : 0);
  const int file = ::open(path.c_str(), flags, 0600);
  if (file < 0) return;
  [[maybe_unused]] const ssize_t n = ::write(file, line.data(), line.size());  // a partial line is ignored
  ::close(file);
}

// The rates of each number of rows have a line of their own, and are kept together.
std::map<int64_t, ProductRates> product_rates(KernelSource& kernels, const std::string& device) {
  const std::string path = product_rates_path(), key = key_of_rates(kernels, device), text = text_of_rates(path);
  const auto key_of = [&](int64_t rows) { return fmt::format("{}, {} rows", key, rows); };
  std::map<int64_t, ProductRates> all;
  for (const int64_t rows : kProductRows)
    if (const std::optional<ProductRates> known = find_rates(text, key_of(rows))) all[rows] = *known;
  if (all.size() == std::size(kProductRows)) return all;
  std::string lines;
  for (const int64_t rows : kProductRows) {
    all[rows] = measured_rates(kernels, rows);
    lines += rates_line(key_of(rows), all[rows]);
  }
  keep_rates(path, lines, text.size() > kLargestRates / 2);
  return all;
}

// The fixed table of deterministic runs: bf16, except by the dot products of a processor that also has fp16 arithmetic.
// Such processors, on which tile registers are hidden, compute these dot products at half the rate of f32.
Rounding fixed_rounding(KernelSource& kernels) {
  if (!kernels.has(Rounding::bf16)) return Rounding::fp16;
  const KernelPtr kernel = kernels.has(Rounding::fp16) ? product_kernel(kernels, Rounding::bf16) : nullptr;
  return kernel && std::string_view(kernel->raw().name).find("bf16 dot products") != std::string_view::npos
             ? Rounding::fp16
             : Rounding::bf16;
}

std::optional<double> positive_rate(std::string_view text) {
  double value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value <= 0)
    return std::nullopt;
  return value;
}

std::optional<ProductRates> rates_of(std::string_view fields) {
  ProductRates rates;
  bool ended = false;
  while (!fields.empty() && !ended) {
    const size_t tab = std::min(fields.find('\t'), fields.size());
    const std::string_view field = fields.substr(0, tab);
    fields.remove_prefix(std::min(tab + 1, fields.size()));
    ended = field == "end" && fields.empty();
    if (ended) break;
    const size_t equals = field.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view name = field.substr(0, equals);
    const std::optional<double> rate = positive_rate(field.substr(equals + 1));
    const std::optional<Rounding> rounding = rounding_named(name);
    if (!rate || (name != "fp32" && (!rounding || *rounding == Rounding::none))) return std::nullopt;
    (name == "fp32" ? rates.f32 : rates.narrow[*rounding]) = *rate;
  }
  return ended && rates.f32 > 0 ? std::optional(rates) : std::nullopt;
}

}  // namespace

PrecisionChoice choose_precision(const std::map<int64_t, ProductRates>& rates) {
  const ProductRates largest = rates.empty() ? ProductRates{} : rates.rbegin()->second;
  const auto best = std::max_element(largest.narrow.begin(), largest.narrow.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (best == largest.narrow.end() || largest.f32 <= 0)
    return {Precision::fp32, "this processor has no products that round their operands"};
  const Rounding rounding = best->first;
  const double factor = best->second / largest.f32, limit = rounding == Rounding::bf16 ? kWorthBf16 : kWorthRounding;
  const std::string measured =
      fmt::format("products in {} measured {:.2f} times the rate of f32", rounding_name(rounding), factor);
  if (factor < limit) return {Precision::fp32, fmt::format("{}, less than {:g}", measured, limit)};
  int64_t least = rates.rbegin()->first;
  for (auto at = rates.rbegin(); at != rates.rend(); ++at) {
    const auto narrow = at->second.narrow.find(rounding);
    if (narrow == at->second.narrow.end() || narrow->second < kWorthRounding * at->second.f32 ||
        at->first < fixed_least_side(rounding))
      break;
    least = at->first;
  }
  return {precision_of(rounding), fmt::format("{}; those with a side below {} stay f32", measured, least), least};
}

std::string rates_line(const std::string& key, const ProductRates& rates) {
  std::string line = fmt::format("{}\tfp32={:.6g}", key, rates.f32);
  for (const auto& [rounding, rate] : rates.narrow) line += fmt::format("\t{}={:.6g}", rounding_name(rounding), rate);
  return line + "\tend\n";
}

std::optional<ProductRates> find_rates(const std::string& text, const std::string& key) {
  std::optional<ProductRates> found;
  for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string_view line = std::string_view(text).substr(at, end - at);
    if (line.size() <= key.size() || line.substr(0, key.size()) != key || line[key.size()] != '\t') continue;
    if (auto rates = rates_of(line.substr(key.size() + 1))) found = std::move(rates);
  }
  return found;
}

std::string product_rates_path() {
  const std::string beside = plugin_cache_path();
  return beside.empty() ? beside : std::filesystem::path(beside).replace_filename("product-rates").string();
}

double kept_peak(int threads) {
  constexpr double kWorthKeeping = 1.01;
  const double now = peak_flops(threads);
  if (now <= 0) return 0;
  const std::string path = product_rates_path(), text = text_of_rates(path),
                    key = fmt::format("peak, {}, {}, {} threads", processor_name(), peak_instructions(), threads);
  const std::optional<ProductRates> known = find_rates(text, key);
  if (known && known->f32 * kWorthKeeping >= now) return std::max(known->f32, now);
  keep_rates(path, rates_line(key, {now, {}}), text.size() > kLargestRates / 2);
  return now;
}

PrecisionChoice resolve_precision(const std::string& device, Registry& registry, bool deterministic) {
  KernelSource kernels(device, registry);
  if (kernels.is_reference()) return {Precision::fp32, "the reference does not round"};
  const bool has_fp16 = kernels.has(Rounding::fp16), has_bf16 = kernels.has(Rounding::bf16),
             is_apart = has_own_memory(*kernels.device());
  if (deterministic || is_apart) {
    const Rounding rounding = is_apart ? Rounding::fp16 : fixed_rounding(kernels);
    const bool has = kernels.has(rounding);
    const std::string why =
        fmt::format("device '{}' {} products in {}", device, has ? "has" : "has no", rounding_name(rounding));
    return {has ? precision_of(rounding) : Precision::fp32,
            deterministic ? why + ", and a measurement is not repeatable" : why,
            !has       ? 0
            : is_apart ? usual_least_side(rounding)
                       : fixed_least_side(rounding)};
  }
  if (!has_fp16 && !has_bf16) return choose_precision({});
  return choose_precision(product_rates(kernels, device));
}

void settle_precision(DeviceSettings& settings, Registry& registry, bool deterministic) {
  if (settings.precision != Precision::automatic) return;
  const PrecisionChoice choice = resolve_precision(settings.device, registry, deterministic);
  settings.precision = choice.precision;
  settings.precision_reason = choice.why;
  settings.least_side = choice.least_side;
}

std::string precision_text(const DeviceSettings& settings) {
  if (settings.precision_reason.empty()) return "";
  return fmt::format("precision auto: {}, as {}", precision_name(settings.precision), settings.precision_reason);
}

PrecisionRecipe recipe_of(const DeviceSettings& settings) {
  PrecisionRecipe recipe{precision_name(settings.precision), {}};
  PrecisionRule rule;
  switch (settings.precision) {
    case Precision::fp16:
      rule.rounding = Rounding::fp16;
      break;
    case Precision::bf16:
      rule.rounding = Rounding::bf16;
      break;
    case Precision::fp8:
      rule.rounding = Rounding::fp8;
      break;
    case Precision::int8:
      rule.stored = true;
      rule.activation_type = "q8_0";
      break;
    case Precision::fp32:
    case Precision::automatic:
      return recipe;
  }
  rule.least_side = settings.least_side;
  recipe.rules.push_back(rule);
  return recipe;
}

}  // namespace harmonics::engine
