// Packs documents into rows of equal length for training.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/corpus/token_store.hpp"

namespace harmonics::engine {

// How documents share rows. A document of n tokens has n - 1 positions: each token with its successor as target.
enum class RowPacking {
  concatenate,  // documents follow each other and are cut where a row ends
  pack,         // whole documents, each in the first row with room for it
  pad           // one document in a row
};
// Treatment of a document longer than a row; unused for `concatenate`.
enum class TooLong { error, skip, truncate, split };

struct PackingOptions {
  RowPacking packing = RowPacking::concatenate;
  TooLong too_long = TooLong::skip;
  uint64_t window = 0;  // positions in a row
  std::string name;     // name of the data set, for messages
  bool pairs = false;   // each two consecutive documents share a row; `packing` is unused
};

// A part of a document in a row.
struct Piece {
  uint64_t first;      // index of a token in the store
  uint32_t positions;  // the target of the last position follows it in the store
};

struct PackedRows {
  std::vector<Piece> pieces;
  std::vector<uint64_t> begins{0};  // index of each row's first piece in `pieces`
  uint64_t documents = 0, skipped = 0, truncated = 0, split = 0, empty = 0;
  uint64_t learned = 0, positions = 0;  // positions with a learned target, and all without padding
  bool several = false;                 // a row may have parts of several documents

  uint64_t size() const { return begins.size() - 1; }
};

// Packs all documents. Omits pieces and rows without a learned position, also after truncation; except for
// `concatenate` they are counted as empty. A pair counts as one document, needs a learned position in both parts, and
// cannot be split. Throws ErrorKind::Stream for a document that is too long if `too_long` is error. Deterministic.
PackedRows pack_rows(const TokenStore& store, const PackingOptions& options);

// Arrays of `window` numbers for the content of a row; null arrays are skipped. After the last document, fill_row()
// writes the token `padding`, the target kNotLearned, and a separate document number.
struct RowArrays {
  int32_t *tokens = nullptr, *next = nullptr, *documents = nullptr;
};
constexpr int32_t kNotLearned = -100;
void fill_row(const TokenStore& store, const PackedRows& rows, uint64_t row, uint64_t window, int32_t padding,
              const RowArrays& to);

}  // namespace harmonics::engine
