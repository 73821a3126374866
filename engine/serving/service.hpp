// Service: what a run answers to those outside, whatever carries the questions. No sockets here.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/json/object.hpp>

#include "engine/cycle/run_control.hpp"
#include "engine/serving/predict_request.hpp"
#include "engine/serving/predictor.hpp"
#include "engine/serving/rate_limit.hpp"

namespace harmonics {

// A request as HTTP brings it.
struct ServiceRequest : RequestTarget {
  std::string method, content_type, authorization, host, origin, body;
  bool trusted = false;  // whoever asks has shown who it is: no token, no host
  bool beyond = false;   // it came where other machines reach: the token is asked for
};

struct ServiceReply {
  int status = 200;
  std::string content_type = "application/json", body;
  std::vector<std::pair<std::string, std::string>> headers;
};

struct ServiceSettings {
  std::string token;
  bool loopback = true;        // only this machine reaches the address
  bool token_for_all = false;  // not for what changes the run alone
};

class Service {
 public:
  // What is asked goes to `control` and `predictor`, which must outlive it.
  Service(ServiceSettings settings, RunControl& control, Predictor& predictor);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // The flow as pages draw it; once it is known, and again when another cycle begins.
  void set_graph(boost::json::object graph);
  // GET /v1/layers: what computes the cards. Called by the service's own thread, at most once a second.
  // GET /v1/tap: what computes what flows through a producer or layer; throws. Called by the same thread.
  struct Looks {
    std::function<boost::json::object()> layers;
    std::function<boost::json::object(const std::string& edge, uint64_t samples)> tap;
  };
  void set_looks(Looks looks);
  // A file that GET gives to anybody the address is open to, without a token: it holds nothing of the run.
  void put(const std::string& path, ServiceReply file);

  // Answers once, from any thread, maybe before it returns.
  using Answer = std::function<void(ServiceReply)>;
  void handle(ServiceRequest request, Answer answer);
  // POST /v1/samples and /v1/samples/NAME: what takes them.
  using TakeSamples = std::function<void(const std::string& name, ServiceRequest request, Answer answer)>;
  void set_samples(TakeSamples take);
  static bool takes_samples(const std::string& path);
  // May this request open /v1/events? Null: yes.
  std::optional<ServiceReply> refuse(const ServiceRequest& request, bool changes) const;

  // A message to the control, by somebody who may: waits until it is done. Never throws what it refuses: "error" is in
  // the object.
  boost::json::object control(std::string_view message);
  boost::json::object status() const;
  boost::json::object graph() const;
  boost::json::object layers();
  // Never waits: those that are newer than `seen`, and others are made if they are old.
  std::optional<boost::json::object> layers_since(std::chrono::steady_clock::time_point& seen);
  const RunControl& run() const { return control_; }

  static ServiceReply reply(const boost::json::object& body, int status = 200);
  static ServiceReply refusal(int status, std::string error, std::string note);

 private:
  struct Route;
  static const Route kRoutes[];

  void predict(const ServiceRequest& request, const Answer& answer);
  ServiceReply health() const;
  ServiceReply metrics() const;
  ServiceReply log(const ServiceRequest& request) const;
  void tap(const ServiceRequest& request, const Answer& answer);
  ServiceReply tap(const ServiceRequest& request);
  void samples(ServiceRequest request, const Answer& answer);
  bool authorised(const ServiceRequest& request) const;
  // On the service's own thread; false: too much waits there.
  bool later(std::function<void()> work);
  void work();

  const ServiceSettings settings_;
  RunControl& control_;
  Predictor& predictor_;
  mutable std::mutex mutex_;
  boost::json::object graph_;
  std::map<std::string, ServiceReply> files_;
  Looks looks_;
  TakeSamples take_samples_;
  boost::json::object layers_;
  std::chrono::steady_clock::time_point layered_{};
  bool layers_wanted_ = false;
  struct Tapped {
    ServiceReply reply;
    std::chrono::steady_clock::time_point at;
  };
  std::map<std::pair<std::string, std::string>, Tapped>
      tapped_;  // by edge and samples: the young ones, so no more than one a place of taps_
  RateLimit taps_;
  std::mutex layering_;  // held while cards are made; taken before mutex_
  std::mutex waiting_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> later_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace harmonics
