// A proxy between real sockets that injects network faults: it cuts, stalls, delays, reorders, damages and throttles. A
// seed determines their times and the affected bytes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace transports {

enum class Fault {
  Cut,       // connections end in the middle of a frame, with FIN; new ones end immediately
  Reset,     // the same with RST
  Still,     // nothing passes; connections stay, and resume afterwards
  HalfOpen,  // existing and new connections never carry anything again, but are not closed
  Delay,     // frames arrive late, in order
  Reorder,   // frames overtake others
  Corrupt,   // bits of one frame in four are flipped
  Trickle,   // a byte per second
  Slow,      // some tens of kilobytes per second
};
const char* name_of(Fault fault);
const std::vector<Fault>& all_faults();

// The framing: HXS/1 frames back to back, or ZeroMQ messages (ZMTP 3).
enum class Framing { Hxs, Zmtp };

// Faults, each in one or both directions, after a calm period, and their duration.
struct Storm {
  static constexpr int kToReceiver = 1, kToSender = 2, kBoth = 3;
  struct Part {
    Fault fault;
    int ways;
  };
  std::vector<Part> parts;
  std::chrono::milliseconds calm{}, lasts{};

  std::string str() const;  // "cut", "corrupt to the receiver and delay"
};
// Returns one storm per fault in random order, or `count` pairs of faults.
std::vector<Storm> single_storms(uint64_t seed, std::vector<Fault> faults);
std::vector<Storm> mixed_storms(uint64_t seed, const std::vector<Fault>& faults, int count);
// Returns a mixture of all faults for this duration.
std::vector<Storm> storms_for(uint64_t seed, std::chrono::seconds time);
// Returns cuts and resets every few seconds for this duration.
std::vector<Storm> cuts_for(uint64_t seed, std::chrono::seconds time);

struct ChaosCounts {
  uint64_t connections = 0, cut = 0, dead = 0, delayed = 0, held_back = 0, damaged = 0, damaged_to_receiver = 0,
           bytes = 0;
};

class ChaosProxy {
 public:
  struct Options {
    uint16_t port = 0;    // to listen on; 0: any free port
    uint16_t target = 0;  // where the receiver listens
    Framing framing = Framing::Hxs;
    uint64_t seed = 0;
    std::vector<Storm> storms;
    uint64_t slow = 30000;  // bytes per second of Fault::Slow
    // Called at the end of a storm; the next one starts after resumed(). Without this function, storms start at their
    // scheduled times.
    std::function<void(const Storm&)> on_heal = {};
  };
  explicit ChaosProxy(Options options);
  ~ChaosProxy();
  uint16_t port() const;
  void resumed();        // may be called from any thread
  bool is_over() const;  // the last storm has ended, and resumed() was called
  ChaosCounts counts() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace transports
