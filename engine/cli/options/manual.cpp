#include "engine/cli/options/manual.hpp"

#include <cctype>
#include <sstream>
#include <string_view>
#include <vector>

namespace harmonics::engine::cli {

namespace {

constexpr ManualRow kExits[] = {
    {"0", "done"},
    {"1", "failed: a plugin, a device, not enough memory, or numbers that stopped being finite"},
    {"2", "wrong use"},
    {"65", "data that cannot be understood"},
    {"66", "a file that is not there, or may not be read"},
    {"69", "a peer that does not answer or went away, an address that is in use"},
    {"70", "a bug of this program"},
    {"73", "a file, or standard output, that cannot be written"},
    {"74", "a disk or another device that fails"},
    {"75", "stopped, but a checkpoint is there: the line that continues was printed"},
    {"77", "not allowed: a plugin that others may write to"},
    {"78", "a graph or a configuration that is not valid"},
    {"129, 130, 143", "stopped by SIGHUP, Ctrl-C or SIGTERM after the running step"},
    {"141", "the reader of standard output closed it (SIGPIPE)"},
};

constexpr ManualRow kVariables[] = {
    {"HARMONICS_FLAG", "the value of a flag that is not given, e.g. HARMONICS_BATCH=128; several are separated by ;"},
    {"HARMONICS_PLUGIN_PATH", "directories searched for plugins, before the user's and the installed ones"},
    {"HARMONICS_PLUGIN_PATIENCE", "seconds that a plugin library may take to load (default 30)", false},
    {"HARMONICS_CUDA_DEVICE", "which of several CUDA devices --device cuda is, counted from 0 (default 0)", false},
    {"HARMONICS_OPENCL_DEVICE", "part of a name: which of several OpenCL devices --device opencl is", false},
    {"HARMONICS_ISA", "baseline, avx2 or avx512: the instruction set of the device cpu, for comparing", false},
    {"HARMONICS_FP16", "emulated or off: how --precision fp16 is computed, for checking", false},
    {"NO_COLOR, CLICOLOR_FORCE", "colours off, on; --color always and --color never win"},
};

constexpr ManualRow kAddresses[] = {
    {"file:train-images.idx.gz", "IDX; every file may be packed with gzip or zstd. A path without a scheme is file:"},
    {"'file:iris.csv#species', 'file:iris.csv#0-3'", "columns of a CSV or TSV file by name, number or range"},
    {"'file:log.jsonl#pixels'", "a field of JSON lines"},
    {"file:x.npy, 'file:x.npz#images', 'file:x.safetensors#w'", "arrays; the first axis counts the samples"},
    {"file:pictures/, 'file:pictures/#label'", "PNG and JPEG pictures, and the sub-folders they are in"},
    {"'file:book.txt?window=128&shift=64'", "windows of letters"},
    {"'file:corpus.bin?window=128&vocab=50257'", "windows of tokens"},
    {"'file:x.bin?dtype=f32&shape=28x28'", "raw little-endian numbers"},
    {"'file:logs/*.csv.gz'", "several files of one format, in the order of their names"},
    {"'synth:digits?size=20000', 'synth:digits#label'", "digits that are drawn, and which they are"},
    {"tcp:127.0.0.1:5555, unix:PATH, zmq+router://127.0.0.1:5556, stdin:", "live streams of other processes"},
    {"stdout:, file:out.csv, file:out.npy", "consumers: where results go"},
};

constexpr ManualRow kFiles[] = {
    {"./harmonics.toml, ~/.config/harmonics/config.toml, /etc/harmonics/config.toml",
     "values of flags that are neither given nor in the environment"},
    {"PREFIX/share/harmonics/samples, PREFIX/share/doc/harmonics",
     "sample flows, documentation; 'harmonics version' prints where"},
};

}  // namespace

const char* const kAddressNotes =
    "Options follow ? and are separated by &, a part follows #: SCHEME:PATH?option=value&option=value#part. Shells "
    "read ?, &, # and * themselves, so quote the address. Every producer takes take=N, skip=N, repeat=N, shuffle=N, "
    "where=value<5 and more: harmonics list producers.";

std::span<const ManualRow> exit_rows() { return kExits; }
std::span<const ManualRow> variable_rows() { return kVariables; }
std::span<const ManualRow> address_rows() { return kAddresses; }
std::span<const ManualRow> file_rows() { return kFiles; }

std::string language_text() {
  for (unsigned i = 0; i < kManualPageCount; ++i)
    if (std::string_view(kManualPages[i].name) == "hmx.md") return kManualPages[i].text;
  return "";
}

std::string roff_text(const std::string& text) {
  std::string s;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool begins = i == 0 || text[i - 1] == '\n';
    if (c == '\\')
      s += "\\e";
    else if (c == '-')
      s += "\\-";
    else if (begins && (c == '.' || c == '\''))
      s += std::string("\\&") + c;
    else
      s += c;
  }
  return s;
}

