#include "tests/bench/rows.hpp"

#include <cstdlib>
#include <filesystem>

#include <fmt/core.h>
#include <harmonics/philox.hpp>

#include "engine/base/address.hpp"

namespace harmonics::engine::bench {

namespace {

namespace fs = std::filesystem;

StreamInfo info_of(const DataSpec& data) {
  StreamInfo info;
  info.dtype = data.classes > 0 ? DType::I32 : DType::F32;
  info.sample = data.shape;
  info.classes = data.classes;
  info.position_axes = data.positions ? 1 : 0;
  if (data.positions)
    for (int64_t i = 0; i < data.classes; ++i) info.symbols.push_back(fmt::format("<{}>", i));
  return info;
}

class Data : public Producer {
 public:
  explicit Data(const DataSpec& data) : info_(info_of(data)) {}
  HTensor next() override { return {}; }  // all samples come by read()
  size_t size() const override { return 0; }
  std::optional<StreamInfo> describe() override { return info_; }
  int64_t read(uint64_t n, void* to) override {
    const auto count = static_cast<int64_t>(n) * info_.sample.count();
    for (int64_t i = 0; i < count; ++i) {
      if (info_.classes > 0)
        static_cast<int32_t*>(to)[i] = number();
      else
        static_cast<float*>(to)[i] = value();
    }
    return static_cast<int64_t>(n);
  }

 protected:
  virtual float value() = 0;
  virtual int32_t number() = 0;
  StreamInfo info_;
};

class Uniform final : public Data {
 public:
  Uniform(const DataSpec& data, uint64_t seed) : Data(data), random_(philox_key(seed, data.classes > 0), 0) {}

 private:
  float value() override { return random_.uniform(); }
  int32_t number() override {
    return std::min(static_cast<int32_t>(random_.uniform() * static_cast<float>(info_.classes)),
                    static_cast<int32_t>(info_.classes - 1));
  }
  PhiloxStream random_;
};

// The bytes of a source, repeated from the start after its end.
class Bytes final : public Data {
 public:
  Bytes(const DataSpec& data, Source source)
      : Data(data), source_(std::move(source)), buffer_(source_.sample_bytes()), at_(buffer_.size()) {
    if (source_.info().dtype != DType::U8)
      throw Error(ErrorKind::Usage, fmt::format("'{}' of {} are not bytes", data.name, source_.name()));
  }

 private:
  uint8_t byte() {
    if (at_ == buffer_.size()) {
      at_ = 0;
      if (source_.read(1, buffer_.data()) == 0) {
        source_.rewind(++epoch_);
        source_.read(1, buffer_.data());
      }
    }
    return buffer_[at_++];
  }
  float value() override { return static_cast<float>(byte()) / 255.0f; }
  int32_t number() override { return byte(); }

  Source source_;
  std::vector<uint8_t> buffer_;
  size_t at_;
  uint64_t epoch_ = 0;
};

}  // namespace

std::string mnist_folder() {
  const char* set = std::getenv("HARMONICS_TEST_DATA");
  const fs::path path = fs::path(set ? set : HARMONICS_SOURCE_DIR "/../shared/data") / "mnist";
  return fs::exists(path / "train-images-idx3-ubyte.gz") ? path.string() : "";
}

std::shared_ptr<Producer> open_data(const DataSpec& data, uint64_t seed) {
  if (data.values == "uniform") return std::make_shared<Uniform>(data, seed);
  if (data.values != "mnist")
    throw Error(ErrorKind::Usage, fmt::format("\"values\" of '{}' are \"{}\"; they can be \"uniform\" or \"mnist\"",
                                              data.name, data.values));
  const bool labels = data.classes > 0;
  const std::string folder = mnist_folder();
  const std::string address = folder.empty()
                                  ? labels ? "synth:digits#label" : "synth:digits"
                                  : folder + (labels ? "/train-labels-idx1-ubyte.gz" : "/train-images-idx3-ubyte.gz");
  return std::make_shared<Bytes>(data, open_source(Registry::global(), data.name, parse_address(address)));
}

}  // namespace harmonics::engine::bench
