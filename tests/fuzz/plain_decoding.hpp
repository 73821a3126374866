// Passes the same bytes to a decoder of a plain format at once and in pieces; both must give the same result, within
// the limits of a record.
#pragma once

#include <string>

#include "tests/fuzz/guarded_bytes.hpp"
#include "wire/plain/record_decoder.hpp"

namespace harmonics::engine::testing {

// Returns false when nothing more can be read.
inline bool drain(plain::RecordDecoder& decoder, std::string& said) {
  plain::Record record;
  std::string reason;
  for (int n = 0; n < 100000; ++n) {
    const auto got = decoder.next(record, reason);
    if (got == plain::RecordDecoder::Next::None) return true;
    if (got == plain::RecordDecoder::Next::Broken) return said += "broken " + reason, false;
    if (got == plain::RecordDecoder::Next::Refused) {
      require(!reason.empty(), "refused without a reason");
      said += "refused " + reason + "\n";
      said += decoder.raw();
      continue;
    }
    said += record.place;
    said += decoder.raw();
    for (size_t i = 0; i < record.size(); ++i) {
      const plain::Field& field = record[i];
      said += " " + field.name + "=" + std::to_string(static_cast<int>(field.kind)) + field.shape.str();
      if (field.kind == plain::Field::Kind::Numbers) {
        require(field.at + field.count <= record.numbers.size(), "numbers beyond the record's");
        require(static_cast<size_t>(field.shape.count()) == field.count, "as many numbers as the shape says");
        for (const size_t gap : field.gaps) require(gap < field.count, "a gap beyond the numbers");
        said.append(reinterpret_cast<const char*>(record.numbers.data() + field.at), field.count * sizeof(double));
      }
      if (field.kind == plain::Field::Kind::Typed) {
        require(field.at + field.count <= record.bytes.size(), "bytes beyond the record's");
        require(tensor_bytes(field.dtype, field.shape) == field.count, "as many bytes as the shape says");
        said.append(reinterpret_cast<const char*>(record.bytes.data() + field.at), field.count);
      }
      if (field.kind == plain::Field::Kind::Word) said += field.text;
    }
    said += "\n";
  }
  require(false, "a decoder that does not end");
  return false;
}

inline std::string decoded(plain::Format format, const plain::DecoderOptions& options, std::span<const std::byte> bytes,
                           size_t piece) {
  const auto decoder = plain::make_decoder(format, options);
  std::string said;
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(piece, bytes.size()))) {
    decoder->arrived(bytes.first(std::min(piece, bytes.size())));
    if (!drain(*decoder, said)) return said;
  }
  decoder->flush();
  if (drain(*decoder, said)) require(decoder->held() == 0, "what is flushed is held no more");
  return said;
}

// The first byte selects options and the size of the pieces.
inline int decode_both_ways(plain::Format format, plain::DecoderOptions options, const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const uint8_t choice = data[0];
  options.where = "fuzzed";
  options.rows = choice & 0x80;
  options.batches = choice & 0x40;
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  return refusing([&] {
    const std::string whole = decoded(format, options, bytes, bytes.size() + 1),
                      pieces = decoded(format, options, bytes, 1 + (choice & 0x0f));
    require(whole == pieces, "pieces say something else");
    plain::format_of_first(bytes, choice & 0x20);
  });
}

}  // namespace harmonics::engine::testing
