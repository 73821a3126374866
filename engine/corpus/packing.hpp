// Rows of one length made of documents: what a step learns from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/corpus/token_store.hpp"

namespace harmonics::engine {

// A document of n tokens has n - 1 positions: each token and the one that follows it.
enum class RowPacking {
  concatenate,  // documents follow each other and are cut wherever a row ends
  pack,         // whole documents, each in the first row with room for it
  pad           // one document in a row
};
// What becomes of a document that is longer than a row; without meaning for `concatenate`.
enum class TooLong { error, skip, truncate, split };

struct PackingOptions {
  RowPacking packing = RowPacking::concatenate;
  TooLong too_long = TooLong::skip;
  uint64_t window = 0;  // positions in a row
  std::string name;     // of the data set, for messages
  bool pairs = false;   // two documents that follow each other have a row of their own, without regard to `packing`
};

// A part of a document in a row.
struct Piece {
  uint64_t first;      // token in the store
  uint32_t positions;  // the token behind the last one is there too
};

struct PackedRows {
  std::vector<Piece> pieces;
  std::vector<uint64_t> begins{0};  // of each row, in `pieces`
  uint64_t documents = 0, skipped = 0, truncated = 0, split = 0, empty = 0;
  uint64_t learned = 0, positions = 0;  // positions that count, and all that hold a token
  bool several = false;                 // some row has parts of several documents

  uint64_t size() const { return begins.size() - 1; }
};

// Documents without a position that is learned are left out and counted as empty; so are those that truncation leaves
// without one. Of pairs, each counts as one document, and both need a learned position; they cannot be split. Throws
// ErrorKind::Stream for a document that is too long, if that is an error. The same documents give the same rows.
PackedRows pack_rows(const TokenStore& store, const PackingOptions& options);

// What a row holds, in the arrays of `window` numbers that are not null. Behind the last document: `padding`, targets
// that do not count, and a document of their own.
struct RowArrays {
  int32_t *tokens = nullptr, *next = nullptr, *documents = nullptr;
};
constexpr int32_t kNotLearned = -100;
void fill_row(const TokenStore& store, const PackedRows& rows, uint64_t row, uint64_t window, int32_t padding,
              const RowArrays& to);

}  // namespace harmonics::engine
