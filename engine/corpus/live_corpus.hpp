// Makes rows of tokens from a live stream of plain text or JSON lines: a socket, a pipe, ZeroMQ or standard input.
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

// Returns whether the path of a data set is the address of a stream ("tcp:127.0.0.1:5555", "stdin:") and not a file.
bool is_live_address(const std::string& path);
// Returns whether a data set of the corpus is such a stream.
bool is_live_corpus(const CorpusOptions& options);
// Throws ErrorKind::Usage for options that a stream does not support: several data sets, validation, and a vocabulary
// of characters, which needs all texts.
void expect_live_corpus(const CorpusOptions& options);

// Reads the bytes of one stream as they arrive. Text is cut into rows. If the stream begins with '{', its lines are
// examples; each example or pair has its own row, unless RowPacking::pack puts several into one. Lines are limited to
// 16 MiB. If an address has several senders, each must send whole lines, or messages that end with a line break.
//
// Thread-safe. Each reader has its own position; rows are dropped when all readers have read them.
class LiveCorpus {
 public:
  // Throws the errors of expect_live_corpus() and of opening the stream and the tokenizer.
  explicit LiveCorpus(const CorpusOptions& options);
  // Returns the corpus in use for equal options, or a new one.
  static std::shared_ptr<LiveCorpus> open(const CorpusOptions& options);

  int add_reader();
  void remove_reader(int reader);
  // Waits for the next row of a reader and copies it. Returns false if the stream has ended or cancel() was called.
  // Throws ErrorKind::Stream for malformed lines, unless they are skipped.
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
  void drop_mark();
  void take_text(std::string text, bool last);
  void cut_text(bool last);
  void take_line(std::string_view line);
  void take_documents();
  void add_row(const TokenStore& store, const PackedRows& rows, uint64_t row);
  void malformed(const std::string& what);

  CorpusOptions options_;
  CorpusTokenizer tokenizer_;
  std::optional<ExampleFormat> format_;
  std::optional<ExampleKind> kind_;  // known after the first line
  std::optional<Source> source_;
  int32_t padding_ = 0;

  std::mutex mutex_;
  std::map<int, uint64_t> readers_;  // number of the next row, by reader
  int next_reader_ = 0;
  std::deque<Row> rows_;
  uint64_t first_ = 0;  // number of rows_.front()
  std::atomic<bool> ended_ = false;
  std::atomic<uint64_t> refused_ = 0;
  std::string held_;  // bytes of an incomplete line or piece of text
  bool is_text_ = false, begun_ = false;
  uint64_t line_ = 0;
  std::vector<int32_t> text_;                    // tokens that do not fill a row yet
  std::vector<std::vector<int32_t>> documents_;  // documents without a row yet
};

}  // namespace harmonics::engine
