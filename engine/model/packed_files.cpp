#include "engine/model/packed_files.hpp"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

namespace harmonics::engine {

namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'H', 'X', 'P', 'A', 'C', 'K', '0', '1'};
constexpr size_t kFirst = 4096;  // bytes before the form, which begins at a page

struct Header {
  char magic[8];
  uint64_t key_bytes, bytes;
  ContentHash sum;     // of the form
  ContentHash header;  // of key and members before
};

// The first page of a file: header, key, zeros.
std::string first_page(const std::string& key, uint64_t bytes, const ContentHash& sum) {
  Header h{{}, key.size(), bytes, sum, {}};
  std::memcpy(h.magic, kMagic, sizeof kMagic);
  std::string checked(reinterpret_cast<const char*>(&h), offsetof(Header, header));
  checked += key;
  h.header = hash_of(checked.data(), checked.size());
  std::string page(kFirst, '\0');
  std::memcpy(page.data(), &h, sizeof h);
  std::memcpy(page.data() + sizeof h, key.data(), key.size());
  return page;
}

std::string digits(const ContentHash& hash) { return fmt::format("{:016x}{:016x}", hash[0], hash[1]); }

uint64_t mixed(uint64_t h, uint64_t word) {
  return std::rotl((h ^ word) * 0x9e3779b97f4a7c15u, 29) * 0xbf58476d1ce4e5b9u;
}

// Returns whether it belongs to this user and not everyone can write there.
bool is_own(const std::string& path) {
  struct stat s {};
  return ::stat(path.c_str(), &s) == 0 && s.st_uid == ::geteuid() && !(s.st_mode & S_IWOTH);
}

// "" if the elements lie elsewhere or the file may have changed at the time of its stamp.
std::string place_in(const MappedFile& source, const void* elements, uint64_t bytes) {
  const auto *begin = static_cast<const char*>(source.data()), *at = static_cast<const char*>(elements);
  if (source.stamp().empty() || at < begin || at + bytes > begin + source.bytes()) return "";
  return fmt::format("{} at {}", source.stamp(), at - begin);
}

}  // namespace

// Eight chains hide the latency of the multiplications.
ContentHash hash_of(const void* data, size_t bytes, uint64_t seed) {
  constexpr size_t kChains = 8, kBlock = kChains * sizeof(uint64_t);
  uint64_t chains[kChains];
  for (size_t i = 0; i < kChains; ++i) chains[i] = mixed(seed + bytes, i + 1);
  const auto* at = static_cast<const char*>(data);
  const auto take = [&](const char* block) {
    uint64_t words[kChains];
    std::memcpy(words, block, kBlock);
    for (size_t i = 0; i < kChains; ++i) chains[i] = mixed(chains[i], words[i]);
  };
  for (size_t n = bytes / kBlock; n > 0; --n, at += kBlock) take(at);
  if (const size_t rest = bytes % kBlock) {
    char last[kBlock] = {};
    std::memcpy(last, at, rest);
    take(last);
  }
  ContentHash hash{seed, ~seed};
  for (const uint64_t chain : chains) {
    hash[0] = mixed(hash[0], chain);
    hash[1] = mixed(hash[1] + chain, chain >> 32);
  }
  return hash;
}

PackedFiles::PackedFiles(std::string folder, uint64_t most_bytes, FileCalls& calls)
    : folder_(std::move(folder)), most_bytes_(most_bytes), calls_(calls) {}

std::string PackedFiles::path(const ContentHash& name, const char* ending) const {
  return folder_ + "/" + digits(name) + ending;
}

// Returns nothing if the file is missing, damaged, of another key, or not this user's alone. `written`: the sum of a
// form that this process has just written, and so need not read; null: it is computed.
PackedForm PackedFiles::mapped(const std::string& path, const std::string& key, uint64_t bytes,
                               const ContentHash* written) const {
  if (!is_own(folder_) || !is_own(path)) return {};
  std::shared_ptr<const MappedFile> file;
  try {
    file = MappedFile::open(path);
  } catch (const Error&) {
    return {};
  }
  if (file->bytes() != kFirst + bytes) return {};
  const auto* data = static_cast<const char*>(file->data());
  Header h{};
  std::memcpy(&h, data, sizeof h);
  const std::string page = first_page(key, bytes, h.sum);
  if (std::memcmp(data, page.data(), kFirst) != 0) return {};
  if ((written ? *written : hash_of(data + kFirst, bytes)) != h.sum || file->is_lost()) return {};
  auto* form = const_cast<char*>(data) + kFirst;
  return {std::make_shared<Storage>(form, bytes, file, false), file};
}

