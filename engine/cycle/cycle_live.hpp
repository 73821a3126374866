// CycleLive: handles the live streams of a running cycle: their positions in checkpoints, notes about lost and refused
// samples, and ending the run while a read waits for samples.
#pragma once

#include <map>
#include <stop_token>
#include <string>
#include <thread>

#include "engine/cycle/cycle_checkpoints.hpp"
#include "engine/cycle/cycle_observer.hpp"
#include "engine/cycle/live_streams.hpp"

namespace harmonics::engine {

class CycleLive final : public CycleObserver {
 public:
  CycleLive(CycleContext& cycle, LiveStreams& streams, CycleState& state, CycleCheckpoints& checkpoints)
      : cycle_(cycle), streams_(streams), state_(state), checkpoints_(checkpoints) {}
  // Waits for a checkpoint that is being written: when it is on disk, the streams are notified.
  ~CycleLive() override;
  CycleLive(const CycleLive&) = delete;
  CycleLive& operator=(const CycleLive&) = delete;

  // Streams with positions continue at those of the checkpoint, and learn which samples later checkpoints contain.
  void open();
  // Starts a thread in addition to the stages. It ends the run or writes a due checkpoint while a read waits for
  // samples. Returns no thread if no stream is live.
  std::jthread watch();
  // Passes the streams to the cycle that continues them. The last step must have used everything that was read.
  void hand_over();

  void run_ended() override { report_lost(); }

 private:
  void go_on(const LiveReading& former);
  void tell_durable();
  void look_until(const std::stop_token& over);
  void tell_gone();
  void tell_late_notes();
  bool end_if_due(bool asked);
  void report_lost();
  void report_refused(const std::map<std::string, LiveStreams::LossCounts>& gone);

  CycleContext& cycle_;
  LiveStreams& streams_;
  CycleState& state_;
  CycleCheckpoints& checkpoints_;
  double told_lost_at_ = 0;
  int told_refusals_ = 0;  // number of notes about refused samples
};

}  // namespace harmonics::engine
