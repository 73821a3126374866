// Producers of samples in plain formats: their options, and a producer over any transport that has a feed(). Header
// only, since the plugin that includes it owns the contract's interface.
#pragma once

#include "wire/live_streams.hpp"
#include "wire/plain/sample_feed.hpp"

namespace harmonics::plain {

// Options of producers whose samples may come in plain formats; the first of `formats` is the default of format=.
inline std::vector<Argument> plain_options(const std::string& otherwise, const std::string& formats,
                                           std::vector<Argument> more = {}) {
  more.insert(
      more.end(),
      {Argument::text("format", otherwise,
                      "how samples are written: frames of HXS/1 (docs/wire.md), JSON lines, CSV, MessagePack, arrays "
                      "of NumPy, bare numbers")
           .in(formats),
       Argument::text("schema", "",
                      "JSON file with the types of fields: {\"image\": \"u8:28x28\", \"label\": \"i64<10\"}"),
       Argument::text("symbols", "", "the class words in order: a,b,c"),
       Argument::text("header", "auto",
                      "csv: whether the first row is a header; auto: detected from the first two rows")
           .in("auto|true|false"),
       Argument::text("delimiter", "auto", "csv: the separator character, or tab; auto: detected from the first row"),
       Argument::flag("rows", false,
                      "npy: the first axis of each array counts samples; otherwise each array is one sample"),
       Argument::flag("strict", false,
                      "a sample that cannot be read ends the stream; otherwise it is refused and counted"),
       Argument::text("end", "auto", "never: the stream stays open after all senders have ended").in("auto|never"),
       Argument::text("use", "", "set by the flow: classes, lookup or numbers")});
  return wire::live_producer_options(std::move(more));
}

constexpr const char* kSentFormats = "hxs|jsonl|json|ndjson|csv|msgpack|npy|raw";

// A note for readers of this address.
inline std::string at_most_once(const std::string& where) {
  return where +
         ": at-most-once delivery: senders get no reply, and samples not yet learned are lost if the run is killed; "
         "--spool DIR stores them, HXS/1 resends them";
}

// Checks that all streams of one address use the same format. `feed`: of the end that is already open; null: it takes
// HXS/1 frames.
inline void expect_one_format(const std::string& where, const std::optional<Format>& format, const SampleFeed* feed) {
  const bool same = format && feed ? feed->options().format == *format : !format && !feed;
  if (!same)
    throw Error(ErrorKind::Usage, where + ": its streams have different formats").note("give each the same format=");
}

// Rejects options that only HXS/1 has in plain formats, and vice versa.
inline void expect_options(const std::string& where, bool plain, const Arguments& options) {
  for (const char* name : {"schema", "symbols"})
    if (!plain && !options.text(name, "").empty())
      throw Error(ErrorKind::Usage, where + ": " + name + "= is for samples in plain formats")
          .note(std::string("add format=") + kFormats);
  if (!plain && (options.flag("strict") || options.flag("rows")))
    throw Error(ErrorKind::Usage, where + ": strict= and rows= are for samples in plain formats")
        .note(std::string("add format=") + kFormats);
  if (plain && !options.text("forget", "").empty())
    throw Error(ErrorKind::Usage, where + ": forget= is for HXS/1 senders, and plain formats have no sender names");
}

inline FeedOptions feed_options(const std::string& where, Format format, const Arguments& options) {
  expect_options(where, true, options);
  FeedOptions feed;
  feed.where = where;
  feed.format = format;
  feed.strict = options.flag("strict");
  feed.endless = options.text("end", "auto") == "never";
  if (const std::string path = options.text("schema", ""); !path.empty()) feed.schema = read_schema(path);
  feed.decoder.where = where;
  const auto text_or_auto = [&](const char* name) {
    const std::string text = options.text(name, "auto");
    return text.empty() ? std::string("auto") : text;
  };
  feed.decoder.header = text_or_auto("header");
  feed.decoder.delimiter = text_or_auto("delimiter");
  feed.decoder.rows = options.flag("rows");
  if (format != Format::Raw) return feed;
  const std::optional<StreamInfo> info = read_announced(options.text("type", ""));
  if (!info)
    throw Error(ErrorKind::Usage, where + ": format=raw needs the type of a sample").note("add ?type=f32:28x28");
  feed.decoder.dtype = info->dtype;
  feed.decoder.sample = info->sample;
  return feed;
}

inline Asked asked_of(Format format, const Arguments& options) {
  Asked asked;
  asked.selection = options.has("#") ? options.text("#") : "";
  asked.type = options.text("type", "");
  asked.use = options.text("use", "");
  if (format == Format::Raw && !asked.type.empty() && asked.type.find_first_of(":<") == std::string::npos)
    asked.type += ':';
  std::string word;
  const std::string symbols = options.text("symbols", "");
  for (const char c : symbols) {
    if (c == ',')
      asked.symbols.push_back(std::exchange(word, ""));
    else
      word += c;
  }
  if (!symbols.empty()) asked.symbols.push_back(word);
  return asked;
}

// Reads one tensor of the samples that arrive at `End`, which has a feed().
template <typename End>
class PlainProducer final : public wire::LiveProducer<End> {
 public:
  PlainProducer(const std::shared_ptr<End>& end, const Asked& asked, std::chrono::milliseconds wait,
                std::string notes = "")
      : PlainProducer(end, asked, end->feed().choose(asked), wait, std::move(notes)) {}
  PlainProducer(const std::shared_ptr<End>& end, const Arguments& options, std::string notes = "")
      : PlainProducer(end, asked_of(end->feed().options().format, options),
                      std::chrono::seconds(options.integer("wait", 60)), std::move(notes)) {}

  HTensor next() override {
    feed_.begin();
    return wire::LiveProducer<End>::next();
  }
  int64_t read(uint64_t n, void* to) override {
    feed_.begin();
    return wire::LiveProducer<End>::read(n, to);
  }
  std::optional<StreamInfo> describe() override {
    const wire::TensorPart part = feed_.describe(tensor_, wait_);
    StreamInfo info;
    info.dtype = part.dtype;
    info.sample = part.sample;
    info.classes = part.classes;
    info.symbols = symbols_;
    info.live = true;
    info.notes = notes_;
    return info;
  }
  // Samples are joined by their order: they have no numbers.
  bool numbers(uint64_t, SampleNumber*) override { return false; }
  std::optional<StreamHealth> health() override {
    std::optional<StreamHealth> health = wire::LiveProducer<End>::health();
    health->senders = feed_.senders();
    health->connected = feed_.connected();
    health->last_error = feed_.last_error();
    return health;
  }

 private:
  PlainProducer(const std::shared_ptr<End>& end, const Asked& asked, const std::string& tensor,
                std::chrono::milliseconds wait, std::string notes)
      : wire::LiveProducer<End>(end, tensor, wait),
        feed_(end->feed()),
        symbols_(asked.symbols),
        tensor_(tensor),
        wait_(wait),
        notes_(std::move(notes)) {}

  SampleFeed& feed_;  // of the end, which the base keeps alive
  std::vector<std::string> symbols_;
  std::string tensor_;
  std::chrono::milliseconds wait_;
  std::string notes_;
};

}  // namespace harmonics::plain
