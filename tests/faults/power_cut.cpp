#include "tests/faults/power_cut.hpp"

#include <fcntl.h>

namespace faults {

namespace {

const std::string kDirectory("\0directory", 10);

std::string directory_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

}  // namespace

std::vector<TracedCall> traced_calls(const std::string& trace) {
  std::vector<TracedCall> calls;
  std::istringstream in(read(trace));
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> fields;
    std::istringstream cells(line);
    for (std::string field; std::getline(cells, field, '\t');) fields.push_back(field);
    REQUIRE(fields.size() >= 8);
    calls.push_back({fields[3],
                     without_slash(fields[7]),
                     std::stol(fields[4]),
                     std::stol(fields[6]),
                     {fields.begin() + 8, fields.end()}});
  }
  return calls;
}

PowerCuts::PowerCuts(const std::string& trace, std::string root)
    : calls_(traced_calls(trace)), root_(std::move(root)), bytes_(read(trace + ".bytes")) {}

std::vector<PowerCuts::Change> PowerCuts::changes_before(size_t n) const {
  std::vector<Change> changes;
  std::map<std::string, long> names;  // name to file
  std::map<long, long> files;         // by inode; the number of a removed file may be reused
  std::map<long, size_t> sizes;
  long made = 0;
  const auto file_of = [&](const TracedCall& c) {
    const auto at = files.find(c.inode);
    REQUIRE(at != files.end());
    return at->second;
  };
  for (size_t i = 0; i < n; ++i) {
    const TracedCall& c = calls_[i];
    if (c.result < 0) continue;
    if (c.call == "mkdir") changes.push_back({Change::Make, -1, c.path});
    if (c.call == "open") {
      if (!names.count(c.path)) {
        files[c.inode] = names[c.path] = ++made;
        changes.push_back({Change::Make, made, c.path});
      } else if (std::stoul(c.fields.at(0), nullptr, 8) & O_TRUNC) {
        changes.push_back({Change::Resize, names[c.path], c.path});
      }
    }
    if (c.call == "write")
      changes.push_back({Change::Write, file_of(c), c.path, "", std::stoul(c.fields.at(0)), std::stoul(c.fields.at(2)),
                         static_cast<size_t>(c.result)});
    if (c.call == "truncate")
      changes.push_back({Change::Resize, file_of(c), c.path, "", 0, 0, std::stoul(c.fields.at(0))});
    if (c.call == "rename" && names.count(c.path)) {
      changes.push_back({Change::Rename, names[c.path], c.path, c.fields.at(0)});
      names[c.fields.at(0)] = names.extract(c.path).mapped();
    }
    if (c.call == "remove") {
      changes.push_back({Change::Remove, names.count(c.path) ? names[c.path] : -1, c.path});
      names.erase(c.path);
    }
    if (c.call == "sync") {
      const auto file = files.find(c.inode);
      const bool of_data = file != files.end();
      for (Change& change : changes) {
        if (of_data && !change.of_names() && change.file == file->second) change.certain = true;
        // Syncing a directory makes all earlier changes of its names certain.
        if (change.of_names() && (directory_of(change.path) == c.path || directory_of(change.other) == c.path))
          change.certain = true;
      }
    }
  }
  return changes;
}

Image PowerCuts::image_of(const std::vector<Change>& changes, const std::vector<char>& kept, size_t torn) const {
  std::map<long, std::string> contents;
  std::map<std::string, long> names;
  for (size_t i = 0; i < changes.size(); ++i) {
    const Change& c = changes[i];
    if (!kept[i]) continue;
    switch (c.kind) {
      case Change::Write: {
        const size_t size = i == torn ? c.size / 2 : c.size;
        std::string& content = contents[c.file];
        content.resize(std::max(content.size(), c.offset + size));
        content.replace(c.offset, size, bytes_, c.from, size);
        break;
      }
      case Change::Resize:
        contents[c.file].resize(c.size);
        break;
      case Change::Make:
        names[c.path] = c.file;
        break;
      case Change::Rename:
        if (const auto at = names.find(c.path); at != names.end() && at->second == c.file) names.erase(at);
        names[c.other] = c.file;
        break;
      case Change::Remove:
        if (const auto at = names.find(c.path); at != names.end() && at->second == c.file) names.erase(at);
        break;
    }
  }
  Image image;
  for (const auto& [path, file] : names) {
    bool reachable = true;  // its parent directories exist
    for (std::string at = directory_of(path); at.size() > root_.size(); at = directory_of(at)) {
      const auto directory = names.find(at);
      reachable &= directory != names.end() && directory->second == -1;
    }
    if (reachable) image[path.substr(root_.size() + 1)] = file == -1 ? kDirectory : contents[file];
  }
  return image;
}

void PowerCuts::each_image(size_t n, const std::function<void(const Image&)>& f) const {
  const std::vector<Change> changes = changes_before(n);
  std::vector<size_t> open;  // may be present or not
  std::vector<char> certain(changes.size());
  for (size_t i = 0; i < changes.size(); ++i) {
    certain[i] = changes[i].certain;
    if (!certain[i]) open.push_back(i);
  }
  std::set<Image> seen;
  const auto show = [&](const std::vector<char>& kept, size_t torn = SIZE_MAX) {
    Image image = image_of(changes, kept, torn);
    if (const auto [at, anew] = seen.insert(std::move(image)); anew) f(*at);
  };
  const auto with = [&](auto chosen) {
    std::vector<char> kept = certain;
    for (size_t k = 0; k < open.size(); ++k)
      if (chosen(k)) kept[open[k]] = 1;
    return kept;
  };
  show(certain);
  show(with([](size_t) { return true; }));
  show(with([&](size_t k) { return changes[open[k]].of_names(); }));
  show(with([&](size_t k) { return !changes[open[k]].of_names(); }));
  for (size_t one = 0; one < open.size(); ++one) {
    show(with([&](size_t k) { return k <= one; }));
    show(with([&](size_t k) { return k != one; }));
    show(with([&](size_t k) { return k == one; }));
    show(with([&](size_t k) { return changes[open[k]].of_names() || k <= one; }));
    if (changes[open[one]].kind != Change::Write) continue;
    show(with([&](size_t k) { return k <= one; }), open[one]);
    show(with([](size_t) { return true; }), open[one]);
  }
}

void lay_out(const Image& image, const std::string& root) {
  fs::remove_all(root);
  fs::create_directories(root);
  for (const auto& [path, content] : image) {  // a directory precedes its contents
    const std::string at = root + "/" + path;
    if (content == kDirectory) {
      fs::create_directories(at);
      continue;
    }
    fs::create_directories(directory_of(at));
    std::ofstream(at, std::ios::binary) << content;
  }
}

}  // namespace faults
