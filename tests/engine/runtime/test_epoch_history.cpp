// Epoch reports: memory and checkpoints stay small for any number of epochs, and a resumed run has the same reports.
#include <catch2/catch.hpp>

#include <limits>
#include <random>

#include "engine/checkpoint/run_state.hpp"
#include "engine/measure/epoch_history.hpp"
#include "engine/model/sealed_file.hpp"

using namespace harmonics;
using namespace harmonics::engine;

namespace {

EpochReport report_of(int64_t epoch, size_t figures = 0) {
  EpochReport e{epoch, 1, 1, 0, 0.5, -1, 1e-3, epoch};
  for (size_t i = 0; i < figures; ++i) e.figures["figure " + std::to_string(i)] = 1.0 / static_cast<double>(epoch);
  return e;
}

std::vector<int64_t> numbers_of(const std::vector<EpochReport>& kept) {
  std::vector<int64_t> numbers;
  for (const EpochReport& e : kept) numbers.push_back(e.epoch);
  return numbers;
}

}  // namespace

TEST_CASE("epoch history: a few are all kept, many are thinned evenly with the first and the last two") {
  std::vector<EpochReport> kept;
  EpochHistory history(kept);
  for (int64_t epoch = 1; epoch <= 1'000'000; ++epoch) {
    REQUIRE(history.add(report_of(epoch)).epoch == epoch);
    REQUIRE(kept.size() <= EpochHistory::kEpochs);
    if (epoch <= static_cast<int64_t>(EpochHistory::kEpochs)) REQUIRE(kept.size() == static_cast<size_t>(epoch));
  }
  CHECK(history.closed() == 1'000'000);
  CHECK(kept.size() > EpochHistory::kEpochs / 3);
  CHECK(kept.front().epoch == 1);
  CHECK(kept.back().epoch == 1'000'000);
  CHECK(kept[kept.size() - 2].epoch == 999'999);
  for (size_t i = 0; i + 2 < kept.size(); ++i) REQUIRE(kept[i].epoch == 1 + static_cast<int64_t>(i) * history.stride());
}

TEST_CASE("epoch history: many figures per epoch are thinned sooner") {
  std::vector<EpochReport> kept;
  EpochHistory history(kept);
  for (int64_t epoch = 1; epoch <= 400; ++epoch) {
    history.add(report_of(epoch, 2000));
    REQUIRE(kept.size() <= EpochHistory::kFigures / 2000 + 1);
  }
  CHECK(kept.size() > EpochHistory::kFigures / 2000 / 3);
  CHECK(kept.back().epoch == 400);
}

TEST_CASE("epoch history: a resumed one equals an uninterrupted one, and checkpoints stay small") {
  std::vector<EpochReport> whole;
  EpochHistory undisturbed(whole);
  std::mt19937 random(7);
  std::vector<EpochReport> kept;
  auto history = std::make_unique<EpochHistory>(kept);
  for (int64_t epoch = 1; epoch <= 6000; ++epoch) {
    undisturbed.add(report_of(epoch, 3));
    history->add(report_of(epoch, 3));
    if (random() % 500 != 0) continue;
    RunState state;
    state.record.by_epoch = kept;
    state.record.closed_epochs = history->closed();
    state.record.epoch_stride = history->stride();
    TensorFile file;
    write_state(state, file);
    CHECK(safetensors_header(file).size() < 1'000'000);
    const RecordState back = take_state(file, "f").record;
    history = std::make_unique<EpochHistory>(kept);
    history->restore(back.by_epoch, back.closed_epochs, back.epoch_stride);
  }
  CHECK(numbers_of(kept) == numbers_of(whole));
  CHECK(history->closed() == 6000);
}

TEST_CASE("epoch history: a full one of an earlier version is thinned") {
  std::vector<EpochReport> all, kept;
  for (int64_t epoch = 1; epoch <= 100'000; ++epoch) all.push_back(report_of(epoch));
  EpochHistory history(kept);
  history.restore(all, 100'000, 1);
  CHECK(kept.size() <= EpochHistory::kEpochs);
  CHECK(kept.back().epoch == 100'000);
  CHECK(history.add(report_of(100'001)).epoch == 100'001);
  for (size_t i = 0; i + 2 < kept.size(); ++i) REQUIRE(kept[i].epoch == 1 + static_cast<int64_t>(i) * history.stride());
}

TEST_CASE("epoch history: the epoch with the smallest validation loss stays") {
  std::vector<EpochReport> kept;
  EpochHistory history(kept);
  CHECK(best_of(kept) == nullptr);
  std::mt19937 random(5);
  double least = std::numeric_limits<double>::quiet_NaN();
  int64_t best = 1;
  for (int64_t epoch = 1; epoch <= 20'000; ++epoch) {
    EpochReport& last = history.add(report_of(epoch));
    last.validation.emplace().loss = epoch == 1 ? least : static_cast<double>(random()) / static_cast<double>(epoch);
    if (!(last.validation->loss >= least) && epoch > 1) least = last.validation->loss, best = epoch;
    REQUIRE(kept.size() <= EpochHistory::kEpochs);
    REQUIRE(best_of(kept)->epoch == best);
  }
  CHECK(best > 1024);
  CHECK(kept.size() > EpochHistory::kEpochs / 3);
  CHECK(kept.back().epoch == 20'000);
}
