#include "engine/conformance/item_checks.hpp"

#include <chrono>
#include <cstring>
#include <malloc.h>
#include <mutex>
#include <thread>

#include <fmt/core.h>
#include <harmonics/importer_abi.h>
#include <harmonics/metric_abi.h>

#include "engine/plugin/arguments.hpp"
#include "engine/tensor/value.hpp"

namespace harmonics::engine {

namespace {

size_t bytes_in_use() {
  const struct mallinfo2 m = mallinfo2();
  return m.uordblks + m.hblkhd;
}

std::string sample_text(uint32_t type) {
  switch (type) {
    case HX_ARG_INT:
      return "4";
    case HX_ARG_FLOAT:
      return "0.5";
    case HX_ARG_BOOL:
      return "true";
    case HX_ARG_INTS:
      return "[2, 2]";
    default:
      return "x";
  }
}

}  // namespace

bool same_bits(const HTensor& a, const HTensor& b) {
  return type_of(a) == type_of(b) && std::memcmp(a.bytes(), b.bytes(), type_of(a).bytes()) == 0;
}

AttributeMap arguments_to_try(const Item& item) {
  AttributeMap values;
  for (const ArgumentSpec& a : item.arguments) {
    if (a.type == HX_ARG_LAYER || (!a.required && a.default_text.empty())) continue;
    if (const auto value = parse_argument(a.type, a.required ? sample_text(a.type) : a.default_text))
      values.set(a.name, *value);
  }
  return values;
}

bool attempt(CheckLog& log, const std::string& check, const std::function<Finding()>& body,
             const std::string& otherwise) {
  log.begin(check);
  Finding finding{Finding::Outcome::Failed, "", ""};
  bool ended = false;
  try {
    finding = body();
    ended = true;
  } catch (const Error& e) {
    finding.text = e.what();
    for (const std::string& note : e.notes()) finding.remedy += (finding.remedy.empty() ? "" : "; ") + note;
  } catch (const std::exception& e) {
    finding.text = e.what();
  }
  if (!ended && finding.remedy.empty()) finding.remedy = otherwise;
  log.end(finding);
  return ended;
}

std::string on_four_threads(int times, const std::function<void()>& body) {
  std::mutex mutex;
  std::string first;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      try {
        for (int i = 0; i < times; ++i) body();
      } catch (const std::exception& e) {
        const std::lock_guard lock(mutex);
        if (first.empty()) first = e.what();
      }
    });
  for (std::thread& t : threads) t.join();
  return first;
}

Finding many_calls(const CheckSettings& settings, const std::function<void()>& body) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  int64_t calls = 0;
  const auto until = [&](int64_t most, double end) {
    while (calls < most && seconds() < end)
      for (int i = 0; i < 100 && calls < most; ++i, ++calls) body();
  };
  until(settings.calls / 2, settings.seconds / 2);
  const int64_t half = calls;
  const size_t before = bytes_in_use();
  until(settings.calls, settings.seconds);
  const double growth = static_cast<double>(bytes_in_use()) - static_cast<double>(before),
               counted = static_cast<double>(calls - half);
  const std::string rate = fmt::format("{} calls, {:.0f} ns each", calls, 1e9 * seconds() / static_cast<double>(calls));
  if (growth > 65536 && growth > counted)
    return {Finding::Outcome::Failed,
            fmt::format("{}; memory in use grew by {:.0f} bytes, {:.1f} a call", rate, growth, growth / counted),
            "release what a call allocates; tensors are released with their last handle"};
  return {Finding::Outcome::Passed, rate, ""};
}

void check_item(const ItemPtr& item, const CheckSettings& settings, CheckLog& log) {
  switch (item->kind) {
    case HX_ACTIVATION:
      return check_activation(item, settings, log);
    case HX_LOSS:
      return check_loss(item, settings, log);
    case HX_LAYER:
      return check_layer(item, settings, log);
    case HX_METRIC:
      return check_metric(item, settings, log);
    case HX_PRODUCER:
      return check_producer(item, settings, log);
    case HX_CONSUMER:
      return check_consumer(item, settings, log);
    case HX_DEVICE:
      return check_device(item, settings, log);
    case HX_FUNCTIONAL:
      return check_functional(item, settings, log);
    case HX_IMPLEMENTATION:
      return check_implementation(item, settings, log);
    case HX_OPTIMIZER:
      return check_optimizer(item, settings, log);
    case HX_SCHEDULE:
      return check_schedule(item, settings, log);
    case HX_PREDICATE:
      return check_predicate(item, settings, log);
    case HX_AUGMENTATION:
      return check_augmentation(item, settings, log);
    case HX_IMPORTER:
    case HX_TOKENIZER:
      return check_reader(item, settings, log);
    case HX_EXPORTER:
      return check_exporter(item, settings, log);
    case HX_POLICY:
      return check_policy(item, settings, log);
    default:
      log.begin("is registered");
      log.end({Finding::Outcome::Noted,
               fmt::format("there are no checks for a {} beyond loading it", kind_name(item->kind)), "train with it"});
  }
}

}  // namespace harmonics::engine
