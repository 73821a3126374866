#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/abi.h>
#include <harmonics/error.hpp>

#include "engine/base/read_file.hpp"
#include "engine/cli/commands/command.hpp"
#include "engine/cli/options/installed.hpp"
#include "engine/cli/terminal/output.hpp"

namespace harmonics::engine::cli {

namespace {

// A row of licenses/libraries.tsv, which scripts/bundle.py writes.
struct BundledLibrary {
  std::string package, version, source, licenses, files, text;
};

constexpr size_t kLargestText = 16 << 20;

std::string licenses_folder() {
  const std::string documentation = documentation_folder();
  return documentation.empty() ? "" : documentation + "/licenses";
}

// Returns an empty list if no libraries are bundled.
std::vector<BundledLibrary> bundled_libraries(const std::string& folder) {
  std::vector<BundledLibrary> libraries;
  const std::string path = folder + "/libraries.tsv";
  if (std::error_code failed; folder.empty() || !std::filesystem::exists(path, failed)) return libraries;
  std::istringstream lines(read_file(path, kLargestText));
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty() || line[0] == '#') continue;
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, '\t');) cells.push_back(cell);
    if (cells.size() != 6 || cells[5].find('/') != std::string::npos)
      throw Error(ErrorKind::NoInput,
                  fmt::format("{}:{}: not a row of six columns, the last one a file's name", path, number), {},
                  {"install the package again"});
    libraries.push_back({cells[0], cells[1], cells[2], cells[3], cells[4], cells[5]});
  }
  return libraries;
}

boost::json::array license_rows(const std::string& folder) {
  boost::json::array rows;
  for (const BundledLibrary& l : bundled_libraries(folder))
    rows.push_back(boost::json::object{{"package", l.package},
                                       {"version", l.version},
                                       {"source", l.source},
                                       {"licenses", l.licenses},
                                       {"files", l.files},
                                       {"text", folder + "/" + l.text}});
  return rows;
}

void print_licenses(const std::string& folder) {
  const std::vector<BundledLibrary> libraries = bundled_libraries(folder);
  print("harmonics {}: Apache-2.0\n", HARMONICS_VERSION);
  if (libraries.empty()) {
    print(
        "no library is bundled: they come from the system (Debian: their licenses are in "
        "/usr/share/doc/PACKAGE/copyright)\n");
    return;
  }
  print(
      "bundled are libraries of Debian, each here with the licenses of its source package ('apt-get source "
      "NAME=VERSION' gets it); the texts\n"
      "follow, and are in {}\n"
      "\n",
      folder);
  std::vector<std::string> texts;
  for (const BundledLibrary& l : libraries) {
    print("{} {} (source {}): {}\n  {}\n", l.package, l.version, l.source, l.licenses, l.files);
    if (std::find(texts.begin(), texts.end(), l.text) == texts.end()) texts.push_back(l.text);
  }
  for (const std::string& text : texts) print("\n== {}\n{}\n", text, read_file(folder + "/" + text, kLargestText));
}

boost::json::value path_or_null(const std::string& path) {
  return path.empty() ? boost::json::value() : boost::json::value(path);
}

}  // namespace

int version_command(const Options& options) {
  const std::string samples = samples_folder(), documentation = documentation_folder();
  if (options.json) {
    boost::json::object about{{"version", 1},
                              {"harmonics", HARMONICS_VERSION},
                              {"contract", fmt::format("{}.{}", HX_ABI_MAJOR, HX_ABI_MINOR)},
                              {"compiler", __VERSION__},
                              {"samples", path_or_null(samples)},
                              {"documentation", path_or_null(documentation)}};
    if (options.licenses) about["licenses"] = license_rows(licenses_folder());
    print_json(about);
    return kDone;
  }
  if (options.licenses) {
    print_licenses(licenses_folder());
    return kDone;
  }
  print("harmonics {}\nplugin contract {}.{}\nbuilt with g++ {}\n", HARMONICS_VERSION, HX_ABI_MAJOR, HX_ABI_MINOR,
        __VERSION__);
  if (!samples.empty()) print("samples in {}\n", samples);
  if (!documentation.empty()) print("documentation in {}\n", documentation);
  return kDone;
}

}  // namespace harmonics::engine::cli
