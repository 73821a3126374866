#include "engine/cli/options/roff.hpp"

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string_view>
#include <vector>

namespace harmonics::engine::cli {

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

// Converts `code`, *emphasis*, [words](address) and \| in a line.
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

// Returns the cells of a table row such as "| a | b \| c |".
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
  enum class In { nothing, text, item, fence, code, table };

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
    if (line.starts_with("    ") && in_ != In::text && in_ != In::item) {
      if (in_ != In::code) begin_code(In::code);
      return code_line(line.substr(4));
    }
    if (in_ == In::code) end();
    if (line.empty()) return end();
    if (line[0] == '#') return heading(line);
    if (line[0] == '|') return row(line);
    const size_t begin = std::min(line.find_first_not_of(' '), line.size());  // lines of an item are indented
    const size_t marker = marker_length(line.substr(begin));
    if (marker) {
      const std::string name = line.substr(begin, marker - 1);
      roff_ += name == "-" ? ".IP \\(bu 2\n" : ".IP " + name + " 4\n";
      in_ = In::item;
    } else if (in_ != In::text && in_ != In::item) {
      roff_ += ".PP\n";
      in_ = In::text;
    }
    roff_ += inline_roff(line.substr(begin + marker)) + "\n";
  }

  // Returns the length of "- " or "12. " at the beginning of a line, or 0. Within a paragraph only "1. " begins a list.
  size_t marker_length(std::string_view line) const {
    if (line.starts_with("- ")) return 2;
    const size_t digits = std::min(line.find_first_not_of("0123456789"), line.size());
    if (digits == 0 || !line.substr(digits).starts_with(". ")) return 0;
    return in_ != In::text || line.substr(0, digits) == "1" ? digits + 2 : 0;
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
    if (line.find_first_not_of("|-: ") == std::string::npos && !first) return;  // the ruler below the header
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
