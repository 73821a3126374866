// Cuts the power after every call of a run. From every possible disk state the run resumes to the result of an
// undisturbed run, and everything reported as durable is present.
#include "tests/faults/live.hpp"
#include "tests/faults/power_cut.hpp"

#include "engine/spool/segment.hpp"

using namespace faults;

namespace {

size_t step_of(const std::string& text) {
  const size_t at = text.find("-step-");
  return at == std::string::npos ? 0 : std::stoul(text.substr(at + 6));
}

// Returns, for each call of a trace, the sample up to which the receiver had confirmed durability on its one
// connection.
std::vector<uint64_t> said_durable(const std::string& trace) {
  std::vector<uint64_t> said{0};
  const std::string bytes = read(trace + ".bytes");
  harmonics::wire::FrameReader frames;
  for (const TracedCall& c : traced_calls(trace)) {
    said.push_back(said.back());
    if (c.call != "send" || c.result <= 0) continue;
    const size_t size = static_cast<size_t>(c.result), from = std::stoul(c.fields.at(2));
    for (size_t done = 0; done < size;) {
      const auto room = frames.room();
      const size_t some = std::min(room.size(), size - done);
      std::memcpy(room.data(), bytes.data() + from + done, some);
      frames.arrived(some);
      done += some;
      while (const auto frame = frames.next())
        if (const auto told = harmonics::wire::decode(frame.bytes); told.kind == harmonics::wire::Kind::Grant)
          said.back() = std::max(said.back(), told.durable_seq);
    }
  }
  return said;
}

// Returns the number of samples in a spooled stream up to its last complete barrier.
uint64_t samples_in(const std::string& directory) {
  uint64_t most = 0;
  for (const std::string& name : names_in(directory))
    if (harmonics::engine::spool::segment_first(name))
      for (const auto& barrier :
           harmonics::engine::spool::scan(directory + "/" + name, harmonics::engine::FileCalls::system()).all)
        most = std::max(most, barrier.mark.index);
  return most;
}

}  // namespace

TEST_CASE("power cuts: data and names become certain by separate syncs") {
  Folder f;
  const std::string root = f / "disk";
  size_t number = 0;
  const auto line = [&](const std::string& call, const std::string& inode, const std::string& path,
                        const std::string& fields) {
    return "1\t1\t" + std::to_string(++number) + "\t" + call + (call == "write" ? "\t4" : "\t0") + "\t0\t" + inode +
           "\t" + path + (fields.empty() ? "" : "\t" + fields) + "\n";
  };
  const std::string file = root + "/a.tmp",
                    written = line("open", "7", file, "2301") + line("write", "7", file, "0\t4\t0"),
                    synced = line("sync", "7", file, ""), renamed = line("rename", "0", file, root + "/a"),
                    named = line("sync", "3", root + "/", "");
  f.write("t.bytes", "data");
  const auto states = [&](const std::string& trace) {
    const PowerCuts cuts(f.write("t", trace), root);
    std::set<Image> all;
    cuts.each_image(cuts.calls(), [&](const Image& image) { all.insert(image); });
    return all;
  };
  const Image nothing, whole{{"a", "data"}}, aside{{"a.tmp", "data"}}, empty{{"a", ""}}, half{{"a", "da"}};
  const std::set<Image> unsynced = states(written + renamed), certain = states(written + synced + renamed + named);
  for (const Image& image : {nothing, whole, empty, half, aside}) CHECK(unsynced.count(image));
  CHECK(states(written + synced + renamed) == std::set<Image>{nothing, whole, aside});
  CHECK(states(written + renamed + named).count(half));
  CHECK(certain == std::set<Image>{whole});
}

