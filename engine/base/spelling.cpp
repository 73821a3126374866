#include "engine/base/spelling.hpp"

#include <algorithm>

namespace harmonics::engine {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] != b[j - 1]);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

namespace {

std::string in_lower_case(std::string_view word) {
  std::string lower(word);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

constexpr size_t kLongestWord = 256;  // longer text is not a name

}  // namespace

std::vector<std::string> meant_by(std::string_view word, const std::vector<std::string>& known) {
  if (word.size() > kLongestWord) return {};
  const std::string wanted = in_lower_case(word);
  std::vector<std::string> found;
  for (const std::string& candidate : known)
    if (candidate != word && in_lower_case(candidate) == wanted) return {candidate};
  for (const Synonym& s : synonyms())
    if (s.word == wanted)
      for (const std::string& candidate : known)
        if (in_lower_case(candidate) == s.name && std::find(found.begin(), found.end(), candidate) == found.end())
          found.push_back(candidate);
  if (!found.empty()) return found;
  size_t best = std::max<size_t>(1, word.size() / 3) + 1;
  const auto compare = [&](std::string_view with, const std::string& name) {
    const size_t longer = std::max(word.size(), with.size()), shorter = std::min(word.size(), with.size());
    if (longer - shorter >= best) return;
    const size_t distance = edit_distance(wanted, in_lower_case(with));
    if (distance >= best || distance >= longer) return;  // no common letters
    best = distance;
    found = {name};
  };
  for (const std::string& candidate : known) compare(candidate, candidate);
  if (!found.empty()) return found;
  for (const Synonym& s : synonyms())
    if (const std::string name(s.name); std::find(known.begin(), known.end(), name) != known.end())
      compare(s.word, name);
  return found;
}

std::string number_of(uint64_t number, std::string_view one) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return (text += ' ').append(one) + (number == 1 ? "" : "s");
}

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& known) {
  const std::vector<std::string> found = meant_by(word, known);
  return found.empty() ? std::nullopt : std::optional<std::string>(found.front());
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::vector<std::string> found = meant_by(word, known);
  std::string text;
  for (size_t i = 0; i < found.size(); ++i)
    text += (i == 0 ? "'" : i + 1 == found.size() ? " or '" : ", '") + found[i] + "'";
  return text.empty() ? text : "did you mean " + text + "?";
}

std::string comma_separated(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace harmonics::engine
