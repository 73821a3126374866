// Optional inputs by name.
#include <algorithm>

#include <harmonics/quantity.hpp>

#include "engine/base/spelling.hpp"
#include "engine/functional/reference.hpp"

namespace harmonics::engine::reference {

namespace {

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> names;
  for (size_t at = 0; !list.empty() && at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    names.push_back(list.substr(at, comma - at));
    at = comma + 1;
  }
  return names;
}

}  // namespace

OptionalInputs::OptionalInputs(const char* name, const AttributeMap& attributes, Inputs in, size_t fixed,
                               std::initializer_list<std::string_view> known)
    : names_(split(attributes.text("operands", ""))), values_(in.subspan(std::min(fixed, in.size()))) {
  const std::vector<std::string> all(known.begin(), known.end());
  for (size_t i = 0; i < names_.size(); ++i) {
    const bool twice =
        std::find(names_.begin() + static_cast<std::ptrdiff_t>(i) + 1, names_.end(), names_[i]) != names_.end();
    expect(!twice, name, "the attribute operands names '" + names_[i] + "' twice", ErrorKind::Usage);
    expect(std::find(all.begin(), all.end(), names_[i]) != all.end(), name,
           "the attribute operands names '" + names_[i] + "'; known names are " + comma_separated(all),
           ErrorKind::Usage);
  }
  expect(names_.size() == values_.size(), name,
         "got " + quantity(values_.size(), "optional input") + ", but the attribute operands names " +
             std::to_string(names_.size()) + "; it must name each of them, in order: " + comma_separated(all),
         ErrorKind::Usage);
}

const HTensor& OptionalInputs::find(std::string_view operand) const {
  static const HTensor none;
  const auto at = std::find(names_.begin(), names_.end(), operand);
  return at == names_.end() ? none : values_[static_cast<size_t>(at - names_.begin())];
}

}  // namespace harmonics::engine::reference
