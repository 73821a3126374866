// Streams of Python: arrays and iterables as producers, callables as consumers.
#include <algorithm>
#include <cstring>

#include "python/binding.hpp"

namespace harmonics::python {

namespace {

// Whether the host counts the classes of such samples.
bool is_label(const ArrayView& samples) {
  const DType type = samples.dtype;
  return samples.shape.rank() == 1 && (type == DType::U8 || type == DType::I32 || type == DType::I64);
}

// One more than the largest label.
template <typename T>
int64_t classes_of(const std::vector<char>& labels) {
  int64_t largest = 0;
  for (size_t at = 0; at < labels.size(); at += sizeof(T)) {
    T label;
    std::memcpy(&label, labels.data() + at, sizeof label);
    largest = std::max(largest, static_cast<int64_t>(label));
  }
  return largest == INT64_MAX ? 0 : largest + 1;
}

// The slices of an array along its first axis, read where they lie. No call needs the GIL.
class ArrayProducer final : public Producer {
 public:
  ArrayProducer(ArrayView samples, const std::string& what) : samples_(std::move(samples)) {
    if (samples_.shape.rank() == 0 || samples_.shape[0] == 0)
      throw Error(ErrorKind::Shape, what + " has the shape " + samples_.shape.str() +
                                        ": the first axis numbers the samples, at least one");
    info_.dtype = samples_.dtype;
    info_.sample = samples_.shape.from(1);
    info_.size = static_cast<uint64_t>(samples_.shape[0]);
    bytes_ = info_.sample_bytes();
    if (!is_label(samples_)) return;
    std::vector<char> labels(info_.size * bytes_);
    samples_.copy_slices(0, samples_.shape[0], labels.data());
    info_.classes = samples_.dtype == DType::U8    ? classes_of<uint8_t>(labels)
                    : samples_.dtype == DType::I32 ? classes_of<int32_t>(labels)
                                                   : classes_of<int64_t>(labels);
  }
  HTensor next() override {
    if (at_ == info_.size) return {};
    HTensor sample(info_.dtype, info_.sample);
    read(1, sample.mutable_bytes());
    return sample;
  }
  std::size_t size() const override { return info_.size; }
  bool rewind() override { return at_ = 0, true; }
  bool seek(uint64_t, uint64_t index) override { return at_ = std::min(index, info_.size), true; }
  std::optional<StreamInfo> describe() override { return info_; }
  int64_t read(uint64_t n, void* to) override {
    const uint64_t count = std::min(n, info_.size - at_);
    samples_.copy_slices(static_cast<int64_t>(at_), static_cast<int64_t>(count), to);
    at_ += count;
    return static_cast<int64_t>(count);
  }
  bool read_at(const uint64_t* numbers, uint64_t n, void* to) override {
    auto* out = static_cast<char*>(to);
    for (uint64_t i = 0; i < n; ++i, out += bytes_) samples_.copy_slices(static_cast<int64_t>(numbers[i]), 1, out);
    return true;
  }

 private:
  ArrayView samples_;
  StreamInfo info_;
  size_t bytes_ = 0;
  uint64_t at_ = 0;
};

// The items of an iterable. An iterator, such as a generator, is read once.
class IterableProducer final : public Producer {
 public:
  IterableProducer(const py::object& iterable, std::string what) : what_(std::move(what)) {
    iterator_ = owner_of(py::iter(iterable));
    again_ = iterator_.get() != iterable.ptr();
    iterable_ = owner_of(iterable);
    if (!again_) return;
    const Py_ssize_t length = PyObject_LengthHint(iterable.ptr(), 0);
    if (length < 0) throw py::error_already_set();
    size_ = py::hasattr(iterable, "__len__") ? static_cast<size_t>(length) : 0;
  }
  HTensor next() override {
    const py::gil_scoped_acquire locked;
    try {
      if (!iterator_) iterator_ = owner_of(py::iter(py::handle(iterable_.get())));
      const auto item = py::reinterpret_steal<py::object>(PyIter_Next(iterator_.get()));
      if (item) return tensor_of(item, "a sample of " + what_);
      if (PyErr_Occurred()) throw py::error_already_set();
      return {};
    } catch (const py::error_already_set& error) {
      throw Error(ErrorKind::Stream, "its iterable raised " + text_of(error));
    }
  }
  std::size_t size() const override { return size_; }
  bool rewind() override {
    if (!again_) return false;
    iterator_.reset();
    return true;
  }

 private:
  std::string what_;
  Owner iterable_, iterator_;
  bool again_ = false;
  size_t size_ = 0;
};

class CallingConsumer final : public Consumer {
 public:
  explicit CallingConsumer(const py::object& target) : target_(owner_of(target)) {}
  void push(const HTensor& sample) override {
    const py::gil_scoped_acquire locked;
    try {
      py::handle(target_.get())(sample);
    } catch (const py::error_already_set& error) {
      throw Error(ErrorKind::Output, "its callable raised " + text_of(error));
    }
  }

 private:
  Owner target_;
};

}  // namespace

std::optional<std::string> address_of(const py::object& object) {
  if (py::isinstance<py::str>(object)) return object.cast<std::string>();
  if (py::hasattr(object, "__fspath__")) return py::str(object.attr("__fspath__")()).cast<std::string>();
  return std::nullopt;
}

std::shared_ptr<Producer> producer_of(const py::object& source, const std::string& what, uint32_t shuffle,
                                      uint64_t seed) {
  std::shared_ptr<Producer> producer;
  if (is_array(source))
    producer = std::make_shared<ArrayProducer>(view_of(source, what), what);
  else if (py::hasattr(source, "__iter__"))
    producer = std::make_shared<IterableProducer>(source, what);
  else
    view_of(source, what);  // throws
  return shuffle ? std::make_shared<ShuffleProducer>(std::move(producer), shuffle, seed) : producer;
}

std::shared_ptr<Consumer> consumer_of(const py::object& target, const std::string& what) {
  if (!PyCallable_Check(target.ptr()))
    throw Error(ErrorKind::Type, what + " is neither an address nor callable")
        .note("a list takes samples: list.append");
  return std::make_shared<CallingConsumer>(target);
}

}  // namespace harmonics::python
