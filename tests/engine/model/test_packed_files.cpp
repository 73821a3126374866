// Packed weights on disk: the next start maps them, and neither damage, faults nor other files change results.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/model/packed_files.hpp"
#include "engine/model/parameter_store.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

namespace fs = std::filesystem;

constexpr int64_t kCount = (1 << 20) / 4 + 3;  // f32, just above the minimum that is stored

// A folder with an old file of numbers, and a count of packings.
struct PackedFolder {
  PackedFolder() {
    std::string pattern = (fs::temp_directory_path() / "packed_XXXXXX").string();
    root = ::mkdtemp(pattern.data());
    write_numbers(0);
  }
  ~PackedFolder() { fs::remove_all(root); }

  void write_numbers(float first) {
    std::vector<float> numbers(kCount);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = first + static_cast<float>(i % 1000);
    std::ofstream(root / "weights", std::ios::binary)
        .write(reinterpret_cast<const char*>(numbers.data()), kCount * sizeof(float));
    file = MappedFile::open((root / "weights").string());
  }
  Packing packing(const std::string& name = "doubled/1") {
    constexpr int64_t kPiece = 30 * 1024;  // numbers
    return {name, kCount * sizeof(float), kPiece * sizeof(float), [this](const void* from, uint64_t piece, void* to) {
              packings += piece == 0;
              const int64_t first = static_cast<int64_t>(piece) * kPiece, end = std::min(first + kPiece, kCount);
              for (int64_t i = first; i < end; ++i)
                static_cast<float*>(to)[i - first] = 2 * static_cast<const float*>(from)[i];
            }};
  }
  // Takes the packed form as at a start, and checks it against the numbers.
  PackedForm take(PackedFiles& kept, const std::string& name = "doubled/1") {
    PackedForm form = kept.take(packing(name), {DType::F32, {kCount}}, file->data(), *file);
    const auto* numbers = static_cast<const float*>(file->data());
    bool same = form.storage->bytes() == kCount * sizeof(float);
    for (int64_t i = 0; i < kCount && same; ++i)
      same = static_cast<const float*>(form.storage->data())[i] == 2 * numbers[i];
    CHECK(same);
    return form;
  }
  PackedFiles opened(uint64_t most = uint64_t{1} << 30) { return {(root / "packed").string(), most}; }
  std::vector<fs::path> files() const {
    std::vector<fs::path> all;
    if (fs::exists(root / "packed"))
      for (const auto& entry : fs::directory_iterator(root / "packed")) all.push_back(entry.path());
    return all;
  }
  fs::path only() const {
    fs::path found;
    for (const fs::path& path : files())
      if (path.extension() == ".pack") found = path;
    REQUIRE(!found.empty());
    return found;
  }

  fs::path root;
  std::shared_ptr<const MappedFile> file;
  int packings = 0;
};

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void replace(const fs::path& path, const std::string& content) {
  fs::remove(path);
  std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
}

// Fails the call with this index, from 1: without effect, or after half of a write.
class FailingCalls final : public FileCalls {
 public:
  FailingCalls(size_t at, bool tears) : at_(at), tears_(tears) {}
  int open(const char* path, int flags, unsigned mode) override {
    return fails() ? -1 : FileCalls::open(path, flags, mode);
  }
  long write(int file, const void* data, size_t bytes) override {
    if (!fails()) return FileCalls::write(file, data, bytes);
    if (tears_) (void)FileCalls::write(file, data, bytes / 2);
    errno = ENOSPC;
    return -1;
  }
  int close(int file) override {
    const bool failed = fails();
    const int result = FileCalls::close(file);
    return failed ? -1 : result;
  }
  int rename(const char* from, const char* to) override { return fails() ? -1 : FileCalls::rename(from, to); }
  int remove(const char* path) override { return fails() ? -1 : FileCalls::remove(path); }
  int make_directory(const char* path) override { return fails() ? -1 : FileCalls::make_directory(path); }
  bool struck = false;

 private:
  bool fails() {
    if (++calls_ != at_) return false;
    struck = true;
    errno = ENOSPC;
    return true;
  }
  size_t calls_ = 0, at_;
  bool tears_;
};

}  // namespace

TEST_CASE("packed files: the next start maps what the first one packed") {
  PackedFolder f;
  {
    PackedFiles kept = f.opened();
    const PackedForm form = f.take(kept);
    CHECK(form.file);
    CHECK_FALSE(form.storage->writable());
  }
  PackedFiles kept = f.opened();
  CHECK(f.take(kept).file);
  CHECK(f.packings == 1);
  f.take(kept, "doubled/2");  // another version
  CHECK(f.packings == 2);
}

TEST_CASE("packed files: equal content of another file shares a form, other content does not") {
  PackedFolder f;
  PackedFiles kept = f.opened();
  f.take(kept);
  fs::rename(f.root / "weights", f.root / "old");
  f.write_numbers(0);
  CHECK(f.take(kept).file);
  CHECK(f.packings == 1);
  f.write_numbers(7);
  f.take(kept);
  CHECK(f.packings == 2);
}

