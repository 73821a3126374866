#include "engine/cli/run_log.hpp"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/error.hpp>

#include "engine/base/file.hpp"

namespace harmonics::cli {

namespace {

bool ends_with(const std::string& s, const std::string& end) { return s.size() > end.size() && s.compare(s.size() - end.size(), end.size(), end) == 0; }

// Lines of a text file, appended one at a time.
class LineFile {
 public:
  explicit LineFile(std::string path) : path_(std::move(path)) {}
  ~LineFile() {
    if (file_) std::fclose(file_);
  }
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // The lines that stay, as the file's new content.
  void begin(const std::string& kept) {
    write_file_atomically(path_, kept);
    file_ = std::fopen(path_.c_str(), "ab");
    if (!file_) fail();
  }
  void line(const std::string& text) {
    if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0) fail();
  }
  const std::string& path() const { return path_; }

 private:
  [[noreturn]] void fail() const { throw Error(ErrorKind::Output, fmt::format("cannot write {}: {}", path_, std::strerror(errno))); }
  std::string path_;
  std::FILE* file_ = nullptr;
};

struct Place {
  bool epoch = false;  // a row of a whole epoch
  int64_t number = 0;  // of the epoch
  int64_t step = -1;   // -1: not a row
};

// The lines of a former file that stay, as `place_of` reads them.
template <typename PlaceOf> std::string lines_until(const std::string& path, const Beginning& from, PlaceOf place_of) {
  std::string kept;
  if (from.step == 0) return kept;
  std::ifstream in(path, std::ios::binary);
  for (std::string line; std::getline(in, line);) {
    const Place at = place_of(line);
    if (at.step >= 0 && at.step <= from.step && (!at.epoch || at.number <= from.epochs)) kept += line + "\n";
  }
  return kept;
}

class CsvLog final : public RunLog {
 public:
  explicit CsvLog(const std::string& path) : file_(path) {}

  void begin(const std::vector<std::string>& names, const Beginning& from) override {
    names_ = names;
    std::string head = "kind,epoch,step,samples,seconds,samples_per_second,learning_rate";
    for (const std::string& name : names_) head += "," + name;
    std::ifstream in(file_.path(), std::ios::binary);
    std::string former;
    const bool same = std::getline(in, former) && former == head;
    file_.begin(head + "\n" + (same ? lines_until(file_.path(), from, place_of) : ""));
  }
  void write(const LogRow& r) override {
    std::string line = fmt::format("{},{},{},{},{:.6g},{:.6g},{:.6g}", r.kind, r.epoch, r.step, r.samples, r.seconds, r.samples_per_second, r.learning_rate);
    for (const std::string& name : names_) {
      const auto it = r.values.find(name);
      line += it != r.values.end() && std::isfinite(it->second) ? fmt::format(",{:.9g}", it->second) : ",";
    }
    file_.line(line + "\n");
  }

 private:
  static Place place_of(const std::string& line) {
    const size_t one = line.find(','), two = line.find(',', one + 1);
    Place at{line.compare(0, one, "epoch") == 0};
    if (two == std::string::npos) return at;
    std::from_chars(line.data() + one + 1, line.data() + two, at.number);
    std::from_chars(line.data() + two + 1, line.data() + line.size(), at.step);
    return at;
  }
  LineFile file_;
  std::vector<std::string> names_;
};

class JsonLinesLog final : public RunLog {
 public:
  explicit JsonLinesLog(const std::string& path) : file_(path) {}

  void begin(const std::vector<std::string>&, const Beginning& from) override { file_.begin(lines_until(file_.path(), from, place_of)); }
  void write(const LogRow& r) override {
    boost::json::object o{{"version", 1}, {"kind", r.kind}, {"epoch", r.epoch}, {"step", r.step}, {"samples", r.samples}, {"seconds", r.seconds}, {"samples_per_second", r.samples_per_second}, {"learning_rate", r.learning_rate}};
    boost::json::object values;
    for (const auto& [name, value] : r.values) values[name] = std::isfinite(value) ? boost::json::value(value) : boost::json::value(nullptr);
    o["metrics"] = std::move(values);
    file_.line(boost::json::serialize(o) + "\n");
  }

 private:
  static Place place_of(const std::string& line) {
    boost::json::error_code failed;
    const boost::json::value v = boost::json::parse(line, failed);
    if (failed || !v.is_object()) return {};
    const auto whole = [&](const char* key, int64_t otherwise) {
      const boost::json::value* n = v.as_object().if_contains(key);
      return n && n->is_int64() ? n->as_int64() : otherwise;
    };
    const boost::json::value* kind = v.as_object().if_contains("kind");
    return {kind && *kind == "epoch", whole("epoch", 0), whole("step", -1)};
  }
  LineFile file_;
};

}  // namespace

std::unique_ptr<RunLog> make_run_log(const std::string& path) {
  if (ends_with(path, ".csv")) return std::make_unique<CsvLog>(path);
  if (ends_with(path, ".jsonl")) return std::make_unique<JsonLinesLog>(path);
  throw Error(ErrorKind::Usage, fmt::format("the log '{}' ends neither in .csv nor in .jsonl", path), {}, {"the ending says how it is written, e.g. --log metrics.csv"});
}

}  // namespace harmonics::cli
