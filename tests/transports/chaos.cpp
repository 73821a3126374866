// Network fault injection on the command line.
//   transport_chaos worlds KIND COUNT SEED [AT_ONCE]   KIND: tcp or zmq+router; prints a line per scenario, and
//                                                      totals
//   transport_chaos proxy TARGET SEED SECONDS [zmtp] [cuts]   between the clients of the port it prints and
//                                                      127.0.0.1:TARGET; passes everything on after SECONDS.
//                                                      cuts: only those, every few seconds
#include <malloc.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>

#include "tests/transports/chaos_world.hpp"
#include "tests/transports/ends.hpp"

using namespace transports;

namespace {

constexpr double kMostGrown = 0.5;  // growth since the first scenarios in MiB, less than one needs

double resident_mib() {
  std::ifstream statm("/proc/self/statm");
  uint64_t size = 0, pages = 0;
  statm >> size >> pages;
  return static_cast<double>(pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE))) / (1 << 20);
}

// Allocated memory, and freed memory that the allocator retains: at the end of an arena per active thread; glibc
// creates up to eight arenas per processor.
struct Heap {
  double allocated, free;  // MiB
  Heap() {
    const struct mallinfo2 all = mallinfo2();
    allocated = static_cast<double>(all.uordblks + all.hblkhd) / (1 << 20);
    free = static_cast<double>(all.fordblks) / (1 << 20);
  }
};

int run_worlds(const std::string& kind, int count, uint64_t seed, int at_once) {
  int failed = 0;
  double worst = 0, allocated_first = 0, grown = 0;
  int64_t samples = 0;
  for (int first = 0; first < count; first += at_once) {
    const int last = std::min(count, first + at_once);
    std::vector<ChaosVerdict> verdicts(static_cast<size_t>(last - first));
    {
      std::vector<std::unique_ptr<Worker>> workers;
      for (int i = first; i < last; ++i)
        workers.push_back(std::make_unique<Worker>(
            [&, i] { verdicts[static_cast<size_t>(i - first)] = live_through(world_of(kind, seed, i)); }));
    }
    for (int i = first; i < last; ++i) {
      const ChaosVerdict& v = verdicts[static_cast<size_t>(i - first)];
      std::printf("%s world %d: %s\n", kind.c_str(), i, v.str().c_str());
      failed += !v.error.empty();
      worst = std::max(worst, v.worst_seconds);
      samples += v.samples;
    }
    const Heap heap;
    std::printf("  %.2f MiB allocated, %.0f MiB resident, of which the allocator keeps up to %.0f free\n",
                heap.allocated, resident_mib(), heap.free);
    if (first == 0) allocated_first = heap.allocated;
    grown = std::max(grown, heap.allocated - allocated_first);
    std::fflush(stdout);
  }
  std::printf(
      "%s: %d worlds from seed %llu, %lld samples, %d worlds failed; after storms samples came again within %.2f s\n",
      kind.c_str(), count, static_cast<unsigned long long>(seed), static_cast<long long>(samples), failed, worst);
  if (grown > kMostGrown) std::printf("%s: worlds that are over have left %.2f MiB behind\n", kind.c_str(), grown);
  return failed > 0 || grown > kMostGrown;
}

int run_proxy(uint16_t target, uint64_t seed, std::chrono::seconds time, bool zmtp, bool cuts) {
  ChaosProxy::Options options;
  options.target = target;
  options.seed = seed;
  options.framing = zmtp ? Framing::Zmtp : Framing::Hxs;
  options.storms = cuts ? cuts_for(seed, time) : storms_for(seed, time);
  const size_t storms = options.storms.size();
  ChaosProxy proxy(std::move(options));
  std::printf("%u\n", static_cast<unsigned>(proxy.port()));
  std::fflush(stdout);
  while (!proxy.is_over()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const ChaosCounts c = proxy.counts();
  std::printf("%zu storms, %llu connections, %llu cut, %llu frames damaged\n", storms,
              static_cast<unsigned long long>(c.connections), static_cast<unsigned long long>(c.cut),
              static_cast<unsigned long long>(c.damaged));
  std::fflush(stdout);
  while (true) pause();
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> a(argv + 1, argv + argc);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    if ((a.size() == 4 || a.size() == 5) && a[0] == "worlds")
      return run_worlds(a[1], std::stoi(a[2]), std::stoull(a[3]), a.size() == 5 ? std::stoi(a[4]) : 8);
    const auto says = [&](const char* word) { return std::find(a.begin(), a.end(), word) != a.end(); };
    if (a.size() >= 4 && a[0] == "proxy")
      return run_proxy(static_cast<uint16_t>(std::stoi(a[1])), std::stoull(a[2]), std::chrono::seconds(std::stoi(a[3])),
                       says("zmtp"), says("cuts"));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  std::fprintf(stderr, "transport_chaos worlds KIND COUNT SEED [AT_ONCE] | proxy TARGET SEED SECONDS [zmtp] [cuts]\n");
  return 2;
}
