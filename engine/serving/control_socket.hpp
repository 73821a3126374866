// ControlSocket: a Unix socket that only its owner can open. Each control request, and each reply, is a line of JSON.
#pragma once

#include <atomic>
#include <list>
#include <mutex>
#include <string>
#include <thread>

#include "engine/serving/service.hpp"

namespace harmonics::engine {

class ControlSocket {
 public:
  static constexpr size_t kClients = 8, kLongestLine = 4096;

  // Listens when the constructor returns. Replaces a stale socket at `path`; throws ErrorKind::Output if the path
  // exists otherwise.
  ControlSocket(Service& service, std::string path);
  ~ControlSocket();  // removes the path
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  const std::string& path() const { return path_; }

 private:
  struct Client {
    int socket = -1;
    std::atomic<bool> gone{false};
    std::thread thread;
  };
  void listen();
  void accept();
  void serve(Client& client);
  bool follow(int socket);
  std::string look(const std::string& path);

  Service& service_;
  const std::string path_;
  int socket_ = -1, wake_[2] = {-1, -1};
  std::atomic<bool> over_{false};
  std::list<Client> clients_;  // accessed only by thread_
  std::thread thread_;
};

// Longest reply that clients read; enough for a sample of 2 million values as JSON.
constexpr size_t kMostReplyBytes = size_t{32} << 20;

// Client of a ControlSocket: say() sends a message, hear() returns the reply line. Throws ErrorKind::Unavailable if
// nothing listens, or if the reply does not arrive within `seconds` or is longer than kMostReplyBytes.
class ControlClient {
 public:
  explicit ControlClient(const std::string& path);
  ~ControlClient();
  ControlClient(const ControlClient&) = delete;
  ControlClient& operator=(const ControlClient&) = delete;

  void say(const std::string& message);
  std::string hear(double seconds);

 private:
  std::string path_, heard_;
  int socket_ = -1;
};

}  // namespace harmonics::engine
