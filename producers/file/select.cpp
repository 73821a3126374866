#include "producers/file/select.hpp"

#include <algorithm>

#include <harmonics/error.hpp>

#include "producers/file/near_name.hpp"

namespace harmonics {

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < 20; ++i) text += (i ? ", " : "") + names[i];
  return names.size() > 20 ? text + ", ..." : text;
}

std::string learned_words(const std::vector<std::string>& words) {
  return "they know " + listed(words) + ": correct it, omit its record, or train on data that contain it";
}

size_t selected(const std::string& file, const std::string& what, const std::vector<std::string>& names,
                const std::optional<std::string>& name) {
  const auto refuse = [&](const std::string& text) { throw Error(ErrorKind::Stream, "'" + file + "' " + text); };
  if (names.empty()) refuse("holds no " + what);
  if (!name) {
    if (names.size() > 1)
      refuse("holds " + std::to_string(names.size()) + " " + what + "s; write '#' and one of them: " + listed(names));
    return 0;
  }
  const auto at = std::find(names.begin(), names.end(), *name);
  if (at == names.end())
    refuse("has no " + what + " '" + *name + "'; it holds: " + listed(names) + meant_name(*name, names));
  return static_cast<size_t>(at - names.begin());
}

}  // namespace harmonics
