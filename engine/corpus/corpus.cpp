#include "engine/corpus/corpus.hpp"

#include <algorithm>

#include <fmt/core.h>

#include "engine/base/spelling.hpp"
#include "engine/corpus/example_files.hpp"
#include "engine/corpus/opened_once.hpp"
#include "engine/corpus/packed_text.hpp"

namespace harmonics::engine {

namespace {

constexpr uint64_t kMostRows = uint64_t{1} << 32;

std::string grouped(uint64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

void check(const CorpusOptions& options) {
  if (options.datasets.empty()) throw Error(ErrorKind::Usage, "a corpus has no data sets");
  expect_window(options);
  if (!(options.validation >= 0 && options.validation < 1))
    throw Error(ErrorKind::Usage, "validation= is a share of the examples, from 0 to below 1");
  const auto weighted = static_cast<size_t>(std::count_if(options.datasets.begin(), options.datasets.end(),
                                                          [](const DatasetOptions& d) { return d.weight > 0; }));
  if (weighted != 0 && weighted != options.datasets.size())
    throw Error(ErrorKind::Usage, "give all data sets weights above 0, or none");
}

}  // namespace

void expect_window(const CorpusOptions& options) {
  if (options.window == 0)
    throw Error(ErrorKind::Usage, "the number of tokens in a row is missing", {}, {"for instance window=512"});
  if (options.window > uint64_t{1} << 24)
    throw Error(ErrorKind::Usage, fmt::format("window={} is not a row length; give 1 to 16777216", options.window));
}

bool holds_texts(const DatasetOptions& set) {
  if (set.kind != ExampleKind::automatic) return set.kind == ExampleKind::text;
  const std::vector<std::string> files = example_files(set.path);
  return std::none_of(files.begin(), files.end(), [](const std::string& path) {
    const std::string file = name_unpacked(path);
    return file.ends_with(".jsonl") || file.ends_with(".ndjson") || file.ends_with(".json");
  });
}

std::string CorpusOptions::key() const {
  std::string key = fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}", tokenizer, chat_template, window,
                                packing ? static_cast<int>(*packing) : -1, static_cast<int>(too_long), validation,
                                held_out, skip_malformed, memory);
  for (const DatasetOptions& set : datasets) {
    key += fmt::format("|{}|{}|{}|{}", set.path, static_cast<int>(set.kind), set.weight, set.learns_prompts);
    for (const auto& [name, field] : set.columns) key += fmt::format("|{}:{}", name, field);
  }
  return key;
}

std::string DatasetCounts::text(uint64_t window) const {
  std::string text = fmt::format("'{}': {}, {} in {}", path, number_of(examples, "example"), number_of(tokens, "token"),
                                 number_of(rows, "row"));
  if (rows > 0)
    text +=
        fmt::format(" ({:.1f}% full)", 100.0 * static_cast<double>(positions) / (static_cast<double>(rows * window)));
  if (skipped) text += fmt::format("; skipped {} longer than {} tokens", grouped(skipped), window + 1);
  if (truncated) text += fmt::format("; truncated {} to {} tokens", grouped(truncated), window + 1);
  if (split) text += fmt::format("; split {} longer than {} tokens", grouped(split), window + 1);
  if (empty) text += fmt::format("; skipped {} with nothing to learn", grouped(empty));
  if (malformed) text += fmt::format("; skipped {} malformed, the first: {}", grouped(malformed), first_malformed);
  if (is_unended && rows > 0) text += "; the tokenizer has no end token, so nothing marks the end of an answer";
  return text;
}

namespace {

// Returns what gives a data set rows; "" if that is not known.
std::string remedy_for_rows(const DatasetCounts& counts, uint64_t others, bool held_out) {
  if (counts.skipped > 0) return "give longer rows (train: sequence_len), or too_long=truncate or split";
  if (counts.examples > 0 || others == 0) return "";
  return held_out ? fmt::format(
                        "none of its {} fell into this share: raise it (validation), or name separate files "
                        "(train: validation_datasets)",
                        number_of(others, "example"))
                  : fmt::format("the share for validation took its {}: lower it (validation), or add examples",
                                others == 1 ? "only example" : number_of(others, "example"));
}

}  // namespace

