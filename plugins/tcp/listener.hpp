// The receiver's end: listens on an address and gives the samples of all who send there, each sender's in order. Asio is in the source.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "endpoint.hpp"
#include "wire/frame.hpp"

namespace harmonics::tcp {

// One tensor of one sample; its bytes belong to the frame that is held here.
struct Received {
  std::shared_ptr<const std::vector<std::byte>> frame;
  DType dtype = DType::F32;
  Shape shape;
  std::span<const std::byte> bytes;
};

// What senders say they send.
struct Announced {
  DType dtype = DType::F32;
  Shape sample;
};

class Listener {
 public:
  // The one of this process and address: two streams of one flow may take a tensor each of the same samples. Errors: Stream, Denied.
  static std::shared_ptr<Listener> at(const Endpoint& endpoint);
  ~Listener();
  // The one it was given, or for port 0 the one it was lent.
  uint16_t port() const;

  // A reader sees every sample from its opening on; all are opened before one reads. Its tensor: by name, or the only one there is.
  // `wait` for the first sender: Unavailable when none comes.
  int open(const std::string& tensor, std::chrono::milliseconds wait);
  void close(int reader);
  Announced announced(int reader) const;
  // Waits for the next sample; empty: every sender that came has said that none follows.
  std::optional<Received> next(int reader);

  struct Body;

 private:
  explicit Listener(const Endpoint& endpoint);
  std::unique_ptr<Body> body_;
};

}  // namespace harmonics::tcp
