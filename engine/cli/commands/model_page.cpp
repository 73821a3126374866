#include "engine/cli/commands/model_page.hpp"

#include <algorithm>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/base/file.hpp"
#include "engine/base/source_text.hpp"
#include "engine/cli/terminal/chart.hpp"
#include "formats/exact_json.hpp"

namespace harmonics::engine::cli {

namespace json = boost::json;

namespace {

constexpr size_t kMostRows = 400;  // per table

constexpr const char* kPageStyle =
    ":root{--ink:#1c2733;--soft:#55606b;--line:#e6e8eb;--blue:#2563a8}body{font:15px/1.5 system-ui,sans-serif;"
    "max-width:980px;margin:2rem auto;padding:0 1rem;color:var(--ink)}h1{font-size:1.6rem}h2{font-size:1.1rem;"
    "margin:2.2rem 0 .6rem;padding-top:.8rem;border-top:1px solid var(--line)}.figures{display:grid;"
    "grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px}.figures div{border:1px solid var(--line);"
    "border-radius:8px;padding:.8rem 1rem}.figures b{display:block;font-size:1.2rem}.figures span{color:var(--soft);"
    "font-size:.85rem}.blocks{display:flex;flex-direction:column;gap:0}.block{border:1px solid var(--blue);"
    "border-radius:8px;padding:.5rem .8rem;align-self:flex-start;min-width:320px}.block+.block{margin-top:26px;"
    "position:relative}.block+.block:before{content:'\\2193';position:absolute;top:-26px;left:24px;color:var(--soft)}"
    ".block h3{margin:0 0 .3rem;font-size:1rem}.part{display:flex;justify-content:space-between;gap:2rem;"
    "border-top:1px solid var(--line);font-variant-numeric:tabular-nums}.part span{color:var(--soft)}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}.wide{overflow-x:auto}th,td{text-align:left;"
    "padding:.15rem 1.2rem .15rem 0;border-bottom:1px solid var(--line);vertical-align:top}";

std::string text_of(const json::value& value) {
  if (value.is_string()) return std::string(value.as_string());
  if (value.is_double()) return fmt::format("{:.6g}", value.as_double());
  return json::serialize(value);
}

}  // namespace

void ModelPage::figure(const std::string& name, const std::string& value) {
  figures_ += fmt::format("<div><b>{}</b><span>{}</span></div>\n", escaped(value), escaped(name));
}

void ModelPage::block(const std::string& name, std::vector<std::pair<std::string, std::string>> parts) {
  if (!blocks_.empty() && blocks_.back().parts == parts && !parts.empty())
    blocks_.back().last = name;
  else
    blocks_.push_back({name, "", std::move(parts)});
}

void ModelPage::table(const std::string& heading, const std::vector<std::string>& heads,
                      const std::vector<std::vector<std::string>>& rows) {
  tables_ += fmt::format("<h2>{}</h2>\n<div class=\"wide\"><table>\n<tr>", escaped(heading));
  for (const std::string& head : heads) tables_ += "<th>" + escaped(head) + "</th>";
  tables_ += "</tr>\n";
  for (size_t i = 0; i < std::min(rows.size(), kMostRows); ++i) {
    tables_ += "<tr>";
    for (const std::string& cell : rows[i]) tables_ += "<td>" + escaped(cell) + "</td>";
    tables_ += "</tr>\n";
  }
  tables_ += "</table></div>\n";
  if (rows.size() > kMostRows) tables_ += fmt::format("<p>and {}</p>\n", quantity(rows.size() - kMostRows, "more row"));
}

void ModelPage::numbers(const std::string& file) {
  json::error_code failed;
  const json::value read = parse_json(read_plain_file(file), failed);
  if (failed || !read.is_object())
    throw Error(ErrorKind::Usage, fmt::format("'{}' is not an object that --json printed", file), {},
                {"for example: harmonics profile GRAPH --quiet --json > numbers.json"});
  std::vector<std::vector<std::string>> fields;
  std::vector<std::pair<std::string, const json::array*>> lists;
  const auto add = [&](const std::string& name, const json::value& value) {
    const json::array* list = value.if_array();
    if (list && !list->empty() && list->front().is_object())
      lists.emplace_back(name, list);
    else
      fields.push_back({name, text_of(value)});
  };
  for (const auto& [key, value] : read.as_object()) {
    if (const json::object* inner = value.if_object())
      for (const auto& [name, of] : *inner) add(std::string(key) + "." + std::string(name), of);
    else
      add(std::string(key), value);
  }
  table("numbers of " + file.substr(file.rfind('/') + 1), {"name", "value"}, fields);
  for (const auto& [name, list] : lists) {
    std::vector<std::string> heads;
    for (const auto& [key, value] : list->front().as_object()) heads.emplace_back(key);
    std::vector<std::vector<std::string>> rows;
    for (const json::value& item : *list) {
      if (!item.is_object()) continue;
      std::vector<std::string> row;
      for (const std::string& head : heads) {
        const json::value* cell = item.as_object().if_contains(head);
        row.push_back(cell ? text_of(*cell) : "");
      }
      rows.push_back(std::move(row));
    }
    table(name, heads, rows);
  }
}

std::string ModelPage::blocks_html() const {
  if (blocks_.empty()) return "";
  std::string html = "<h2>blocks</h2>\n<div class=\"blocks\">\n";
  for (const Block& block : blocks_) {
    html += fmt::format("<div class=\"block\"><h3>{}{}</h3>\n", escaped(block.first),
                        block.last.empty() ? "" : " to " + escaped(block.last));
    for (const auto& [name, shape] : block.parts)
      html += fmt::format("<div class=\"part\"><b>{}</b><span>{}</span></div>\n", escaped(name), escaped(shape));
    html += "</div>\n";
  }
  return html + "</div>\n";
}

void ModelPage::write(const std::string& path) const {
  write_file_atomically(
      path, fmt::format("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
                        "content=\"width=device-width\"><title>{0}</title><style>{1}</style></head><body>\n"
                        "<h1>{0}</h1>\n<div class=\"figures\">\n{2}</div>\n{3}{4}</body></html>\n",
                        escaped(title_), kPageStyle, figures_, blocks_html(), tables_));
}

}  // namespace harmonics::engine::cli
