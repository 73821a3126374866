// Decodes bytes to records: one decoder per plain format, without I/O, in bounded memory.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "wire/plain/record.hpp"

namespace harmonics::plain {

enum class Format { Jsonl, Csv, Msgpack, Npy, Raw };
constexpr const char* kFormats = "jsonl, csv, msgpack, npy or raw";
const char* format_name(Format format);
std::optional<Format> format_named(const std::string& name);
// Returns the format that begins with these bytes; none: unknown, or more bytes are needed. `ended`: no more bytes
// will come.
std::optional<Format> format_of_first(std::span<const std::byte> bytes, bool ended);
// Describes the first bytes for errors: "a text line without a delimiter".
std::string shown_first(std::span<const std::byte> bytes);

struct DecoderOptions {
  std::string where;               // for messages
  std::string header = "auto";     // csv: true, false or auto
  std::string delimiter = "auto";  // csv
  bool rows = false;               // npy: the first axis of an array counts samples
  bool batches = false;            // jsonl: an array is several samples
  DType dtype = DType::F32;        // raw: of a sample
  Shape sample;
};

class RecordDecoder {
 public:
  virtual ~RecordDecoder() = default;
  // Takes the next bytes of the stream, cut anywhere.
  virtual void arrived(std::span<const std::byte> bytes) = 0;
  // Reports the end of the stream or of a message: an unfinished record is completed or rejected.
  virtual void flush() = 0;
  // Refused: a record was rejected for `reason`; the next one can be read. Broken: the next record cannot be located.
  enum class Next { None, Record, Refused, Broken };
  virtual Next next(Record& record, std::string& reason) = 0;
  // Bytes that arrived and do not belong to a returned record.
  virtual size_t held() const = 0;
  // The original bytes of the record that next() returned or refused, or the held bytes after Broken. Empty if they
  // exceeded the limit. Valid until the next call of arrived() or next().
  virtual std::string_view raw() = 0;
  // Returns the bytes that must precede raw() to read it again: a table's header. Valid as long as the decoder.
  virtual std::string_view header() const { return {}; }
};

// Errors: Usage.
std::unique_ptr<RecordDecoder> make_decoder(Format format, const DecoderOptions& options);

std::unique_ptr<RecordDecoder> make_json_decoder(const DecoderOptions& options);
std::unique_ptr<RecordDecoder> make_csv_decoder(const DecoderOptions& options);
std::unique_ptr<RecordDecoder> make_msgpack_decoder(const DecoderOptions& options);
std::unique_ptr<RecordDecoder> make_npy_decoder(const DecoderOptions& options);
std::unique_ptr<RecordDecoder> make_raw_decoder(const DecoderOptions& options);

}  // namespace harmonics::plain