Corpus::Corpus(const CorpusOptions& options) : options_(options) {
  check(options_);
  std::vector<std::string> paths;
  for (const DatasetOptions& set : options_.datasets) paths.push_back(set.path);
  tokenizer_ = open_corpus_tokenizer(options_.tokenizer, options_.chat_template, paths);
  padding_ = tokenizer_.tokenizer->padding().value_or(tokenizer_.tokenizer->eos().value_or(0));
  std::vector<uint64_t> sizes;
  std::vector<double> weights;
  for (const DatasetOptions& set : options_.datasets) {
    const uint64_t others = read(set);
    if (sets_.back().rows.size() == 0) {
      Error e(ErrorKind::Stream, fmt::format("{} '{}' has no rows to learn from",
                                             options_.held_out ? "the part held out of" : "the data set", set.path));
      e.note(counts_.back().text(options_.window));
      if (const std::string remedy = remedy_for_rows(counts_.back(), others, options_.held_out); !remedy.empty())
        e.note(remedy);
      throw e;
    }
    sizes.push_back(sets_.back().rows.size());
    weights.push_back(options_.held_out ? 0 : set.weight);
    if (sizes.back() > kMostRows) throw Error(ErrorKind::Usage, fmt::format("'{}' has more than 2^32 rows", set.path));
  }
  mixture_.emplace(std::move(sizes), weights);
}

uint64_t Corpus::read(const DatasetOptions& set) {
  const Tokenizer& tokenizer = *tokenizer_.tokenizer;
  const std::string end = tokenizer.eos() ? tokenizer.written(*tokenizer.eos()) : "";
  const ExampleFormat format(set.kind, set.columns, tokenizer_.format, end, set.learns_prompts);
  Dataset made;
  made.store = std::make_unique<TokenStore>(set.path, options_.memory);
  std::vector<int32_t> document;
  const ExampleFileOptions files{set.path, options_.validation, options_.held_out, options_.skip_malformed, set.kind};
  const ExampleCounts read = read_examples(files, format, [&](const TextExample& example) {
    const std::vector<int32_t> tokens = tokens_of(example, tokenizer);
    document.insert(document.end(), tokens.begin(), tokens.end());
    if (example.continues) return;
    made.store->add(document);
    document.clear();
  });
  made.store->finish();
  PackingOptions packing;
  packing.packing = options_.packing.value_or(holds_texts(set) ? RowPacking::concatenate : RowPacking::pad);
  packing.too_long = options_.too_long;
  packing.window = options_.window;
  packing.name = set.path;
  packing.pairs = read.kind == ExampleKind::preference;
  if (packing.pairs && options_.packing && *options_.packing != RowPacking::pad)
    throw Error(ErrorKind::Usage, fmt::format("'{}' has preferences: each pair of answers has its own row", set.path))
        .note("leave packing= out");
  if (!sets_.empty() && packing.pairs != pairs_)
    throw Error(ErrorKind::Usage,
                fmt::format("'{}' {} preferences, and '{}' {}", set.path, packing.pairs ? "has" : "has no",
                            options_.datasets.front().path, packing.pairs ? "has none" : "has"))
        .note("preferences cannot be mixed with other examples");
  pairs_ = packing.pairs;
  made.rows = pack_rows(*made.store, packing);
  const PackedRows& rows = made.rows;
  counts_.push_back({set.path, read.examples, read.malformed, made.store->tokens(), read.first_malformed, rows.size(),
                     rows.skipped, rows.truncated, rows.split, rows.empty, rows.learned, rows.positions,
                     read.kind == ExampleKind::instruction && !tokenizer.eos()});
  sets_.push_back(std::move(made));
  return read.others;
}

std::shared_ptr<const Corpus> Corpus::open(const CorpusOptions& options) { return opened_once<const Corpus>(options); }

bool Corpus::packs_documents() const {
  return std::any_of(sets_.begin(), sets_.end(), [](const Dataset& set) { return set.rows.several; });
}

void Corpus::fill(uint64_t epoch, uint64_t index, const RowArrays& to) const {
  const MixedRow row = mixture_->at(epoch, index);
  const Dataset& set = sets_[row.set];
  fill_row(*set.store, set.rows, row.row, options_.window, padding_, to);
}

}  // namespace harmonics::engine