// Writes beside the file and renames. Without a sync: after a power cut the checksums refuse what was not written.
bool PackedFiles::write(const std::string& path, std::initializer_list<std::string_view> pieces) {
  static std::atomic<unsigned> number{0};
  const std::string aside = fmt::format("{}/.harmonics-{}-p{}.tmp", folder_, ::getpid(), number++);
  const int file = calls_.open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return false;
  bool done = true;
  for (std::string_view piece : pieces)
    while (done && !piece.empty()) {
      const long wrote = calls_.write(file, piece.data(), piece.size());
      if (wrote < 0 && errno == EINTR) continue;
      done = wrote > 0;
      if (done) piece.remove_prefix(static_cast<size_t>(wrote));
    }
  done = calls_.close(file) == 0 && done;
  done = done && calls_.rename(aside.c_str(), path.c_str()) == 0;
  if (!done) calls_.remove(aside.c_str());
  return done;
}

// The name of the content that a file of another start found; "": unknown.
std::string PackedFiles::known_content(const std::string& path) const {
  constexpr size_t kDigits = 32;
  if (!is_own(folder_) || !is_own(path)) return "";
  std::string text;
  try {
    text = read_plain_file(path, calls_, [](std::string_view, uint64_t size) -> uint64_t {
      if (size != 2 * kDigits) throw Error(ErrorKind::NoInput, "it is not a name");
      return size;
    });
  } catch (const Error&) {
    return "";
  }
  if (text.size() != 2 * kDigits) return "";
  const std::string content = text.substr(0, kDigits);
  return text.substr(kDigits) == digits(hash_of(content.data(), kDigits)) ? content : "";
}

PackedForm PackedFiles::take(const Packing& packing, const TensorType& type, const void* elements,
                             const MappedFile& source) {
  const std::string what = fmt::format("{}\n{}\n", packing.name, type.str()),
                    place = place_in(source, elements, type.bytes());
  const bool kept = packing.bytes >= kLeastPackedFile && packing.bytes + kFirst <= most_bytes_ &&
                    what.size() + sizeof(Header) + 64 <= kFirst;
  const auto key_of = [&](const std::string& content) { return what + content; };
  const auto path_of = [&](const std::string& key) { return path(hash_of(key.data(), key.size()), ".pack"); };
  const auto used = [](const std::string& file) { ::utimensat(AT_FDCWD, file.c_str(), nullptr, 0); };
  const std::string note = place.empty() ? "" : path(hash_of((what + place).data(), what.size() + place.size()), ".of");
  if (kept && !note.empty())
    if (const std::string content = known_content(note); !content.empty()) {
      const std::string file = path_of(key_of(content));
      if (PackedForm form = mapped(file, key_of(content), packing.bytes); form.storage)
        return used(file), used(note), form;
    }
  std::string content;
  if (kept) {
    content = digits(hash_of(elements, type.bytes()));
    const std::string file = path_of(key_of(content));
    if (PackedForm form = mapped(file, key_of(content), packing.bytes); form.storage) {
      used(file);
      if (!note.empty()) write(note, {content, digits(hash_of(content.data(), content.size()))});
      return form;
    }
  }
  const auto made = std::make_shared<Storage>(packing.bytes);
  packing.pack(elements, made->data());
  if (!kept || source.is_lost() || make_directories(folder_, calls_) != 0 || !is_own(folder_)) return {made};
  const std::string key = key_of(content), file = path_of(key);
  const ContentHash sum = hash_of(made->data(), packing.bytes);
  const std::string page = first_page(key, packing.bytes, sum);
  if (!write(file, {page, {static_cast<const char*>(made->data()), packing.bytes}})) return {made};
  if (!note.empty()) write(note, {content, digits(hash_of(content.data(), content.size()))});
  PackedForm form = mapped(file, key, packing.bytes, &sum);
  remove_oldest();
  return form.storage ? form : PackedForm{made};
}

// Names count as a page each, so that their number has a limit too. A file that is in use stays readable.
void PackedFiles::remove_oldest() {
  struct Kept {
    fs::file_time_type used;
    uint64_t bytes;
    std::string path;
  };
  std::vector<Kept> all;
  uint64_t total = 0;
  std::vector<std::string> names;
  if (calls_.list(folder_.c_str(), names) != 0) return;
  for (const std::string& name : names) {
    std::error_code failed;
    const fs::path at = fs::path(folder_) / name;
    if (!fs::is_regular_file(at, failed)) continue;
    const auto used = fs::last_write_time(at, failed);
    const uint64_t bytes = failed ? 0 : fs::file_size(at, failed);
    if (failed) continue;  // another process has removed it
    all.push_back({used, std::max<uint64_t>(bytes, kFirst), at.string()});
    total += all.back().bytes;
  }
  std::sort(all.begin(), all.end(), [](const Kept& a, const Kept& b) { return a.used < b.used; });
  for (const Kept& oldest : all) {
    if (total <= most_bytes_) return;
    if (calls_.remove(oldest.path.c_str()) == 0 || errno == ENOENT) total -= oldest.bytes;
  }
}

std::string packed_files_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  if (cache && cache[0] == '/') return std::string(cache) + "/harmonics/packed";
  return home && home[0] == '/' ? std::string(home) + "/.cache/harmonics/packed" : "";
}

}  // namespace harmonics::engine
