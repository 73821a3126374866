#include "engine/spool/dead_letters.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "engine/spool/segment.hpp"

namespace harmonics {

namespace {

// A power cut may have left half a frame at the end, and nothing behind it could be read.
void cut_unfinished(const std::string& path, FileCalls& calls) {
  spool::SegmentReader reader(path, calls);
  const uint64_t size = reader.size();
  try {
    while (reader.next(size)) {
    }
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Stream) throw;
  }
  if (reader.at() < size) spool::cut(path, reader.at(), calls);
}

}  // namespace

DeadLetters::DeadLetters(DeadLetterOptions options) : options_(std::move(options)) {
  const auto refuse = [this](const char* what, int reason) {
    throw Error(ErrorKind::Output, fmt::format("'{}' {}: {}", options_.directory, what, std::strerror(reason))).note("--dead-letters names a directory");
  };
  FileCalls& calls = *options_.calls;
  if (const int reason = make_directories(options_.directory, calls)) refuse("cannot be made", reason);
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
  if (file >= 0) cut_unfinished(path, *options_.calls);
  return files_[stream] = file;
}

void DeadLetters::give_up(const std::string& why) {
  over_ = true;
  if (options_.on_note) options_.on_note(fmt::format("samples that are left out are no longer kept in '{}': {}", options_.directory, why));
}

void DeadLetters::keep(const std::string& stream, const StreamInfo& info, const char* why, uint64_t index, SampleNumber number, const std::byte* sample) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (over_) return;
  wire::Frame frame;
  frame.stream = stream;
  frame.producer = why;
  frame.seq = index;
  frame.count = 1;
  frame.number = number.number;
  frame.sender = number.sender;
  frame.tensors = {{stream, info.dtype, info.sample, {sample, info.sample_bytes()}, wire::classes_told(info.dtype, info.classes)}};
  const std::vector<std::byte> bytes = wire::encode(frame, spool::limits()).bytes();
  if (bytes_ + bytes.size() > options_.most_bytes) return give_up(fmt::format("it holds {} bytes; allow more with --dead-letters-limit", bytes_));
  int file = -1;
  try {
    file = file_of(stream);
  } catch (const Error& e) {
    return give_up(e.what());
  }
  if (file < 0) return give_up(std::strerror(errno));
  for (size_t done = 0; done < bytes.size();) {
    const long n = options_.calls->write(file, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return give_up(std::strerror(errno));
    done += static_cast<size_t>(n);
  }
  bytes_ += bytes.size();
}

}  // namespace harmonics
