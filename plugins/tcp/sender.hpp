// The sender's end: connects, connects again, keeps what is not acknowledged. Asio is in the source.
#pragma once

#include <chrono>
#include <memory>

#include "endpoint.hpp"
#include "wire/frame.hpp"

namespace harmonics::tcp {

struct SenderOptions {
  std::string stream = "samples", producer;
  std::vector<wire::TensorPart> tensors;  // of every sample, without bytes
  std::chrono::milliseconds patience = std::chrono::seconds(10);  // without any receiver
};

class Sender {
 public:
  Sender(const Endpoint& endpoint, const SenderOptions& options);
  ~Sender();

  // One sample; its bytes are copied. Waits while the receiver takes no more. Errors: Unavailable when nobody listens for longer than
  // patience, Stream with the receiver's refusal.
  void push(const std::vector<std::span<const std::byte>>& tensors);
  // No sample follows; waits until every one has arrived. Errors as above.
  void finish();

  struct Body;

 private:
  std::unique_ptr<Body> body_;
};

}  // namespace harmonics::tcp
