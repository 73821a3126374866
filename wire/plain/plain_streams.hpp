// Producers of samples in plain formats: their options, and a producer over any transport that has a feed(). Header
// only, because the including plugin owns the contract's interface.
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
       Argument::text("learned", "",
                      "the words known to the weights, a JSON array; set by --weights and --resume where symbols= is "
                      "not given"),
       Argument::text("missing", "",
                      "jsonl, csv, msgpack: replacement for missing values (empty cells, null, absent fields): a value "
                      "or nan; default: their samples are refused"),
       Argument::text("header", "auto",
                      "csv: whether the first row is a header; auto: detected from the first two rows")
           .in("auto|true|false"),
       Argument::text("delimiter", "auto", "csv: the separator character, or tab; auto: detected from the first row"),
       Argument::flag("rows", false,
                      "npy: the first axis of each array counts samples; otherwise each array is one sample"),
       Argument::flag("strict", false,
                      "a sample that cannot be read ends the stream; otherwise it is refused and counted"),
       Argument::text("end", "auto", "never: the stream stays open after all senders have ended").in("auto|never"),
       Argument::text("use", "", "set by the flow: classes, lookup or numbers"),
       Argument::text("declared", "", "set by the flow: the declared type, as in type="),
       Argument::text("dead-letters", "",
                      "set by --dead-letters: path, without an extension, of the files that keep refused samples"),
       Argument::integer("dead-letters-limit", int64_t{256} << 20,
                         "set by --dead-letters-limit: limit of all dead letters in that folder, in bytes")
           .in("0..9223372036854775807")});
  return wire::live_producer_options(std::move(more));
}

constexpr const char* kSentFormats = "hxs|jsonl|json|ndjson|csv|msgpack|npy|raw";

// Returns the note that this address delivers at most once.
inline std::string at_most_once(const std::string& where) {
  return where +
         " delivers at most once: senders get no reply, and samples not yet used are lost if the run is killed; "
         "--spool DIR stores them, HXS/1 resends them";
}

// Checks that all streams of one address use the same format. `feed`: the feed of the open end; null: the end takes
// HXS/1 frames.
inline void expect_one_format(const std::string& where, const std::optional<Format>& format, const SampleFeed* feed) {
  const bool same = format && feed ? feed->options().format == *format : !format && !feed;
  if (!same)
    throw Error(ErrorKind::Usage, where + ": its streams have different formats").note("give each the same format=");
}

// Rejects options that only HXS/1 has in plain formats, and vice versa.
inline void expect_options(const std::string& where, bool plain, const Arguments& options) {
  for (const char* name : {"schema", "symbols", "missing"})
    if (!plain && !options.text(name, "").empty())
      throw Error(ErrorKind::Usage, where + ": " + name + "= is for samples in plain formats")
          .note(std::string("add format=") + kFormats);
  if (!plain && (options.flag("strict") || options.flag("rows")))
    throw Error(ErrorKind::Usage, where + ": strict= and rows= are for samples in plain formats")
        .note(std::string("add format=") + kFormats);
  if (plain && !options.text("forget", "").empty())
    throw Error(ErrorKind::Usage, where + ": forget= is for HXS/1 senders, and plain formats have no sender names");
}

// Returns the sample type from the address; "": none. Files call it dtype= and shape=.
inline std::string type_option(const Arguments& options) {
  const std::string type = options.text("type", ""), dtype = options.text("dtype", ""),
                    shape = options.text("shape", "");
  if (!type.empty() || (dtype.empty() && shape.empty())) return type;
  return (dtype.empty() ? "f32" : dtype) + (shape.empty() ? "" : ":" + shape);
}

