// TensorBoard's event files: records framed as TFRecord, each an Event message of Protocol Buffers.
//
//   record   length u64, masked CRC32C of it, bytes, masked CRC32C of them
//   Event    1 wall_time double, 2 step int64, 3 file_version string, 5 summary
//   Summary  1 value { 1 tag string, 2 simple_value float }
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <unistd.h>

#include <boost/crc.hpp>
#include <fmt/core.h>

#include <harmonics/error.hpp>

#include "engine/cli/run/row_file.hpp"
#include "engine/cli/run/run_log.hpp"

namespace harmonics::engine::cli {

namespace {

namespace fs = std::filesystem;

using Crc32c = boost::crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true>;

uint32_t masked_crc(const std::string& bytes) {
  Crc32c crc;
  crc.process_bytes(bytes.data(), bytes.size());
  const uint32_t c = crc.checksum();
  return ((c >> 15) | (c << 17)) + 0xa282ead8u;
}

template <typename T>
std::string little(T v) {
  std::string s(sizeof v, '\0');
  std::memcpy(s.data(), &v, sizeof v);
  return s;
}

std::string varint(uint64_t v) {
  std::string s;
  for (; v >= 0x80; v >>= 7) s += static_cast<char>(v | 0x80);
  return s + static_cast<char>(v);
}

enum Wire : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
std::string key(uint32_t field, Wire wire) { return varint(field << 3 | wire); }
std::string bytes_field(uint32_t field, const std::string& bytes) {
  return key(field, kBytes) + varint(bytes.size()) + bytes;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

class TensorBoardLog final : public RunLog {
 public:
  explicit TensorBoardLog(std::string folder) : RunLog(std::move(folder)) {}

  void begin(const std::vector<std::string>&, const Beginning& from) override {
    std::error_code failed;
    fs::create_directories(path(), failed);
    if (failed)
      throw Error(ErrorKind::Output, fmt::format("cannot make the folder '{}': {}", path(), failed.message()), {},
                  {"give --tensorboard a folder that may be written"});
    char host[256] = "host";
    gethostname(host, sizeof host - 1);
    file_ = std::make_unique<RowFile>(
        fmt::format("{}/events.out.tfevents.{:010}.{}.{}.0", path(), static_cast<int64_t>(now()), host, getpid()));
    // Starts a new file at the step of the resumed run, so that TensorBoard drops later rows of the earlier run.
    record(head(from.step) + bytes_field(3, "brain.Event:2"));
  }
  void put(const LogRow& r) override {
    if (!r.event.empty()) return;
    std::string summary = value("rate/samples_per_second", r.samples_per_second) +
                          value("rate/learning_rate", r.learning_rate) +
                          value("rate/epoch", static_cast<double>(r.epoch));
    if (r.rates.tokens_per_second > 0) summary += value("rate/tokens_per_second", r.rates.tokens_per_second);
    if (r.rates.peak_share >= 0) summary += value("rate/peak_share", r.rates.peak_share);
    if (r.rates.resident > 0) summary += value("memory/resident_bytes", static_cast<double>(r.rates.resident));
    for (const auto& [name, v] : r.values)
      if (std::isfinite(v))
        summary += value((name.rfind("val.", 0) == 0 ? "validation/" + name.substr(4) : "training/" + name), v);
    record(head(r.step) + bytes_field(5, summary));
  }

 private:
  static std::string head(int64_t step) {
    return key(1, kFixed64) + little(now()) + key(2, kVarint) + varint(static_cast<uint64_t>(step));
  }
  static std::string value(const std::string& tag, double v) {
    return bytes_field(1, bytes_field(1, tag) + key(2, kFixed32) + little(static_cast<float>(v)));
  }

  void record(const std::string& event) {
    const std::string length = little(static_cast<uint64_t>(event.size()));
    file_->append(length + little(masked_crc(length)) + event + little(masked_crc(event)));
  }

  std::unique_ptr<RowFile> file_;
};

}  // namespace

std::unique_ptr<RunLog> make_tensorboard_log(const std::string& folder) {
  return std::make_unique<TensorBoardLog>(folder);
}

}  // namespace harmonics::engine::cli
