#include "engine/cli/run/run_log.hpp"

#include <charconv>
#include <cmath>
#include <fstream>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/error.hpp>
#include <harmonics/quantity.hpp>

#include "engine/base/file.hpp"
#include "engine/cli/run/row_file.hpp"
#include "formats/utf8.hpp"

namespace harmonics::engine::cli {

namespace {

struct Place {
  bool epoch = false;  // the row of an epoch
  int64_t number = 0;  // number of the epoch
  int64_t step = -1;   // -1: not a row
};

// Returns the lines of an existing file up to the point where the run resumes. `place_of` parses a line. Drops a last
// line without a line break, which a killed run leaves.
template <typename PlaceOf>
std::string lines_until(const std::string& path, const Beginning& from, PlaceOf place_of) {
  std::string kept;
  if (from.step == 0) return kept;
  std::ifstream in(path, std::ios::binary);
  for (std::string line; std::getline(in, line) && !in.eof();) {
    const Place at = place_of(line);
    if (at.step >= 0 && at.step <= from.step && (!at.epoch || at.number <= from.epochs)) kept += line + "\n";
  }
  return kept;
}

// Rewrites the file with the kept lines and opens it to append.
std::unique_ptr<RowFile> begun(const std::string& path, const std::string& kept) {
  write_file_atomically(path, kept);
  return std::make_unique<RowFile>(path);
}

class CsvLog final : public RunLog {
 public:
  explicit CsvLog(const std::string& path) : RunLog(path) {}

  void begin(const std::vector<std::string>& names, const Beginning& from) override {
    names_ = names;
    std::string head = "kind,epoch,step,samples,seconds,samples_per_second,learning_rate";
    for (const std::string& name : names_) head += "," + name;
    std::ifstream in(path(), std::ios::binary);
    std::string former;
    const bool same = std::getline(in, former) && former == head;
    const std::string kept = same ? lines_until(path(), from, place_of) : "";
    file_ = begun(path(), head + "\n" + kept);
  }
  // Events are not written, because the columns are measured values.
  void put(const LogRow& r) override {
    if (!r.event.empty()) return;
    std::string line = fmt::format("{},{},{},{},{:.6g},{:.6g},{:.6g}", r.kind, r.epoch, r.step, r.samples, r.seconds,
                                   r.samples_per_second, r.learning_rate);
    for (const std::string& name : names_) {
      const auto it = r.values.find(name);
      line += it != r.values.end() && std::isfinite(it->second) ? fmt::format(",{:.9g}", it->second) : ",";
    }
    file_->append(line + "\n");
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
  std::unique_ptr<RowFile> file_;
  std::vector<std::string> names_;
};

class JsonLinesLog final : public RunLog {
 public:
  explicit JsonLinesLog(const std::string& path) : RunLog(path) {}

  void begin(const std::vector<std::string>&, const Beginning& from) override {
    file_ = begun(path(), lines_until(path(), from, place_of));
  }
  void put(const LogRow& r) override {
    boost::json::object o{{"version", 1},
                          {"kind", r.kind},
                          {"epoch", r.epoch},
                          {"step", r.step},
                          {"samples", r.samples},
                          {"seconds", r.seconds},
                          {"samples_per_second", r.samples_per_second},
                          {"learning_rate", r.learning_rate}};
    add_rates(o, r.rates);
    boost::json::object values;
    for (const auto& [name, value] : r.values)
      values[name] = std::isfinite(value) ? boost::json::value(value) : boost::json::value(nullptr);
    o["metrics"] = std::move(values);
    if (!r.event.empty()) o["event"] = r.event, o["text"] = r.text;
    file_->append(plain_numbers(boost::json::serialize(o)) + "\n");
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
  std::unique_ptr<RowFile> file_;
};

}  // namespace

std::optional<std::string> RunLog::write(const LogRow& row) {
  try {
    put(row);
  } catch (const Error& e) {
    failure_ = e.what();
    if (lacking_++ == 0) return failure_ + "; the run continues";
  }
  return std::nullopt;
}

std::optional<std::string> RunLog::gap() const {
  if (lacking_ == 0) return std::nullopt;
  return fmt::format("{}; the log lacks {}", failure_, quantity(lacking_, "row"));
}

std::unique_ptr<RunLog> make_run_log(const std::string& path) {
  if (path.ends_with(".csv")) return std::make_unique<CsvLog>(path);
  if (path.ends_with(".jsonl")) return std::make_unique<JsonLinesLog>(path);
  throw Error(ErrorKind::Usage, fmt::format("the name of the log '{}' must end in .csv or .jsonl", path), {},
              {"the extension selects the format, e.g. --log metrics.csv"});
}

}  // namespace harmonics::engine::cli
