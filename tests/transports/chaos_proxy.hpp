// A proxy between real sockets that does to what passes what networks do: it cuts, falls silent, delays, reorders,
// damages, slows down. What happens when, and to which bytes, follows from a seed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace transports {

enum class Fault {
  Cut,       // connections end in the middle of a frame, with FIN; new ones end at once
  Reset,     // the same with RST
  Still,     // nothing passes; connections stay, and go on afterwards
  HalfOpen,  // connections that are there, or made now, never carry anything again, and are not closed either
  Delay,     // frames come late, in order
  Reorder,   // frames overtake others
  Corrupt,   // bits of one frame in four are flipped
  Trickle,   // a byte a second
  Slow,      // some tens of kilobytes a second
};
const char* name_of(Fault fault);
const std::vector<Fault>& all_faults();

// What frames are told apart by: HXS/1 back to back, or messages of ZeroMQ (ZMTP 3).
enum class Framing { Hxs, Zmtp };

// Which faults, each in one direction or both, after how much calm, and how long.
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
// One of each fault in an order of their own, or `count` pairs of any two of them.
std::vector<Storm> single_storms(uint64_t seed, std::vector<Fault> faults);
std::vector<Storm> mixed_storms(uint64_t seed, const std::vector<Fault>& faults, int count);
// Some of all, until so much time has passed.
std::vector<Storm> storms_for(uint64_t seed, std::chrono::seconds time);
// Cuts and resets every few seconds, until so much time has passed.
std::vector<Storm> cuts_for(uint64_t seed, std::chrono::seconds time);

struct ChaosCounts {
  uint64_t connections = 0, cut = 0, dead = 0, delayed = 0, held_back = 0, damaged = 0, damaged_to_receiver = 0,
           bytes = 0;
};

class ChaosProxy {
 public:
  struct Options {
    uint16_t port = 0;    // to listen at; 0: a free one
    uint16_t target = 0;  // where the receiver listens
    Framing framing = Framing::Hxs;
    uint64_t seed = 0;
    std::vector<Storm> storms;
    uint64_t slow = 30000;  // bytes a second of Fault::Slow
    // When one is over. The next one comes after resumed() was called; without this, at its time.
    std::function<void(const Storm&)> on_heal = {};
  };
  explicit ChaosProxy(Options options);
  ~ChaosProxy();
  uint16_t port() const;
  void resumed();        // from any thread
  bool is_over() const;  // the last storm is, and was resumed from
  ChaosCounts counts() const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
};

}  // namespace transports