TEST_CASE("packed files: a file with a known stamp is not read") {
  PackedFolder f;
  // The change time must be at least two seconds old, so a file of the system is used.
  std::shared_ptr<const MappedFile> old;
  for (const char* path : {"/proc/self/exe", "/bin/bash", "/bin/sh"}) try {
      auto file = MappedFile::open(path);
      if (!file->stamp().empty() && file->bytes() >= kCount * sizeof(float)) old = file;
    } catch (const Error&) {
      continue;
    }
  REQUIRE(old);
  const Packing copying{"copied/1", kCount * sizeof(float), kCount * sizeof(float),
                        [&](const void* from, uint64_t, void* to) {
                          ++f.packings;
                          std::memcpy(to, from, kCount * sizeof(float));
                        }};
  const TensorType type{DType::F32, {kCount}};
  PackedFiles kept = f.opened();
  CHECK(kept.take(copying, type, old->data(), *old).file);
  size_t names = 0;
  for (const fs::path& path : f.files()) names += path.extension() == ".of";
  CHECK(names == 1);
  CHECK(kept.take(copying, type, old->data(), *old).file);
  CHECK(f.packings == 1);
  for (const fs::path& path : f.files())
    if (path.extension() == ".of") replace(path, std::string(64, 'f'));  // damaged: the form is found by content
  const PackedForm form = kept.take(copying, type, old->data(), *old);
  CHECK(std::memcmp(form.storage->data(), old->data(), kCount * sizeof(float)) == 0);
  CHECK(f.packings == 1);
}

TEST_CASE("packed files: damaged, shortened and foreign files are packed again") {
  PackedFolder f;
  PackedFiles kept = f.opened();
  f.take(kept);
  const fs::path path = f.only();
  const std::string whole = content_of(path);
  int expected = 1;
  const auto check = [&](const std::string& content) {
    replace(path, content);
    f.take(kept);
    CHECK(f.packings == ++expected);
    CHECK(content_of(path) == whole);
  };
  const size_t last = whole.size() - 4096;
  for (const size_t at : {size_t{0}, size_t{4096}, whole.size() / 2, last - 1, last, last + 9, last + 17, last + 25,
                          last + 50, last + 80, whole.size() - 1}) {
    INFO("byte " << at);
    std::string changed = whole;
    changed[at] ^= 1;
    check(changed);
  }
  check("");
  check(whole.substr(0, 4096));
  check(whole.substr(0, whole.size() - 1));
  check(whole + "x");
  CHECK(::chmod(path.c_str(), 0666) == 0);
  f.take(kept);
  CHECK(f.packings == ++expected);
  if (::geteuid() == 0) {  // only root can give a file to any group
    REQUIRE(::chown(path.c_str(), 0, 12345) == 0);
    CHECK(::chmod(path.c_str(), 0640) == 0);
    f.take(kept);
    CHECK(f.packings == expected);
    CHECK(::chmod(path.c_str(), 0660) == 0);
    f.take(kept);
    CHECK(f.packings == ++expected);
  }
  CHECK(::chmod((f.root / "packed").c_str(), 0777) == 0);
  CHECK_FALSE(f.take(kept).file);
  CHECK(f.packings == ++expected);
}

TEST_CASE("packed files: a form is read whole once under one boot of the system, and again after any change") {
  PackedFolder f;
  PackedFiles kept = f.opened();
  f.take(kept);
  const fs::path path = f.only();
  struct stat before {};
  REQUIRE(::stat(path.c_str(), &before) == 0);
  const auto overwrite = [&](char byte, bool keeps_time) {
    std::fstream(path, std::ios::binary | std::ios::in | std::ios::out).seekp(1000).put(byte);
    const struct timespec later = {before.st_mtim.tv_sec + 100, 0};
    const struct timespec times[2] = {before.st_atim, keeps_time ? before.st_mtim : later};
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
  };
  const auto byte_of = [&](const PackedForm& form) { return static_cast<const char*>(form.storage->data())[1000]; };
  const auto take = [&] { return kept.take(f.packing(), {DType::F32, {kCount}}, f.file->data(), *f.file); };
  const char right = byte_of(take()), wrong = static_cast<char>(right ^ 1);
  overwrite(wrong, true);  // only deliberate tampering keeps the time
  CHECK(byte_of(take()) == wrong);
  CHECK(f.packings == 1);
  for (const fs::path& other : f.files())
    if (other.extension() == ".whole") replace(other, "of another boot");
  CHECK(byte_of(take()) == right);
  CHECK(f.packings == 2);
  REQUIRE(::stat(path.c_str(), &before) == 0);
  overwrite(wrong, false);
  CHECK(byte_of(take()) == right);
  CHECK(f.packings == 3);
}

