#include "engine/corpus/packed_text.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <fmt/core.h>

#include <harmonics/error.hpp>

namespace harmonics::engine {

namespace {

constexpr std::string_view kGzip = "\x1F\x8B", kZstd = "\x28\xB5\x2F\xFD";
constexpr size_t kUnpackedPiece = size_t{1} << 20, kMostPacked = size_t{1} << 30;  // per call
constexpr uint64_t kBelievedRatio = 4096, kAlwaysBelieved = uint64_t{64} << 20;

[[noreturn]] void refuse_packed(const std::string& name, const std::string& what, size_t at) {
  throw Error(ErrorKind::Stream, fmt::format("'{}' {} at byte {}", name, what, at), {}, {"get the file again"});
}

// Passes pieces on and throws above the limit of the decompressed size.
class UnpackedPieces {
 public:
  UnpackedPieces(std::string_view packed, const std::string& name, const std::function<void(std::string_view)>& take)
      : name_(name), take_(take), left_(std::max<uint64_t>(kAlwaysBelieved, packed.size() * kBelievedRatio)) {}
  void add(const char* from, size_t bytes) {
    if (bytes > left_)
      throw Error(ErrorKind::Stream,
                  fmt::format("'{}' decompresses to more than {} times its size", name_, kBelievedRatio), {},
                  {"decompress it first, if this is intended"});
    left_ -= bytes;
    if (bytes > 0) take_({from, bytes});
  }

 private:
  const std::string& name_;
  const std::function<void(std::string_view)>& take_;
  uint64_t left_;
};

class Inflated {
 public:
  Inflated() {
    constexpr int kLargestWindow = 15, kGzipHeader = 16;
    if (inflateInit2(&stream, kLargestWindow + kGzipHeader) != Z_OK)
      throw Error(ErrorKind::Memory, "zlib has no memory");
  }
  ~Inflated() { inflateEnd(&stream); }
  Inflated(const Inflated&) = delete;
  Inflated& operator=(const Inflated&) = delete;

  z_stream stream{};
};

// Decompresses a gzip file, which may have several members.
void unpack_gzip(std::string_view packed, const std::string& name, UnpackedPieces& pieces) {
  Inflated inflated;
  z_stream& z = inflated.stream;
  std::vector<char> piece(kUnpackedPiece);
  size_t at = 0;
  for (bool ended = false; at < packed.size() || !ended;) {
    const size_t given = std::min(packed.size() - at, kMostPacked);
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + at));
    z.avail_in = static_cast<uInt>(given);
    z.next_out = reinterpret_cast<Bytef*>(piece.data());
    z.avail_out = static_cast<uInt>(piece.size());
    if (ended && inflateReset(&z) != Z_OK) refuse_packed(name, "cannot be decompressed", at);
    const int state = inflate(&z, Z_NO_FLUSH);
    at += given - z.avail_in;
    const size_t got = piece.size() - z.avail_out;
    if (state != Z_OK && state != Z_STREAM_END && !(state == Z_BUF_ERROR && got > 0))
      refuse_packed(name, at < packed.size() ? "is damaged: the gzip stream is not sound" : "is truncated", at);
    pieces.add(piece.data(), got);
    ended = state == Z_STREAM_END;
    if (!ended && at == packed.size() && got == 0) refuse_packed(name, "is truncated", at);
  }
}

void unpack_zstd(std::string_view packed, const std::string& name, UnpackedPieces& pieces) {
  const std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(), ZSTD_freeDStream);
  if (!stream) throw Error(ErrorKind::Memory, "zstd has no memory");
  std::vector<char> piece(kUnpackedPiece);
  ZSTD_inBuffer in{packed.data(), packed.size(), 0};
  for (size_t wanted = 1; in.pos < in.size || wanted != 0;) {
    ZSTD_outBuffer out{piece.data(), piece.size(), 0};
    const size_t before = in.pos;
    wanted = ZSTD_decompressStream(stream.get(), &out, &in);
    if (ZSTD_isError(wanted))
      refuse_packed(name, fmt::format("is damaged: the zstd stream is not sound ({})", ZSTD_getErrorName(wanted)),
                    in.pos);
    if (wanted != 0 && in.pos == before && out.pos == 0) refuse_packed(name, "is truncated", in.pos);
    pieces.add(piece.data(), out.pos);
  }
}

// An unlinked temporary file.
class TemporaryText {
 public:
  explicit TemporaryText(const std::string& name) : name_(name) {
    const char* folder = std::getenv("TMPDIR");
    std::string path = std::string(folder && *folder ? folder : "/var/tmp") + "/harmonics-text-XXXXXX";
    file_ = ::mkostemp(path.data(), O_CLOEXEC);
    if (file_ < 0) fail("cannot be created", errno);
    ::unlink(path.c_str());
  }
  ~TemporaryText() {
    if (file_ >= 0) ::close(file_);
  }
  TemporaryText(const TemporaryText&) = delete;
  TemporaryText& operator=(const TemporaryText&) = delete;

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t done = ::write(file_, bytes.data(), bytes.size());
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail("cannot be written", errno);
      bytes.remove_prefix(static_cast<size_t>(done));
    }
  }
  std::shared_ptr<const MappedFile> mapped() const { return MappedFile::open(fmt::format("/proc/self/fd/{}", file_)); }

 private:
  [[noreturn]] void fail(const char* what, int number) const {
    throw Error(ErrorKind::InputOutput, fmt::format("'{}' is compressed, and a temporary file for its text {}: {}",
                                                    name_, what, std::strerror(number)))
        .note("name a folder with more room in TMPDIR, or decompress it first");
  }

  const std::string& name_;
  int file_ = -1;
};

}  // namespace

bool is_packed(std::string_view bytes) { return bytes.starts_with(kGzip) || bytes.starts_with(kZstd); }

std::string name_unpacked(const std::string& name) {
  for (const std::string_view ending : {".gz", ".zst"})
    if (name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  return name;
}

void unpack(std::string_view packed, const std::string& name, const std::function<void(std::string_view)>& take) {
  UnpackedPieces pieces(packed, name, take);
  if (packed.starts_with(kGzip))
    unpack_gzip(packed, name, pieces);
  else
    unpack_zstd(packed, name, pieces);
}

std::shared_ptr<const MappedFile> unpacked_file(std::string_view packed, const std::string& name) {
  TemporaryText text(name);
  unpack(packed, name, [&](std::string_view piece) { text.write(piece); });
  return text.mapped();
}

}  // namespace harmonics::engine
