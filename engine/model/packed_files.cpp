#include "engine/model/packed_files.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <tuple>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/foreign_file.hpp"

namespace harmonics::engine {

namespace {

constexpr char kMagic[8] = {'H', 'X', 'P', 'A', 'C', 'K', '0', '2'};
constexpr size_t kLast = 4096;  // size of the trailer, which follows the packed form

struct Header {
  char magic[8];
  uint64_t key_bytes, bytes;
  ContentHash sum;     // hash of the form
  ContentHash header;  // hash of the preceding members and the key
};

// Returns the last page of a file: header, key, zeros.
std::string last_page(const std::string& key, uint64_t bytes, const ContentHash& sum) {
  Header h{{}, key.size(), bytes, sum, {}};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  std::string checked(reinterpret_cast<const char*>(&h), offsetof(Header, header));
  checked += key;
  h.header = hash_of(checked.data(), checked.size());
  std::string page(kLast, '\0');
  std::memcpy(page.data(), &h, sizeof h);
  std::memcpy(page.data() + sizeof h, key.data(), key.size());
  return page;
}

std::string digits(const ContentHash& hash) { return fmt::format("{:016x}{:016x}", hash[0], hash[1]); }

uint64_t mixed(uint64_t h, uint64_t word) {
  return std::rotl((h ^ word) * 0x9e3779b97f4a7c15u, 29) * 0xbf58476d1ce4e5b9u;
}

// Returns a text that changes whenever a verified file may have changed: identity, size and modification time of the
// file, and the boot of the system. "": unknown.
std::string state_of(const std::string& path) {
  static const std::string boot = [] {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string line;
    std::getline(file, line);
    return line;
  }();
  struct stat s {};
  if (boot.empty() || ::stat(path.c_str(), &s) != 0) return "";
  return fmt::format("{} {} {} {} {}.{:09}", boot, s.st_dev, s.st_ino, s.st_size, s.st_mtim.tv_sec, s.st_mtim.tv_nsec);
}

// Sets the access time, which records the last use. Keeps the modification time, which state_of() depends on.
void mark_used(const std::string& path) {
  const struct timespec times[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  ::utimensat(AT_FDCWD, path.c_str(), times, 0);
}

constexpr const char *kFormEnding = ".pack", *kWholeEnding = ".whole";

// Returns a text that identifies the elements by the source file's stamp and their offset, or "" if they are not in the
// file or it has no reliable stamp.
std::string place_in(const MappedFile& source, const void* elements, uint64_t bytes) {
  const auto *begin = static_cast<const char*>(source.data()), *at = static_cast<const char*>(elements);
  if (source.stamp().empty() || at < begin || at + bytes > begin + source.bytes()) return "";
  return fmt::format("{} at {}", source.stamp(), at - begin);
}

}  // namespace

ContentHasher::ContentHasher(size_t bytes, uint64_t seed) : seed_(seed) {
  for (size_t i = 0; i < kChains; ++i) chains_[i] = mixed(seed + bytes, i + 1);
}

// Uses eight independent chains to hide the latency of the multiplications.
void ContentHasher::take(const char* at, size_t blocks) {
  std::array<uint64_t, kChains> chains = chains_;
  for (; blocks > 0; --blocks, at += kBlock) {
    uint64_t words[kChains];
    std::memcpy(words, at, kBlock);
    for (size_t i = 0; i < kChains; ++i) chains[i] = mixed(chains[i], words[i]);
  }
  chains_ = chains;
}

void ContentHasher::add(const void* data, size_t bytes) {
  const auto* at = static_cast<const char*>(data);
  if (waiting_ > 0) {
    const size_t part = std::min(bytes, kBlock - waiting_);
    std::memcpy(rest_.data() + waiting_, at, part);
    waiting_ += part, at += part, bytes -= part;
    if (waiting_ < kBlock) return;
    take(rest_.data(), 1);
  }
  take(at, bytes / kBlock);
  waiting_ = bytes % kBlock;
  std::memcpy(rest_.data(), at + (bytes - waiting_), waiting_);
}

ContentHash ContentHasher::result() {
  if (waiting_ > 0) {
    std::memset(rest_.data() + waiting_, 0, kBlock - waiting_);
    take(rest_.data(), 1);
    waiting_ = 0;
  }
  ContentHash hash{seed_, ~seed_};
  for (const uint64_t chain : chains_) {
    hash[0] = mixed(hash[0], chain);
    hash[1] = mixed(hash[1] + chain, chain >> 32);
  }
  return hash;
}

ContentHash hash_of(const void* data, size_t bytes, uint64_t seed) {
  ContentHasher hasher(bytes, seed);
  hasher.add(data, bytes);
  return hasher.result();
}

PackedFiles::PackedFiles(std::string folder, uint64_t most_bytes, FileCalls& calls)
    : folder_(std::move(folder)), most_bytes_(most_bytes), calls_(calls) {}

std::string PackedFiles::path(const ContentHash& name, const char* ending) const {
  return folder_ + "/" + digits(name) + ending;
}
std::string PackedFiles::path_of(const std::string& key) const {
  return path(hash_of(key.data(), key.size()), kFormEnding);
}

// Maps a packed form. Returns nothing if the file is missing, damaged, has another key, is world-writable or belongs to
// another user. `written`: hash of the form that this process has just written, which avoids reading it. If null, the
// hash is verified, unless the file is unchanged since it was verified during the same boot of the system: only a power
// failure damages a file after its rename.
PackedForm PackedFiles::mapped(const std::string& path, const std::string& key, uint64_t bytes,
                               const ContentHash* written) const {
  if (!is_own(folder_) || !is_own(path)) return {};
  std::shared_ptr<const MappedFile> file;
  try {
    file = MappedFile::open(path);
  } catch (const Error&) {
    return {};
  }
  if (file->bytes() != bytes + kLast) return {};
  const auto* data = static_cast<const char*>(file->data());
  Header h{};
  std::memcpy(&h, data + bytes, sizeof h);
  const std::string page = last_page(key, bytes, h.sum);
  if (std::memcmp(data + bytes, page.data(), kLast) != 0) return {};
  const std::string whole = path + kWholeEnding, state = state_of(path);
  if (written) {
    if (*written != h.sum) return {};
  } else if (state.empty() || known_text(whole, state.size()) != state) {
    if (hash_of(data, bytes) != h.sum) return {};
  }
  if (file->is_lost()) return {};
  if (!state.empty()) note(whole, state), mark_used(whole);
  auto* form = const_cast<char*>(data);
  return {std::make_shared<Storage>(form, bytes, file, false), file};
}

// A temporary file in the folder, which is renamed when complete and otherwise removed. It is not synced: after a power
// failure the checksums detect missing data.
class PackedFiles::FileAside {
 public:
  FileAside(const std::string& folder, FileCalls& calls) : calls_(calls) {
    static std::atomic<unsigned> number{0};
    aside_ = fmt::format("{}/.harmonics-{}-p{}.tmp", folder, ::getpid(), number++);
    file_ = calls_.open(aside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    done_ = file_ >= 0;
  }
  FileAside(const FileAside&) = delete;
  FileAside& operator=(const FileAside&) = delete;
  ~FileAside() {
    if (file_ < 0) return;
    calls_.close(file_);
    calls_.remove(aside_.c_str());
  }
  bool append(std::string_view bytes) {
    pieces_.add(bytes, [this](std::string_view piece) { write(piece); });
    return done_;
  }
  bool rename_to(const std::string& path) {
    pieces_.flush([this](std::string_view piece) { write(piece); });
    if (!done_) return false;
    done_ = calls_.close(std::exchange(file_, -1)) == 0 && calls_.rename(aside_.c_str(), path.c_str()) == 0;
    if (!done_) calls_.remove(aside_.c_str());
    return done_;
  }

 private:
  void write(std::string_view piece) {
    while (done_ && !piece.empty()) {
      const long wrote = calls_.write(file_, piece.data(), piece.size());
      if (wrote < 0 && errno == EINTR) continue;
      done_ = wrote > 0;
      if (done_) piece.remove_prefix(static_cast<size_t>(wrote));
    }
  }

  FileCalls& calls_;
  GatheredPieces pieces_;
  std::string aside_;
  int file_ = -1;
  bool done_ = false;
};

// Writes a short text with its hash to a file.
void PackedFiles::note(const std::string& path, const std::string& text) const {
  if (known_text(path, text.size()) == text) return;
  FileAside file(folder_, calls_);
  if (file.append(text + digits(hash_of(text.data(), text.size())))) file.rename_to(path);
}

// Returns the text of this size that note() wrote, or "" if there is none.
std::string PackedFiles::known_text(const std::string& path, size_t bytes) const {
  constexpr size_t kDigits = 32;
  if (!is_own(folder_) || !is_own(path)) return "";
  std::string text;
  try {
    text = read_plain_file(path, calls_, [&](std::string_view, uint64_t size) -> uint64_t {
      if (size != bytes + kDigits) throw Error(ErrorKind::NoInput, "it has another length");
      return size;
    });
  } catch (const Error&) {
    return "";
  }
  if (text.size() != bytes + kDigits) return "";
  const std::string sum = text.substr(bytes);
  text.resize(bytes);
  return sum == digits(hash_of(text.data(), bytes)) ? text : "";
}

// Returns whether some file may contain a form of this size, so that hashing the elements is worthwhile.
bool PackedFiles::has_form_of(uint64_t bytes) const {
  std::vector<std::string> names;
  if (calls_.list(folder_.c_str(), names) != 0) return false;
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    struct stat s {};
    return name.ends_with(kFormEnding) && ::stat((folder_ + "/" + name).c_str(), &s) == 0 &&
           static_cast<uint64_t>(s.st_size) == bytes + kLast;
  });
}

// Packs into a file piece by piece, so that each piece is hashed and written while it is in the CPU cache. Also hashes
// the elements along the way if `content` is empty.
PackedForm PackedFiles::written(const Packing& packing, const TensorType& type, const void* elements,
                                const MappedFile& source, const std::string& what, std::string& content) {
  FileAside file(folder_, calls_);
  ContentHasher of_elements(type.bytes()), of_form(packing.bytes);
  const Storage piece(std::min(packing.piece, packing.bytes));
  const uint64_t pieces = (packing.bytes + packing.piece - 1) / packing.piece,
                 share = (type.bytes() + pieces - 1) / pieces;
  const auto* from = static_cast<const char*>(elements);
  for (uint64_t i = 0; i < pieces; ++i) {
    const uint64_t bytes = std::min(packing.piece, packing.bytes - i * packing.piece);
    packing.pack(elements, i, piece.data());
    of_form.add(piece.data(), bytes);
    if (!file.append({static_cast<const char*>(piece.data()), bytes})) return {};
    const uint64_t first = std::min(i * share, type.bytes());
    if (content.empty()) of_elements.add(from + first, std::min(share, type.bytes() - first));
  }
  if (source.is_lost()) return {};
  if (content.empty()) content = digits(of_elements.result());
  const std::string key = what + content, path = path_of(key);
  const ContentHash sum = of_form.result();
  if (!file.append(last_page(key, packing.bytes, sum)) || !file.rename_to(path)) return {};
  return mapped(path, key, packing.bytes, &sum);
}

PackedForm PackedFiles::take(const Packing& packing, const TensorType& type, const void* elements,
                             const MappedFile& source) {
  constexpr size_t kDigits = 32;
  const std::string what = fmt::format("{}\n{}\n", packing.name, type.str()),
                    place = place_in(source, elements, type.bytes());
  const auto in_memory = [&] {
    const auto made = std::make_shared<Storage>(packing.bytes);
    packing.pack_all(elements, made->data());
    return PackedForm{made};
  };
  if (packing.bytes < kLeastPackedFile || packing.bytes + kLast > most_bytes_ ||
      what.size() + sizeof(Header) + 64 > kLast)
    return in_memory();
  const std::string name = place.empty() ? "" : path(hash_of((what + place).data(), what.size() + place.size()), ".of");
  const auto found = [&](const std::string& content) {
    const std::string file = path_of(what + content);
    PackedForm form = mapped(file, what + content, packing.bytes);
    if (form.storage) {
      mark_used(file);
      if (!name.empty()) note(name, content), mark_used(name);
    }
    return form;
  };
  std::string content = name.empty() ? "" : known_text(name, kDigits);
  if (!content.empty())
    if (PackedForm form = found(content); form.storage) return form;
  content.clear();
  if (has_form_of(packing.bytes)) {
    content = digits(hash_of(elements, type.bytes()));
    if (PackedForm form = found(content); form.storage) return form;
  }
  if (source.is_lost() || make_directories(folder_, calls_) != 0 || !is_own(folder_)) return in_memory();
  PackedForm form = written(packing, type, elements, source, what, content);
  if (!form.storage) return in_memory();
  if (!name.empty()) note(name, content);
  remove_oldest();
  return form;
}

// Removes the least recently used files until the limit is met. Small files count as one page each, which limits their
// number too. Mapped files stay readable after their removal.
void PackedFiles::remove_oldest() {
  struct Kept {
    int64_t seconds;  // time of the last use
    long nanoseconds;
    uint64_t bytes;
    std::string path;
  };
  std::vector<Kept> all;
  uint64_t total = 0;
  std::vector<std::string> names;
  if (calls_.list(folder_.c_str(), names) != 0) return;
  for (const std::string& name : names) {
    const std::string at = folder_ + "/" + name;
    struct stat s {};
    if (::lstat(at.c_str(), &s) != 0 || !S_ISREG(s.st_mode)) continue;  // not a file, or just removed
    all.push_back(
        {s.st_atim.tv_sec, s.st_atim.tv_nsec, std::max(static_cast<uint64_t>(s.st_size), uint64_t{kLast}), at});
    total += all.back().bytes;
  }
  std::sort(all.begin(), all.end(), [](const Kept& a, const Kept& b) {
    return std::tie(a.seconds, a.nanoseconds) < std::tie(b.seconds, b.nanoseconds);
  });
  for (const Kept& oldest : all) {
    if (total <= most_bytes_) return;
    if (calls_.remove(oldest.path.c_str()) == 0 || errno == ENOENT) total -= oldest.bytes;
  }
}

std::optional<PackedName> packed_name_of(const std::string& path) {
  std::string page(kLast, '\0');
  std::ifstream file(path, std::ios::binary);
  Header h{};
  if (!file.seekg(-static_cast<std::streamoff>(kLast), std::ios::end)) return std::nullopt;
  if (!file.read(page.data(), static_cast<std::streamsize>(kLast))) return std::nullopt;
  std::memcpy(&h, page.data(), sizeof h);
  if (std::memcmp(h.magic, kMagic, sizeof kMagic) != 0 || h.key_bytes > kLast - sizeof h) return std::nullopt;
  const std::string key = page.substr(sizeof h, h.key_bytes);
  if (last_page(key, h.bytes, h.sum) != page) return std::nullopt;
  const size_t name = key.find('\n'), type = name == std::string::npos ? name : key.find('\n', name + 1);
  if (type == std::string::npos) return std::nullopt;
  return PackedName{key.substr(0, name), key.substr(name + 1, type - name - 1)};
}

std::string packed_files_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache && cache[0] == '/') return std::string(cache) + "/harmonics/packed";
  return home && home[0] == '/' ? std::string(home) + "/.cache/harmonics/packed" : "";
}

}  // namespace harmonics::engine
