// Sends samples to a listening Harmonics process: tcp:, unix:, zmq+dealer:, ... Link Harmonics::Sender.
#pragma once

#include <memory>

#include <harmonics/quantity.hpp>
#include <harmonics/sender_abi.h>
#include <harmonics/tensor.hpp>

namespace harmonics {

struct SenderOptions {
  std::string producer;  // name of the sender; "": the process id
  std::string stream = "samples";
  bool durable = false;  // keep samples until the receiver has stored them on disk, not only received them
  // The program always sends its source from the first sample; samples that the receiver has are skipped.
  bool whole_source = false;
  bool insecure = false;             // allow unencrypted connections to other machines
  double patience_seconds = 10;      // time limit without a receiver
  std::string key_file, server_key;  // ZeroMQ: own key pair; the receiver's public key or its file
};

// One tensor of a sample. The caller owns the values; send() copies them.
struct SentTensor {
  std::string name;
  DType dtype = DType::F32;
  Shape shape;
  const void* numbers = nullptr;
  uint32_t classes = 0;  // number of classes of integer values, announced to the receiver; 0: none

  template <typename T>
  static SentTensor of(std::string name, const T* numbers, Shape shape = {}) {
    return {std::move(name), detail::dtype_of<T>::value, shape, numbers, 0};
  }
  template <typename T>
  static SentTensor of_classes(std::string name, uint32_t classes, const T* numbers, Shape shape = {}) {
    return {std::move(name), detail::dtype_of<T>::value, shape, numbers, classes};
  }
};

// All samples have the same tensors, in the same order. Throws harmonics::Error: ErrorKind::Unavailable without a
// receiver for patience_seconds, ErrorKind::Stream with the message of a receiver that rejects samples.
class Sender {
 public:
  explicit Sender(std::string address, SenderOptions options = {})
      : address_(std::move(address)), options_(std::move(options)) {}

  // Sends a sample. Blocks while the receiver grants no credit.
  void send(const std::vector<SentTensor>& sample) {
    if (!sender_) open(sample);
    if (sample.size() != tensors_.size())
      throw Error(ErrorKind::Shape, address_ + ": a sample of " + quantity(sample.size(), "tensor") +
                                        " after samples of " + std::to_string(tensors_.size()));
    std::vector<const void*> numbers;
    for (size_t i = 0; i < sample.size(); ++i) {
      const SentTensor& now = sample[i];
      const SentTensor& before = tensors_[i];
      if (now.name != before.name || now.dtype != before.dtype || now.shape != before.shape)
        throw Error(ErrorKind::Shape, address_ + ": '" + now.name + "' of shape " + now.shape.str() +
                                          " where samples had '" + before.name + "' of shape " + before.shape.str());
      numbers.push_back(now.numbers);
    }
    check(harmonics_sender_send(sender_.get(), numbers.data()));
  }
  // Returns the number of the next sample, once the first has been sent. Blocks until the receiver answers.
  uint64_t next() {
    uint64_t number = 0;
    if (sender_) check(harmonics_sender_next(sender_.get(), &number));
    return number;
  }
  // Ends the stream; blocks until every sample is acknowledged.
  void finish() {
    if (sender_) check(harmonics_sender_finish(sender_.get()));
  }

 private:
  struct Close {
    void operator()(harmonics_sender* sender) const { harmonics_sender_close(sender); }
  };
  static void check(int status) {
    if (status != 0) throw detail::error_of(static_cast<ErrorKind>(status - 1), harmonics_sender_error());
  }
  void open(const std::vector<SentTensor>& sample) {
    std::vector<std::vector<int64_t>> dims;
    for (const SentTensor& t : sample) dims.emplace_back(t.shape.begin(), t.shape.end());
    std::vector<harmonics_sent_tensor> tensors;
    std::vector<uint32_t> classes;
    for (const SentTensor& t : sample) classes.push_back(t.classes);
    for (size_t i = 0; i < sample.size(); ++i)
      tensors.push_back({sample[i].name.c_str(), static_cast<uint32_t>(sample[i].dtype),
                         static_cast<uint32_t>(dims[i].size()), dims[i].data()});
    harmonics_sender_options o{};
    o.struct_size = sizeof o;
    o.durable = options_.durable;
    o.whole_source = options_.whole_source;
    o.insecure = options_.insecure;
    o.producer = options_.producer.c_str();
    o.stream = options_.stream.c_str();
    o.patience_seconds = options_.patience_seconds;
    o.key_file = options_.key_file.c_str();
    o.server_key = options_.server_key.c_str();
    o.classes = classes.data();
    harmonics_sender* opened = nullptr;
    check(harmonics_sender_open(address_.c_str(), &o, tensors.data(), static_cast<uint32_t>(tensors.size()), &opened));
    sender_.reset(opened);
    tensors_ = sample;
    for (SentTensor& t : tensors_) t.numbers = nullptr;
  }

  std::string address_;
  SenderOptions options_;
  std::vector<SentTensor> tensors_;
  std::unique_ptr<harmonics_sender, Close> sender_;
};

}  // namespace harmonics
