#include "producers/file/near_name.hpp"

#include <algorithm>

namespace harmonics {

namespace {

constexpr size_t kLongestName = 256;

std::string lowered_name(std::string s) {
  for (char& c : s)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return s;
}

// Returns the edit distance: inserted, removed or replaced characters, and transpositions of neighbours.
size_t edits_between(const std::string& a, const std::string& b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j - 1] + (a[i - 1] != b[j - 1]), last[j] + 1, row[j - 1] + 1});
      const bool exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (exchanged) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::string near_name(const std::string& word, const std::vector<std::string>& names) {
  if (word.size() > kLongestName) return "";
  const std::string wanted = lowered_name(word);
  std::string found;
  size_t best = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& name : names) {
    const std::string lower = lowered_name(name);
    if (lower == wanted) return name;
    if (std::max(name.size(), word.size()) - std::min(name.size(), word.size()) >= best) continue;
    const size_t d = edits_between(wanted, lower);
    if (d < best && d < std::max(name.size(), word.size())) best = d, found = name;
  }
  return found;
}

std::string meant_name(const std::string& word, const std::vector<std::string>& names) {
  const std::string near = near_name(word, names);
  return near.empty() ? "" : "; did you mean '" + near + "'?";
}

}  // namespace harmonics
