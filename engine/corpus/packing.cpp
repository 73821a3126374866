#include "engine/corpus/packing.hpp"

#include <algorithm>
#include <deque>

#include <fmt/core.h>

#include <harmonics/error.hpp>

namespace harmonics::engine {

namespace {

constexpr size_t kOpenRows = 256;  // rows to which documents may still be added

// Returns the number of positions of the piece with a learned target.
uint64_t learned_in(const TokenStore& store, const Piece& piece) {
  const int32_t* at = store.data() + piece.first + 1;
  return static_cast<uint64_t>(std::count_if(at, at + piece.positions, [](int32_t token) { return token >= 0; }));
}

// Appends pieces to the current row.
class RowsInOrder {
 public:
  RowsInOrder(const TokenStore& store, uint64_t window, PackedRows& to) : store_(store), window_(window), to_(to) {}

  // Appends a piece, which may continue in the next rows. `first`: it is the first piece of its document.
  void append(Piece piece, bool first) {
    to_.several = to_.several || (first && used_ > 0);
    while (piece.positions > 0) {
      const auto here = static_cast<uint32_t>(std::min<uint64_t>(piece.positions, window_ - used_));
      to_.pieces.push_back({piece.first, here});
      learned_ += learned_in(store_, to_.pieces.back());
      piece.first += here;
      piece.positions -= here;
      used_ += here;
      if (used_ == window_) close();
    }
  }
  void close() {
    if (used_ == 0) return;
    if (learned_ > 0) {
      to_.begins.push_back(to_.pieces.size());
      to_.learned += learned_;
      to_.positions += used_;
    } else {
      to_.pieces.resize(to_.begins.back());
    }
    used_ = learned_ = 0;
  }

 private:
  const TokenStore& store_;
  const uint64_t window_;
  PackedRows& to_;
  uint64_t used_ = 0, learned_ = 0;
};

// Places whole pieces into the first open row that has room for them.
class FirstFit {
 public:
  FirstFit(uint64_t window, PackedRows& to) : window_(window), to_(to) {}

  void place(const Piece& piece) {
    for (OpenRow& row : open_)
      if (row.room >= piece.positions) {
        row.pieces.push_back(piece);
        to_.several = true;
        row.room -= piece.positions;
        while (!open_.empty() && open_.front().room == 0) close();
        return;
      }
    if (open_.size() == kOpenRows) close();
    open_.push_back({window_ - piece.positions, {piece}});
  }
  void finish() {
    while (!open_.empty()) close();
  }

 private:
  struct OpenRow {
    uint64_t room;
    std::vector<Piece> pieces;
  };
  void close() {
    const OpenRow& row = open_.front();
    to_.pieces.insert(to_.pieces.end(), row.pieces.begin(), row.pieces.end());
    to_.begins.push_back(to_.pieces.size());
    open_.pop_front();
  }

