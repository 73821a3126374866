// Helpers of the stream tests: data, temporary files, errors, and items registered like a plugin's.
#pragma once

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <harmonics/function.hpp>

#include "tests/test_data.hpp"

namespace harmonics::engine::testing {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "harmonics-streams-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  std::string read(const std::string& name) const {
    std::ostringstream out;
    out << std::ifstream(path(name), std::ios::binary).rdbuf();
    return out.str();
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      all.push_back(entry.path().filename().string());
    return all;
  }

 private:
  std::filesystem::path path_;
};

// Returns the text of the Error that `body` throws; "" if it throws none.
inline std::string refusal(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

// Options as passed by an opened address; numbers written as text become integers.
class Options {
 public:
  Options(std::initializer_list<std::pair<const char*, const char*>> options) {
    for (const auto& [key, value] : options) {
      const std::string name = key;
      if (name == "window" || name == "shift" || name == "size" || name == "seed" || name == "vocab" ||
          name == "offset" || name == "channels")
        attributes_.set(key, static_cast<int64_t>(std::atoll(value)));
      else
        attributes_.set(key, value);
    }
    view_ = attributes_.view(items_);
  }
  const hx_attributes& view() const { return view_; }
  operator Arguments() const { return Arguments(&view_); }

 private:
  Attributes attributes_;
  std::vector<hx_attribute> items_;
  hx_attributes view_{};
};

struct RegisteredItem {
  void* self;
  const void* vtable;
  std::vector<std::string> arguments;
};

// A registry that only records the items registered through the C table.
class RecordingRegistry {
 public:
  RecordingRegistry() {
    api_ = *harmonics_api();
    api_.register_item = [](hx_registry* registry, const hx_item* item) {
      RegisteredItem it{item->self, item->vtable, {}};
      for (uint32_t i = 0; i < item->n_arguments; ++i) it.arguments.push_back(item->arguments[i].name);
      auto& items = *reinterpret_cast<std::map<std::pair<uint32_t, std::string>, RegisteredItem>*>(registry);
      items[{item->kind, item->name}] = it;
      return HX_OK;
    };
    registration_ = {sizeof(hx_registration), &api_, reinterpret_cast<hx_registry*>(&items_)};
  }
  ~RecordingRegistry() {
    for (const auto& [key, item] : items_) {
      if (key.first == HX_PRODUCER) static_cast<const hx_producer_factory_vt*>(item.vtable)->destroy(item.self);
      if (key.first == HX_CONSUMER) static_cast<const hx_consumer_factory_vt*>(item.vtable)->destroy(item.self);
    }
    detail::api_slot() = harmonics_api();
  }
  FunctionRegistry& face() { return reinterpret_cast<FunctionRegistry&>(registration_); }
  const RegisteredItem& producer(const std::string& name) { return items_.at({HX_PRODUCER, name}); }
  const RegisteredItem& consumer(const std::string& name) { return items_.at({HX_CONSUMER, name}); }
  size_t size() const { return items_.size(); }

 private:
  hx_api api_;
  std::map<std::pair<uint32_t, std::string>, RegisteredItem> items_;
  hx_registration registration_{};
};

// Reads all samples of a pass, one by one, as numbers.
template <typename T>
std::vector<std::vector<T>> drain(Producer& producer) {
  std::vector<std::vector<T>> samples;
  while (HTensor sample = producer.next()) {
    const T* data = sample.data<T>();
    samples.emplace_back(data, data + sample.size());
  }
  return samples;
}
// Like drain(), but through read(), `chunk` samples at a time.
template <typename T>
std::vector<std::vector<T>> drain_blocks(Producer& producer, uint64_t chunk) {
  const size_t n = static_cast<size_t>(producer.describe()->sample.count());
  std::vector<T> block(chunk * n);
  std::vector<std::vector<T>> samples;
  for (;;) {
    const int64_t got = producer.read(chunk, block.data());
    REQUIRE(got >= 0);
    for (int64_t i = 0; i < got; ++i)
      samples.emplace_back(block.data() + static_cast<size_t>(i) * n, block.data() + static_cast<size_t>(i + 1) * n);
    if (static_cast<uint64_t>(got) < chunk) return samples;
  }
}

inline std::vector<int> range(int first, int last, int step = 1) {
  std::vector<int> v;
  for (; first < last; first += step) v.push_back(first);
  return v;
}

// Counts 0, 1, 2 ... as i32[width]; handwritten, so that every path of a wrapper can be forced.
class CountingProducer : public Producer {
 public:
  enum class Gives { Blocks, Singles, SinglesWithoutType, ByNumber };
  explicit CountingProducer(uint64_t size, Gives gives = Gives::Blocks, int64_t width = 2)
      : size_(size), gives_(gives), width_(width) {}
  HTensor next() override {
    if (at_ == size_) return {};
    HTensor sample(DType::I32, Shape{width_});
    fill(sample.mutable_data<int32_t>());
    return sample;
  }
  std::size_t size() const override { return size_; }
  bool rewind() override { return at_ = 0, ++rewinds, true; }
  std::optional<StreamInfo> describe() override {
    if (gives_ == Gives::SinglesWithoutType) return std::nullopt;
    StreamInfo info;
    info.dtype = DType::I32;
    info.sample = Shape{width_};
    info.size = size_;
    return info;
  }
  int64_t read(uint64_t n, void* to) override {
    if (gives_ != Gives::Blocks && gives_ != Gives::ByNumber) return -1;
    n = std::min(n, size_ - at());
    for (uint64_t i = 0; i < n; ++i) fill(static_cast<int32_t*>(to) + i * static_cast<uint64_t>(width_));
    return static_cast<int64_t>(n);
  }
  bool read_at(const uint64_t* numbers, uint64_t n, void* to) override {
    if (gives_ != Gives::ByNumber) return false;
    const uint64_t stood = at_;
    for (uint64_t i = 0; i < n; ++i) {
      REQUIRE(numbers[i] < size_);
      at_ = numbers[i];
      fill(static_cast<int32_t*>(to) + i * static_cast<uint64_t>(width_));
      ++by_number;
    }
    at_ = stood;
    return true;
  }
  uint64_t at() const { return at_; }
  int rewinds = 0;
  uint64_t by_number = 0;

 private:
  void fill(int32_t* to) {
    for (int64_t k = 0; k < width_; ++k) to[k] = static_cast<int32_t>(at()) * 10 + static_cast<int32_t>(k);
    ++at_;
  }
  uint64_t size_;
  std::atomic<uint64_t> at_{0};  // read by tests while another thread counts
  Gives gives_;
  int64_t width_;
};

// Returns the sample numbers of a CountingProducer's samples.
inline std::vector<int> numbers(const std::vector<std::vector<int32_t>>& samples) {
  std::vector<int> out;
  for (const auto& s : samples) {
    for (size_t k = 0; k < s.size(); ++k) REQUIRE(s[k] == s[0] + static_cast<int32_t>(k));
    out.push_back(s[0] / 10);
  }
  return out;
}

}  // namespace harmonics::engine::testing
