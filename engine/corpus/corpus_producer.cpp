// Producers of the rows of a corpus. Each delivers one field of the rows.
#include <algorithm>

#include <fmt/core.h>

#include "engine/base/byte_count.hpp"
#include "engine/base/file.hpp"
#include "engine/base/spelling.hpp"
#include "engine/corpus/live_corpus.hpp"
#include "engine/corpus/register.hpp"
#include "engine/corpus/row_order.hpp"

namespace harmonics::engine {

namespace {

enum class Field { tokens, next, documents };

class CorpusProducer final : public Producer {
 public:
  // `pass` is the number of rows in a pass of the stream; 0: all rows of the corpus. `seed` shuffles the rows; none: in
  // order.
  CorpusProducer(std::shared_ptr<const Corpus> corpus, Field field, uint64_t pass, std::optional<uint64_t> seed)
      : corpus_(std::move(corpus)), field_(field), seed_(seed) {
    info_.dtype = DType::I32;
    info_.sample = Shape{static_cast<int64_t>(corpus_->window())};
    info_.size = pass ? pass : corpus_->rows();
    info_.position_axes = 1;
    if (field != Field::documents) info_.classes = corpus_->tokenizer().tokenizer->size();
    if (field != Field::tokens) return;
    for (const DatasetCounts& set : corpus_->counts())
      info_.notes += (info_.notes.empty() ? "" : "\n") + set.text(corpus_->window());
  }
  HTensor next() override {
    if (at_ == info_.size) return {};
    HTensor sample(DType::I32, info_.sample);
    fill(at_++, sample.mutable_data<int32_t>());
    return sample;
  }
  std::size_t size() const override { return info_.size; }
  bool rewind() override { return seek(epoch_ + 1, 0); }
  bool seek(uint64_t epoch, uint64_t index) override {
    if (index > info_.size) return false;
    epoch_ = epoch;
    at_ = index;
    return true;
  }
  std::optional<StreamInfo> describe() override { return info_; }
  int64_t read(uint64_t n, void* to) override {
    n = std::min(n, info_.size - at_);
    for (uint64_t i = 0; i < n; ++i) fill(at_++, static_cast<int32_t*>(to) + i * corpus_->window());
    return static_cast<int64_t>(n);
  }
  bool read_at(const uint64_t* numbers, uint64_t n, void* to) override {
    if (corpus_->passes_differ() || seed_ || info_.size != corpus_->rows()) return false;
    for (uint64_t i = 0; i < n; ++i) fill(numbers[i], static_cast<int32_t*>(to) + i * corpus_->window());
    return true;
  }

 private:
  void fill(uint64_t index, int32_t* to) const {
    RowArrays arrays;
    (field_ == Field::tokens ? arrays.tokens : field_ == Field::next ? arrays.next : arrays.documents) = to;
    // Consecutive passes of the stream continue through the passes of the corpus.
    const uint64_t rows = corpus_->rows(), row = epoch_ * info_.size + index, pass = row / rows;
    corpus_->fill(pass, seed_ ? RowOrder(rows, *seed_, pass).at(row % rows) : row % rows, arrays);
  }

  std::shared_ptr<const Corpus> corpus_;
  Field field_;
  std::optional<uint64_t> seed_;
  StreamInfo info_;
  uint64_t epoch_ = 0, at_ = 0;
};

// Rows of a live corpus. Producers of its other fields return the same rows in the same order.
class LiveCorpusProducer final : public Producer {
 public:
  LiveCorpusProducer(std::shared_ptr<LiveCorpus> corpus, Field field)
      : corpus_(std::move(corpus)), field_(field), reader_(corpus_->add_reader()) {}
  ~LiveCorpusProducer() override { corpus_->remove_reader(reader_); }

  HTensor next() override {
    HTensor sample(DType::I32, Shape{static_cast<int64_t>(corpus_->window())});
    return fill(sample.mutable_data<int32_t>()) ? sample : HTensor();
  }
  std::size_t size() const override { return 0; }
  int64_t read(uint64_t n, void* to) override {
    uint64_t got = 0;
    while (got < n && fill(static_cast<int32_t*>(to) + got * corpus_->window())) ++got;
    return static_cast<int64_t>(got);
  }
  std::optional<StreamInfo> describe() override {
    StreamInfo info;
    info.dtype = DType::I32;
    info.sample = Shape{static_cast<int64_t>(corpus_->window())};
    info.position_axes = 1;
    info.live = true;
    if (field_ != Field::documents) info.classes = corpus_->tokenizer().tokenizer->size();
    if (field_ == Field::tokens) info.notes = corpus_->note();
    return info;
  }
  bool cancel() override { return corpus_->cancel(), true; }
  std::optional<StreamHealth> health() override { return corpus_->health(); }

 private:
  bool fill(int32_t* to) {
    RowArrays arrays;
    (field_ == Field::tokens ? arrays.tokens : field_ == Field::next ? arrays.next : arrays.documents) = to;
    return corpus_->next(reader_, arrays);
  }

