#include "consumers/streams.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "consumers/format.hpp"
#include "consumers/npy_file.hpp"
#include "consumers/output_file.hpp"
#include "wire/live_streams.hpp"
#include "wire/pipe.hpp"

namespace harmonics {
namespace {

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at <= text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    words.push_back(text.substr(at, comma - at));
    at = comma + 1;
  }
  return words;
}

std::vector<std::string> split_characters(const std::string& text) {
  std::vector<std::string> characters;
  for (const char c : text) {
    if ((c & 0xC0) != 0x80 || characters.empty()) characters.emplace_back();
    characters.back() += c;
  }
  return characters;
}

LineWriter line_writer(const Arguments& options, LineFormat otherwise) {
  const std::string format = options.text("format");
  std::vector<std::string> symbols;
  if (options.has("symbols")) symbols = split_words(options.text("symbols"));
  if (options.has("vocabulary")) symbols = split_characters(options.text("vocabulary"));
  if (format.empty()) return LineWriter(otherwise);
  if (format == "text") return LineWriter(LineFormat::Text);
  if (format == "json") return LineWriter(LineFormat::Json);
  if (format == "csv") return LineWriter(LineFormat::Csv);
  if (format == "argmax") return LineWriter(LineFormat::Argmax);
  if (format == "symbols") return LineWriter(LineFormat::Symbols, std::move(symbols));
  throw Error(
      ErrorKind::Usage,
      "format=" + format + " is unknown; write format=text, json, csv, argmax or symbols; on standard output also hxs");
}

class StdoutConsumer final : public Consumer {
 public:
  explicit StdoutConsumer(LineWriter writer) : writer_(std::move(writer)) {}
  void push(const HTensor& sample) override {
    const std::string& line = writer_.line(sample);
    if (std::fwrite(line.data(), 1, line.size(), stdout) != line.size() || std::fputc('\n', stdout) == EOF) fail();
  }
  void finish() override {
    if (std::fflush(stdout) != 0) fail();
  }

 private:
  [[noreturn]] static void fail() {
    const int reason = errno;
    throw Error(kind_of_failure(reason, ErrorKind::Output),
                std::string("cannot write to standard output: ") + std::strerror(reason));
  }
  LineWriter writer_;
};

class LineFileConsumer final : public Consumer {
 public:
  LineFileConsumer(const std::string& path, LineWriter writer) : writer_(std::move(writer)), file_(path) {}
  void push(const HTensor& sample) override {
    file_.write(writer_.line(sample));
    file_.write("\n");
  }
  void finish() override { file_.finish(); }

 private:
  LineWriter writer_;
  OutputFile file_;
};

bool ends_with(const std::string& text, const char* ending) {
  const size_t n = std::strlen(ending);
  return text.size() >= n && text.compare(text.size() - n, n, ending) == 0;
}

}  // namespace

std::shared_ptr<Consumer> open_stdout(const std::string& path, const Arguments& options) {
  if (!path.empty())
    throw Error(ErrorKind::Usage, "stdout:" + path + " takes no path; write stdout: alone, or file:" + path);
  if (options.text("format") == "hxs") {
    wire::OutboxOptions outbox;
    outbox.where = "stdout:";
    outbox.producer = "process " + std::to_string(getpid());
    const auto make = [](wire::OutboxOptions o) {
      return std::make_unique<wire::PipeWriter>(STDOUT_FILENO, std::move(o));
    };
    return wire::open_live_consumer<wire::PipeWriter>("stdout:", options, outbox, make);
  }
  return std::make_shared<StdoutConsumer>(line_writer(options, LineFormat::Text));
}

std::shared_ptr<Consumer> open_output_file(const std::string& path, const Arguments& options) {
  if (ends_with(path, ".npy")) {
    if (options.has("format"))
      throw Error(ErrorKind::Usage, "the option format= has no effect for '" + path + "'; leave it out");
    return std::make_shared<NpyFileConsumer>(path);
  }
  for (const auto& [ending, format] :
       {std::pair{".csv", LineFormat::Csv}, std::pair{".jsonl", LineFormat::Json}, std::pair{".txt", LineFormat::Text}})
    if (ends_with(path, ending)) return std::make_shared<LineFileConsumer>(path, line_writer(options, format));
  throw Error(ErrorKind::Usage, "'" + path + "' has no known extension; end its name in .csv, .jsonl, .txt or .npy");
}

std::vector<Argument> line_options() {
  return {Argument::text("format", "",
                         "text, json, csv, argmax or symbols; on standard output also hxs: frames (docs/wire.md)"),
          Argument::text("symbols", "", "the words of format=symbols: a,b,c"),
          Argument::text("vocabulary", "", "the characters of format=symbols: abc")};
}

std::vector<Argument> stdout_options() {
  std::vector<Argument> options = line_options();
  options.push_back(
      Argument::integer("classes", 0,
                        "with format=hxs: announces integers as class labels below this number; 0 announces none")
          .in("0..16777216"));
  return options;
}

}  // namespace harmonics
