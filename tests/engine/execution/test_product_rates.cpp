// `--precision auto`: selection by measured rates, the file that stores them, and plans with a recipe.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include <fmt/core.h>
#include <harmonics/ops.hpp>

#include "engine/execution/kernel_source.hpp"
#include "engine/execution/machine.hpp"
#include "engine/execution/product_rates.hpp"
#include "engine/program/interpret.hpp"
#include "engine/program/tracer.hpp"
#include "tests/cache_folder.hpp"
#include "tests/engine/execution/compiled.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

const std::string kKey = "cpu, Some Processor, fp32: packed matmul";

}  // namespace

TEST_CASE("product rates: fp16 is chosen from 1.15 times the rate of f32 on, bf16 from 1.6") {
  const auto chosen = [](double f32, std::map<Rounding, double> narrow) {
    return choose_precision({{256, {f32, std::move(narrow)}}});
  };
  CHECK(chosen(100, {{Rounding::fp16, 115}}).precision == Precision::fp16);
  CHECK(chosen(100, {{Rounding::fp16, 115}}).why ==
        "products in fp16 measured 1.15 times the rate of f32; those with a side below 256 stay f32");
  CHECK(chosen(100, {{Rounding::fp16, 114}}).precision == Precision::fp32);
  CHECK(chosen(100, {{Rounding::fp16, 114}}).why ==
        "products in fp16 measured 1.14 times the rate of f32, less than 1.15");
  CHECK(chosen(100, {{Rounding::bf16, 160}}).precision == Precision::bf16);
  CHECK(chosen(100, {{Rounding::bf16, 159}}).precision == Precision::fp32);
  CHECK(chosen(100, {{Rounding::bf16, 159}}).why ==
        "products in bf16 measured 1.59 times the rate of f32, less than 1.6");
  CHECK(chosen(100, {{Rounding::fp16, 170}, {Rounding::bf16, 210}}).precision == Precision::bf16);
  CHECK(chosen(100, {}).precision == Precision::fp32);
  CHECK(chosen(0, {{Rounding::fp16, 160}}).precision == Precision::fp32);
  CHECK(choose_precision({}).precision == Precision::fp32);
}

TEST_CASE("product rates: products round from the side on from which all larger ones gain") {
  const auto least = [](double at_32, double at_64, double at_128, double at_256) {
    std::map<int64_t, ProductRates> rates;
    const double factors[] = {at_32, at_64, at_128, at_256};
    for (int i = 0; i < 4; ++i) rates[32 << i] = {100, {{Rounding::fp16, 100 * factors[i]}}};
    return choose_precision(rates).least_side;
  };
  CHECK(least(0.9, 1.1, 1.2, 1.5) == 128);
  CHECK(least(1.2, 1.3, 1.4, 1.5) == 128);  // fp16 never rounds smaller ones
  CHECK(least(1.3, 1.1, 1.2, 1.5) == 128);
  CHECK(least(1.3, 1.3, 1.0, 1.5) == 256);
  CHECK(least(1.3, 1.3, 1.3, 1.1) == 0);
  CHECK(choose_precision({{32, {100, {{Rounding::bf16, 120}}}}, {256, {100, {{Rounding::bf16, 160}}}}}).least_side ==
        32);
}

TEST_CASE("product rates: lines of the file are read back, the last of a key counts") {
  const ProductRates rates{1.25e11, {{Rounding::fp16, 2.5e11}, {Rounding::bf16, 1e11}}}, later{2e11, {}};
  const std::string line = rates_line(kKey, rates);
  CHECK(find_rates(line, kKey) == rates);
  CHECK(find_rates("other\tfp32=1\tend\n" + line, kKey) == rates);
  CHECK(find_rates(line + rates_line(kKey, later), kKey) == later);
  CHECK_FALSE(find_rates(line, kKey + "2"));
  CHECK_FALSE(find_rates(line, "cpu"));
  CHECK_FALSE(find_rates("", kKey));
}

