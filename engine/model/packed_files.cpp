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

ContentHash hash_of(const std::string& text) { return engine::hash_of(text.data(), text.size()); }

constexpr char kMagic[8] = {'H', 'X', 'P', 'A', 'C', 'K', '0', '2'};
constexpr size_t kLast = 4096;        // size of the trailer, which follows the packed forms
constexpr uint64_t kFormsAlign = 64;  // of each form in a file

struct Header {
  char magic[8];
  uint64_t key_bytes, bytes;
  ContentHash sum;     // hash of the forms
  ContentHash header;  // hash of the preceding members and the key
};

// Returns the last page of a file: header, key, zeros.
std::string last_page(const std::string& key, uint64_t bytes, const ContentHash& sum) {
  Header h{{}, key.size(), bytes, sum, {}};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  std::string checked(reinterpret_cast<const char*>(&h), offsetof(Header, header));
  checked += key;
  h.header = hash_of(checked);
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

// Forms that share a file, one after the other.
struct PackedFiles::Group {
  explicit Group(std::span<const PackedSource> of) : sources(of) {
    for (const PackedSource& source : of) {
      bytes = (bytes + kFormsAlign - 1) / kFormsAlign * kFormsAlign;
      offsets.push_back(bytes);
      bytes += source.packing->bytes;
      element_bytes += source.type.bytes();
      largest_piece = std::max(largest_piece, std::min(source.packing->piece, source.packing->bytes));
    }
    what = of.size() == 1 ? fmt::format("{}\n{}\n", of[0].packing->name, of[0].type.str()) : names();
  }
  // Returns the names of the packings, the number of tensors, and a hash of every name, type and size in order.
  std::string names() const {
    std::string known, all;
    for (const PackedSource& source : sources) {
      all += fmt::format("{}\n{}\n{}\n", source.packing->name, source.type.str(), source.packing->bytes);
      if (known.size() + source.packing->name.size() < kLast / 4 && known.find(source.packing->name) == known.npos)
        known += (known.empty() ? "" : ", ") + source.packing->name;
    }
    return fmt::format("{}\n{} tensors\n{}\n", known, sources.size(), digits(hash_of(all)));
  }
  // Returns a text that identifies all elements, or "".
  std::string place(const MappedFile& from) const {
    std::string all;
    for (const PackedSource& source : sources) {
      const std::string one = place_in(from, source.elements, source.type.bytes());
      if (one.empty()) return "";
      all += one;
    }
    return all;
  }
  std::string content() const {
    ContentHasher hasher(element_bytes);
    for (const PackedSource& source : sources) hasher.add(source.elements, source.type.bytes());
    return digits(hasher.result());
  }
  std::vector<PackedForm> in(const std::shared_ptr<const MappedFile>& file) const {
    std::vector<PackedForm> forms;
    auto* begin = const_cast<char*>(static_cast<const char*>(file->data()));
    for (size_t i = 0; i < sources.size(); ++i)
      forms.push_back({std::make_shared<Storage>(begin + offsets[i], sources[i].packing->bytes, file, false), file});
    return forms;
  }
  std::vector<PackedForm> in_memory() const {
    std::vector<PackedForm> forms;
    for (const PackedSource& source : sources) {
      forms.push_back({std::make_shared<Storage>(source.packing->bytes)});
      source.packing->pack_all(source.elements, forms.back().storage->data());
    }
    return forms;
  }

  std::span<const PackedSource> sources;
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0, element_bytes = 0, largest_piece = 0;
  std::string what;  // the first part of the key
};

PackedFiles::PackedFiles(std::string folder, uint64_t most_bytes, FileCalls& calls)
    : folder_(std::move(folder)), most_bytes_(most_bytes), calls_(calls) {}

std::string PackedFiles::path(const ContentHash& name, const char* ending) const {
  return folder_ + "/" + digits(name) + ending;
}
std::string PackedFiles::path_of(const std::string& key) const { return path(hash_of(key), kFormEnding); }

// Maps packed forms of this size in total. Returns null if the file is missing, damaged, has another key, is
// world-writable or belongs to another user. `written`: hash of the forms that this process has just written, which
// avoids reading them. If null, the hash is verified, unless the file is unchanged since it was verified during the
// same boot of the system: only a power failure damages a file after its rename.
std::shared_ptr<const MappedFile> PackedFiles::mapped(const std::string& path, const std::string& key, uint64_t bytes,
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
  return file;
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
  if (file.append(text + digits(hash_of(text)))) file.rename_to(path);
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

// Returns whether some file may contain forms of this size in total, so that hashing the elements is worthwhile.
bool PackedFiles::has_file_of(uint64_t bytes) const {
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
std::shared_ptr<const MappedFile> PackedFiles::written(const Group& group, const MappedFile& from,
                                                       std::string& content) {
  FileAside file(folder_, calls_);
  ContentHasher of_elements(group.element_bytes), of_forms(group.bytes);
  const Storage piece(group.largest_piece);
  const auto append = [&](const void* data, uint64_t bytes) {
    of_forms.add(data, bytes);
    return file.append({static_cast<const char*>(data), bytes});
  };
  uint64_t at = 0;
  for (size_t s = 0; s < group.sources.size(); ++s) {
    const auto& [packing, type, elements] = group.sources[s];
    constexpr char kZeros[kFormsAlign] = {};
    if (!append(kZeros, group.offsets[s] - at)) return nullptr;
    const uint64_t pieces = (packing->bytes + packing->piece - 1) / packing->piece,
                   share = (type.bytes() + pieces - 1) / pieces;
    for (uint64_t i = 0; i < pieces; ++i) {
      packing->pack(elements, i, piece.data());
      if (!append(piece.data(), std::min(packing->piece, packing->bytes - i * packing->piece))) return nullptr;
      const uint64_t first = std::min(i * share, type.bytes());
      if (content.empty())
        of_elements.add(static_cast<const char*>(elements) + first, std::min(share, type.bytes() - first));
    }
    at = group.offsets[s] + packing->bytes;
  }
  if (from.is_lost()) return nullptr;
  if (content.empty()) content = digits(of_elements.result());
  const std::string key = group.what + content, path = path_of(key);
  const ContentHash sum = of_forms.result();
  if (!file.append(last_page(key, group.bytes, sum)) || !file.rename_to(path)) return nullptr;
  return mapped(path, key, group.bytes, &sum);
}

std::vector<PackedForm> PackedFiles::take_group(const Group& group, const MappedFile& from) {
  constexpr size_t kDigits = 32;
  const std::string& what = group.what;
  if (group.bytes < kLeastPackedFile || group.bytes + kLast > most_bytes_ || what.size() + sizeof(Header) + 64 > kLast)
    return group.in_memory();
  const std::string place = group.place(from), name = place.empty() ? "" : path(hash_of(what + place), ".of");
  const auto found = [&](const std::string& content) {
    const std::string at = path_of(what + content);
    auto file = mapped(at, what + content, group.bytes);
    if (file) {
      mark_used(at);
      if (!name.empty()) note(name, content), mark_used(name);
    }
    return file;
  };
  std::string content = name.empty() ? "" : known_text(name, kDigits);
  if (!content.empty())
    if (const auto file = found(content)) return group.in(file);
  content.clear();
  if (has_file_of(group.bytes)) {
    content = group.content();
    if (const auto file = found(content)) return group.in(file);
  }
  if (from.is_lost() || make_directories(folder_, calls_) != 0 || !is_own(folder_)) return group.in_memory();
  const auto file = written(group, from, content);
  if (!file) return group.in_memory();
  if (!name.empty()) note(name, content);
  remove_oldest();
  return group.in(file);
}

std::vector<PackedForm> PackedFiles::take(std::span<const PackedSource> sources, const MappedFile& from) {
  std::vector<PackedForm> forms(sources.size());
  std::vector<PackedSource> together;
  std::vector<size_t> places;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].packing->bytes >= kLargeForm) {
      forms[i] = take_group(Group(sources.subspan(i, 1)), from).front();
    } else {
      together.push_back(sources[i]);
      places.push_back(i);
    }
  }
  if (together.empty()) return forms;
  const Group group(together);
  // Forms that exceed the limit together are kept one by one.
  const bool fits = group.bytes + kLast <= most_bytes_;
  std::vector<PackedForm> shared = fits ? take_group(group, from) : std::vector<PackedForm>();
  for (size_t i = 0; i < together.size(); ++i)
    forms[places[i]] = fits ? std::move(shared[i]) : take_group(Group({&together[i], 1}), from).front();
  return forms;
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
