#include "producers/file/open.hpp"

#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "producers/file/chain.hpp"
#include "producers/file/formats.hpp"
#include "producers/live_bytes.hpp"

namespace harmonics {
namespace {

namespace fs = std::filesystem;

using Parts = std::vector<std::shared_ptr<Producer>>;

bool is_pattern(const std::string& path) { return path.find_first_of("*?[") != std::string::npos; }

std::vector<std::string> matching(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc; ++i) paths.emplace_back(found.gl_pathv[i]);
  globfree(&found);
  if (paths.empty()) throw Error(ErrorKind::NoInput, "no file matches '" + pattern + "'");
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Returns the folder's files with known extensions, which must all have the same format.
std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string path = at->path().string();
    if (at->path().filename().string()[0] == '.' || !format_of_name(path)) continue;
    std::error_code unreachable;
    const fs::file_type type = at->status(unreachable).type();  // follows links
    if (type == fs::file_type::none)
      throw Error(ErrorKind::NoInput, "cannot read '" + path + "': " + unreachable.message());
    if (type == fs::file_type::regular) paths.push_back(path);
  }
  if (error) throw Error(ErrorKind::NoInput, "cannot read '" + folder + "': " + error.message());
  if (paths.empty()) refuse_file(folder, "is a folder without files of known extensions");
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths)
    if (format_of_name(path) != format_of_name(paths[0]))
      refuse_file(folder,
                  "holds files of several formats, '" + paths[0] + "' (" + format_of_name(paths[0])->name + ") and '" +
                      path + "' (" + format_of_name(path)->name + ")",
                  "choose by a pattern, such as " + folder + "/*" + fs::path(paths[0]).extension().string());
  return paths;
}

std::shared_ptr<Producer> open_pictures(const std::string& name, ImageFolder images, const FileOptions& options) {
  check_options(name, *format_of_name(".png"), options);
  return open_images(name, std::move(images), options.images);
}

struct Opened {
  const FileFormat* format;
  std::shared_ptr<Producer> producer;
};

Opened open_one(const std::string& path, const FileOptions& options, const BudgetPtr& budget) {
  const FileBytesPtr bytes = FileBytes::open(path, budget);
  return read_whole(*bytes, [&]() -> Opened {
    const FileBytesPtr file = unpacked(bytes);
    const FileFormat& format = format_of(*file, options);
    check_options(path, format, options);
    return {&format, format.open(file, options)};
  });
}

const FileFormat& open_each(const std::vector<std::string>& paths, const FileOptions& options, Parts& parts) {
  const FileFormat* first = nullptr;
  parts.clear();
  const BudgetPtr budget = file_budget(options.memory);
  for (const std::string& path : paths) {
    Opened opened = open_one(path, options, budget);
    if (first && opened.format != first)
      refuse_file(path, std::string("is ") + opened.format->name + ", '" + paths[0] + "' is " + first->name,
                  "files read as one must have one format");
    first = opened.format;
    if (opened.producer) parts.push_back(std::move(opened.producer));
  }
  if (parts.empty()) refuse_file(paths[0], "and the files beside it have no samples");
  return *first;
}

// Opens several files. If their words or characters differ, reads them again with the union.
std::shared_ptr<Producer> open_several(const std::vector<std::string>& paths, FileOptions options) {
  Parts parts;
  const FileFormat& format = open_each(paths, options, parts);
  const std::vector<std::string> first = parts[0]->describe()->symbols;
  std::set<std::string> symbols;
  bool differ = false;
  for (const auto& part : parts) {
    const std::vector<std::string> own = part->describe()->symbols;
    differ = differ || own != first;
    symbols.insert(own.begin(), own.end());
  }
  if (differ) {
    if (options.table.learned)  // class indices in one file, words in another
      options.table.learned = false;
    else
      for (const std::string& symbol : symbols) format.add_symbol(options, symbol);
    open_each(paths, options, parts);
  }
  return chained(std::move(parts), paths);
}

}  // namespace

std::shared_ptr<Producer> open_file(const std::string& path, const Arguments& given) {
  const FileOptions options(given);
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  const bool pipe = fs::is_fifo(status), follow = given.flag("follow");
  if (pipe || (follow && fs::is_regular_file(status))) return open_live_file(path, follow && !pipe, given);
  if (follow)
    throw Error(
        fs::exists(status) ? ErrorKind::Usage : ErrorKind::NoInput,
        "'" + path +
            (fs::exists(status) ? "' is not a file that can be followed" : "' does not exist, and cannot be followed"));
  refuse_live_options(path, given);
  if (fs::is_directory(status)) {
    ImageFolder images = find_images(path);
    if (!images.paths.empty()) return open_pictures(path, std::move(images), options);
    return open_several(files_in(path), options);
  }
  if (fs::exists(status) || !is_pattern(path)) {
    std::shared_ptr<Producer> producer = open_one(path, options, file_budget(options.memory)).producer;
    if (!producer) refuse_file(path, "has no samples");
    return producer;
  }
  const std::vector<std::string> paths = matching(path);
  if (std::all_of(paths.begin(), paths.end(), is_image_name)) return open_pictures(path, {paths, {}, {}}, options);
  return open_several(paths, options);
}

}  // namespace harmonics
