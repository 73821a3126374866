#include "engine/model/sealed_file.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <boost/json.hpp>
#include <zlib.h>

#include "engine/model/npz.hpp"
#include "formats/safetensors.hpp"

namespace harmonics::engine {

namespace {

namespace json = boost::json;

constexpr const char* kOfTensors = "harmonics.checksums";
constexpr const char* kOfHeader = "harmonics.checksum";
constexpr size_t kDigits = 8, kSealBytes = 8;

uint32_t crc(std::string_view bytes, uint32_t before = 0) {
  return static_cast<uint32_t>(crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::string digits(uint32_t value) {
  std::string s(kDigits, '0');
  for (size_t i = kDigits; i > 0; --i, value >>= 4) s[i - 1] = "0123456789abcdef"[value & 15];
  return s;
}

std::string_view bytes_of(const HTensor& tensor) {
  return {static_cast<const char*>(tensor.bytes()), type_of(tensor).bytes()};
}

// Returns the offset of the digits of the header checksum. The key occurs only once, since quotes in names are escaped.
size_t place_of_digits(std::string_view header) {
  static const std::string key = std::string("\"") + kOfHeader + "\":\"";
  const size_t at = header.find(key);
  return at == std::string_view::npos || header.size() - at < key.size() + kDigits ? std::string_view::npos
                                                                                   : at + key.size();
}

uint32_t header_crc(std::string_view header, size_t place) {
  static const std::string zeros(kDigits, '0');
  return crc(header.substr(place + kDigits), crc(zeros, crc(header.substr(0, place))));
}

[[noreturn]] void damaged(const std::string& name, const std::string& what) {
  throw Error(ErrorKind::Weights, "'" + name + "' is damaged: " + what, {},
              {"fetch or save it again; a program that changes its numbers must drop the metadata 'harmonics.checksum' "
               "and 'harmonics.checksums'"});
}

std::string_view header_of(std::string_view bytes) {
  uint64_t length = 0;
  if (bytes.size() >= kSealBytes) std::memcpy(&length, bytes.data(), kSealBytes);
  return bytes.substr(0, kSealBytes + static_cast<size_t>(std::min<uint64_t>(length, bytes.size())));
}

void check_header(std::string_view bytes, const std::string& name, const std::string& said) {
  const std::string_view header = header_of(bytes);
  const size_t place = place_of_digits(header);
  if (place == std::string_view::npos) damaged(name, "its header's checksum is not where it was written");
  const std::string found = digits(header_crc(header, place));
  if (found != said) damaged(name, "its header has the checksum " + found + ", it was written with " + said);
}

void check_tensors(const TensorFile& file, const std::string& name) {
  json::error_code failure;
  const auto entry = file.metadata.find(kOfTensors);
  const json::value table = entry == file.metadata.end() ? json::value() : json::parse(entry->second, failure);
  const json::object* sums = failure ? nullptr : table.if_object();
  if (!sums) damaged(name, "its table of checksums is missing");
  for (const auto& [tensor, numbers] : file.tensors) {
    const json::value* sum = sums->if_contains(tensor);
    if (!sum || !sum->is_string()) damaged(name, "tensor '" + tensor + "' has no checksum");
    const std::string found = digits(crc(bytes_of(numbers)));
    const std::string said(sum->get_string());
    if (found != said)
      damaged(name, "tensor '" + tensor + "' has the checksum " + found + ", it was written with " + said);
  }
}

// Adds the checksums to the metadata.
void seal(TensorFile& file) {
  json::object sums;
  for (const auto& [name, tensor] : file.tensors) sums[name] = digits(crc(bytes_of(tensor)));
  file.metadata[kOfTensors] = json::serialize(sums);
  file.metadata[kOfHeader] = std::string(kDigits, '0');
  const std::string header = safetensors_header(file);
  file.metadata[kOfHeader] = digits(header_crc(header, place_of_digits(header)));
}

}  // namespace

void save_sealed(TensorFile file, const std::string& path, FileCalls& calls) {
  seal(file);
  save_safetensors(file, path, calls);
}

bool describes_one_file(std::string_view key) { return key == kOfTensors || key == kOfHeader || key == kRunStateKey; }

std::string write_sealed(TensorFile file) {
  seal(file);
  return write_safetensors(file);
}

namespace {

// Returns false if the file has no seal.
bool check_seal(const TensorFile& file, std::string_view bytes, const std::string& name) {
  const auto said = file.metadata.find(kOfHeader);
  if (said == file.metadata.end() && file.metadata.count(kOfTensors)) damaged(name, "its header's checksum is missing");
  if (said == file.metadata.end()) return false;
  check_header(bytes, name, said->second);
  check_tensors(file, name);
  return true;
}

}  // namespace

TensorFile read_weights(const void* data, size_t bytes, const std::string& name,
                        const std::shared_ptr<const void>& keep) {
  if (looks_like_npz(data, bytes)) return read_npz(data, bytes, name, keep);
  TensorFile file = read_safetensors(data, bytes, name, keep);
  check_seal(file, {static_cast<const char*>(data), bytes}, name);
  return file;
}

TensorFile read_weights(const std::string& path) {
  const auto mapped = MappedFile::open(path);
  TensorFile file = read_whole(*mapped, [&] { return read_weights(mapped->data(), mapped->bytes(), path, mapped); });
  file.mapped = mapped;
  return file;
}

namespace {

// Returns the size of the header according to the first bytes of a file. If the header is complete, checks it against
// the size of the file.
uint64_t checked_header_bytes(std::string_view first, uint64_t size, const std::string& name) {
  if (first.size() < kSealBytes) return kSealBytes;
  uint64_t length = 0;
  std::memcpy(&length, first.data(), kSealBytes);
  const bool possible = length <= kLongestSafetensorsHeader && length <= size - kSealBytes;
  if (!possible || first.size() >= kSealBytes + length)
    read_safetensors_header(first.data(), size, {name, ErrorKind::Weights});
  return kSealBytes + length;
}

}  // namespace

TensorFile read_sealed(std::shared_ptr<const std::string> bytes, const std::string& name) {
  TensorFile file = read_safetensors(bytes->data(), bytes->size(), name, bytes);
  if (!check_seal(file, *bytes, name))
    throw Error(ErrorKind::Weights, "'" + name + "' has no checksum: it is not a checkpoint", {},
                {"use --weights to load weights"});
  return file;
}

TensorFile read_sealed(const std::string& path, FileCalls& calls) {
  const LengthRule check = [&](std::string_view first, uint64_t size) {
    return checked_header_bytes(first, size, path);
  };
  return read_sealed(std::make_shared<const std::string>(read_plain_file(path, calls, check)), path);
}

}  // namespace harmonics::engine
