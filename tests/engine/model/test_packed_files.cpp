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

PackedForm take_one(PackedFiles& kept, const Packing& packing, const TensorType& type, const void* elements,
                    const MappedFile& file) {
  const PackedSource source{&packing, type, elements};
  return kept.take({&source, 1}, file).front();
}

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
    PackedForm form = take_one(kept, packing(name), {DType::F32, {kCount}}, file->data(), *file);
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
  CHECK(take_one(kept, copying, type, old->data(), *old).file);
  size_t names = 0;
  for (const fs::path& path : f.files()) names += path.extension() == ".of";
  CHECK(names == 1);
  CHECK(take_one(kept, copying, type, old->data(), *old).file);
  CHECK(f.packings == 1);
  for (const fs::path& path : f.files())
    if (path.extension() == ".of") replace(path, std::string(64, 'f'));  // damaged: the form is found by content
  const PackedForm form = take_one(kept, copying, type, old->data(), *old);
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
  const auto take = [&] { return take_one(kept, f.packing(), {DType::F32, {kCount}}, f.file->data(), *f.file); };
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

// Thirds of the numbers, of unequal and odd sizes, each of them doubled.
struct Thirds {
  explicit Thirds(PackedFolder& folder) : f(folder) {
    const int64_t ends[] = {0, kCount / 3 + 1, kCount / 2 + 3, kCount};
    for (int i = 0; i < 3; ++i) {
      const int64_t count = ends[i + 1] - ends[i];
      types.push_back({DType::F32, {count}});
      packings.push_back({i == 1 ? "doubled/2" : "doubled/1", types[static_cast<size_t>(i)].bytes(), 64 * 1024,
                          [this, count](const void* from, uint64_t piece, void* to) {
                            f.packings += piece == 0;
                            const int64_t first = static_cast<int64_t>(piece) * 16 * 1024,
                                          end = std::min(first + 16 * 1024, count);
                            for (int64_t n = first; n < end; ++n)
                              static_cast<float*>(to)[n - first] = 2 * static_cast<const float*>(from)[n];
                          }});
      firsts.push_back(ends[i]);
    }
  }
  // Takes all forms, and checks them against the numbers.
  std::vector<PackedForm> take(PackedFiles& kept) {
    const auto* numbers = static_cast<const float*>(f.file->data());
    std::vector<PackedSource> sources;
    for (size_t i = 0; i < 3; ++i) sources.push_back({&packings[i], types[i], numbers + firsts[i]});
    std::vector<PackedForm> forms = kept.take(sources, *f.file);
    REQUIRE(forms.size() == 3);
    bool same = true;
    for (size_t i = 0; i < 3; ++i) {
      REQUIRE(forms[i].storage->bytes() == types[i].bytes());
      CHECK(reinterpret_cast<uintptr_t>(forms[i].storage->data()) % 64 == 0);
      for (int64_t n = 0; n < types[i].shape.count() && same; ++n)
        same = static_cast<const float*>(forms[i].storage->data())[n] == 2 * numbers[firsts[i] + n];
    }
    CHECK(same);
    return forms;
  }
  PackedFolder& f;
  std::vector<TensorType> types;
  std::vector<Packing> packings;
  std::vector<int64_t> firsts;
};

TEST_CASE("packed files: forms that are taken together share a file") {
  PackedFolder f;
  Thirds thirds(f);
  {
    PackedFiles kept = f.opened();
    const auto forms = thirds.take(kept);
    CHECK(f.packings == 3);
    CHECK(forms[0].file);
    CHECK(forms[0].file == forms[1].file);
    CHECK(forms[1].file == forms[2].file);
    CHECK_FALSE(forms[1].storage->writable());
  }
  const std::string path = f.only().string();
  const std::optional<PackedName> name = packed_name_of(path);
  REQUIRE(name);
  CHECK(name->packing == "doubled/1, doubled/2");
  CHECK(name->type == "3 tensors");
  PackedFiles kept = f.opened();
  CHECK(thirds.take(kept)[2].file);
  CHECK(f.packings == 3);

  SECTION("another order, another packing and other numbers are another file") {
    std::swap(thirds.packings[0].name, thirds.packings[1].name);
    thirds.take(kept);
    CHECK(f.packings == 6);
    f.write_numbers(7);
    thirds.take(kept);
    CHECK(f.packings == 9);
  }
  SECTION("damage to one form packs all again") {
    const std::string whole = content_of(path);
    std::string changed = whole;
    changed[whole.size() / 2] ^= 1;
    replace(path, changed);
    thirds.take(kept);
    CHECK(f.packings == 6);
    CHECK(content_of(path) == whole);
  }
  SECTION("forms that exceed the limit together are kept one by one, small ones in memory") {
    PackedFiles less = f.opened(fs::file_size(path) - 1);
    for (const PackedForm& form : thirds.take(less)) CHECK_FALSE(form.file);
    CHECK(f.packings == 6);
  }
}

