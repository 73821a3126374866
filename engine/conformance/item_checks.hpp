// What a registered thing must do whoever wrote it: the laws of its kind, tried on numbers drawn from a seed. `plugin
// check` runs them in a child process; what is found is reported while it is found, so that a crash can be told from
// the check it happened in.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/plugin/registry.hpp"
#include "engine/program/attributes.hpp"

namespace harmonics {

struct Finding {
  enum class Outcome { Passed, Failed, Noted };
  Outcome outcome = Outcome::Passed;
  std::string text;    // what was seen
  std::string remedy;  // what to do; "" when passed
};

class CheckLog {
 public:
  virtual void begin(const std::string& check) = 0;
  virtual void alive() {}  // a long check is getting on
  virtual void end(const Finding& finding) = 0;
  virtual ~CheckLog() = default;
};

struct CheckSettings {
  uint64_t seed = 0;
  int64_t calls = 1'000'000;  // of the check for leaks; ends sooner after `seconds`
  double seconds = 2;
  std::string address;  // of producers and consumers: "my:path?option=1"; "": the scheme alone
};

// Arguments without default are given something of their type. Functionals, and what implementations compute, are looked up in
// the global registry.
void check_item(const ItemPtr& item, const CheckSettings& settings, CheckLog& log);

// One check: what it throws is a failure with its notes as remedy, or `otherwise` where it has none. Did it come to an end without
// throwing?
bool attempt(CheckLog& log, const std::string& check, const std::function<Finding()>& body, const std::string& otherwise = "");

// One suite per kind; called by check_item.
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

// Bit for bit; false for other types.
bool same_bits(const HTensor& a, const HTensor& b);
// `body` on four threads at once, `times` each; the first error of any of them.
std::string on_four_threads(int times, const std::function<void()>& body);
// Calls `body` up to `settings.calls` times and looks at the memory in use between the middle and the end.
Finding many_calls(const CheckSettings& settings, const std::function<void()>& body);
// Defaults of the schema; what has none gets something of its type. Arguments that name layers are left out.
AttributeMap arguments_to_try(const Item& item);
// The same with one argument at an end of its range, one map for each such end: the number itself or the nearest inside, each
// word of a choice, both values of a flag.
std::vector<AttributeMap> arguments_at_their_ends(const Item& item);
// `body` with each of them; what it says or throws is a failure that shows the arguments.
Finding at_the_ends(const Item& item, const std::function<std::string(const AttributeMap& arguments)>& body);

}  // namespace harmonics