namespace {

// Converts `code`, *emphasis*, [words](address), \| of a line.
std::string inline_roff(const std::string& line) {
  std::string s, plain;
  const auto flush = [&] { s += roff_text(plain), plain.clear(); };
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    const size_t code = c == '`' ? line.find('`', i + 1) : std::string::npos;
    const size_t star = c == '*' ? line.find('*', i + 1) : std::string::npos;
    const size_t link = c == '[' ? line.find("](", i) : std::string::npos;
    const size_t end = link == std::string::npos ? link : line.find(')', link);
    if (c == '\\' && i + 1 < line.size() && line[i + 1] == '|') {
      plain += line[++i];
    } else if (code != std::string::npos) {
      flush();
      std::string words = line.substr(i + 1, code - i - 1);
      for (size_t bar = words.find("\\|"); bar != std::string::npos; bar = words.find("\\|")) words.erase(bar, 1);
      s += "\\fB" + roff_text(words) + "\\fR";
      i = code;
    } else if (star != std::string::npos && star > i + 1 && line[i + 1] != ' ' && line[star - 1] != ' ') {
      flush();
      s += "\\fI" + roff_text(line.substr(i + 1, star - i - 1)) + "\\fR";
      i = star;
    } else if (end != std::string::npos) {
      plain += line.substr(i + 1, link - i - 1);
      i = end;
    } else {
      plain += c;
    }
  }
  flush();
  return s.starts_with("\\fB.") || s.starts_with("\\fB'") ? "\\&" + s : s;
}

// Returns the cells of "| a | b \| c |".
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::string cell;
  for (size_t i = 1; i < line.size(); ++i) {
    if (line[i] == '|' && line[i - 1] != '\\') {
      const size_t from = cell.find_first_not_of(' '), to = cell.find_last_not_of(' ');
      cells.push_back(from == std::string::npos ? "" : cell.substr(from, to - from + 1));
      cell.clear();
    } else {
      cell += line[i];
    }
  }
  return cells;
}

class MarkdownReader {
 public:
  explicit MarkdownReader(const std::string& text) : lines_(text) {}

  std::string run() {
    for (std::string line; std::getline(lines_, line);) read(line);
    end();
    return roff_;
  }

 private:
  enum class In { nothing, text, fence, code, table };

  void end() {
    if (in_ == In::code || in_ == In::fence) roff_ += ".fi\n.RE\n";
    in_ = In::nothing;
  }

  void begin_code(In kind) {
    end();
    roff_ += ".PP\n.RS 4\n.nf\n";
    in_ = kind;
  }

  void read(const std::string& line) {
    if (in_ == In::fence) return line.starts_with("```") ? end() : code_line(line);
    if (line.starts_with("```")) return begin_code(In::fence);
    if (line.starts_with("    ") && in_ != In::text) {
      if (in_ != In::code) begin_code(In::code);
      return code_line(line.substr(4));
    }
    if (in_ == In::code) end();
    if (line.empty()) return end();
    if (line[0] == '#') return heading(line);
    if (line[0] == '|') return row(line);
    const bool item = line.starts_with("- ");
    if (item)
      roff_ += ".IP \\(bu 2\n";
    else if (in_ != In::text)
      roff_ += ".PP\n";
    in_ = In::text;
    roff_ += inline_roff(item ? line.substr(2) : line) + "\n";
  }

  void code_line(const std::string& line) { roff_ += (line.empty() ? "\\&" : roff_text(line)) + "\n"; }

  void heading(const std::string& line) {
    end();
    const size_t level = line.find_first_not_of('#');
    std::string words = line.substr(std::min(line.size(), level + 1));
    if (level == 1) words = "DESCRIPTION";
    if (level == 2)
      for (char& c : words) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    roff_ += (level <= 2 ? ".SH " : ".SS ") + inline_roff(words) + "\n";
  }

  void row(const std::string& line) {
    const std::vector<std::string> cells = cells_of(line);
    const bool first = in_ != In::table;
    if (line.find_first_not_of("|-: ") == std::string::npos && !first) return;  // the ruler
    std::string rest;
    for (size_t i = 1; i < cells.size(); ++i)
      if (!cells[i].empty()) rest += (rest.empty() ? "" : "; ") + inline_roff(cells[i]);
    if (first) roff_ += ".PP\n";
    in_ = In::table;
    if (cells.empty() || (first && rest.empty() && cells[0].empty())) return;
    if (first)
      roff_ += "\\fI" + inline_roff(cells[0]) + (rest.empty() || cells[0].empty() ? "" : ": ") + rest + "\\fR\n";
    else
      roff_ +=
          ".TP\n" + (cells[0].empty() ? "\\&" : inline_roff(cells[0])) + "\n" + (rest.empty() ? "\\&" : rest) + "\n";
  }

  std::istringstream lines_;
  std::string roff_;
  In in_ = In::nothing;
};

}  // namespace

std::string roff_of_markdown(const std::string& markdown) { return MarkdownReader(markdown).run(); }

}  // namespace harmonics::engine::cli