TEST_CASE("packed files: large forms have files of their own") {
  PackedFolder f;
  const TensorType type{DType::F32, {kCount}};
  const auto fill = [](const void*, uint64_t piece, void* to) { std::memset(to, static_cast<int>(piece), 1 << 20); };
  const Packing large{"large/1", kLargeForm, 1 << 20, fill}, small{"small/1", 1 << 20, 1 << 20, fill};
  const PackedSource sources[] = {{&small, type, f.file->data()},
                                  {&large, type, f.file->data()},
                                  {&small, type, static_cast<const char*>(f.file->data()) + 4}};
  PackedFiles kept = f.opened();
  const auto forms = kept.take({sources, 2}, *f.file);
  CHECK(forms[0].file != forms[1].file);
  CHECK(forms[0].storage->bytes() == 1 << 20);
  CHECK(forms[1].storage->bytes() == kLargeForm);
  CHECK(static_cast<const char*>(forms[1].storage->data())[kLargeForm - 1] == 15);
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
  const bool tears = GENERATE(false, true), several = GENERATE(false, true);
  size_t faults = 0;
  for (size_t at = 1;; ++at) {
    INFO("call " << at);
    PackedFolder f;
    Thirds thirds(f);
    const auto take = [&](PackedFiles& kept) { return several ? thirds.take(kept).front() : f.take(kept); };
    FailingCalls calls(at, tears);
    {
      PackedFiles kept((f.root / "packed").string(), uint64_t{1} << 30, calls);
      take(kept);
    }
    if (!calls.struck) break;
    ++faults;
    PackedFiles kept = f.opened();
    take(kept);
    CHECK(take(kept).file);
    CHECK(f.packings <= (several ? 9 : 3));  // to the file, to memory after the fault, at the next start
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

TEST_CASE("packed files: the forms that a store gives at once share a file, equal ones their memory") {
  PackedFolder f;
  constexpr int64_t kLater = 3;  // the two tensors overlap
  const TensorType type{DType::F32, {kCount - kLater}};
  ParameterStore store;
  store.keep_packed(std::make_shared<PackedFiles>(f.opened()));
  auto* at = static_cast<float*>(const_cast<void*>(f.file->data()));
  for (const int i : {0, 1}) {
    const HTensor view = make_value(type, std::make_shared<Storage>(at + i * kLater, type.bytes(), f.file, false));
    store.adopt(i == 0 ? "a" : "b", view, f.file, Role::frozen, {}).fixed = true;
  }
  const auto packing = [&](const std::string& name) {
    return Packing{name, type.bytes(), type.bytes(), [&](const void* from, uint64_t, void* to) {
                     ++f.packings;
                     std::memcpy(to, from, type.bytes());
                   }};
  };
  const PackedParameter wanted[] = {
      {"b", packing("x/1")}, {"a", packing("x/1")}, {"b", packing("x/1")}, {"b", packing("y/1")}};
  const auto forms = store.packed(wanted);
  REQUIRE(forms.size() == 4);
  CHECK(f.packings == 3);
  CHECK(forms[0] == forms[2]);
  CHECK(std::memcmp(forms[0]->data(), at + kLater, type.bytes()) == 0);
  CHECK(std::memcmp(forms[1]->data(), at, type.bytes()) == 0);
  CHECK(forms[3] != forms[0]);
  CHECK(store.files().size() == 2);  // of the weights, of the forms
  f.only();
  const auto again = store.packed({&wanted[1], 1});
  CHECK(again[0] == forms[1]);
  CHECK(f.packings == 3);
  store.find("a")->fixed = false;
  CHECK(store.packed({&wanted[1], 1}).front() == nullptr);
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