TEST_CASE("packed files: the hash of parts is the hash of the whole") {
  std::string bytes(1000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  for (const size_t step : {1, 7, 63, 64, 65, 130, 999, 1000}) {
    ContentHasher parts(bytes.size(), 5);
    for (size_t at = 0; at < bytes.size(); at += step) parts.add(bytes.data() + at, std::min(step, bytes.size() - at));
    CHECK(parts.result() == hash_of(bytes.data(), bytes.size(), 5));
  }
  CHECK(hash_of(bytes.data(), 64, 5) != hash_of(bytes.data(), 65, 5));
}

TEST_CASE("packed files: a fault at any call leaves the result, and the next start repairs the cache") {
  const bool tears = GENERATE(false, true);
  size_t faults = 0;
  for (size_t at = 1;; ++at) {
    INFO("call " << at);
    PackedFolder f;
    FailingCalls calls(at, tears);
    {
      PackedFiles kept((f.root / "packed").string(), uint64_t{1} << 30, calls);
      f.take(kept);
    }
    if (!calls.struck) break;
    ++faults;
    PackedFiles kept = f.opened();
    f.take(kept);
    CHECK(f.take(kept).file);
    CHECK(f.packings <= 3);  // to the file, to memory after the fault, at the next start
  }
  CHECK(faults >= 6);
}

TEST_CASE("packed files: those used longest ago are removed beyond the limit") {
  PackedFolder f;
  const uint64_t one = 4096 + kCount * sizeof(float);
  PackedFiles kept = f.opened(2 * one + 4096 * 8);
  const auto age = [&](const fs::path& path, int hours) {
    const struct timespec times[2] = {{::time(nullptr) - hours * 3600, 0}, {0, UTIME_OMIT}};
    CHECK(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
  };
  f.take(kept, "a/1");
  const fs::path first = f.only();
  age(first, 3);
  f.take(kept, "b/1");
  for (const fs::path& path : f.files())
    if (path != first) age(path, 2);
  f.take(kept, "a/1");  // used again
  f.take(kept, "c/1");
  CHECK(f.packings == 3);
  CHECK(fs::exists(first));
  f.take(kept, "a/1");
  CHECK(f.packings == 3);
  f.take(kept, "b/1");
  CHECK(f.packings == 4);
  PackedFiles none = f.opened(one - 1);
  CHECK_FALSE(f.take(none, "d/1").file);
}

TEST_CASE("packed files: a store keeps transposed and packed forms of mapped weights only") {
  PackedFolder f;
  const TensorType type{DType::F32, {512, 513}};
  const auto store_of = [&](bool fixed) {
    auto store = std::make_unique<ParameterStore>();
    store->keep_packed(std::make_shared<PackedFiles>(f.opened()));
    auto* at = const_cast<void*>(f.file->data());
    const HTensor view = make_value(type, std::make_shared<Storage>(at, type.bytes(), f.file, false));
    store->adopt("w", view, f.file, Role::frozen, {}).fixed = fixed;
    return store;
  };
  for (const bool fixed : {true, true, false}) {
    const auto store = store_of(fixed);
    CHECK(store->layout("w", type, Layout::transposed) == Layout::transposed);
    StoredTensor& w = *store->find("w");
    CHECK(w.storage->writable() != fixed);
    CHECK((w.file != nullptr) == fixed);
    CHECK(store->files().size() == (fixed ? 1u : 0u));
    const auto* turned = static_cast<const float*>(w.data());
    const auto* numbers = static_cast<const float*>(f.file->data());
    CHECK(turned[3 * 512 + 5] == numbers[5 * 513 + 3]);
    const auto kept = f.files();
    CHECK(std::count_if(kept.begin(), kept.end(), [](const fs::path& p) { return p.extension() == ".pack"; }) == 1);
    std::vector<float> natural(512 * 513);
    store->copy("w", natural.data());
    CHECK(std::memcmp(natural.data(), numbers, type.bytes()) == 0);
    store->assign("w", HTensor::from(type.shape, std::vector<float>(512 * 513, 1.0f)));
    CHECK(static_cast<const float*>(w.data())[0] == 1.0f);
  }
}

TEST_CASE("packed files: a file names its packing and the type of its weights") {
  PackedFolder folder;
  PackedFiles kept = folder.opened();
  folder.take(kept, "doubled/2");
  const std::string path = folder.only().string();
  const std::optional<PackedName> name = packed_name_of(path);
  REQUIRE(name);
  CHECK(name->packing == "doubled/2");
  CHECK(name->type == TensorType{DType::F32, {kCount}}.str());
  std::string content = content_of(path);
  content[content.size() - 4000] ^= 1;  // in the key
  replace(path, content);
  CHECK_FALSE(packed_name_of(path));
  replace(path, "short");
  CHECK_FALSE(packed_name_of(path));
  CHECK_FALSE(packed_name_of(path + ".none"));
}
