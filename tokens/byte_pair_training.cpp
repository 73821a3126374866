#include "tokens/byte_pair_training.hpp"

#include <algorithm>
#include <array>
#include <queue>

#include <harmonics/error.hpp>

namespace harmonics::tokens {

namespace {

constexpr int64_t kMostEqualWords = int64_t{1} << 31;

std::vector<Division> gpt2_division() {
  Division division;
  division.kind = DivisionKind::byte_level;
  return {division};
}

char32_t byte_code(uint8_t byte) {
  const auto printable = [](uint32_t b) { return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE; };
  if (printable(byte)) return byte;
  char32_t code = 256;
  for (uint32_t b = 0; b < byte; ++b) code += !printable(b);
  return code;
}

using IdPair = std::pair<int32_t, int32_t>;
struct PairHash {
  size_t operator()(const IdPair& pair) const {
    return static_cast<size_t>(static_cast<uint32_t>(pair.first)) << 32 | static_cast<uint32_t>(pair.second);
  }
};

struct TrainedWord {
  std::vector<int32_t> ids;
  int64_t count;
};

// The words, with the pairs joined so far.
class PairMerging {
 public:
  PairMerging(std::vector<TrainedWord> words, TrainedPairs& to) : words_(std::move(words)), to_(to) {
    for (size_t i = 0; i < to_.tokens.size(); ++i) ids_.emplace(to_.tokens[i], static_cast<int32_t>(i));
    std::unordered_map<IdPair, std::vector<size_t>, PairHash> places;
    for (size_t w = 0; w < words_.size(); ++w)
      for (size_t i = 0; i + 1 < words_[w].ids.size(); ++i) {
        const IdPair pair{words_[w].ids[i], words_[w].ids[i + 1]};
        counts_[pair] += words_[w].count;
        if (std::vector<size_t>& at = places[pair]; at.empty() || at.back() != w) at.push_back(w);
      }
    for (auto& [pair, at] : places) queue_.push({counts_[pair], pair, std::move(at)});
  }

  // Joins the most frequent pair. Returns false if no pair occurs at least `least` times.
  bool step(int64_t least) {
    while (!queue_.empty()) {
      Candidate best = queue_.top();
      queue_.pop();
      const int64_t count = counts_[best.pair];
      if (best.count != count) {  // the count is stale: it changed after queueing
        best.count = count;
        queue_.push(std::move(best));
        continue;
      }
      if (count < std::max<int64_t>(least, 1)) return false;
      join(best);
      return true;
    }
    return false;
  }

 private:
  struct Candidate {
    int64_t count;
    IdPair pair;
    std::vector<size_t> words;
    bool operator<(const Candidate& other) const {  // for a max-heap: the most frequent pair first
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  void join(const Candidate& best) {
    const auto [left, right] = best.pair;
    const std::string text = to_.tokens[static_cast<size_t>(left)] + to_.tokens[static_cast<size_t>(right)];
    const auto [known, added] = ids_.emplace(text, static_cast<int32_t>(to_.tokens.size()));
    if (added) to_.tokens.push_back(text);
    to_.merges.push_back(best.pair);
    std::unordered_map<IdPair, std::vector<size_t>, PairHash> fresh;
    for (const size_t w : best.words) join_in(w, best.pair, known->second, fresh);
    for (auto& [pair, at] : fresh)
      if (counts_[pair] > 0) queue_.push({counts_[pair], pair, std::move(at)});
  }

  void join_in(size_t w, const IdPair& pair, int32_t joined,
               std::unordered_map<IdPair, std::vector<size_t>, PairHash>& fresh) {
    TrainedWord& word = words_[w];
    const auto more = [&](const IdPair& changed) {
      counts_[changed] += word.count;
      if (std::vector<size_t>& at = fresh[changed]; at.empty() || at.back() != w) at.push_back(w);
    };
    std::vector<int32_t>& ids = word.ids;
    size_t to = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (i + 1 >= ids.size() || ids[i] != pair.first || ids[i + 1] != pair.second) {
        ids[to++] = ids[i];
        continue;
      }
      if (to > 0) {
        counts_[{ids[to - 1], pair.first}] -= word.count;
        more({ids[to - 1], joined});
      }
      if (i + 2 < ids.size()) {
        counts_[{pair.second, ids[i + 2]}] -= word.count;
        more({joined, ids[i + 2]});
      }
      ids[to++] = joined;
      ++i;
    }
    ids.resize(to);
  }

  std::vector<TrainedWord> words_;
  TrainedPairs& to_;
  std::unordered_map<std::string, int32_t> ids_;
  std::unordered_map<IdPair, int64_t, PairHash> counts_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

std::string byte_character(uint8_t byte) {
  const char32_t code = byte_code(byte);
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))};
}

PairTraining::PairTraining() : division_(gpt2_division()) {}

void PairTraining::add(std::string_view text) {
  for (std::string& word : division_.divide(text, true)) {
    int64_t& count = counts_[std::move(word)];
    if (++count > kMostEqualWords) throw Error(ErrorKind::Weights, "a word occurs more than 2^31 times");
  }
}

TrainedPairs PairTraining::train(size_t size, const std::vector<std::string>& special, int64_t least) const {
  TrainedPairs trained;
  trained.tokens = special;
  std::array<int32_t, 256> ids{};
  std::vector<std::pair<char32_t, uint8_t>> alphabet;
  for (int byte = 0; byte < 256; ++byte)
    alphabet.emplace_back(byte_code(static_cast<uint8_t>(byte)), static_cast<uint8_t>(byte));
  std::sort(alphabet.begin(), alphabet.end());
  for (const auto& [code, byte] : alphabet) {
    ids[byte] = static_cast<int32_t>(trained.tokens.size());
    trained.tokens.push_back(byte_character(byte));
  }
  std::vector<TrainedWord> words;
  words.reserve(counts_.size());
  for (const auto& [text, count] : counts_) {
    TrainedWord word{{}, count};
    for (const char c : text) word.ids.push_back(ids[static_cast<uint8_t>(c)]);
    words.push_back(std::move(word));
  }
  PairMerging merging(std::move(words), trained);
  while (trained.tokens.size() < size && merging.step(least)) {
  }
  return trained;
}

}  // namespace harmonics::tokens
