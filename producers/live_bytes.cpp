#include "producers/live_bytes.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "wire/pipe.hpp"
#include "wire/plain/byte_pipe.hpp"
#include "wire/plain/plain_streams.hpp"

namespace harmonics {
namespace {

using plain::BytePipe;
using plain::Format;

const std::string kLiveFormats = "auto|hxs|jsonl|json|ndjson|csv|msgpack|npy|raw";

// Standard input, a pipe or a growing file, shared by all its streams. Some of its bytes may have been read already.
struct LiveBytes {
  std::string where;
  int fd = -1;
  bool owns = false, follows = false;
  plain::Beginning begin;
  std::shared_ptr<wire::PipeReader> frames;
  std::shared_ptr<BytePipe> samples;

  LiveBytes() = default;
  LiveBytes(const LiveBytes&) = delete;
  ~LiveBytes() {
    frames.reset();
    samples.reset();
    if (owns && fd >= 0) close(fd);
  }
};

std::string read_once(const std::string& where) {
  return where +
         " is read at most once: samples read but not yet used are lost if the run is killed; --spool DIR stores "
         "them";
}

std::optional<Format> format_of_path(const std::string& path) {
  const auto ends = [&](std::string_view ending) {
    return path.size() > ending.size() && path.compare(path.size() - ending.size(), ending.size(), ending) == 0;
  };
  if (ends(".jsonl") || ends(".ndjson") || ends(".json")) return Format::Jsonl;
  if (ends(".csv") || ends(".tsv")) return Format::Csv;
  if (ends(".msgpack")) return Format::Msgpack;
  return std::nullopt;
}

// Returns the requested or detected format; none: HXS/1 frames.
std::optional<Format> format_of(LiveBytes& bytes, const std::string& path, const Arguments& options) {
  const std::string asked = options.text("format", "auto");
  if (asked == "hxs") return std::nullopt;
  if (!asked.empty() && asked != "auto") {
    const auto format = plain::format_named(asked);
    if (!format)
      throw Error(ErrorKind::Usage, bytes.where + ": format=" + asked + " is not a format of streams")
          .note(std::string("write format=hxs, ") + plain::kFormats);
    return format;
  }
  if (const auto by_name = format_of_path(path)) return by_name;
  bytes.begin =
      plain::read_beginning(bytes.where, bytes.fd, bytes.follows, std::chrono::seconds(options.integer("wait", 60)));
  if (bytes.begin.is_hxs) return std::nullopt;
  if (!bytes.begin.format && bytes.begin.bytes.empty())
    throw Error(ErrorKind::Stream, bytes.where + ": it ends without a sample").note("check the sender");
  if (!bytes.begin.format)
    throw Error(ErrorKind::Stream, bytes.where + ": cannot detect the format: the input begins with '" +
                                       plain::shown_first(bytes.begin.bytes) + "'")
        .note(std::string("add ?format=") + plain::kFormats);
  return bytes.begin.format;
}

std::shared_ptr<Producer> producer_of(const std::shared_ptr<LiveBytes>& bytes, const std::string& path,
                                      const Arguments& options) {
  // The first stream decides the format; further streams read the same bytes.
  if (!bytes->frames && !bytes->samples) {
    const auto format = format_of(*bytes, path, options);
    const bool endless = options.text("end", "auto") == "never";
    if (format) {
      plain::FeedOptions feed = plain::feed_options(bytes->where, *format, options);
      feed.single = true;
      feed.endless = endless || bytes->follows;
      bytes->samples =
          bytes->follows ? std::make_shared<BytePipe>(path, std::exchange(bytes->fd, -1), std::move(bytes->begin.bytes),
                                                      std::move(feed))
                         : std::make_shared<BytePipe>(bytes->fd, false, std::move(bytes->begin.bytes), std::move(feed));
    } else {
      if (bytes->follows)
        throw Error(ErrorKind::Usage, bytes->where + ": follow=true does not take HXS/1 frames")
            .note("read the file without follow=true, or send over a socket");
      plain::expect_options(bytes->where, false, options);
      wire::InboxOptions inbox;
      inbox.where = bytes->where;
      inbox.endless = endless;
      bytes->frames = std::make_shared<wire::PipeReader>(bytes->fd, inbox, std::move(bytes->begin.bytes));
    }
  }
  if (bytes->frames)
    return std::make_shared<wire::LiveProducer<wire::PipeReader>>(
        std::shared_ptr<wire::PipeReader>(bytes, bytes->frames.get()), options);
  const plain::Asked asked = plain::asked_of(bytes->where, bytes->samples->feed().options().format, options);
  return std::make_shared<plain::PlainProducer<BytePipe>>(std::shared_ptr<BytePipe>(bytes, bytes->samples.get()), asked,
                                                          std::chrono::seconds(options.integer("wait", 60)),
                                                          read_once(bytes->where));
}

}  // namespace

std::shared_ptr<Producer> open_stdin(const std::string& path, const Arguments& options) {
  if (!path.empty())
    throw Error(ErrorKind::Usage, "stdin:" + path + " takes no path; write stdin: alone, or file:" + path);
  const auto bytes = wire::Shared<LiveBytes>::at("stdin:", [] {
    auto made = std::make_shared<LiveBytes>();
    made->where = "stdin:";
    made->fd = STDIN_FILENO;
    return made;
  });
  return producer_of(bytes, "", options);
}

std::vector<Argument> stdin_options() { return plain::plain_options("auto", kLiveFormats); }

std::shared_ptr<Producer> open_live_file(const std::string& path, bool follow, const Arguments& options) {
  for (const char* name : {"part", "vocabulary", "resize", "memory"})
    if (!options.text(name, "").empty())
      throw Error(ErrorKind::Usage, std::string(name) + "= of '" + path + "' is for files that have an end")
          .note("leave it out");
  const auto bytes = wire::Shared<LiveBytes>::at("file:" + path, [&] {
    auto made = std::make_shared<LiveBytes>();
    made->where = "file:" + path;
    made->follows = follow;
    made->owns = true;
    // An endless pipe is also opened for writing, which prevents end-of-file. Otherwise opening does not wait for a
    // writer.
    const bool endless = !follow && options.text("end", "auto") == "never";
    made->fd = open(path.c_str(), (endless ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK);
    if (made->fd < 0) throw Error(ErrorKind::NoInput, "cannot read '" + path + "': " + std::strerror(errno));
    return made;
  });
  return producer_of(bytes, path, options);
}

std::vector<Argument> live_file_options() {
  std::vector<Argument> options = plain::plain_options(
      "", "", {Argument::flag("follow", false, "follow a growing file endlessly, across truncation and replacement")});
  // Removes options that apply to regular files only.
  std::erase_if(options, [](const Argument& o) {
    return o.name == "format" || o.name == "symbols" || o.name == "header" || o.name == "delimiter" ||
           o.name == "forget" || o.name == "missing" || o.name == "learned";
  });
  return options;
}

void refuse_live_options(const std::string& path, const Arguments& options) {
  for (const char* name : {"type", "schema"})
    if (!options.text(name, "").empty())
      throw Error(ErrorKind::Usage, std::string(name) + "= of '" + path + "' is for pipes and files that are followed")
          .note("use dtype= and shape=, or follow=true");
  if (options.flag("strict") || options.flag("rows") || options.text("end", "auto") == "never")
    throw Error(ErrorKind::Usage, "strict=, rows= and end= of '" + path + "' are for pipes and files that are followed")
        .note("remove them, or add follow=true");
}

}  // namespace harmonics
