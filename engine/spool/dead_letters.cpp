#include "engine/spool/dead_letters.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "engine/spool/segment.hpp"

namespace harmonics::engine {

namespace {

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
  std::vector<std::string> names;
  if (calls.list(options_.directory.c_str(), names) != 0) refuse("cannot be read", errno);
  for (const std::string& name : names) {
    if (!name.ends_with(".hxs")) continue;
    const int file = calls.open((options_.directory + "/" + name).c_str(), O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) continue;
    if (const long long size = calls.size(file); size > 0) bytes_ += static_cast<uint64_t>(size);
    calls.close(file);
  }
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

// A killed process or a power failure may have left an incomplete frame at the end; nothing after it could be read.
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
  bytes_ -= std::min(bytes_, size - whole);
  if (options_.on_note)
    options_.on_note(fmt::format("'{}' ended within a frame: its last {} bytes are dropped", path, size - whole));
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
  if (bytes_ + bytes.size() > options_.most_bytes)
    return give_up(fmt::format("it holds {} bytes; allow more with --dead-letters-limit", bytes_));
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
  bytes_ += bytes.size();
}

}  // namespace harmonics::engine
