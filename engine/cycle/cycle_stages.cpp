#include "engine/cycle/cycle_stages.hpp"

#include <algorithm>
#include <exception>

#include <oneapi/tbb/flow_graph.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>

namespace harmonics::engine {

namespace {

void run_graph(const CycleStages& stages) {
  namespace flow = oneapi::tbb::flow;
  flow::graph g;
  // The batches before a failed read complete their steps: an exception that leaves a node drops all queued messages.
  std::exception_ptr input_error;
  flow::input_node<Slot*> input(g, [&](oneapi::tbb::flow_control& control) {
    Slot* slot = nullptr;
    try {
      slot = stages.input();
    } catch (...) {
      input_error = std::current_exception();
    }
    if (!slot) control.stop();
    return slot;
  });
  const auto wait = [&] {
    g.wait_for_all();
    if (input_error) std::rethrow_exception(input_error);
  };
  flow::limiter_node<Slot*> limiter(g, CycleFeed::kInFlight);
  flow::make_edge(input, limiter);
  if (!stages.output) {  // the step is the last stage
    flow::function_node<Slot*, flow::continue_msg> step(
        g, flow::serial, [&](Slot* slot) { return stages.step(*slot), flow::continue_msg(); });
    flow::make_edge(limiter, step);
    flow::make_edge(step, limiter.decrementer());
    input.activate();
    return wait();
  }
  flow::function_node<Slot*, Slot*> step(g, flow::serial, [&](Slot* slot) { return stages.step(*slot), slot; });
  // A serial node may start its next message before it has passed on the previous one, so the order is restored by
  // number.
  flow::sequencer_node<Slot*> in_order(g, [](Slot* slot) { return slot->sequence; });
  flow::function_node<Slot*, flow::continue_msg> output(
      g, flow::serial, [&](Slot* slot) { return stages.output(*slot), flow::continue_msg(); });
  flow::make_edge(limiter, step);
  flow::make_edge(step, in_order);
  flow::make_edge(in_order, output);
  flow::make_edge(output, limiter.decrementer());
  input.activate();
  wait();
}

// Runs the stages in one thread. In a graph with a single thread, an input that waits for an output would wait forever.
void run_in_turn(const CycleStages& stages) {
  while (Slot* slot = stages.input()) {
    stages.step(*slot);
    if (stages.output) stages.output(*slot);
  }
}

}  // namespace

void CycleStages::run(int threads) const {
  using Control = oneapi::tbb::global_control;
  const size_t most = Control::active_value(Control::max_allowed_parallelism);
  if (threads <= 1 || most <= 1) return run_in_turn(*this);
  oneapi::tbb::task_arena arena(static_cast<int>(std::min(static_cast<size_t>(threads), most)));  // more: a warning
  arena.execute([this] { run_graph(*this); });
}

}  // namespace harmonics::engine
