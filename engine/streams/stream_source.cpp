#include "engine/streams/stream_source.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <sstream>

#include <harmonics/quantity.hpp>

#include "formats/utf8.hpp"

namespace harmonics::engine {
namespace {

constexpr uint64_t kMostPosition = 1 << 20;

// Returns whether the table has the member. Tables of older contracts are shorter, as their struct_size tells.
template <typename Table, typename Member>
bool has(const Table* table, Member Table::*member) {
  const auto end =
      reinterpret_cast<const char*>(&(table->*member)) - reinterpret_cast<const char*>(table) + sizeof(Member);
  return table->struct_size >= static_cast<size_t>(end) && table->*member != nullptr;
}

const char* dtype_text(DType dtype) {
  static const char* const names[] = {"bool", "u8",  "i8",  "i16",  "u16", "i32", "u32",
                                      "i64",  "u64", "f16", "bf16", "f32", "f64"};
  const auto i = static_cast<uint32_t>(dtype);
  return i < std::size(names) ? names[i] : "unknown dtype";
}

[[noreturn]] void fail_with_host_error(const std::string& who) {
  uint32_t kind = HX_ERROR_INTERNAL;
  const char* text = detail::api()->last_error(&kind);
  // The first line is the message, the others are notes.
  std::istringstream lines(text && *text ? text : "failed without a reason");
  std::string line;
  std::getline(lines, line);
  const bool says_who = line.rfind(who + ":", 0) == 0 || line.rfind(who + " ", 0) == 0;  // a wrapped stream
  Error error(static_cast<ErrorKind>(kind), says_who ? line : who + ": " + line);
  while (std::getline(lines, line))
    if (!line.empty()) error.note(line);
  throw error;
}

[[noreturn]] void refuse(const std::string& who, const std::string& what) {
  throw Error(ErrorKind::Plugin, who + " " + what);
}

// Returns the bytes of one sample of this type; throws if the description is invalid.
size_t checked_bytes(const std::string& who, const StreamInfo& info) {
  if (is_stored(info.dtype))
    refuse(who, "announces samples of " + std::string(element_type(info.dtype).name) +
                    ", a stored type; samples are of plain types, such as f32");
  size_t bytes = element_bytes(info.dtype);
  for (const int64_t dim : info.sample) {
    if (dim <= 0) refuse(who, "announces samples of shape " + info.sample.str() + "; every size must be at least 1");
    if (__builtin_mul_overflow(bytes, static_cast<size_t>(dim), &bytes) || bytes > (size_t{1} << 48))
      refuse(who, "announces samples of shape " + info.sample.str() + ", which no memory holds");
  }
  if (info.size > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    refuse(who, "announces " + std::to_string(info.size) + " samples, more than can be counted");
  if (info.classes < 0) refuse(who, "announces " + std::to_string(info.classes) + " classes");
  if (info.position_axes > std::min(1u, info.sample.rank()))
    refuse(who, "announces " + quantity(info.position_axes, "position axis", "position axes") +
                    " for samples of shape " + info.sample.str());
  return bytes;
}

StreamInfo from_c(const std::string& who, const hx_stream_info& c) {
  if (c.sample.rank > HX_MAX_RANK)
    refuse(who, "announces samples of rank " + std::to_string(c.sample.rank) + "; the maximum is 8");
  if (c.sample.dtype > HX_F64) refuse(who, "announces samples of the unknown dtype " + std::to_string(c.sample.dtype));
  StreamInfo info;
  info.dtype = static_cast<DType>(c.sample.dtype);
  info.sample = Shape(c.sample.dims, c.sample.dims + c.sample.rank);
  info.size = c.size;
  info.classes = c.classes;
  info.position_axes = c.position_axes;
  info.live = c.live != 0;
  for (uint32_t i = 0; i < c.n_symbols; ++i) {
    info.symbols.emplace_back(c.symbols[i]);
    // Names are stored in weights, checkpoints and reports, which must be UTF-8.
    if (find_invalid_utf8(info.symbols.back()))
      refuse(who, "names class " + std::to_string(i) + " '" + printable(info.symbols.back()) + "', which is not UTF-8");
  }
  if (c.notes) info.notes = c.notes;
  return info;
}

}  // namespace

std::string sample_type_text(DType dtype, const Shape& shape) {
  return shape.rank() ? dtype_text(dtype) + shape.str() : std::string(dtype_text(dtype));
}

Source::Source(std::string name, const hx_producer_vt* table, void* object, std::shared_ptr<const void> owner)
    : Source(Taken{}, std::move(name), table, object, std::move(owner)) {
  learn_type();
}

Source::Source(Taken, std::string name, const hx_producer_vt* table, void* object, std::shared_ptr<const void> owner)
    : name_(std::move(name)), table_(table), object_(object), owner_(std::move(owner)) {}

Source::Source(std::string name, std::shared_ptr<Producer> producer)
    : Source(std::move(name), detail::producer_vt(), new detail::HeldProducer{std::move(producer), std::nullopt, {}}) {}

Source Source::open(std::string name, const hx_producer_factory_vt& factory, void* self, const std::string& path,
                    const hx_attributes& options, std::shared_ptr<const void> owner, const AwaitedSource& awaited) {
  const hx_producer_vt* table = nullptr;
  void* object = nullptr;
  if (factory.open(self, path.c_str(), &options, &table, &object) != HX_OK)
    fail_with_host_error("stream '" + name + "'");
  Source source(Taken{}, std::move(name), table, object, std::move(owner));
  {
    const std::shared_ptr<void> watch = awaited ? awaited(source) : nullptr;
    source.learn_type();
  }
  return source;
}

Source::Source(Source&& o) noexcept { *this = std::move(o); }

Source& Source::operator=(Source&& o) noexcept {
  std::swap(name_, o.name_);
  std::swap(table_, o.table_);
  std::swap(object_, o.object_);
  std::swap(owner_, o.owner_);
  std::swap(info_, o.info_);
  std::swap(sample_bytes_, o.sample_bytes_);
  std::swap(first_, o.first_);
  std::swap(described_, o.described_);
  std::swap(reads_, o.reads_);
  std::swap(can_read_at_, o.can_read_at_);
  std::swap(touched_, o.touched_);
  std::swap(ended_, o.ended_);
  std::swap(once_, o.once_);
  std::swap(restored_, o.restored_);
  std::swap(keeps_numbers_, o.keeps_numbers_);
  std::swap(numbers_, o.numbers_);
  std::swap(position_, o.position_);
  std::swap(dropped_, o.dropped_);
  return *this;
}

Source::~Source() {
  first_ = {};
  if (object_ && has(table_, &hx_producer_vt::destroy)) table_->destroy(object_);
}

std::string Source::who() const { return "stream '" + name_ + "'"; }

void Source::fail() const { fail_with_host_error(who()); }

void Source::learn_type() {
  if (!has(table_, &hx_producer_vt::next)) refuse(who(), "has no next function");
  describe();
  sample_bytes_ = checked_bytes(who(), info_);
}

void Source::describe() {
  hx_stream_info c{};
  c.struct_size = sizeof c;
  const hx_status status = has(table_, &hx_producer_vt::describe) ? table_->describe(object_, &c) : HX_DECLINED;
  if (status == HX_OK) {
    info_ = from_c(who(), c);
    described_ = true;
    reads_ = has(table_, &hx_producer_vt::read);
    can_read_at_ = info_.size > 0 && has(table_, &hx_producer_vt::read_at) &&
                   table_->read_at(object_, nullptr, 0, nullptr) == HX_OK;
  } else if (status == HX_DECLINED) {
    look_at_first();
  } else {
    fail();
  }
}

void Source::look_at_first() {
  hx_value* value = nullptr;
  hx_status status = pull(&value);
  // A program may bind a producer that another graph has read to its end.
  if (status == HX_END && has(table_, &hx_producer_vt::rewind) && table_->rewind(object_, 0) == HX_OK)
    status = pull(&value);
  if (status == HX_END)
    throw Error(ErrorKind::Stream, who() + " ended before its first sample, so its type is not known");
  if (status != HX_OK) fail();
  first_ = HTensor::adopt(value);
  info_.dtype = first_.dtype();
  info_.sample = first_.shape();
  info_.size = announced_size();
}

// Returns 0 if the producer has no function for its size. The function has no status: an error is recognised by its
// text.
uint64_t Source::announced_size() const {
  if (!has(table_, &hx_producer_vt::size)) return 0;
  detail::api()->set_error(HX_ERROR_PLUGIN, "");
  const uint64_t size = table_->size(object_);
  if (size == 0 && *detail::api()->last_error(nullptr)) fail();
  return size;
}

hx_status Source::pull(hx_value** out) {
  const hx_status status = table_->next(object_, out);
  if (status == HX_OK && !*out) refuse(who(), "returned neither a sample nor the end");
  return status;
}

bool Source::keep_numbers() {
  if (first_) return false;  // a sample was already read, without its number
  const hx_status status = has(table_, &hx_producer_vt::numbers) ? table_->numbers(object_, 0, nullptr) : HX_DECLINED;
  if (status != HX_OK && status != HX_DECLINED) fail();
  return keeps_numbers_ = status == HX_OK;
}

// Appends the numbers of the last n samples to numbers_.
void Source::fetch_numbers(uint64_t n) {
  const size_t before = numbers_.size();
  numbers_.resize(before + n);
  if (n > 0 && table_->numbers(object_, n, numbers_.data() + before) != HX_OK)
    refuse(who(), "announced numbered samples, but gives no numbers");
}

HTensor Source::next() {
  if (ended_) return {};
  touched_ = true;
  numbers_.clear();
  if (first_) {
    ++position_;
    HTensor sample = std::move(first_);
    first_ = {};
    return sample;
  }
  hx_value* value = nullptr;
  const hx_status status = pull(&value);
  if (status == HX_END) return ended_ = true, HTensor();
  if (status != HX_OK) fail();
  HTensor sample = HTensor::adopt(value);
  check_type(sample);
  if (keeps_numbers_) fetch_numbers(1);
  ++position_;
  return sample;
}

void Source::check_type(const HTensor& sample) const {
  const hx_type type = sample.type();
  const Shape shape(type.dims, type.dims + type.rank);
  const auto dtype = static_cast<DType>(type.dtype);
  if (dtype == info_.dtype && shape == info_.sample) return;
  throw Error(ErrorKind::Stream, who() + ": sample " + std::to_string(position_) + " is " +
                                     sample_type_text(dtype, shape) + ", the stream was announced as " +
                                     sample_type_text(info_.dtype, info_.sample) +
                                     "; all samples of a stream have one type");
}

uint64_t Source::read(uint64_t n, void* to) {
  numbers_.clear();
  if (ended_ || n == 0) return 0;
  touched_ = true;
  if (reads_) {
    uint64_t got = 0;
    const hx_status status = table_->read(object_, n, to, &got);
    if (status == HX_OK) {
      if (got > n) refuse(who(), "gave " + quantity(got, "sample") + " for a request of " + std::to_string(n));
      ended_ = got < n;
      position_ += got;
      if (keeps_numbers_) fetch_numbers(got);
      return got;
    }
    if (status == HX_END) return ended_ = true, 0;
    if (status != HX_DECLINED) fail();
    reads_ = false;
  }
  return read_one_by_one(n, static_cast<std::byte*>(to));
}

void Source::read_at(const uint64_t* numbers, uint64_t n, void* to) {
  touched_ = true;
  const hx_status status = table_->read_at(object_, numbers, n, to);
  if (status == HX_DECLINED || status == HX_END)
    refuse(who(), "announced that its samples can be read by number, but no longer does");
  if (status != HX_OK) fail();
}

uint64_t Source::read_one_by_one(uint64_t n, std::byte* to) {
  std::vector<SampleNumber> numbers;
  uint64_t got = 0;
  for (; got < n; ++got, to += sample_bytes_) {
    const HTensor sample = next();
    if (!sample) break;
    std::memcpy(to, sample.bytes(), sample_bytes_);
    numbers.insert(numbers.end(), numbers_.begin(), numbers_.end());
  }
  numbers_ = std::move(numbers);
  return got;
}

uint64_t Source::skip(uint64_t n) {
  if (n == 0) return 0;
  const uint64_t chunk = std::clamp<uint64_t>((1 << 16) / std::max<size_t>(sample_bytes_, 1), 1, n);
  dropped_.resize(std::max<size_t>(dropped_.size(), chunk * sample_bytes_));
  uint64_t done = 0;
  while (done < n) {
    const uint64_t got = read(std::min(chunk, n - done), dropped_.data());
    if (got == 0) break;
    done += got;
  }
  return done;
}

void Source::rewind(uint64_t epoch) {
  if (!touched_ && epoch == 0) return;
  const hx_status status = has(table_, &hx_producer_vt::rewind) ? table_->rewind(object_, epoch) : HX_DECLINED;
  if (status == HX_DECLINED) {
    if (!touched_) return;
    throw Error(ErrorKind::Stream, who() +
                                       " cannot be read a second time, its producer does not rewind; run one epoch, or "
                                       "keep its samples in a file");
  }
  if (status != HX_OK) fail();
  first_ = {};
  touched_ = ended_ = false;
  position_ = 0;
}

void Source::seek(uint64_t epoch, uint64_t index) {
  if (restored_ && epoch == 0 && index >= position_) {
    if (const uint64_t from = position_; skip(index - from) != index - from)
      throw Error(ErrorKind::Stream,
                  who() + " ended before sample " + std::to_string(index) + ", where the run should resume");
    return;
  }
  if (index == 0) return rewind(epoch);
  if (has(table_, &hx_producer_vt::seek)) {
    const hx_status status = table_->seek(object_, epoch, index);
    if (status != HX_OK && status != HX_DECLINED) fail();
    if (status == HX_OK) {
      first_ = {};
      touched_ = true;
      ended_ = false;
      position_ = index;
      return;
    }
  }
  rewind(epoch);
  if (skip(index) != index)
    throw Error(ErrorKind::Stream, who() + " has only " + quantity(position_, "sample") +
                                       " in a pass, so the run cannot resume at sample " + std::to_string(index));
}

bool Source::restore(uint64_t index, const std::string& position) {
  const hx_status status =
      has(table_, &hx_producer_vt::restore) ? table_->restore(object_, index, position.c_str()) : HX_DECLINED;
  if (status == HX_DECLINED) return false;
  if (status != HX_OK) fail();
  if (first_) refuse(who(), "has positions but does not describe its samples before the first");
  position_ = index;
  return restored_ = true;
}

std::string Source::position_before(uint64_t index) const {
  if (!has(table_, &hx_producer_vt::position)) refuse(who(), "can be restored, but has no position function");
  std::string text(256, '\0');
  uint64_t size = text.size();
  while (size >= text.size()) {  // the text may grow between calls
    text.resize(size + 1);
    if (size > kMostPosition)
      refuse(who(),
             "gives a position of " + std::to_string(size) + " bytes; the maximum is " + std::to_string(kMostPosition));
    if (table_->position(object_, index, text.data(), text.size(), &size) != HX_OK) fail();
  }
  text.resize(size);
  return text;
}

void Source::durable(uint64_t index) const {
  if (has(table_, &hx_producer_vt::durable) && table_->durable(object_, index) != HX_OK) fail();
}

bool Source::cancel() const {
  const hx_status status = has(table_, &hx_producer_vt::cancel) ? table_->cancel(object_) : HX_DECLINED;
  if (status != HX_OK && status != HX_DECLINED) fail();
  return status == HX_OK;
}

std::optional<StreamHealth> Source::health() const {
  hx_stream_health c{};
  c.struct_size = sizeof c;
  const hx_status status = has(table_, &hx_producer_vt::health) ? table_->health(object_, &c) : HX_DECLINED;
  if (status == HX_DECLINED) return std::nullopt;
  if (status != HX_OK) fail();
  if (c.state > HX_STREAM_FAILED) refuse(who(), "reports the unknown state " + std::to_string(c.state));
  c.last_error[sizeof c.last_error - 1] = '\0';
  StreamHealth health;
  health.state = static_cast<StreamHealth::State>(c.state);
  health.senders = c.senders;
  health.connected = c.connected;
  health.wants_durable = c.wants_durable != 0;
  health.at_most_once = c.at_most_once != 0;
  health.samples = c.samples;
  health.bytes = c.bytes;
  health.queued_samples = c.queued_samples;
  health.queued_bytes = c.queued_bytes;
  health.window_bytes = c.window_bytes;
  health.lost = c.lost;
  health.duplicates = c.duplicates;
  health.refused = c.refused;
  health.resent = c.resent;
  health.idle_seconds = c.idle_seconds;
  health.last_error = c.last_error;
  return health;
}

std::string Source::cannot_seek() {
  if (restored_) return {};
  if (info_.live) return who() + " is live";
  const hx_status status = has(table_, &hx_producer_vt::rewind) ? table_->rewind(object_, 0) : HX_DECLINED;
  once_ = status == HX_DECLINED;
  if (once_) return who() + " cannot be read a second time, its producer does not rewind";
  if (status != HX_OK) fail();
  first_ = {};
  return {};
}

Sink::Sink(std::string name, const hx_consumer_vt* table, void* object, std::shared_ptr<const void> owner)
    : name_(std::move(name)), table_(table), object_(object), owner_(std::move(owner)) {}

Sink::Sink(std::string name, std::shared_ptr<Consumer> consumer)
    : Sink(std::move(name), detail::consumer_vt(), new std::shared_ptr<Consumer>(std::move(consumer))) {}

Sink Sink::open(std::string name, const hx_consumer_factory_vt& factory, void* self, const std::string& path,
                const hx_attributes& options, std::shared_ptr<const void> owner) {
  const hx_consumer_vt* table = nullptr;
  void* object = nullptr;
  if (factory.open(self, path.c_str(), &options, &table, &object) != HX_OK)
    fail_with_host_error("consumer '" + name + "'");
  return Sink(std::move(name), table, object, std::move(owner));
}

Sink::Sink(Sink&& o) noexcept
    : name_(std::move(o.name_)),
      table_(o.table_),
      object_(std::exchange(o.object_, nullptr)),
      owner_(std::move(o.owner_)),
      position_(o.position_) {}

Sink& Sink::operator=(Sink&& o) noexcept {
  std::swap(name_, o.name_);
  std::swap(table_, o.table_);
  std::swap(object_, o.object_);
  std::swap(owner_, o.owner_);
  std::swap(position_, o.position_);
  return *this;
}

Sink::~Sink() {
  if (object_ && has(table_, &hx_consumer_vt::destroy)) table_->destroy(object_);
}

// Reports internal and plugin errors as output errors: training is intact, only a result was not delivered.
void Sink::fail() const {
  try {
    fail_with_host_error("consumer '" + name_ + "'");
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::Internal && e.kind() != ErrorKind::Plugin) throw;
    throw Error(ErrorKind::Output, e.what(), e.span(), e.notes());
  }
}

void Sink::push(const HTensor& sample) {
  if (is_stored(sample.dtype()))
    throw Error(ErrorKind::Type, "a sample of " + std::string(element_type(sample.dtype()).name) +
                                     " cannot be written: that is a stored type; cast it to f32");
  if (table_->push(object_, sample.raw()) != HX_OK) fail();
  ++position_;
}

void Sink::push(DType dtype, const Shape& sample, uint64_t n, const void* data) {
  const size_t bytes = tensor_bytes(dtype, sample);
  const auto* at = static_cast<const std::byte*>(data);
  for (uint64_t i = 0; i < n; ++i, at += bytes) push(HTensor(dtype, sample, at));
}

void Sink::finish() {
  if (has(table_, &hx_consumer_vt::finish) && table_->finish(object_) != HX_OK) fail();
}

}  // namespace harmonics::engine
