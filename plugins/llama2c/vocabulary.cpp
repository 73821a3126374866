#include "vocabulary.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <queue>

#include <harmonics/quantity.hpp>

namespace llama2c {

using harmonics::Error;
using harmonics::ErrorKind;
using harmonics::quantity;

namespace {

constexpr int32_t kUnknown = 0, kBegin = 1, kEnd = 2, kFirstByte = 3, kBytes = 256;
constexpr int32_t kLongest = 1 << 16;  // bytes of a token
constexpr size_t kMostTokens = 1 << 24;

[[noreturn]] void refuse(const std::string& path, uint64_t offset, const std::string& what) {
  throw Error(ErrorKind::Weights,
              "'" + path + "' is not a llama2.c tokenizer: at byte " + std::to_string(offset) + ", " + what);
}

template <typename T>
std::optional<T> number_at(std::string_view bytes, size_t offset) {
  if (bytes.size() < sizeof(T) || offset > bytes.size() - sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

std::string byte_name(int32_t byte) {
  char name[8];
  std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
  return name;
}

// Returns the length of the UTF-8 character at the start of the text; 1 for a byte that starts none.
size_t character_length(std::string_view text) {
  size_t n = 1;
  while (n < text.size() && n < 4 && (text[n] & 0xC0) == 0x80) ++n;
  return n;
}

}  // namespace

Vocabulary::Vocabulary(std::string_view bytes, const std::string& path, uint64_t tokens) : bytes_(bytes) {
  const std::string_view all = bytes_;
  const auto most = number_at<int32_t>(all, 0);
  if (!most || *most < 1 || *most > kLongest)
    refuse(path, 0,
           "the length of the longest token is " + (most ? std::to_string(*most) : "missing") + "; it must be 1 to " +
               std::to_string(kLongest));
  for (size_t at = 4; at < all.size();) {
    const std::string which = "token " + std::to_string(tokens_.size());
    if (tokens_.size() == kMostTokens) refuse(path, at, "there are more than 16777216 tokens");
    const auto score = number_at<float>(all, at);
    const auto length = number_at<int32_t>(all, at + 4);
    if (!score || !length) refuse(path, at, which + " ends with the file");
    if (std::isnan(*score)) refuse(path, at, which + " has a score that is not a number");
    if (*length < 0 || *length > *most)
      refuse(path, at + 4,
             which + " has a length of " + std::to_string(*length) + "; the longest has " + std::to_string(*most));
    at += 8;
    if (static_cast<size_t>(*length) > all.size() - at) refuse(path, at, which + " ends with the file");
    tokens_.push_back({all.substr(at, static_cast<size_t>(*length)), *score});
    longest_ = std::max(longest_, static_cast<size_t>(*length));
    at += static_cast<size_t>(*length);
  }
  if (tokens_.size() < kFirstByte) refuse(path, all.size(), "there are fewer tokens than <unk>, <s> and </s>");
  if (tokens && tokens != tokens_.size())
    throw Error(ErrorKind::Weights,
                "'" + path + "' has " + quantity(tokens_.size(), "token") + ", the model has " + std::to_string(tokens))
        .note("use the tokenizer that the model was trained with");
  name_pieces();
}

void Vocabulary::name_pieces() {
  constexpr auto kFirst = static_cast<size_t>(kFirstByte), kCount = static_cast<size_t>(kBytes);
  has_bytes_ = tokens_.size() >= kFirst + kCount;
  for (size_t byte = 0; has_bytes_ && byte < kCount; ++byte)
    has_bytes_ = tokens_[kFirst + byte].piece == byte_name(static_cast<int32_t>(byte));
  for (size_t id = 0; id < tokens_.size(); ++id)
    if (is_text(static_cast<int32_t>(id)) && !tokens_[id].piece.empty())
      ids_.emplace(tokens_[id].piece, static_cast<int32_t>(id));
}

harmonics::TextTokenizerInfo Vocabulary::info() const { return {tokens_.size(), kBegin, kEnd, kUnknown, -1, longest_}; }

int32_t Vocabulary::find(std::string_view piece) const {
  const auto at = ids_.find(piece);
  return at == ids_.end() ? -1 : at->second;
}

std::vector<int32_t> Vocabulary::characters(std::string_view text) const {
  std::vector<int32_t> ids;
  if (const int32_t space = find(" "); space >= 0 && !text.empty()) ids.push_back(space);
  for (size_t at = 0, length = 0; at < text.size(); at += length) {
    const std::string_view rest = text.substr(at);
    length = character_length(rest);
    if (const int32_t id = find(rest.substr(0, length)); id >= 0)
      ids.push_back(id);
    else if (!has_bytes_)
      ids.push_back(kUnknown);
    else
      for (const char byte : rest.substr(0, length)) ids.push_back(kFirstByte + static_cast<unsigned char>(byte));
  }
  return ids;
}

// Merges the pair with the highest score, of equal scores the leftmost, until no pair is a token. Uses a priority
// queue, so it takes O(n log n) time; pairs with a changed side are dropped.
std::vector<int32_t> Vocabulary::merged(const std::vector<int32_t>& ids) const {
  struct Place {
    int32_t id;  // -1: merged into the previous one
    size_t before, after;
  };
  struct Pair {
    float score;
    size_t left, right;
    int32_t left_id, right_id, id;
    bool operator<(const Pair& other) const {  // for a max-heap: the highest score first
      return score != other.score ? score < other.score : left > other.left;
    }
  };
  const size_t n = ids.size();
  std::vector<Place> places(n);
  for (size_t i = 0; i < n; ++i) places[i] = {ids[i], i ? i - 1 : n, i + 1};
  std::priority_queue<Pair> pairs;
  std::string joined;
  const auto consider = [&](size_t left, size_t right) {
    if (left >= n || right >= n) return;
    const int32_t a = places[left].id, b = places[right].id;
    if (!is_text(a) || !is_text(b)) return;
    joined.assign(tokens_[static_cast<size_t>(a)].piece).append(tokens_[static_cast<size_t>(b)].piece);
    if (const int32_t id = find(joined); id >= 0)
      pairs.push({tokens_[static_cast<size_t>(id)].score, left, right, a, b, id});
  };
  for (size_t i = 0; i + 1 < n; ++i) consider(i, i + 1);
  while (!pairs.empty()) {
    const Pair pair = pairs.top();
    pairs.pop();
    if (places[pair.left].id != pair.left_id || places[pair.right].id != pair.right_id ||
        places[pair.left].after != pair.right)
      continue;
    places[pair.left].id = pair.id;
    places[pair.right].id = -1;
    places[pair.left].after = places[pair.right].after;
    if (places[pair.left].after < n) places[places[pair.left].after].before = pair.left;
    consider(places[pair.left].before, pair.left);
    consider(pair.left, places[pair.left].after);
  }
  std::vector<int32_t> result;
  for (const Place& place : places)
    if (place.id >= 0) result.push_back(place.id);
  return result;
}

std::vector<int32_t> Vocabulary::encode(std::string_view text, uint32_t flags) const {
  std::vector<int32_t> ids = merged(characters(text));
  if (flags & (HX_ENCODE_BOS | HX_ENCODE_WHOLE)) ids.insert(ids.begin(), kBegin);
  if (flags & HX_ENCODE_EOS) ids.push_back(kEnd);
  return ids;
}

std::string Vocabulary::decode(int32_t id, int32_t previous) const {
  if (id < 0 || static_cast<size_t>(id) >= tokens_.size())
    throw Error(ErrorKind::Usage, "the id " + std::to_string(id) + " is outside the vocabulary, 0 to " +
                                      std::to_string(tokens_.size() - 1));
  if (id == kBegin || id == kEnd) return "";
  if (has_bytes_ && id >= kFirstByte && id < kFirstByte + kBytes)
    return std::string(1, static_cast<char>(id - kFirstByte));
  std::string_view piece = tokens_[static_cast<size_t>(id)].piece;
  if (previous == kBegin && !piece.empty() && piece[0] == ' ') piece.remove_prefix(1);
  return std::string(piece);
}

uint32_t probe_vocabulary(std::string_view first, uint64_t size) {
  const auto most = number_at<int32_t>(first, 0);
  if (!most || *most < 1 || *most > kLongest) return HX_PROBE_NO;
  constexpr std::string_view kNames[] = {"unk", "<s>", "</s>"};
  size_t token = 0;
  for (size_t at = 4; at < first.size(); ++token) {
    const auto score = number_at<float>(first, at);
    const auto length = number_at<int32_t>(first, at + 4);
    const bool beyond = first.size() < size;  // only the start of the file is available
    if (!score || !length) return beyond && token > 2 ? HX_PROBE_LIKELY : HX_PROBE_NO;
    if (std::isnan(*score) || *length < 0 || *length > *most) return HX_PROBE_NO;
    at += 8;
    if (static_cast<size_t>(*length) > first.size() - at) return beyond && token > 2 ? HX_PROBE_LIKELY : HX_PROBE_NO;
    const std::string_view piece = first.substr(at, static_cast<size_t>(*length));
    if (token < 3 && piece.find(kNames[token]) == std::string_view::npos) return HX_PROBE_NO;
    at += static_cast<size_t>(*length);
  }
  return token > 2 ? HX_PROBE_LIKELY : HX_PROBE_NO;
}

}  // namespace llama2c
