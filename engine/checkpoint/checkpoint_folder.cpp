#include "engine/checkpoint/checkpoint_folder.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include <fcntl.h>

#include <fmt/core.h>

#include "engine/model/sealed_file.hpp"

namespace harmonics::engine {

namespace {

constexpr std::string_view kPrefix = "checkpoint-", kStep = "-step-", kEnd = ".safetensors";

constexpr uint64_t kMostNumber = uint64_t{1} << 62;

bool take(std::string_view& text, std::string_view part) {
  if (text.substr(0, part.size()) != part) return false;
  text.remove_prefix(part.size());
  return true;
}

template <typename T>
bool take_number(std::string_view& text, T& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || text.empty() || text[0] == '-') return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

// Parses names like "checkpoint-000012-step-6000.safetensors".
std::optional<CheckpointFolder::Entry> entry_of(const std::string& folder, const std::string& name) {
  CheckpointFolder::Entry e{folder + "/" + name, 0, 0};
  std::string_view text = name;
  if (take(text, kPrefix) && take_number(text, e.number) && take(text, kStep) && take_number(text, e.step) &&
      text == kEnd)
    return e;
  return std::nullopt;
}

[[noreturn]] void cannot_write(const std::string& path, int reason) {
  throw Error(
      kind_of_failure(reason, ErrorKind::Output),
      fmt::format("cannot write checkpoints to '{}': {}", path, std::strerror(reason)), {},
      {reason == ENOSPC ? "free space, or give a folder on another disk" : "give a folder that may be written"});
}

}  // namespace

Checkpoint read_checkpoint(const std::string& path, FileCalls& calls) {
  Checkpoint c;
  c.path = path;
  c.file = read_sealed(path, calls);
  c.state = take_state(c.file, path);
  return c;
}

CheckpointFolder::CheckpointFolder(std::string path, FileCalls& calls) : path_(std::move(path)), calls_(calls) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
}

CheckpointFolder::~CheckpointFolder() {
  if (lock_ >= 0) calls_.close(lock_);
}

std::vector<CheckpointFolder::Entry> CheckpointFolder::list() const {
  std::vector<std::string> names;
  std::vector<Entry> entries;
  if (calls_.list(path_.c_str(), names) != 0) {
    const int reason = errno;
    if (reason == ENOENT) return entries;
    throw Error(kind_of_failure(reason, ErrorKind::NoInput),
                fmt::format("cannot read '{}': {}", path_, std::strerror(reason)));
  }
  for (const std::string& name : names)
    if (auto entry = entry_of(path_, name)) entries.push_back(std::move(*entry));
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.number > b.number; });
  return entries;
}

std::optional<Checkpoint> CheckpointFolder::newest(std::vector<std::string>& notes) const {
  std::optional<Error> last;
  for (const Entry& entry : list()) {
    try {
      return read_checkpoint(entry.path, calls_);
    } catch (const Error& e) {
      if (e.kind() != ErrorKind::Weights && e.kind() != ErrorKind::NoInput && e.kind() != ErrorKind::InputOutput) throw;
      notes.push_back(fmt::format("skipped a checkpoint: {}", e.what()));
      last = e;
    }
  }
  if (last)
    throw Error(last->kind(), fmt::format("no checkpoint in '{}' can be used; the last one: {}", path_, last->what()));
  return std::nullopt;
}

void CheckpointFolder::claim() {
  if (const int reason = make_directories(path_, calls_)) cannot_write(path_, reason);
  const std::string lock = path_ + "/.lock";
  lock_ = calls_.open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (lock_ < 0) cannot_write(path_, errno);
  if (calls_.lock(lock_) != 0) {
    if (errno != EWOULDBLOCK) cannot_write(path_, errno);
    throw Error(ErrorKind::Usage, fmt::format("another run writes its checkpoints to '{}'", path_), {},
                {"use another directory"});
  }
  std::vector<std::string> names;
  if (calls_.list(path_.c_str(), names) != 0) cannot_write(path_, errno);
  // The number of a new checkpoint follows the largest existing one.
  for (const std::string& name : names)
    if (const auto entry = entry_of(path_, name); entry && entry->number > kMostNumber)
      throw Error(ErrorKind::Usage,
                  fmt::format("the number of '{}' is too large: no larger one is left for the checkpoints of this run",
                              entry->path),
                  {}, {"move it to another directory, or use another directory for this run"});
  for (const std::string& name : names)
    if (is_unfinished_file(name)) calls_.remove((path_ + "/" + name).c_str());
}

std::string CheckpointFolder::write(const TensorFile& content, int64_t step) {
  const std::vector<Entry> entries = list();
  const uint64_t number = entries.empty() ? 1 : entries.front().number + 1;
  std::string path = fmt::format("{}/{}{:06}{}{}{}", path_, kPrefix, number, kStep, step, kEnd);
  save_sealed(content, path, calls_);
  return path;
}

void CheckpointFolder::keep(size_t n, const std::set<std::string>& names) const {
  const std::vector<Entry> entries = list();
  for (size_t i = n; i < entries.size(); ++i)
    if (!names.count(entries[i].path.substr(path_.size() + 1))) calls_.remove(entries[i].path.c_str());
}

}  // namespace harmonics::engine
