// EventFeed: produces the messages for one client of /v1/events. Independent of sockets.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "engine/serving/service.hpp"

namespace harmonics::engine {

class EventFeed {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kTick{50};

  // `query` may contain "every" and "layers". Throws ErrorKind::Usage for invalid values.
  EventFeed(Service& service, const std::map<std::string, std::string>& query);
  // Returns the new messages; to be called every kTick. If the client has not yet read the previous ones (`can_take` is
  // false), returns none, and counts the messages as dropped.
  std::vector<std::string> tick(Clock::time_point now, bool can_take);

 private:
  void tell(const char* kind, boost::json::object content);
  void hello();
  void news(const RunStatus& status);

  Service& service_;
  std::chrono::duration<double> every_{0.25};
  bool layers_ = false, begun_ = false, can_take_ = true;
  Clock::time_point next_status_{}, layers_seen_{};
  uint64_t number_ = 0, dropped_ = 0, line_ = 0, row_ = 0;
  int64_t step_ = -1;
  std::vector<std::string> messages_;
};

}  // namespace harmonics::engine