inline std::string raw_type_of(const std::string& where, const Arguments& options) {
  const std::string schema = options.text("schema", "");
  return raw_type(where, type_option(options),
                  schema.empty() ? std::map<std::string, std::string>() : read_schema(schema),
                  options.text("declared", ""));
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
  feed.dead_letters = options.text("dead-letters", "");
  feed.dead_letters_limit = static_cast<uint64_t>(options.integer("dead-letters-limit", int64_t{256} << 20));
  if (format != Format::Raw) return feed;
  bool scalar = false;
  const std::string type = raw_type_of(where, options);
  const std::optional<StreamInfo> info = read_type(type, scalar);
  if (!info)
    throw Error(ErrorKind::Usage, where + ": '" + type + "' is not a sample type")
        .note("write type=f32:28x28, type=f32: for one number, or with classes type=i64<10");
  feed.decoder.dtype = info->dtype;
  feed.decoder.sample = info->sample;
  return feed;
}

// `where`: the end's address, for messages. Errors: Usage.
inline Asked asked_of(const std::string& where, Format format, const Arguments& options) {
  Asked asked;
  asked.selection = options.has("#") ? options.text("#") : "";
  if (format == Format::Raw && !asked.selection.empty())
    throw Error(ErrorKind::Usage, where + ": bare numbers have no field '" + asked.selection + "'")
        .note("leave '#" + asked.selection + "' out, and read other streams from their own address");
  asked.type = format == Format::Raw ? raw_type_of(where, options) : type_option(options);
  asked.use = options.text("use", "");
  const std::string as = options.text("as", "");  // of files
  if (as == "number" || as == "class") asked.use = as == "class" ? "classes" : "numbers";
  if (const std::string missing = options.text("missing", ""); !missing.empty()) {
    if (format == Format::Raw || format == Format::Npy)
      throw Error(ErrorKind::Usage,
                  where + ": missing= is for jsonl, csv and msgpack; arrays and bare numbers lack no value")
          .note("leave it out");
    asked.missing = missing;
  }
  const std::string declared = options.text("declared", "");
  if (asked.missing || declared.find('<') != std::string::npos) asked.declared = declared;
  std::string word;
  const std::string symbols = options.text("symbols", "");
  for (const char c : symbols) {
    if (c == ',')
      asked.symbols.push_back(std::exchange(word, ""));
    else
      word += c;
  }
  if (!symbols.empty()) asked.symbols.push_back(word);
  const std::string learned = options.text("learned", "");
  if (symbols.empty() && !learned.empty() && format != Format::Raw && format != Format::Npy) {
    asked.symbols = read_learned(learned);
    asked.learned = true;
  }
  return asked;
}

// Reads one tensor of the samples that arrive at `End`, which has a feed().
template <typename End>
class PlainProducer final : public wire::LiveProducer<End> {
 public:
  PlainProducer(const std::shared_ptr<End>& end, const Asked& asked, std::chrono::milliseconds wait,
                std::string notes = "")
      : PlainProducer(end, end->feed().choose(asked), wait, std::move(notes)) {}
  PlainProducer(const std::shared_ptr<End>& end, const Arguments& options, std::string notes = "")
      : PlainProducer(end, asked_of(end->feed().options().where, end->feed().options().format, options),
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
    info.symbols = feed_.symbols(tensor_);
    info.live = true;
    info.notes = notes_;
    return info;
  }
  // Samples of plain formats have no numbers and are joined by order.
  bool numbers(uint64_t, SampleNumber*) override { return false; }
  std::optional<StreamHealth> health() override {
    std::optional<StreamHealth> health = wire::LiveProducer<End>::health();
    health->senders = feed_.senders();
    health->connected = feed_.connected();
    health->last_error = feed_.last_error();
    return health;
  }

 private:
  PlainProducer(const std::shared_ptr<End>& end, const std::string& tensor, std::chrono::milliseconds wait,
                std::string notes)
      : wire::LiveProducer<End>(end, tensor, wait),
        feed_(end->feed()),
        tensor_(tensor),
        wait_(wait),
        notes_(std::move(notes)) {}

  SampleFeed& feed_;  // of the end, which the base keeps alive
  std::string tensor_;
  std::chrono::milliseconds wait_;
  std::string notes_;
};

}  // namespace harmonics::plain
