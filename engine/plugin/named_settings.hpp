// "name(setting=value, ...)": syntax of optimizers and schedules in flows and options.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/plugin/registry.hpp"
#include "engine/tensor/attributes.hpp"

namespace harmonics::engine {

struct SettingSpec {
  enum class Kind {
    number,    // at least 0
    fraction,  // at least 0, below 1
    part,      // 0 to 1
    span,      // a number of steps, or below 1 a fraction of the run
    flag,      // true or false
    choice,    // one of the words in `range`, "a|b|c"; the value is its index
    any,       // plugins: a number within `range`
    whole,     // plugins: an integer within `range`
  };
  std::string_view name;
  double otherwise;
  Kind kind = Kind::number;
  std::string_view range = {};  // any, whole: hx_argument_spec.range; choice: its words
  std::string_view description = {};
};

struct NamedRow {
  std::string_view name, description;
  std::vector<SettingSpec> settings;
  ItemPtr item = nullptr;  // a plugin's item; owns the texts
};

struct Setting {
  const SettingSpec* spec;
  double value;
  bool given = false;
};

struct NamedSettings {
  std::shared_ptr<const NamedRow> row;
  std::vector<Setting> values;                 // in the row's order
  double number(std::string_view name) const;  // 0 if there is no such setting
  bool given(std::string_view name) const;
  // Returns the settings as attributes for a plugin's function.
  AttributeMap attributes() const;
  // Returns "adamw(lr=0.001, beta1=0.9, ...)", or "constant" if no setting exists or was given. Choices are included
  // only if they differ from the default.
  std::string str() const;
};

// Parses a name with settings. Names without a row are looked up among the registry's items of this kind. `what` names
// the kind in messages ("optimizer"); `example` is a valid text. Throws ErrorKind::Name for unknown names and settings,
// with the nearest known one; ErrorKind::Type for invalid values; ErrorKind::Syntax for malformed text.
NamedSettings parse_named_settings(std::string_view what, std::string_view text, const std::vector<NamedRow>& rows,
                                   std::string_view example, Registry& registry, uint32_t kind);
// Returns the value as written in flows: "0.9", "true", "bf16".
std::string value_text(const SettingSpec& spec, double value);
// Returns a row with its defaults for listings: "adamw(lr = 0.001, ...)".
std::string signature(const NamedRow& row);

}  // namespace harmonics::engine