TEST_CASE("power cuts: a run with checkpoints resumes from the last one written") {
  Folder f;
  const Small small(f);
  const std::string disk = f / "disk", weights = disk + "/w.safetensors";
  const std::string run =
      small.from_files() + "--checkpoint " + disk + "/kept --every 4steps --keep 1 --resume --save " + weights;
  fs::create_directory(disk);
  REQUIRE(harmonics_in(traced(f, disk + ":" + disk + "/*"), run).code == 0);
  const std::string undisturbed = read(weights);
  REQUIRE(undisturbed.size() > 100);
  const PowerCuts cuts(f / "trace", disk);
  std::vector<size_t> steps{0};  // by call: step of the last checkpoint with a durable name
  size_t named = 0;
  for (size_t n = 0; n < cuts.calls(); ++n) {
    const TracedCall& c = cuts.call(n);
    if (c.call == "rename" && c.result == 0) named = std::max(named, step_of(c.fields.at(0)));
    steps.push_back(c.call == "sync" && c.path == disk + "/kept" ? named : steps.back());
  }
  REQUIRE(steps.back() == 12);
  const size_t images = at_every_cut(
      cuts, [&](size_t n) { return steps[n]; },
      [&](const Image& image, size_t promised) {
        lay_out(image, disk);
        const Result rest = journeys::harmonics(run);
        CHECK(rest.code == 0);
        CHECK(read(weights) == undisturbed);
        const size_t at = rest.err.find("resuming from");
        CHECK((at == std::string::npos ? 0 : step_of(rest.err.substr(at))) >= promised);
        CHECK(unfinished_in(disk + "/kept") == 0);
      });
  CHECK(images > 20);
}

TEST_CASE(
    "power cuts: saved weights are the former ones or the new ones, and the new ones once the program has ended") {
  Folder f;
  const Small small(f);
  const std::string disk = f / "disk", weights = disk + "/w.safetensors";
  const std::string run = small.from_files() + "--quiet --save " + weights;
  fs::create_directory(disk);
  REQUIRE(harmonics_in(traced(f, disk + ":" + disk + "/*"), run).code == 0);
  const std::string saved = read(weights);
  const PowerCuts cuts(f / "trace", disk);
  const size_t images = at_every_cut(
      cuts, [&](size_t n) { return n == cuts.calls(); },
      [&](const Image& image, bool ended) {
        const auto at = image.find("w.safetensors");
        if (ended) REQUIRE(at != image.end());
        if (at != image.end()) CHECK(at->second == saved);
      });
  CHECK(images > 5);
}

TEST_CASE("power cuts: samples that a spool confirmed are on the disk, and the rest is requested again") {
  Live live;
  const std::string disk = live.f / "disk", spool = disk + "/spool";
  const std::string learning = live.learning + " --spool " + spool + " --spool-keep";
  fs::create_directory(disk);
  {
    const Sending sender(live.sending);
    REQUIRE(harmonics_in(traced(live.f, disk + ":" + disk + "/*:unix@*"), learning).code == 0);
  }
  REQUIRE(numbers_in(live.weights) == live.undisturbed);
  const PowerCuts cuts(live.f / "trace", disk);
  const std::vector<uint64_t> durable = said_durable(live.f / "trace");
  REQUIRE(durable.back() == 48);
  const size_t images = at_every_cut(
      cuts, [&](size_t n) { return durable[n]; },
      [&](const Image& image, uint64_t promised) {
        live.begin_anew();
        lay_out(image, disk);
        for (const char* stream : {"x", "y"}) CHECK(samples_in(spool + "/" + stream) >= promised);
        const Sending sender(live.sending);
        CHECK(journeys::harmonics(learning).code == 0);
        CHECK(numbers_in(live.weights) == live.undisturbed);
      });
  CHECK(images > 20);
}

TEST_CASE("power cuts: loss of the plugin cache does not change results") {
  Folder f;
  const std::string disk = f / "disk", in = " XDG_CACHE_HOME='" + disk + "' ";
  const std::string asked = "list functions --json";
  fs::create_directory(disk);
  REQUIRE(harmonics_in(traced(f, disk + ":" + disk + "/*") + in, asked).code == 0);
  const std::string expected = harmonics_in(in, asked).out;
  REQUIRE(has(expected, "\"relu\""));
  const PowerCuts cuts(f / "trace", disk);
  const size_t images = at_every_cut(
      cuts, [](size_t) { return 0; },
      [&](const Image& image, int) {
        lay_out(image, disk);
        const Result listed = harmonics_in(in, asked);
        CHECK(listed.code == 0);
        CHECK(listed.out == expected);
        CHECK(listed.err.empty());
      });
  CHECK(images > 3);
}
