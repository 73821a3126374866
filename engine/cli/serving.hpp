// The doors of one command to the outside: HTTP, the control socket, and what stands behind them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/cli/options.hpp"
#include "engine/cycle/cycle_runtime.hpp"
#include "engine/cycle/run_control.hpp"

namespace harmonics {
class ControlSocket;
class HttpServer;
class Predictor;
class Service;
class Snapshots;
class ZmqServer;
}  // namespace harmonics

namespace harmonics::cli {

class LeftBehind;

class Serving {
 public:
  // Opens what `options` ask for and says where; nothing is answered yet but that the run is starting.
  Serving(const Options& options, HarmonicGraph& graph);
  ~Serving();
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  // Does anybody look at the run?
  bool open() const { return service_ != nullptr; }
  RunControl& control() { return *control_; }
  Service& service() { return *service_; }
  Predictor& predictor() { return *predictor_; }
  // Before the producers are opened: whoever looks sees the flow and what it waits for.
  void expect_streams();
  // To be called before runtime.run().
  void attach(CycleRuntime& runtime, int cycle);
  // From now on requests are answered with these weights.
  void serve(int cycle, const std::shared_ptr<Snapshots>& snapshots);
  void note(const std::string& text);

 private:
  // What layers hold and what flows through them, for whoever asks.
  void show(int cycle, const std::shared_ptr<Snapshots>& snapshots);

  const Options& options_;
  HarmonicGraph& graph_;
  std::unique_ptr<RunControl> control_;
  std::unique_ptr<Predictor> predictor_;
  std::unique_ptr<Service> service_;
  std::vector<std::unique_ptr<HttpServer>> http_;
  std::vector<std::unique_ptr<ZmqServer>> zmq_;
  std::unique_ptr<ControlSocket> socket_;
  std::unique_ptr<LeftBehind> left_behind_;  // its file
};

}  // namespace harmonics::cli
