// Conformance checks of registered items: tests the rules of each kind on random inputs from a seed. `plugin check`
// runs them in a child process and reports each finding immediately, so that a crash is attributed to its check.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/plugin/registry.hpp"
#include "engine/tensor/attributes.hpp"

namespace harmonics::engine {

struct Finding {
  enum class Outcome { Passed, Failed, Noted };
  Outcome outcome = Outcome::Passed;
  std::string text;    // the observation
  std::string remedy;  // "" if passed
};

class CheckLog {
 public:
  virtual void begin(const std::string& check) = 0;
  virtual void alive() {}  // called regularly during long checks
  virtual void end(const Finding& finding) = 0;
  virtual ~CheckLog() = default;
};

struct CheckSettings {
  uint64_t seed = 0;
  int64_t calls = 1'000'000;  // calls of the leak check, which also ends after `seconds`
  double seconds = 2;
  // For producers and consumers an address such as "my:path?option=1"; "": the scheme alone. For importers and
  // tokenizers a file.
  std::string address;
};

// Runs all checks of the item's kind. Arguments without a default get a value of their type. Functionals, also those
// that implementations compute, are looked up in the global registry.
void check_item(const ItemPtr& item, const CheckSettings& settings, CheckLog& log);

// Runs one check. An exception is reported as a failure, with its notes or else `otherwise` as the remedy. Returns
// whether the check finished without an exception.
bool attempt(CheckLog& log, const std::string& check, const std::function<Finding()>& body,
             const std::string& otherwise = "");

// The checks of each kind, called by check_item().
void check_activation(const ItemPtr& item, const CheckSettings& settings, CheckLog& log);
void check_loss(const ItemPtr& item, const CheckSettings& settings, CheckLog& log);
void check_layer(const ItemPtr& item, const CheckSettings& settings, CheckLog& log);
void check_metric(const ItemPtr& item, const CheckSettings& settings, CheckLog& log);
void check_producer(const ItemPtr& item, const CheckSettings& settings, CheckLog& log);
void check_consumer(const ItemPtr& item, const CheckSettings& settings, CheckLog& log);

void check_device(const ItemPtr& item, const CheckSettings& settings, CheckLog& log);
void check_functional(const ItemPtr& item, const CheckSettings& settings, CheckLog& log);
void check_implementation(const ItemPtr& item, const CheckSettings& settings, CheckLog& log);
void check_optimizer(const ItemPtr& item, const CheckSettings& settings, CheckLog& log);
void check_schedule(const ItemPtr& item, const CheckSettings& settings, CheckLog& log);
void check_predicate(const ItemPtr& item, const CheckSettings& settings, CheckLog& log);
void check_augmentation(const ItemPtr& item, const CheckSettings& settings, CheckLog& log);
void check_policy(const ItemPtr& item, const CheckSettings& settings, CheckLog& log);
void check_exporter(const ItemPtr& item, const CheckSettings& settings, CheckLog& log);
void check_reader(const ItemPtr& item, const CheckSettings& settings, CheckLog& log);  // importers, tokenizers

// Returns whether types and bits are equal.
bool same_bits(const HTensor& a, const HTensor& b);
// Runs `body` on four threads concurrently, `times` times each. Returns the first error, or "".
std::string on_four_threads(int times, const std::function<void()>& body);
// Calls `body` up to `settings.calls` times and compares the memory use at half of the calls with that at the end.
Finding many_calls(const CheckSettings& settings, const std::function<void()>& body);
// Returns the default of each argument, or else a value of its type. Arguments that name layers are omitted.
AttributeMap arguments_to_try(const Item& item);
// Returns arguments_to_try() with one argument at a boundary of its range, one map per boundary: the bound or a number
// next to an excluded bound, each word of a choice, both values of a flag.
std::vector<AttributeMap> arguments_at_their_ends(const Item& item);
// Runs `body` with each of arguments_at_their_ends(). A returned text or an exception is reported as a failure with the
// arguments.
Finding at_the_ends(const Item& item, const std::function<std::string(const AttributeMap& arguments)>& body);

}  // namespace harmonics::engine
