#include "tests/transports/chaos_world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "tests/transports/ends.hpp"

namespace transports {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

namespace {

constexpr size_t kPixels = kSide * kSide;
constexpr uint64_t kWindow = 1u << 20, kFrame = 64u << 10;
constexpr auto kLatest = std::chrono::seconds(100);  // maximum time without progress

// Makes every byte depend on the sample's number.
void fill_picture(std::byte* image, int64_t number) {
  uint64_t state = static_cast<uint64_t>(number) * 0x9E3779B97F4A7C15u + 1;
  for (size_t at = 0; at < kPixels; at += sizeof state) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(image + at, &state, sizeof state);
  }
}

// State shared by sender, reader and proxy.
struct Journal {
  std::atomic<int64_t> pushed{0};
  std::atomic<int64_t> wanted{-1};  // the first sample sent after the last storm; -1: it has arrived
  std::atomic<bool> over{false}, failed{false};
  std::mutex mutex;
  Clock::time_point healed, moved = Clock::now();
  Storm storm;
};

void send_pictures(const std::string& kind, const std::string& address, Journal& journal) {
  wire::OutboxOptions options = pictures("camera");
  options.batch_bytes = kFrame;
  options.keep_bytes = 2u << 20;
  options.patience = kLatest;
  const auto sender = send(kind, address, options);
  std::byte image[kPixels];
  for (int64_t i = 0; !journal.over; ++i) {
    fill_picture(image, i);
    const std::span<const std::byte> pieces[] = {image, std::as_bytes(std::span(&i, 1))};
    sender->outbox().push(pieces);
    journal.pushed = i + 1;
    if (i % 8 == 7) std::this_thread::sleep_for(milliseconds(2));
  }
  sender->outbox().finish();
}

// Reads until the end; throws on anything but the next sample.
void read_pictures(wire::Inbox& inbox, int images, int labels, Journal& journal, ChaosProxy& proxy,
                   ChaosVerdict& verdict) {
  std::byte wanted[kPixels];
  for (int64_t i = 0;; ++i) {
    const auto image = inbox.next(images), label = inbox.next(labels);
    if (!image && !label) return;
    if (!image || !label) throw std::runtime_error("a picture or a label is missing");
    int64_t number = -1;
    std::memcpy(&number, label->bytes.bytes.data(), sizeof number);
    if (number != i) throw std::runtime_error(fmt::format("sample {} came, wanted was {}", number, i));
    fill_picture(wanted, i);
    if (image->bytes.size() != kPixels || std::memcmp(image->bytes.bytes.data(), wanted, kPixels) != 0)
      throw std::runtime_error(fmt::format("sample {} is damaged", i));
    verdict.samples = i + 1;
    if (i % 16 == 0) verdict.most_queued = std::max(verdict.most_queued, inbox.health().queued_bytes);
    const std::lock_guard<std::mutex> lock(journal.mutex);
    journal.moved = Clock::now();
    if (journal.wanted < 0 || i < journal.wanted) continue;
    journal.wanted = -1;
    const double took = std::chrono::duration<double>(journal.moved - journal.healed).count();
    if (took > verdict.worst_seconds) verdict.worst_seconds = took, verdict.worst_storm = journal.storm.str();
    proxy.resumed();
  }
}

// Ends the sender after the last storm. Ends everything if there is no progress.
void watch(wire::Inbox& inbox, int images, int labels, Journal& journal, const ChaosProxy& proxy,
           const std::atomic<bool>& done) {
  for (; !done; std::this_thread::sleep_for(milliseconds(20))) {
    if (proxy.is_over()) journal.over = true;
    const std::lock_guard<std::mutex> lock(journal.mutex);
    if (Clock::now() - journal.moved < kLatest) continue;
    journal.failed = journal.over = true;
    inbox.cancel(images), inbox.cancel(labels);
  }
}

}  // namespace

ChaosVerdict live_through(const ChaosWorld& world) {
  ChaosVerdict verdict;
  wire::InboxOptions inbox_options;
  inbox_options.window_bytes = kWindow;
  auto receiving = receive(world.kind, "", inbox_options);
  wire::Inbox& inbox = receiving->inbox();
  const int images = inbox.open("image", kPatience), labels = inbox.open("label", kPatience);
  Journal journal;
  ChaosProxy::Options options;
  options.target = static_cast<uint16_t>(std::stoi(receiving->address.substr(receiving->address.rfind(':') + 1)));
  options.framing = world.kind == "tcp" ? Framing::Hxs : Framing::Zmtp;
  options.seed = world.seed;
  options.storms = world.storms;
  options.on_heal = [&](const Storm& storm) {
    const std::lock_guard<std::mutex> lock(journal.mutex);
    journal.storm = storm;
    journal.healed = Clock::now();
    journal.wanted = journal.pushed.load();
  };
  ChaosProxy proxy(std::move(options));
  Worker sender([&] { send_pictures(world.kind, "127.0.0.1:" + std::to_string(proxy.port()), journal); });
  std::atomic<bool> done{false};
  Worker watcher([&] { watch(inbox, images, labels, journal, proxy, done); });
  try {
    read_pictures(inbox, images, labels, journal, proxy, verdict);
  } catch (const std::exception& e) {
    verdict.error = e.what();
    journal.over = true;
  }
  if (verdict.error.empty() && journal.failed)
    verdict.error = fmt::format("nothing came any more for {} s, last storm: {}", kLatest.count(), journal.storm.str());
  if (verdict.error.empty()) verdict.error = sender.end();
  done = true;
  watcher.end();
  verdict.counts = proxy.counts();
  verdict.health = inbox.health();
  if (!verdict.error.empty()) {
    receiving.reset();  // allows the sender to end
    return verdict;
  }
  if (verdict.samples != journal.pushed)
    verdict.error = fmt::format("{} samples were sent, {} came", journal.pushed.load(), verdict.samples);
  if (verdict.health.lost > 0) verdict.error = fmt::format("{} samples are said to be lost", verdict.health.lost);
  if (verdict.most_queued > kWindow + 2 * kFrame)
    verdict.error = fmt::format("{} bytes were queued", verdict.most_queued);
  if (verdict.worst_seconds > world.resumes_within)
    verdict.error =
        fmt::format("{:.1f} s until samples came again after '{}'", verdict.worst_seconds, verdict.worst_storm);
  // libzmq handles some damage itself.
  if (world.kind == "tcp" && verdict.counts.damaged_to_receiver >= 4 && verdict.health.refused == 0)
    verdict.error = "damaged frames were not counted";
  return verdict;
}

std::string ChaosVerdict::str() const {
  return fmt::format(
      "{} samples over {} connections; {} cut, {} left half-open; {} frames late, {} overtaken, {} damaged, {} "
      "refused, {} samples twice; resumed within {:.2f} s{}{}",
      samples, counts.connections, counts.cut, counts.dead, counts.delayed, counts.held_back, counts.damaged,
      health.refused, health.duplicates, worst_seconds, worst_storm.empty() ? "" : " (" + worst_storm + ")",
      error.empty() ? "" : ": " + error);
}

ChaosWorld world_of(const std::string& kind, uint64_t seed, int number) {
  const uint64_t own = seed * 1000003 + static_cast<uint64_t>(number);
  return {kind, own, number % 2 == 0 ? single_storms(own, all_faults()) : mixed_storms(own, all_faults(), 5),
          kResumesWithin};
}

}  // namespace transports