TEST_CASE("product rates: damaged lines count as missing") {
  const std::string good = rates_line(kKey, {1e11, {{Rounding::fp16, 2e11}}});
  for (const char* fields :
       {"", "\t", "\tend", "\tfp32=1e11", "\tfp32=1e11\t", "\tfp32=\tend", "\tfp32=-1\tend", "\tfp32=0\tend",
        "\tfp32=nan\tend", "\tfp32=inf\tend", "\tfp32=1x\tend", "\tfp16=1e11\tend", "\tfp32=1e11\tfp17=2\tend",
        "\tfp32=1e11\tnone=2\tend", "\tfp32=1e11\tend\tmore", "\tfp32\tend"}) {
    CAPTURE(fields);
    CHECK_FALSE(find_rates(kKey + fields + "\n", kKey));
    CHECK(find_rates(good + kKey + fields + "\n", kKey));
  }
  for (size_t cut = 0; cut < good.size(); ++cut) CHECK_FALSE(find_rates(good.substr(0, cut), kKey));
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string spoiled = good;
    spoiled[random() % spoiled.size()] = static_cast<char>(random());
    if (const auto found = find_rates(spoiled, kKey)) {
      CHECK(std::isfinite(found->f32));
      CHECK(found->f32 > 0);
      for (const auto& [rounding, rate] : found->narrow) CHECK((std::isfinite(rate) && rate > 0));
    }
  }
}

TEST_CASE("product rates: a deterministic choice measures nothing") {
  const PrecisionChoice fixed = resolve_precision("cpu", Registry::global(), true);
  KernelSource kernels("cpu", Registry::global());
  AttributeMap axes;
  axes.set("lhs_contract", std::vector<int64_t>{1}).set("rhs_contract", std::vector<int64_t>{0});
  axes.set("lhs_batch", std::vector<int64_t>{}).set("rhs_batch", std::vector<int64_t>{});
  const TensorType square{DType::F32, {256, 256}};
  const KernelPtr kernel = kernels.find("dot", axes, {square, square}, {square}, 0, Rounding::bf16);
  // Beside fp16 arithmetic, dot products of bf16 are slower than f32.
  const bool slow = kernels.has(Rounding::fp16) && std::string(kernel->raw().name) == "bf16 dot products";
  CHECK(fixed.precision == (kernels.has(Rounding::bf16) && !slow ? Precision::bf16
                            : kernels.has(Rounding::fp16)        ? Precision::fp16
                                                                 : Precision::fp32));
  CHECK(fixed.why.find("a measurement is not repeatable") != std::string::npos);
  CHECK(fixed.least_side == (fixed.precision == Precision::bf16   ? fixed_least_side(Rounding::bf16)
                             : fixed.precision == Precision::fp16 ? fixed_least_side(Rounding::fp16)
                                                                  : 0));
  CHECK(resolve_precision("reference", Registry::global(), false).precision == Precision::fp32);
}

TEST_CASE("product rates: settings get the choice and its reason, others stay") {
  DeviceSettings settings;
  settings.device = "reference";
  settings.precision = Precision::automatic;
  settle_precision(settings, Registry::global(), false);
  CHECK(settings.precision == Precision::fp32);
  CHECK(precision_text(settings) == "precision auto: fp32, as the reference does not round");
  DeviceSettings asked;
  asked.precision = Precision::int8;
  settle_precision(asked, Registry::global(), false);
  CHECK(asked.precision == Precision::int8);
  CHECK(precision_text(asked).empty());
}

TEST_CASE("precision: the trivial recipes") {
  const auto recipe = [](Precision precision, int64_t least_side = 0) {
    DeviceSettings settings;
    settings.precision = precision;
    settings.least_side = least_side;
    return recipe_of(settings);
  };
  CHECK(recipe(Precision::fp32).rules.empty());
  REQUIRE(recipe(Precision::bf16).rules.size() == 1);
  CHECK(recipe(Precision::bf16).rules[0].rounding == Rounding::bf16);
  CHECK(recipe(Precision::bf16).rules[0].least_side == 0);
  CHECK(recipe(Precision::fp16, 128).rules[0].least_side == 128);
  CHECK(recipe(Precision::int8).rules[0].activation_type == "q8_0");
  CHECK(recipe(Precision::int8).rules[0].stored == true);
}