  const uint64_t window_;
  PackedRows& to_;
  std::deque<OpenRow> open_;
};

// Calls `take` with the pieces of a document, each of which fits into a row.
template <typename Take>
void each_piece(const TokenStore& store, uint64_t document, const PackingOptions& options, PackedRows& counts,
                Take take) {
  const uint64_t first = store.begin(document), positions = store.length(document) - 1;
  if (positions <= options.window) return take(Piece{first, static_cast<uint32_t>(positions)});
  switch (options.too_long) {
    case TooLong::error:
      throw Error(ErrorKind::Stream, fmt::format("'{}': example {} has {} tokens, but a row holds {}", options.name,
                                                 document + 1, positions + 1, options.window + 1))
          .note("give longer rows, or too_long=skip, truncate or split");
    case TooLong::skip:
      ++counts.skipped;
      return;
    case TooLong::truncate:
      ++counts.truncated;
      return take(Piece{first, static_cast<uint32_t>(options.window)});
    case TooLong::split:
      ++counts.split;
      for (uint64_t at = 0; at < positions; at += options.window)
        take(Piece{first + at, static_cast<uint32_t>(std::min(options.window, positions - at))});
  }
}

// Packs each two consecutive documents into one row.
PackedRows pack_pairs(const TokenStore& store, const PackingOptions& options) {
  PackedRows rows;
  for (uint64_t document = 0; document + 1 < store.documents(); document += 2) {
    if (store.length(document) < 2 || store.length(document + 1) < 2) {
      ++rows.empty;
      continue;
    }
    ++rows.documents;
    uint64_t first = store.length(document) - 1, second = store.length(document + 1) - 1;
    if (first + second > options.window) {
      if (options.too_long == TooLong::error)
        throw Error(ErrorKind::Stream, fmt::format("'{}': the pair {} has {} tokens, but a row holds {}", options.name,
                                                   document / 2 + 1, first + second + 2, options.window))
            .note("give longer rows, or too_long=skip or truncate");
      if (options.too_long == TooLong::split)
        throw Error(ErrorKind::Usage, fmt::format("'{}' has pairs, which cannot be split", options.name))
            .note("write too_long=skip or truncate");
      if (options.too_long == TooLong::skip) {
        ++rows.skipped;
        continue;
      }
      ++rows.truncated;
      first = std::min(first, std::max(options.window / 2, options.window - std::min(second, options.window)));
      second = std::min(second, options.window - first);
    }
    const Piece chosen{store.begin(document), static_cast<uint32_t>(first)},
        rejected{store.begin(document + 1), static_cast<uint32_t>(second)};
    const uint64_t of_first = learned_in(store, chosen), of_second = learned_in(store, rejected);
    if (of_first == 0 || of_second == 0) {
      ++rows.empty;
      continue;
    }
    rows.pieces.push_back(chosen);
    rows.pieces.push_back(rejected);
    rows.begins.push_back(rows.pieces.size());
    rows.learned += of_first + of_second;
    rows.positions += first + second;
    rows.several = true;
  }
  return rows;
}

}  // namespace

PackedRows pack_rows(const TokenStore& store, const PackingOptions& options) {
  if (options.pairs) return pack_pairs(store, options);
  PackedRows rows;
  RowsInOrder in_order(store, options.window, rows);
  FirstFit first_fit(options.window, rows);
  for (uint64_t document = 0; document < store.documents(); ++document) {
    if (store.length(document) < 2) {
      ++rows.empty;
      continue;
    }
    ++rows.documents;
    if (options.packing == RowPacking::concatenate) {
      for (uint64_t at = 0, positions = store.length(document) - 1; at < positions; at += options.window)
        in_order.append({store.begin(document) + at, static_cast<uint32_t>(std::min(options.window, positions - at))},
                        at == 0);
      continue;
    }
    each_piece(store, document, options, rows, [&](const Piece& piece) {
      const uint64_t learned = learned_in(store, piece);
      if (learned == 0) {
        ++rows.empty;
        return;
      }
      if (options.packing == RowPacking::pad) {
        in_order.append(piece, true);
        in_order.close();
        return;
      }
      rows.learned += learned;
      rows.positions += piece.positions;
      first_fit.place(piece);
    });
  }
  in_order.close();
  first_fit.finish();
  return rows;
}

void fill_row(const TokenStore& store, const PackedRows& rows, uint64_t row, uint64_t window, int32_t padding,
              const RowArrays& to) {
  uint64_t at = 0;
  int32_t number = -1;
  const int32_t* end = nullptr;  // the token after the last position
  for (uint64_t i = rows.begins[row]; i < rows.begins[row + 1]; ++i) {
    const Piece& piece = rows.pieces[i];
    const int32_t* from = store.data() + piece.first;
    if (from != end) ++number;  // otherwise the document continues
    for (uint32_t k = 0; k < piece.positions; ++k, ++at) {
      if (to.tokens) to.tokens[at] = from[k] < 0 ? ~from[k] : from[k];
      if (to.next) to.next[at] = from[k + 1] < 0 ? kNotLearned : from[k + 1];
      if (to.documents) to.documents[at] = number;
    }
    end = from + piece.positions;
  }
  for (; at < window; ++at) {
    if (to.tokens) to.tokens[at] = padding;
    if (to.next) to.next[at] = kNotLearned;
    if (to.documents) to.documents[at] = number + 1;
  }
}

}  // namespace harmonics::engine
