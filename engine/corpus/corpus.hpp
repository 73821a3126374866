// A corpus: data sets of examples as rows of tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/corpus/corpus_tokenizer.hpp"
#include "engine/corpus/mixture.hpp"
#include "engine/corpus/packing.hpp"

namespace harmonics::engine {

struct DatasetOptions {
  std::string path;
  ExampleKind kind = ExampleKind::automatic;
  Columns columns;
  double weight = 0;            // share of the rows of a pass; 0 for all: each row once
  bool learns_prompts = false;  // prompts count too
};

// Whether the files of a data set are plain text, or examples of that kind.
bool holds_texts(const DatasetOptions& set);

struct CorpusOptions {
  std::vector<DatasetOptions> datasets;
  std::string tokenizer, chat_template;
  uint64_t window = 0;                // positions in a row
  std::optional<RowPacking> packing;  // of texts: concatenate, otherwise pad
  TooLong too_long = TooLong::skip;
  double validation = 0;
  bool held_out = false;
  bool skip_malformed = false;
  uint64_t memory = uint64_t{1} << 30;  // bytes of tokens of each data set before a temporary file is used

  // Names the corpus: of equal options the same rows are made.
  std::string key() const;
};

// Throws ErrorKind::Usage for options.window outside of 1 to 2^24.
void expect_window(const CorpusOptions& options);

// What became of the examples of one data set.
struct DatasetCounts {
  std::string path;
  uint64_t examples = 0, malformed = 0, tokens = 0;
  std::string first_malformed;
  uint64_t rows = 0, skipped = 0, truncated = 0, split = 0, empty = 0, learned = 0, positions = 0;

  // "'data.jsonl': 980 examples, 512,345 tokens in 1,200 rows; 20 longer than a row were skipped"
  std::string text(uint64_t window) const;
};

// Immutable: read by any threads at once.
class Corpus {
 public:
  // Reads and tokenizes all data sets. Throws ErrorKind::NoInput, ErrorKind::Stream with file and line for malformed
  // examples and if there are no rows, ErrorKind::Usage for contradicting options.
  explicit Corpus(const CorpusOptions& options);
  // The same corpus for equal options as long as one is in use.
  static std::shared_ptr<const Corpus> open(const CorpusOptions& options);

  uint64_t rows() const { return mixture_->size(); }  // in one pass
  // Whether some row has parts of several documents.
  bool packs_documents() const;
  // Whether rows are pairs of preferences: document 0 is the chosen answer, 1 the rejected one.
  bool has_pairs() const { return pairs_; }
  bool passes_differ() const { return mixture_->passes_differ(); }
  uint64_t window() const { return options_.window; }
  void fill(uint64_t epoch, uint64_t index, const RowArrays& to) const;
  const CorpusTokenizer& tokenizer() const { return tokenizer_; }
  const std::vector<DatasetCounts>& counts() const { return counts_; }

 private:
  struct Dataset {
    std::unique_ptr<TokenStore> store;
    PackedRows rows;
  };
  void read(const DatasetOptions& set);

  CorpusOptions options_;
  CorpusTokenizer tokenizer_;
  std::vector<Dataset> sets_;
  std::vector<DatasetCounts> counts_;
  std::optional<Mixture> mixture_;
  int32_t padding_ = 0;
  bool pairs_ = false;
};

}  // namespace harmonics::engine
