// Checkpoints, validation, metrics and weights files in the embedding API.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tests/engine/embed/lines.hpp"
#include "tests/journeys/shell.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
using journeys::Folder;
namespace fs = std::filesystem;

namespace {

HarmonicGraph taught() {
  HarmonicGraph g = line_graph();
  bind_line(g);
  return g;
}

bool same_weights(HarmonicGraph& a, HarmonicGraph& b) {
  const std::vector<std::string> names = a.weights();
  if (names.empty() || names != b.weights()) return false;
  for (const std::string& name : names) {
    const HTensor x = a.weight(name), y = b.weight(name);
    if (x.shape() != y.shape() || std::memcmp(x.bytes(), y.bytes(), static_cast<std::size_t>(x.size()) * 4) != 0)
      return false;
  }
  return true;
}

std::size_t files_in(const std::string& folder) {
  std::size_t n = 0;
  for (const auto& entry : fs::directory_iterator(folder)) n += entry.path().extension() == ".safetensors";
  return n;
}

// A stream that ends permanently and cannot rewind.
struct Live : Producer {
  HTensor next() override { return at_++ < 200 ? line_row(1, 2) : HTensor(); }
  std::size_t size() const override { return 0; }
  int at_ = 0;
};

}  // namespace

TEST_CASE("fit options: numbers that mean nothing are refused") {
  HarmonicGraph g = taught();
  const auto refusal = [&](const std::function<void(FitOptions&)>& set) {
    FitOptions o = line_options(1);
    set(o);
    return harmonics::message_of([&] { g.fit(o); });
  };
  CHECK(refusal([](FitOptions& o) { o.batch = -3; }) ==
        "the setting 'batch' is -3\ngive a number that is not negative, or none for the flow's setting");
  CHECK(refusal([](FitOptions& o) { o.lr = 0; }) ==
        "the setting 'lr' is 0.000000\ngive a number above 0, or none for the flow's setting");
  CHECK(refusal([](FitOptions& o) { o.lr = std::nan(""); }).find("the setting 'lr' is ") == 0);
  CHECK(refusal([](FitOptions& o) { o.epochs = -1; }).find("the setting 'epochs' is -1") == 0);
  CHECK(refusal([](FitOptions& o) { o.steps = -1; }).find("the setting 'steps' is -1") == 0);
  CHECK(refusal([](FitOptions& o) { o.seed = -1; }).find("the setting 'seed' is -1") == 0);
  CHECK(refusal([](FitOptions& o) { o.clip = -1; }).find("the setting 'clip' is -1") == 0);
  CHECK(refusal([](FitOptions& o) { o.seconds = -1; }).find("the setting 'seconds' is -1") == 0);
  CHECK(refusal([](FitOptions& o) { o.accumulate = -1; }).find("the setting 'accumulate' is -1") == 0);
  CHECK(refusal([](FitOptions& o) { o.keep = -1; }).find("the setting 'keep' is -1") == 0);
  for (const int threads : {-1, 100'000})
    CHECK(refusal([&](FitOptions& o) { o.threads = threads; }) ==
          "the setting 'threads' is " + std::to_string(threads) + "\ngive 1 to 1024, or 0 for all");
  CHECK(refusal([](FitOptions& o) { o.clip = 0; }) == "no error");
}

TEST_CASE("fit options: a resumed run gives the same bits as an uninterrupted one") {
  const Folder f;
  HarmonicGraph whole = taught();
  whole.fit(line_options(8));
  {
    HarmonicGraph begun = taught();
    FitOptions o = line_options(8);
    o.checkpoint = f / "kept";
    o.every = "1epoch";
    int calls = 0;
    o.steps = 31;  // within an epoch of 7
    o.progress = [&](const FitProgress&) { return ++calls > 0; };
    const FitReport r = begun.fit(o);
    CHECK(r.steps == 31);
    CHECK(fs::exists(r.checkpoint));
    CHECK(r.resumed_at == 0);
  }
  HarmonicGraph resumed = taught();
  FitOptions o = line_options(8);
  o.checkpoint = o.resume = f / "kept";
  o.keep = 2;
  const FitReport r = resumed.fit(o);
  CHECK(r.resumed_at == 31);
  CHECK(r.steps == 56);
  CHECK(same_weights(whole, resumed));
  CHECK(files_in(f / "kept") == 2);
  HarmonicGraph loaded = taught();
  loaded.load(r.checkpoint);  // weights only
  CHECK(asked(loaded, 0.5f, 0.25f) == asked(whole, 0.5f, 0.25f));
}

TEST_CASE("fit options: a run resumes from one file, and from an empty folder") {
  const Folder f;
  FitOptions o = line_options(2);
  o.checkpoint = o.resume = f / "kept";
  HarmonicGraph g = taught();
  const FitReport r = g.fit(o);
  CHECK(r.resumed_at == 0);
  REQUIRE(!r.notes.empty());
  CHECK(r.notes.front().find("there is no checkpoint in '") == 0);
  HarmonicGraph further = taught();
  FitOptions more = line_options(4);
  more.resume = r.checkpoint;
  CHECK(further.fit(more).resumed_at == 14);
  HarmonicGraph whole = taught();
  whole.fit(line_options(4));
  CHECK(same_weights(whole, further));
}

TEST_CASE("fit options: checkpoint errors suggest a correction") {
  const Folder f;
  HarmonicGraph g = taught();
  FitOptions o = line_options(1);
  o.every = "5m";
  CHECK(refused([&] { g.fit(o); }) == "'every' has no effect without a folder for checkpoints");
  o.checkpoint = f / "kept";
  o.every = "often";
  CHECK(refused([&] { g.fit(o); }) == "'often' is not an interval");
  o.every = "";
  g.fit(o);
  HarmonicGraph again = taught();
  CHECK(refused([&] { again.fit(o); }) == "'" + (f / "kept") + "' holds the checkpoints of a run");
  o.checkpoint = "";
  o.resume = f / "nowhere";
  CHECK(refused([&] { again.fit(o); }).find("nowhere") != std::string::npos);
  HarmonicGraph other =
      parse_hmx_text("harmonic twice { producer x; consumer c; layer o {1}; cycle { x -(affine(1))-> o -> c; } }");
  other.bindProducer("x", std::make_shared<LinePoints>(false, 12));
  FitOptions inference;
  inference.checkpoint = f / "else";
  CHECK(refused([&] { other.fit(inference); }) == "'twice' does not train: it has nothing to keep in a checkpoint");
}

TEST_CASE("fit options: a producer that cannot rewind gives checkpoints of weights only, with a note") {
  const Folder f;
  HarmonicGraph g =
      parse_hmx_text("harmonic l { producer x {2}; layer o {2}; cycle { x -(affine(2))-> o; o <-(mse)- x; } }");
  g.bindProducer("x", std::make_shared<Live>());
  FitOptions o = line_options(1);
  o.checkpoint = f / "kept";
  const FitReport r = g.fit(o);
  CHECK(fs::exists(r.checkpoint));
  std::string notes;
  for (const std::string& note : r.notes) notes += note + "\n";
  CHECK(notes.find("cannot be resumed") != std::string::npos);
}

TEST_CASE("fit options: validation runs after every epoch, in the report and in conditions") {
  HarmonicGraph g = taught();
  g.bindValidation("x", std::make_shared<LinePoints>(false, 35));
  g.bindValidation("y", std::make_shared<LinePoints>(true, 35));
  FitOptions o = line_options(200);
  o.metrics = {"mae"};
  o.until = {"val.loss<0.01"};
  const FitReport r = g.fit(o);
  CHECK(r.stopped_by.find("until val.loss") == 0);
  CHECK(r.epochs < 200);
  REQUIRE(r.by_epoch.size() == static_cast<std::size_t>(r.epochs));
  CHECK(r.by_epoch.back().validation.at("loss") < 0.01);
  CHECK(r.by_epoch.front().validation.at("loss") >= 0.01);
  CHECK(r.by_epoch.back().validation.count("mae") == 1);
  CHECK(r.by_epoch.back().metrics.count("mae") == 1);
  CHECK(r.by_epoch.back().steps == 7);
  CHECK(r.by_epoch.back().learning_rate == Approx(0.05));
  HarmonicGraph without = taught();
  CHECK(refused([&] { without.fit(o); }).find("val.loss") != std::string::npos);
}

TEST_CASE("fit options: an unknown metric is refused before the first step") {
  HarmonicGraph g = taught();
  FitOptions o = line_options(1);
  o.metrics = {"mea"};
  CHECK(refused([&] { g.fit(o); }).find("unknown metric 'mea'") == 0);
}

TEST_CASE("files of weights: load() reads files of save(), before and after streams are bound") {
  const Folder f;
  HarmonicGraph g = taught();
  g.fit(line_options(60));
  g.save(f / "line.safetensors");
  const float answer = asked(g, 0.3f, 0.9f);
  HarmonicGraph early = line_graph();
  early.load(f / "line.safetensors");
  CHECK(asked(early, 0.3f, 0.9f) == answer);  // the file describes its streams
  HarmonicGraph late = taught();
  FitOptions none = line_options(0);
  late.fit(none);
  CHECK(asked(late, 0.3f, 0.9f) != answer);
  late.load(f / "line.safetensors");
  CHECK(asked(late, 0.3f, 0.9f) == answer);
  CHECK(same_weights(late, g));
  CHECK(std::memcmp(late.data(), g.data(), g.size()) == 0);
}

TEST_CASE("files of weights: an unsuitable file is refused with the reason") {
  const Folder f;
  HarmonicGraph g = taught();
  CHECK(refused([&] { g.load(f / "nowhere.safetensors"); }).find("nowhere.safetensors") != std::string::npos);
  f.write("broken.safetensors", "no weights");
  CHECK(refused([&] { g.load(f / "broken.safetensors"); }).find("broken.safetensors") != std::string::npos);
  CHECK(refused([&] { g.save(f / "no/such/folder.safetensors"); }).find("folder.safetensors") != std::string::npos);
  HarmonicGraph other = parse_hmx_text(
      "harmonic other { producer a; producer b; layer z {1}; cycle { a -(affine(1))-> z; z <-(mse)- b; } }");
  other.bindProducer("a", std::make_shared<LinePoints>(false, 12));
  other.bindProducer("b", std::make_shared<LinePoints>(true, 12));
  other.fit(line_options(1));
  other.save(f / "other.safetensors");
  CHECK(refused([&] { g.load(f / "other.safetensors"); }).find("belongs to 'line'") != std::string::npos);
}

TEST_CASE("results: writes into structs of an older program end at their size") {
  HarmonicGraph g = taught();
  hx_graph* graph = nullptr;
  REQUIRE(harmonics_graphs()->parse("harmonic o { producer x {2}; layer o {2}; cycle { x -(relu)-> o; } }", "text",
                                    nullptr, &graph) == HX_OK);
  struct {
    hx_fit_report report;
    char after[64];
  } held;
  std::memset(&held, 7, sizeof held);
  held.report.struct_size = offsetof(hx_fit_report, metrics);
  REQUIRE(harmonics_graphs()->bind_producer(
              graph, "x", HX_FOR_TRAINING, harmonics::detail::producer_vt(),
              new harmonics::detail::HeldProducer{std::make_shared<LinePoints>(false, 3), std::nullopt, {}}) == HX_OK);
  REQUIRE(harmonics_graphs()->fit(graph, nullptr, &held.report) == HX_OK);
  CHECK(held.report.samples == 3);
  CHECK(held.report.struct_size == offsetof(hx_fit_report, metrics));
  const char* at = reinterpret_cast<const char*>(&held);
  for (std::size_t i = offsetof(hx_fit_report, metrics); i < sizeof held; ++i) REQUIRE(at[i] == 7);
  harmonics_graphs()->destroy(graph);
}
