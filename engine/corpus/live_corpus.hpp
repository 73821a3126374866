// Rows of tokens made of texts that arrive: plain text or JSON lines from a socket, a pipe, ZeroMQ or standard input.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/corpus/corpus.hpp"
#include "engine/streams/stream_source.hpp"

namespace harmonics::engine {

// Whether the path of a data set is the address of a stream ("tcp:127.0.0.1:5555", "stdin:"), and no file.
bool is_live_address(const std::string& path);
// Whether some data set of a corpus is one.
bool is_live_corpus(const CorpusOptions& options);
// Throws ErrorKind::Usage for options that need all texts: several data sets, validation, a vocabulary of characters.
void expect_live_corpus(const CorpusOptions& options);

// Reads the bytes of one stream as they arrive. Text is cut into rows; lines that begin with '{' are examples, each (or
// each pair) in a row, or several with RowPacking::pack. Lines are limited to 16 MiB. Several senders of one address
// send whole lines or whole messages that end with a line.
//
// Safe for several threads: each reader has its place, and rows that all have read are dropped.
class LiveCorpus {
 public:
  // Throws as expect_live_corpus(), and what opening the stream and the tokenizer throws.
  explicit LiveCorpus(const CorpusOptions& options);
  // The same corpus for equal options as long as one is in use.
  static std::shared_ptr<LiveCorpus> open(const CorpusOptions& options);

  int add_reader();
  void remove_reader(int reader);
  // The next row of a reader; waits for it. False: the stream has ended, or cancel() was called. Throws
  // ErrorKind::Stream for malformed lines, unless they are skipped.
  bool next(int reader, const RowArrays& to);

  uint64_t window() const { return options_.window; }
  const CorpusTokenizer& tokenizer() const { return tokenizer_; }
  std::string note() const;

  void cancel();                               // from any thread
  std::optional<StreamHealth> health() const;  // from any thread

 private:
  struct Row {
    std::vector<int32_t> tokens, next, documents;
  };
  bool read_more();
  void take_text(std::string text, bool last);
  void cut_text(bool last);
  void take_line(std::string_view line);
  void take_documents();
  void add_row(const TokenStore& store, const PackedRows& rows, uint64_t row);
  void malformed(const std::string& what);

  CorpusOptions options_;
  CorpusTokenizer tokenizer_;
  std::optional<ExampleFormat> format_;
  std::optional<ExampleKind> kind_;  // once the first line shows it
  std::optional<Source> source_;
  int32_t padding_ = 0;

  std::mutex mutex_;
  std::map<int, uint64_t> readers_;  // the number of the next row of each
  int next_reader_ = 0;
  std::deque<Row> rows_;
  uint64_t first_ = 0;  // number of rows_.front()
  std::atomic<bool> ended_ = false;
  std::atomic<uint64_t> refused_ = 0;
  std::string held_;  // bytes that are no whole line or piece of text
  bool is_text_ = false, begun_ = false;
  uint64_t line_ = 0;
  std::vector<int32_t> text_;                    // tokens that are no whole row
  std::vector<std::vector<int32_t>> documents_;  // that have no row yet
};

}  // namespace harmonics::engine