  std::shared_ptr<LiveCorpus> corpus_;
  Field field_;
  int reader_;
};

Field field_named(const std::string& name) {
  if (name.empty() || name == "tokens") return Field::tokens;
  if (name == "next") return Field::next;
  if (name == "documents") return Field::documents;
  Error e(ErrorKind::Usage, fmt::format("a corpus has no field '{}'; it has tokens, next and documents", name));
  if (const std::string meant = did_you_mean(name, {"tokens", "next", "documents"}); !meant.empty()) e.note(meant);
  throw e;
}

std::optional<RowPacking> packing_named(const std::string& name) {
  if (name == "concatenate") return RowPacking::concatenate;
  if (name == "pack") return RowPacking::pack;
  if (name == "pad") return RowPacking::pad;
  return std::nullopt;
}

TooLong too_long_named(const std::string& name) {
  return name == "error"      ? TooLong::error
         : name == "truncate" ? TooLong::truncate
         : name == "split"    ? TooLong::split
                              : TooLong::skip;
}

std::vector<Argument> corpus_arguments() {
  return {
      Argument::text("tokenizer", "",
                     "file or folder of a model or a tokenizer; characters: one token for each character of the text; "
                     "bytes: for each byte"),
      Argument::text("chat-template", "", "file with a chat template (Jinja); default: the model's own, else ChatML"),
      Argument::integer("window", "tokens in a row").in("1.."),
      Argument::text("kind", "auto",
                     "text, instruction, chat or preference; auto: determined by the fields of the first example"),
      Argument::text("columns", "", "names of fields, as ROLE:FIELD: prompt:question,completion:answer"),
      Argument::text("packing", "auto",
                     "concatenate: joins documents and cuts at row ends; pack: several whole documents per row; pad: "
                     "one document per row; auto: concatenate for text, else pad")
          .in("auto|concatenate|pack|pad"),
      Argument::text("too-long", "skip", "how to treat examples longer than a row").in("error|skip|truncate|split"),
      Argument::flag("learn-prompts", false, "true: the loss includes prompts"),
      Argument::number("validation", "0", "fraction of the examples held out, selected by a hash of each").in("0..<1"),
      Argument::text("split", "training", "training, or validation (the examples held out)").in("training|validation"),
      Argument::text("malformed", "refuse",
                     "unreadable examples: refuse stops with an error, skip skips and counts them")
          .in("refuse|skip"),
      Argument::integer("pass", 0, "rows per pass; the next pass continues after them; 0: all").in("0.."),
      Argument::integer("order-seed", "seed that shuffles the rows of each pass; absent: in order"),
      Argument::text("memory", "1G", "memory for tokens, such as 512M; more are stored in a temporary file")};
}

std::shared_ptr<Producer> open_corpus(const std::string& path, const Arguments& given) {
  const Field field = field_named(given.text("#"));
  std::optional<uint64_t> seed;
  if (given.has("order-seed")) seed = static_cast<uint64_t>(given.integer("order-seed"));
  const CorpusOptions options = corpus_options(path, given);
  if (is_live_corpus(options)) {
    if (given.has("order-seed") || given.integer("pass") > 0)
      throw Error(ErrorKind::Usage,
                  fmt::format("the rows of '{}' come in the order in which they arrive", options.datasets.front().path))
          .note("remove order-seed= and pass=");
    return std::make_shared<LiveCorpusProducer>(LiveCorpus::open(options), field);
  }
  return std::make_shared<CorpusProducer>(Corpus::open(options), field, static_cast<uint64_t>(given.integer("pass")),
                                          seed);
}

}  // namespace

CorpusOptions corpus_options(const std::string& path, const Arguments& given) {
  CorpusOptions options;
  if (path.starts_with('{')) {
    options = parse_corpus_json(path, "corpus:{...}");
  } else if (path.ends_with(".corpus.json")) {
    options = parse_corpus_json(read_plain_file(path), path);
  } else {
    DatasetOptions set;
    set.path = path;
    set.kind = example_kind_named(given.text("kind", "auto"));
    set.columns = parse_columns(given.text("columns"));
    set.learns_prompts = given.flag("learn-prompts");
    options.datasets.push_back(std::move(set));
    options.tokenizer = given.text("tokenizer");
    options.chat_template = given.text("chat-template");
    options.window = static_cast<uint64_t>(given.integer("window"));
    options.packing = packing_named(given.text("packing", "auto"));
    options.too_long = too_long_named(given.text("too-long", "skip"));
    options.validation = given.number("validation");
    options.skip_malformed = given.text("malformed", "refuse") == "skip";
    const auto memory = parse_byte_count(given.text("memory", "1G"));
    if (!memory) throw Error(ErrorKind::Usage, "memory= of a corpus is a size such as 512M or 4G");
    options.memory = *memory;
  }
  options.held_out = given.text("split", "training") == "validation";
  if (options.held_out && options.validation == 0)
    throw Error(ErrorKind::Usage, "split=validation needs validation=, the share of the examples that is held out");
  return options;
}

void register_corpus(FunctionRegistry& registry) {
  registry.register_producer("corpus", open_corpus,
                             "rows of tokens from texts, instructions or conversations; #next: the token that follows "
                             "each; #documents: the number of its document",
                             corpus_arguments());
}

}  // namespace harmonics::engine
