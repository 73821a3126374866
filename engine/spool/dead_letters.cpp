#include "engine/spool/dead_letters.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include <harmonics/quantity.hpp>

#include "engine/spool/segment.hpp"

namespace harmonics::engine {

namespace {

constexpr const char* kReasons = ".reasons.jsonl";

uint64_t size_of(const std::string& path) {
  std::error_code none;
  const auto size = std::filesystem::file_size(path, none);
  return none ? 0 : size;
}

// Counts the non-empty lines of a file after `offset`. The first may be empty: the newline that ends a torn line.
uint64_t lines_after(const std::string& path, uint64_t offset) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  uint64_t lines = 0;
  for (std::string line; std::getline(file, line);) lines += !line.empty();
  return lines;
}

// Identifies a sample across restarts by its stream, its sender's number and its content.
size_t fingerprint(const std::string& stream, uint64_t number, uint64_t sender, std::span<const std::byte> bytes) {
  const std::string_view content(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return std::hash<std::string>()(
      fmt::format("{} {} {} {}", stream, number, sender, std::hash<std::string_view>()(content)));
}

}  // namespace

DeadLetters::DeadLetters(DeadLetterOptions options) : options_(std::move(options)) {
  const auto refuse = [this](const char* what, int reason) {
    throw Error(ErrorKind::Output, fmt::format("'{}' {}: {}", options_.directory, what, std::strerror(reason)))
        .note("--dead-letters names a directory");
  };
  FileCalls& calls = *options_.calls;
  if (const int reason = make_directories(options_.directory, calls)) refuse("cannot be created", reason);
  const std::optional<uint64_t> held = bytes_kept();
  if (!held) refuse("cannot be read", errno);
  budget_ = std::make_unique<wire::FolderBudget>(options_.most_bytes, *held,
                                                 [this, held] { return bytes_kept().value_or(*held); });
}

// Returns the total size of all dead letters in the folder, or nothing, with errno set, if it cannot be read.
std::optional<uint64_t> DeadLetters::bytes_kept() const {
  FileCalls& calls = *options_.calls;
  std::vector<std::string> names;
  uint64_t bytes = 0;
  if (calls.list(options_.directory.c_str(), names) != 0) return std::nullopt;
  for (const std::string& name : names) {
    if (!wire::is_dead_letter(name)) continue;
    const int file = calls.open((options_.directory + "/" + name).c_str(), O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) continue;
    if (const long long size = calls.size(file); size > 0) bytes += static_cast<uint64_t>(size);
    calls.close(file);
  }
  return bytes;
}

std::string DeadLetters::refused_of(const std::string& stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::string prefix = options_.directory + "/" + stream;
  for (const char* ending : {kReasons, ".refused.jsonl", ".refused.csv"})
    refused_[stream][prefix + ending] = size_of(prefix + ending);
  return prefix;
}

std::vector<DeadLetters::Kept> DeadLetters::kept() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Kept> all;
  for (const auto& [stream, samples] : left_out_)
    all.push_back({stream, false, samples, {options_.directory + "/" + stream + ".hxs"}});
  for (const auto& [stream, before] : refused_) {
    Kept kept{stream, true, 0, {}};
    for (const auto& [path, size] : before) {
      if (size_of(path) <= size) continue;
      kept.files.push_back(path);
      if (path.ends_with(kReasons)) kept.samples = lines_after(path, size);
    }
    if (kept.samples > 0) all.push_back(std::move(kept));
  }
  return all;
}

DeadLetters::~DeadLetters() {
  for (const auto& [stream, file] : files_)
    if (file >= 0) options_.calls->close(file);
}

int DeadLetters::file_of(const std::string& stream) {
  const auto known = files_.find(stream);
  if (known != files_.end()) return known->second;
  const std::string path = options_.directory + "/" + stream + ".hxs";
  const int file = options_.calls->open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file >= 0) read_kept(path);
  return files_[stream] = file;
}

// Reads the dead letters of earlier runs, and cuts off an incomplete frame that a crash or a power failure left at the
// end: frames appended after it would be unreadable.
void DeadLetters::read_kept(const std::string& path) {
  spool::SegmentReader reader(path, *options_.calls);
  const uint64_t size = reader.size();
  uint64_t whole = 0;
  try {
    while (const auto entry = reader.next(size)) {
      if (reader.passed_over()) break;  // readers of the file stop here
      const wire::Frame& frame = entry->frame;
      whole = reader.at();
      if (options_.resumed && !frame.tensors.empty())
        known_.insert(fingerprint(frame.stream, frame.number, frame.sender, frame.tensors[0].bytes));
    }
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Stream) throw;
  }
  if (whole == size) return;
  spool::cut(path, whole, *options_.calls);
  budget_->measure();
  if (options_.on_note)
    options_.on_note(
        fmt::format("'{}' ended within a frame: dropped its last {}", path, quantity(size - whole, "byte")));
}

void DeadLetters::give_up(const std::string& why) {
  over_ = true;
  if (options_.on_note)
    options_.on_note(fmt::format("unmatched and late samples are no longer kept in '{}': {}", options_.directory, why));
}

void DeadLetters::keep(const std::string& stream, const StreamInfo& info, const char* why, uint64_t index,
                       SampleNumber number, const std::byte* sample) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (over_) return;
  wire::Frame frame;
  frame.stream = stream;
  frame.producer = why;
  frame.seq = index;
  frame.count = 1;
  frame.number = number.number;
  frame.sender = number.sender;
  frame.tensors = {
      {stream, info.dtype, info.sample, {sample, info.sample_bytes()}, wire::classes_told(info.dtype, info.classes)}};
  const std::vector<std::byte> bytes = wire::encode(frame, spool::limits()).bytes();
  if (!budget_->allows(bytes.size()))
    return give_up(fmt::format("it holds {} bytes; allow more with --dead-letters-limit", budget_->held()));
  int file = -1;
  try {
    file = file_of(stream);
  } catch (const Error& e) {
    return give_up(e.what());
  }
  if (file < 0) return give_up(std::strerror(errno));
  if (options_.resumed) {
    const auto kept = known_.find(fingerprint(stream, number.number, number.sender, {sample, info.sample_bytes()}));
    if (kept != known_.end()) return void(known_.erase(kept));
  }
  for (size_t done = 0; done < bytes.size();) {
    const long n = options_.calls->write(file, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return give_up(std::strerror(errno));
    done += static_cast<size_t>(n);
  }
  budget_->wrote(bytes.size());
  ++left_out_[stream];
}

}  // namespace harmonics::engine