TEST_CASE("precision: int8 quantises rows in plans, and the reference agrees") {
  Tracer tracer("int8");
  tracer.output(
      "y", call1("linear", {tracer.input("x", {DType::F32, {3, 64}}), tracer.input("w", {DType::Q8_0, {40, 64}})}));
  const Program program = tracer.take();
  HTensor x(DType::F32, {3, 64}), w(DType::F32, {40, 64});
  for (HTensor* t : {&x, &w})
    for (int64_t i = 0; i < t->size(); ++i) t->mutable_data<float>()[i] = std::sin(0.3f * static_cast<float>(i + 1));
  const std::map<std::string, HTensor> numbers{{"x", x}, {"w", cast(w, DType::Q8_0)}};
  const HTensor expected =
      apply("linear", AttributeMap().set("activation_type", std::string("q8_0")), {x, numbers.at("w")}).at(0);
  const HTensor exact = interpret(program, numbers)[0];
  const auto executor = make_sequential_executor();
  for (const char* device : {"cpu", "reference"}) {
    CAPTURE(device);
    CompileOptions options = on(device);
    options.precision = Precision::int8;
    const HTensor y = run_compiled(program, numbers, *executor, options)[0];
    double to_expected = 0, to_exact = 0;
    for (int64_t i = 0; i < y.size(); ++i) {
      to_expected = std::max<double>(to_expected, std::abs(y.data<float>()[i] - expected.data<float>()[i]));
      to_exact = std::max<double>(to_exact, std::abs(y.data<float>()[i] - exact.data<float>()[i]));
    }
    CHECK(to_expected < 1e-4);
    CHECK(to_exact > 1e-3);
  }
}

TEST_CASE("precision: a recipe reaches the kernels of a plan") {
  if (!KernelSource("cpu", Registry::global()).has(Rounding::fp16)) return;
  Tracer tracer("recipe");
  tracer.output("y", call1("linear", {tracer.input("x", {DType::F32, {256, 256}}),
                                      tracer.parameter("w", {DType::F32, {256, 256}})}));
  const Program program = tracer.take();
  HTensor numbers(DType::F32, {256, 256});
  for (int64_t i = 0; i < numbers.size(); ++i)
    numbers.mutable_data<float>()[i] = std::sin(0.3f * static_cast<float>(i + 1));
  const auto executor = make_sequential_executor();
  const auto result_with = [&](const PrecisionRecipe& recipe) {
    CompileOptions options = on("cpu");
    options.recipe = recipe;
    const HTensor y = run_compiled(program, {{"x", numbers}, {"w", numbers}}, *executor, options)[0];
    return std::vector<float>(y.data<float>(), y.data<float>() + y.size());
  };
  const std::vector<float> exact = result_with({"fp32", {}});
  PrecisionRule rule;
  rule.rounding = Rounding::fp16;
  CHECK(result_with({"fp16", {rule}}) != exact);
  rule.phases = {Phase::gradient};
  CHECK(result_with({"gradients", {rule}}) == exact);
}

TEST_CASE("product rates: a measurement is kept, and the file decides from then on") {
  if (!KernelSource("cpu", Registry::global()).has(Rounding::fp16)) return;
  const CacheFolder folder;
  const PrecisionChoice measured = resolve_precision("cpu", Registry::global(), false);
  CHECK(measured.why.find("products in ") == 0);
  REQUIRE(std::filesystem::exists(product_rates_path()));
  std::vector<std::string> keys;
  std::ifstream kept(product_rates_path());
  for (std::string line; std::getline(kept, line);) keys.push_back(line.substr(0, line.find('\t')));
  REQUIRE(keys.size() == 4);
  for (const auto& [factor, expected] : {std::pair(1.3, Precision::fp16), std::pair(1.1, Precision::fp32)}) {
    for (const std::string& key : keys)
      std::ofstream(product_rates_path(), std::ios::app) << rates_line(key, {1, {{Rounding::fp16, factor}}});
    const PrecisionChoice choice = resolve_precision("cpu", Registry::global(), false);
    CHECK(choice.precision == expected);
    CHECK(choice.least_side == (expected == Precision::fp16 ? 128 : 0));
  }
}

TEST_CASE("product rates: the largest peak that was measured is kept") {
  const CacheFolder folder;
  const double first = kept_peak(1);
  if (peak_instructions() == "none") return;
  REQUIRE(first > 0);
  std::string key;
  {
    std::ifstream in(product_rates_path());
    std::getline(in, key, '\t');
  }
  CHECK(key == fmt::format("peak, {}, {}, 1 threads", processor_name(), peak_instructions()));
  std::ofstream(product_rates_path(), std::ios::app) << rates_line(key, {1e18, {}});
  CHECK(kept_peak(1) == 1e18);
  std::ofstream(product_rates_path(), std::ios::app) << rates_line(key, {1, {}});
  CHECK(kept_peak(1) > 1);
}
