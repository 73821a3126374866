// Conformance checks of registered items: the rules of each kind, tested on random inputs from a seed. `plugin check`
// runs them in a child process and reports findings as they are made, so that a crash is attributed to its check.
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
  std::string remedy;  // "" when passed
};

class CheckLog {
 public:
  virtual void begin(const std::string& check) = 0;
  virtual void alive() {}  // progress of a long check
  virtual void end(const Finding& finding) = 0;
  virtual ~CheckLog() = default;
};

struct CheckSettings {
  uint64_t seed = 0;
  int64_t calls = 1'000'000;  // for the leak check, which also ends after `seconds`
  double seconds = 2;
  // For producers and consumers: "my:path?option=1"; "": the scheme alone. For importers and tokenizers: a file.
  std::string address;
};

// Arguments without default get a value of their type. Functionals, including those that implementations compute, are
// looked up in the global registry.
void check_item(const ItemPtr& item, const CheckSettings& settings, CheckLog& log);

// Runs one check. An exception is a failure with its notes as remedy, or `otherwise` if it has none. Returns whether
// the check finished without an exception.
bool attempt(CheckLog& log, const std::string& check, const std::function<Finding()>& body,
             const std::string& otherwise = "");

// One suite per kind; called by check_item().
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

// Compares bits; false for different types.
bool same_bits(const HTensor& a, const HTensor& b);
// Runs `body` on four threads at once, `times` times each; returns the first error.
std::string on_four_threads(int times, const std::function<void()>& body);
// Calls `body` up to `settings.calls` times; compares memory use between the middle and the end.
Finding many_calls(const CheckSettings& settings, const std::function<void()>& body);
// The schema's defaults; a value of the type where there is none. Arguments that name layers are left out.
AttributeMap arguments_to_try(const Item& item);
// The same with one argument at an end of its range, one map per end: the end itself or the nearest number inside, each
// word of a choice, both values of a flag.
std::vector<AttributeMap> arguments_at_their_ends(const Item& item);
// Runs `body` with each of them; a returned text or an exception is a failure that shows the arguments.
Finding at_the_ends(const Item& item, const std::function<std::string(const AttributeMap& arguments)>& body);

}  // namespace harmonics::engine
