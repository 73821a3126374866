// "name(setting=value, ...)": how flows and flags write optimizers and schedules.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace harmonics {

struct SettingSpec {
  enum class Kind {
    number,    // at least 0
    fraction,  // at least 0, below 1
    part,      // 0 to 1
    span,      // a number of steps, or below 1 a part of the run
    flag,      // true or false
  };
  std::string_view name;
  double otherwise;
  Kind kind = Kind::number;
};

struct NamedRow {
  std::string_view name, description;
  std::vector<SettingSpec> settings;
};

struct Setting {
  const SettingSpec* spec;
  double value;
  bool given = false;
};

struct NamedSettings {
  const NamedRow* row = nullptr;
  std::vector<Setting> values;  // as in the row
  double number(std::string_view name) const;  // 0 when there is no such setting
  bool given(std::string_view name) const;
  std::string str() const;  // "adamw(lr=0.001, beta1=0.9, ...)", "constant" where nothing can be set or nothing was
};

// `what` names the kind of thing in messages ("optimizer"), `example` is one that is right. Unknown names and settings:
// ErrorKind::Name with the nearest; bad values: ErrorKind::Type; bad form: ErrorKind::Syntax.
NamedSettings parse_named_settings(std::string_view what, std::string_view text, const std::vector<NamedRow>& rows,
                                   std::string_view example);
// "adamw(lr = 0.001, ...)": a row with its defaults, for lists.
std::string signature(const NamedRow& row);

}  // namespace harmonics
