// A corpus: rows of tokens made of one or more data sets of examples.
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
  double weight = 0;            // share of the rows of a pass; all 0: each row once
  bool learns_prompts = false;  // prompts are learned too
};

// Returns whether a data set has plain texts: by its kind, or by the names of its files if that is automatic.
bool holds_texts(const DatasetOptions& set);

struct CorpusOptions {
  std::vector<DatasetOptions> datasets;
  std::string tokenizer, chat_template;
  uint64_t window = 0;                // positions in a row
  std::optional<RowPacking> packing;  // default: concatenate for texts, otherwise pad
  TooLong too_long = TooLong::skip;
  double validation = 0;
  bool held_out = false;
  bool skip_malformed = false;
  uint64_t memory = uint64_t{1} << 30;  // bytes of tokens in memory per data set; more are in a temporary file

  // Identifies the corpus: equal keys give equal rows.
  std::string key() const;
};

// Throws ErrorKind::Usage unless options.window is from 1 to 2^24.
void expect_window(const CorpusOptions& options);

// Counts of one data set's examples, by how they were packed into rows.
struct DatasetCounts {
  std::string path;
  uint64_t examples = 0, malformed = 0, tokens = 0;
  std::string first_malformed;
  uint64_t rows = 0, skipped = 0, truncated = 0, split = 0, empty = 0, learned = 0, positions = 0;
  bool is_unended = false;  // instructions whose answers end without an end token, which the tokenizer lacks

  // Returns "'data.jsonl': 980 examples, 512,345 tokens in 1,200 rows (83.4% full); skipped 20 longer than 513 tokens".
  std::string text(uint64_t window) const;
};

// Immutable after construction, thus thread-safe.
class Corpus {
 public:
  // Reads and tokenizes all data sets. Throws ErrorKind::NoInput for missing files, ErrorKind::Stream with file and
  // line for malformed examples or if a data set has no rows, ErrorKind::Usage for contradictory options.
  explicit Corpus(const CorpusOptions& options);
  // Returns the corpus in use for equal options, or a new one.
  static std::shared_ptr<const Corpus> open(const CorpusOptions& options);

  uint64_t rows() const { return mixture_->size(); }  // in one pass
  // Returns whether a row may have parts of several documents.
  bool packs_documents() const;
  // Returns whether rows are preference pairs: document 0 is the chosen answer, document 1 the rejected one.
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
  uint64_t read(const DatasetOptions& set);  // returns the number of examples of the other share

  CorpusOptions options_;
  CorpusTokenizer tokenizer_;
  std::vector<Dataset> sets_;
  std::vector<DatasetCounts> counts_;
  std::optional<Mixture> mixture_;
  int32_t padding_ = 0;
  bool pairs_ = false;
};

}  // namespace harmonics::engine
