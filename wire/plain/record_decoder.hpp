// Bytes in, records out: one decoder for each plain format, without input and output, bounded in memory.
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
// What begins so; none: it cannot be told, or more bytes are needed. `ended`: there are no more.
std::optional<Format> format_of_first(std::span<const std::byte> bytes, bool ended);
// "a text line without a delimiter", for errors.
std::string shown_first(std::span<const std::byte> bytes);

struct DecoderOptions {
  std::string where;               // for messages
  std::string header = "auto";     // csv: true, false or auto
  std::string delimiter = "auto";  // csv
  bool rows = false;               // npy: the first axis of an array counts samples
  bool batches = false;            // jsonl: an array is one sample after the other
  DType dtype = DType::F32;        // raw: of a sample
  Shape sample;
};

class RecordDecoder {
 public:
  virtual ~RecordDecoder() = default;
  // Bytes of the stream in their order, wherever it is cut.
  virtual void arrived(std::span<const std::byte> bytes) = 0;
  // Nothing follows what has arrived, or the next message: what is not finished is a record, or refused.
  virtual void flush() = 0;
  // Refused: one record, for `reason`; the next one can be read. Broken: where the next one begins is not known.
  enum class Next { None, Record, Refused, Broken };
  virtual Next next(Record& record, std::string& reason) = 0;
  // Bytes that have arrived and are of no record yet.
  virtual size_t held() const = 0;
};

// Errors: Usage.
std::unique_ptr<RecordDecoder> make_decoder(Format format, const DecoderOptions& options);

std::unique_ptr<RecordDecoder> make_json_decoder(const DecoderOptions& options);
std::unique_ptr<RecordDecoder> make_csv_decoder(const DecoderOptions& options);
std::unique_ptr<RecordDecoder> make_msgpack_decoder(const DecoderOptions& options);
std::unique_ptr<RecordDecoder> make_npy_decoder(const DecoderOptions& options);
std::unique_ptr<RecordDecoder> make_raw_decoder(const DecoderOptions& options);

}  // namespace harmonics::plain
