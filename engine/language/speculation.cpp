#include "engine/language/speculation.hpp"

#include <algorithm>

#include <fmt/core.h>

#include <harmonics/error.hpp>

#include "engine/base/spelling.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

LookupDrafter::LookupDrafter(int64_t longest) : longest_(static_cast<size_t>(std::max<int64_t>(longest, 1))) {}

// The longest match wins; among equal ones the latest. Matches have at least two tokens, or one if `longest` is 1.
std::vector<DraftedToken> LookupDrafter::draft(std::span<const int32_t> text, int64_t count, const Sampler&) {
  const size_t size = text.size(), least = std::min<size_t>(longest_, 2);
  size_t best = 0, behind = 0;
  for (size_t end = size - std::min<size_t>(size, 1); end >= least && best < longest_; --end) {
    size_t length = 0;
    while (length < longest_ && length < end && text[end - 1 - length] == text[size - 1 - length]) ++length;
    if (length >= least && length > best) best = length, behind = end;
  }
  std::vector<DraftedToken> all;
  if (best == 0) return all;
  for (size_t i = behind; i < size && static_cast<int64_t>(all.size()) < count; ++i) all.push_back({text[i], {}});
  return all;
}

ModelDrafter::ModelDrafter(Decoder& decoder, int64_t context) : session_(decoder, context) {}

std::vector<DraftedToken> ModelDrafter::draft(std::span<const int32_t> text, int64_t count, const Sampler& sampler) {
  const auto length = static_cast<int64_t>(text.size());
  count = std::min(count, session_.context() - length);
  std::vector<DraftedToken> all;
  if (count < 1 || text.empty()) return all;
  const std::span<const int32_t> known = session_.tokens();
  size_t same = 0;
  while (same < known.size() && same + 1 < text.size() && known[same] == text[same]) ++same;
  session_.keep(static_cast<int64_t>(same));
  std::span<const float> scores = session_.append(text.subspan(same));
  Sampler own = sampler.for_drafts(drawn_);
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0) scores = session_.append({&all.back().id, 1});
    DraftedToken next{0, own.chances(scores)};
    next.id = own.draw(next.chances);
    ++drawn_;
    own.observe(next.id);
    all.push_back(std::move(next));
  }
  return all;
}

void expect_same_vocabulary(const Tokenizer& tokenizer, const Tokenizer& draft, const std::string& path,
                            const std::string& draft_path) {
  constexpr size_t kShown = 3;
  std::vector<std::string> different;
  for (int32_t id = 0; id < std::min(tokenizer.size(), draft.size()) && different.size() < kShown; ++id)
    if (const std::string a = tokenizer.written(id), b = draft.written(id); a != b)
      different.push_back(fmt::format("token {} is {} and {}", id, shown_name(a), shown_name(b)));
  if (tokenizer.size() != draft.size())
    different.insert(different.begin(), fmt::format("they have {} and {} tokens", tokenizer.size(), draft.size()));
  if (tokenizer.eos() != draft.eos()) different.emplace_back("their ends of text differ");
  if (different.empty()) return;
  throw Error(ErrorKind::Usage,
              fmt::format("'{}' and the draft model '{}' have different vocabularies", path, draft_path), {},
              {comma_separated(different), "a draft model must have the tokenizer of the model"});
}

}  // namespace harmonics::engine
