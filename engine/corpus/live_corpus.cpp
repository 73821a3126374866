#include "engine/corpus/live_corpus.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include <boost/json.hpp>
#include <fmt/core.h>

#include "engine/base/address.hpp"
#include "engine/corpus/opened_once.hpp"
#include "engine/streams/streams.hpp"
#include "formats/exact_json.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine {

namespace {

constexpr size_t kLongestLiveLine = size_t{16} << 20;
constexpr size_t kLongestPiece = size_t{1} << 20;  // limit of a piece of text without a line break
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

[[noreturn]] void not_live(const std::string& path, const std::string& what, const std::string& remedy) {
  throw Error(ErrorKind::Usage, fmt::format("'{}' is a stream, {}", path, what)).note(remedy);
}

bool is_blank(char byte) { return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r'; }

// Opens the stream as raw bytes.
Source open_bytes(const std::string& path) {
  Address address = parse_address(path);
  for (const char* key : {"format", "type"})
    if (address.find(key)) not_live(path, fmt::format("whose bytes are text, so {}= has no effect", key), "remove it");
  address.options.push_back({"format", "raw"});
  address.options.push_back({"type", "u8:"});
  return open_source(Registry::global(), "texts", address);
}

}  // namespace

bool is_live_address(const std::string& path) {
  const size_t colon = path.find(':');
  std::error_code failed;
  if (colon == std::string::npos || path.starts_with('{') || std::filesystem::exists(path, failed)) return false;
  const std::string scheme = path.substr(0, colon);
  return scheme != "corpus" && Registry::global().find(HX_PRODUCER, scheme) != nullptr;
}

bool is_live_corpus(const CorpusOptions& options) {
  return std::any_of(options.datasets.begin(), options.datasets.end(),
                     [](const DatasetOptions& set) { return is_live_address(set.path); });
}

void expect_live_corpus(const CorpusOptions& options) {
  const std::string& path = options.datasets.front().path;
  if (options.datasets.size() > 1)
    not_live(path, "which cannot be combined with other data sets", "use it alone, or send all texts through it");
  if (options.validation > 0 || options.held_out)
    not_live(path, "of which no examples can be held out", "remove validation=");
  if (options.tokenizer == "characters")
    not_live(path, "so its characters are unknown", "name the file or folder of a tokenizer, or bytes");
  expect_window(options);
}

LiveCorpus::LiveCorpus(const CorpusOptions& options) : options_(options) {
  expect_live_corpus(options_);
  const DatasetOptions& set = options_.datasets.front();
  tokenizer_ = open_corpus_tokenizer(options_.tokenizer, options_.chat_template, {});
  const Tokenizer& tokenizer = *tokenizer_.tokenizer;
  padding_ = tokenizer.padding().value_or(tokenizer.eos().value_or(0));
  const std::string end = tokenizer.eos() ? tokenizer.written(*tokenizer.eos()) : "";
  format_.emplace(set.kind, set.columns, tokenizer_.format, end, set.learns_prompts);
  if (set.kind != ExampleKind::automatic) kind_ = set.kind;
  source_.emplace(open_bytes(set.path));
}

std::shared_ptr<LiveCorpus> LiveCorpus::open(const CorpusOptions& options) { return opened_once<LiveCorpus>(options); }

int LiveCorpus::add_reader() {
  const std::lock_guard lock(mutex_);
  readers_[next_reader_] = first_;
  return next_reader_++;
}

void LiveCorpus::remove_reader(int reader) {
  const std::lock_guard lock(mutex_);
  readers_.erase(reader);
}

bool LiveCorpus::next(int reader, const RowArrays& to) {
  const std::lock_guard lock(mutex_);
  uint64_t& at = readers_.at(reader);
  while (at >= first_ + rows_.size())
    if (!read_more()) return false;
  const Row& row = rows_[at - first_];
  const size_t bytes = options_.window * sizeof(int32_t);
  if (to.tokens) std::memcpy(to.tokens, row.tokens.data(), bytes);
  if (to.next) std::memcpy(to.next, row.next.data(), bytes);
  if (to.documents) std::memcpy(to.documents, row.documents.data(), bytes);
  ++at;
  uint64_t least = at;
  for (const auto& [other, place] : readers_) least = std::min(least, place);
  for (; first_ < least; ++first_) rows_.pop_front();
  return true;
}

// Reads until there is a further row. Returns false at the end of the stream.
bool LiveCorpus::read_more() {
  if (ended_) return false;
  const size_t rows = rows_.size();
  while (rows_.size() == rows) {
    char byte = 0;
    if (source_->read(1, &byte) == 0) {
      ended_ = true;
      if (is_text_) {
        take_text(std::exchange(held_, ""), true);
      } else {
        take_line(std::exchange(held_, ""));
        take_documents();
      }
      return rows_.size() > rows;
    }
    if (!begun_ && !is_blank(byte)) {
      begun_ = true;
      is_text_ = byte != '{' && (!kind_ || *kind_ == ExampleKind::text);
    }
    if (is_text_) {
      const bool whole = !is_blank(byte) && held_.size() >= options_.window && held_.ends_with('\n');
      const bool long_enough = held_.size() >= kLongestPiece && (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
      if (whole || long_enough) take_text(std::exchange(held_, ""), false);
      held_ += byte;
    } else if (byte == '\n') {
      take_line(std::exchange(held_, ""));
    } else {
      held_ += byte;
      if (held_.size() > kLongestLiveLine)
        throw Error(ErrorKind::Stream, fmt::format("'{}': line {} is longer than {} bytes",
                                                   options_.datasets.front().path, line_ + 1, kLongestLiveLine))
            .note("end each example with a line break");
    }
    drop_mark();
  }
  return true;
}

// Forgets a byte order mark with which the stream begins: what follows it tells texts from examples.
void LiveCorpus::drop_mark() {
  if (held_ != kByteOrderMark || line_ > 0 || !text_.empty()) return;
  held_.clear();
  begun_ = is_text_ = false;
}

void LiveCorpus::take_text(std::string text, bool last) {
  if (find_invalid_utf8(text)) {
    malformed("is not UTF-8");
    if (last) cut_text(true);  // the pieces before it
    return;
  }
  TextExample piece = ExampleFormat::of_text(std::move(text));
  piece.begin = text_.empty() && rows_.empty() && first_ == 0;
  piece.end = last;
  const std::vector<int32_t> tokens = tokens_of(piece, *tokenizer_.tokenizer);
  text_.insert(text_.end(), tokens.begin(), tokens.end());
  cut_text(last);
}

// Makes rows of the pending text. At its end the last row is padded.
void LiveCorpus::cut_text(bool last) {
  const uint64_t window = options_.window;
  uint64_t rows = text_.size() > 1 ? (text_.size() - 1) / window : 0;
  const uint64_t left = text_.size() - rows * window;
  if (last && left > 1) ++rows;
  if (rows == 0) return;
  TokenStore store(options_.datasets.front().path, options_.memory);
  store.add(text_);
  store.finish();
  PackingOptions packing;
  packing.window = window;
  const PackedRows packed = pack_rows(store, packing);
  const uint64_t taken = std::min(rows, packed.size());
  for (uint64_t row = 0; row < taken; ++row) add_row(store, packed, row);
  text_.erase(text_.begin(),
              text_.begin() + static_cast<std::ptrdiff_t>(std::min<uint64_t>(text_.size(), rows * window)));
}

void LiveCorpus::take_line(std::string_view line) {
  ++line_;
  if (line.find_first_not_of(" \t\r\n") == std::string_view::npos) return;
  boost::json::error_code failed;
  const boost::json::value value = parse_json(line, failed);
  if (failed) return malformed("is not JSON: " + failed.message());
  try {
    if (!kind_) kind_ = format_->kind_of(value);
    if (*kind_ == ExampleKind::preference) {
      const auto [chosen, rejected] = format_->read_pair(value);
      documents_.push_back(tokens_of(chosen, *tokenizer_.tokenizer));
      documents_.push_back(tokens_of(rejected, *tokenizer_.tokenizer));
    } else {
      documents_.push_back(tokens_of(format_->read(value, *kind_), *tokenizer_.tokenizer));
    }
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Stream && e.kind() != ErrorKind::Usage) throw;
    return malformed(e.what());
  }
  uint64_t tokens = 0;
  for (const std::vector<int32_t>& document : documents_) tokens += document.size();
  const bool shares = options_.packing && *options_.packing != RowPacking::pad && *kind_ != ExampleKind::preference;
  if (!shares || tokens > options_.window) take_documents();
}

void LiveCorpus::take_documents() {
  if (documents_.empty()) return;
  TokenStore store(options_.datasets.front().path, options_.memory);
  for (const std::vector<int32_t>& document : documents_) store.add(document);
  store.finish();
  documents_.clear();
  PackingOptions packing;
  packing.packing = options_.packing.value_or(RowPacking::pad);
  packing.too_long = options_.too_long;
  packing.window = options_.window;
  packing.name = options_.datasets.front().path;
  packing.pairs = kind_ == ExampleKind::preference;
  const PackedRows rows = pack_rows(store, packing);
  for (uint64_t row = 0; row < rows.size(); ++row) add_row(store, rows, row);
}

void LiveCorpus::add_row(const TokenStore& store, const PackedRows& rows, uint64_t row) {
  const size_t n = options_.window;
  Row made{std::vector<int32_t>(n), std::vector<int32_t>(n), std::vector<int32_t>(n)};
  fill_row(store, rows, row, n, padding_, {made.tokens.data(), made.next.data(), made.documents.data()});
  rows_.push_back(std::move(made));
}

void LiveCorpus::malformed(const std::string& what) {
  ++refused_;
  if (options_.skip_malformed) return;
  const std::string place = is_text_ ? "a part of the text" : fmt::format("line {}", line_);
  throw Error(ErrorKind::Stream, fmt::format("'{}': {} {}", options_.datasets.front().path, place, what))
      .note("leave such parts out: malformed=skip, or skip_malformed: true");
}

std::string LiveCorpus::note() const {
  return fmt::format(
      "'{}' is read once: its run cannot be resumed, but another one can begin with its weights (--weights); texts "
      "that were read but not yet used are lost",
      options_.datasets.front().path);
}

void LiveCorpus::cancel() {
  ended_ = true;
  source_->cancel();
}

std::optional<StreamHealth> LiveCorpus::health() const {
  std::optional<StreamHealth> health = source_->health();
  if (health) health->refused += refused_;
  return health;
}

}  // namespace harmonics::engine
