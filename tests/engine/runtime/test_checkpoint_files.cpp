// Checkpoint files on a full disk, a failing disk, after a power failure, and with a flipped bit.
#include <catch2/catch.hpp>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "engine/checkpoint/checkpointer.hpp"
#include "engine/model/sealed_file.hpp"
#include "tests/files_in_memory.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;
using Fault = FilesInMemory::Fault;

namespace {

RunState state_at(int64_t step) {
  RunState s;
  s.step = s.batches = step;
  s.samples = 10 * step;
  s.epoch = 2;
  s.index = 70;
  s.seconds = 1.0 / 3;
  s.learning_rate = 1e-3;
  s.streams = {{"x", 100}};
  s.graph = "g";
  s.training = "sgd(lr=0.1)";
  s.device = "cpu";
  s.batch = 10;
  s.seed = UINT64_MAX;
  s.metrics = {{"loss", 0.1}};
  s.record.windows["loss"] = {{{0.1, 1, 1, 1}, {0.2, 1, 1, 1}}, 2};
  s.record.windows["o.loss of y without 0"] = {{{0.1, 0.5, 2, 3}}, 1};  // of counted samples
  s.record.curve.points = {{1, 0.5, 0.25, -1}};
  EpochReport epoch{
      1,
      5,
      50,
      0.25,
      0.5,
      0.75,
      1e-3,
      5,
      "o.accuracy",
      {{"f1", 0.3}},
      Evaluation{7, 0.1, -1, 0.5, {{"o", true, {{"loss", 0.1}, {"auc", std::nan("")}}, {2, {1, 2, 3, 4}}, 7}}, {}}};
  epoch.validation->counts = false;
  epoch.validation->left_over = {{"x", 3, "3 samples left over"}};
  s.record.by_epoch = {epoch};
  s.record.closed_epochs = 1;
  s.record.held = {{"val.loss", 0.1}};
  s.record.aside = 0.7;
  s.record.measured_layers = {{"o",
                               9,
                               {{"f1{average = micro}", true, {std::byte{1}, std::byte{0}, std::byte{255}}},
                                {"mine", false, {}},
                                {"none", true, {}}}}};
  s.record.epoch_loss = {{"", {0.1 + 0.2, 3, 4, 0}}, {"y without 0", {0.5, 1, 4, 0}}};
  s.record.epoch_measured = 4;
  return s;
}

TensorFile content_at(int64_t step) {
  TensorFile file;
  file.metadata["harmonics.name"] = "g";
  file.tensors["a.b.affine.weight"] =
      HTensor::from(Shape{2, 3}, std::vector<float>{1, 2, 3, 4, 5, static_cast<float>(step)});
  file.tensors["moment/optimizer.momentum.a.b.affine.weight"] = HTensor::from(Shape{2, 3}, std::vector<float>(6, 0.5f));
  write_state(state_at(step), file);
  return file;
}

float last_weight(const Checkpoint& c) { return c.file.tensors.at("a.b.affine.weight").data<float>()[5]; }

// Returns the step of the newest checkpoint, which must be complete and of one of these steps.
int64_t newest_step(FilesInMemory& files, std::vector<std::string>* notes = nullptr) {
  std::vector<std::string> unused;
  const auto c = CheckpointFolder("runs", files).newest(notes ? *notes : unused);
  if (!c) return 0;
  CHECK(last_weight(*c) == static_cast<float>(c->state.step));
  return c->state.step;
}

// Writes step 1 to disk.
void prepare(FilesInMemory& files) {
  CheckpointFolder folder("runs", files);
  folder.claim();
  folder.write(content_at(1), 1);
}

// Writes the next checkpoint as a run does.
void write_second(FilesInMemory& files) {
  CheckpointFolder folder("runs", files);
  folder.claim();
  folder.write(content_at(2), 2);
  folder.keep(1);
}

size_t calls_of_second() {
  FilesInMemory files;
  prepare(files);
  files.fail_at(SIZE_MAX, Fault::Error);
  write_second(files);
  return files.calls();
}

}  // namespace

TEST_CASE("checkpoint: a state is read back as written") {
  TensorFile file = content_at(7);
  const std::string bytes = write_sealed(file);
  TensorFile back = read_sealed(std::make_shared<const std::string>(bytes), "f");
  const RunState s = take_state(back, "f"), was = state_at(7);
  CHECK(s.step == 7);
  CHECK(s.seconds == was.seconds);
  CHECK(s.seed == UINT64_MAX);
  CHECK(s.record.epoch_loss.at("").sum == was.record.epoch_loss.at("").sum);
  CHECK(s.record.epoch_loss.at("y without 0").active == 4);
  CHECK(s.record.windows.at("loss").steps.at(1).sum == 0.2);
  CHECK(s.record.windows.at("loss").steps.at(1).samples == 1);
  CHECK(s.record.windows.at("o.loss of y without 0").steps.at(0).weight == 0.5);
  CHECK(s.record.windows.at("o.loss of y without 0").steps.at(0).samples == 3);
  CHECK(s.record.windows.at("loss").next == 2);
  CHECK(s.record.curve.points.at(0).loss == 0.25);
  CHECK(s.record.by_epoch.at(0).learning_rate == 1e-3);
  CHECK(back.tensors.size() == 2);  // the state's own tensors are removed
  TensorFile again = back;
  write_state(s, again);
  CHECK(write_sealed(again) == bytes);
}

TEST_CASE("checkpoint: every flipped byte and every truncation is detected") {
  const std::string whole = write_sealed(content_at(3));
  size_t accepted = 0;
  const auto refused = [&](std::string bytes) {
    try {
      TensorFile file = read_sealed(std::make_shared<const std::string>(std::move(bytes)), "f");
      take_state(file, "f");
      ++accepted;
    } catch (const Error& e) {
      CHECK((e.kind() == ErrorKind::Weights && std::string(e.what()).find("'f'") != std::string::npos));
    }
  };
  for (size_t i = 0; i < whole.size(); ++i)
    for (const int flip : {1, 0x20, 0x80, 0xff}) {
      std::string bytes = whole;
      bytes[i] = static_cast<char>(bytes[i] ^ flip);
      refused(std::move(bytes));
    }
  for (size_t n = 0; n < whole.size(); ++n) refused(whole.substr(0, n));
  refused(whole + '\0');
  CHECK(accepted == 0);
  std::string flipped = whole;
  flipped[whole.size() - 1] ^= 1;
  CHECK(message_of([&] {
          read_sealed(std::make_shared<const std::string>(flipped), "f");
        }).find("'f' is damaged: tensor '") == 0);
}

TEST_CASE("checkpoint: a failing call gives an error and leaves the old checkpoint or the new one") {
  const size_t calls = calls_of_second();
  REQUIRE(calls > 10);
  for (const int reason : {ENOSPC, EIO})
    for (const Fault fault : {Fault::Error, Fault::ShortThenError})
      for (size_t call = 0; call < calls; ++call) {
        CAPTURE(reason, static_cast<int>(fault), call);
        FilesInMemory files;
        prepare(files);
        files.fail_at(call, fault, reason);
        const std::string said = message_of([&] { write_second(files); });
        REQUIRE(files.failed());
        files.work();
        const int64_t step = newest_step(files);
        CHECK((step == 1 || step == 2));
        if (said == "no error")
          CHECK(step == 2);
        else
          CHECK(said.find(std::strerror(reason)) != std::string::npos);
        // The run continues and writes the next checkpoint.
        CheckpointFolder folder("runs", files);
        folder.claim();
        folder.write(content_at(3), 3);
        CHECK(newest_step(files) == 3);
        for (const std::string& name : files.names()) CHECK(!is_unfinished_file(name.substr(name.rfind('/') + 1)));
      }
}

TEST_CASE("checkpoint: a power failure at any call leaves the old checkpoint or the new one, whole") {
  const size_t calls = calls_of_second();
  std::mt19937 luck(5);
  size_t former = 0, later = 0, passed_over = 0;
  for (size_t call = 0; call <= calls; ++call)
    for (int image = 0; image < 24; ++image) {
      CAPTURE(call, image);
      FilesInMemory files;
      prepare(files);
      files.fail_at(call, Fault::PowerCut);
      try {
        write_second(files);
      } catch (const Error&) {
      }
      auto disk = files.after_power_cut(image == 0 ? nullptr : &luck);
      std::vector<std::string> notes;
      const int64_t step = newest_step(*disk, &notes);
      REQUIRE((step == 1 || step == 2));
      ++(step == 1 ? former : later);
      passed_over += notes.size();
      if (call == calls) CHECK(step == 2);  // write() had returned, so it must be on disk
      CheckpointFolder folder("runs", *disk);
      folder.claim();
      folder.write(content_at(3), 3);
      CHECK(newest_step(*disk) == 3);
      for (const std::string& name : disk->names()) CHECK(!is_unfinished_file(name.substr(name.rfind('/') + 1)));
    }
  CHECK(former > 50);
  CHECK(later > 50);
  CHECK(passed_over == 0);  // a name appears only after its content is on disk
}

TEST_CASE("checkpoint: damaged ones are skipped with a note, and only damaged ones are an error") {
  FilesInMemory files;
  prepare(files);
  write_second(files);
  CheckpointFolder folder("runs", files);
  folder.claim();
  const std::string third = folder.write(content_at(3), 3);
  std::string bytes = files.get(third);
  bytes.back() ^= 4;
  files.put(third, bytes);
  std::vector<std::string> notes;
  CHECK(newest_step(files, &notes) == 2);
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].find("skipped a checkpoint: 'runs/checkpoint-000003-step-3.safetensors' is damaged: ") == 0);
  files.put("runs/checkpoint-000002-step-2.safetensors", "");
  CHECK(message_of([&] { newest_step(files); }).find("no checkpoint in 'runs' can be used; the last one: ") == 0);
  CHECK(folder.write(content_at(4), 4) == "runs/checkpoint-000004-step-4.safetensors");  // numbers are not reused
  CHECK(newest_step(files) == 4);
}

TEST_CASE("checkpoint folder: keeps the newest few in the order of writing") {
  FilesInMemory files;
  CheckpointFolder folder("runs//", files);
  folder.claim();
  for (const int64_t step : {10, 20, 5, 6}) {  // as if the run had been resumed from an older checkpoint
    folder.write(content_at(step), step);
    folder.keep(3);
  }
  std::vector<int64_t> steps;
  for (const auto& entry : folder.list()) steps.push_back(entry.step);
  CHECK(steps == std::vector<int64_t>{6, 5, 20});
  files.put("runs/notes.txt", "mine");
  files.put("runs/checkpoint-12-step-x.safetensors", "mine too");
  CHECK(folder.list().size() == 3);
  CHECK(CheckpointFolder("elsewhere", files).list().empty());
}

TEST_CASE("checkpoint: one larger than the memory is skipped, whatever its header says") {
  char name[] = "/tmp/harmonics-huge-XXXXXX";
  REQUIRE(mkdtemp(name));
  const std::string path = std::string(name) + "/runs", second = path + "/checkpoint-000002-step-2.safetensors";
  CheckpointFolder folder(path);
  folder.claim();
  folder.write(content_at(1), 1);
  constexpr uint64_t kHuge = uint64_t{1} << 43;  // a sparse file
  const auto huge = [&](const std::string& beginning) {
    std::ofstream(second, std::ios::binary) << beginning;
    std::filesystem::resize_file(second, kHuge);
    std::vector<std::string> notes;
    const auto found = folder.newest(notes);
    REQUIRE((found && found->state.step == 1));
    REQUIRE(notes.size() == 1);
    return notes[0];
  };
  CHECK(huge("").find("the header must begin with '{'") != std::string::npos);
  CHECK(huge(safetensors_header(content_at(2))).find("is not a safetensors file") != std::string::npos);
  const uint64_t numbers = kHuge - 8 - 120;
  std::string header = "{\"a\":{\"dtype\":\"U8\",\"shape\":[" + std::to_string(numbers) + "],\"data_offsets\":[0," +
                       std::to_string(numbers) + "]}}";
  header.resize(120, ' ');
  CHECK(huge(std::string("\x78\0\0\0\0\0\0\0", 8) + header)
            .find("there is not enough memory for its 8796093022208 bytes") != std::string::npos);
  std::filesystem::remove_all(name);
}

TEST_CASE("checkpoint folder: the largest possible number is reported before the run") {
  FilesInMemory files;
  prepare(files);
  const std::string last = "runs/checkpoint-18446744073709551615-step-1.safetensors";
  files.put(last, "");
  CHECK(message_of([&] { CheckpointFolder("runs", files).claim(); }) ==
        "the number of '" + last +
            "' is too large: no larger one is left for the checkpoints of this run\n"
            "move it to another directory, or use another directory for this run");
}

TEST_CASE("checkpoint folder: only one process can claim it") {
  char name[] = "/tmp/harmonics-claim-XXXXXX";
  REQUIRE(mkdtemp(name));
  const std::string path = std::string(name) + "/a/b";
  {
    CheckpointFolder first(path), second(path);
    first.claim();
    CHECK(message_of([&] { second.claim(); }) ==
          "another run writes its checkpoints to '" + path + "'\nuse another directory");
  }
  CheckpointFolder(path).claim();  // it has been unlocked
  REQUIRE(std::system(("rm -r " + std::string(name)).c_str()) == 0);
}

TEST_CASE("parse_interval: accepts a time, steps or epochs") {
  CHECK(parse_interval("90s").seconds == 90);
  CHECK(parse_interval("1.5h").seconds == 5400);
  CHECK(parse_interval("5m").seconds == 300);
  CHECK(parse_interval("500steps").steps == 500);
  CHECK(parse_interval("1epoch").epochs == 1);
  for (const char* wrong : {"", "5", "m", "0s", "-5m", "1.5steps", "nansteps", "inf s", "5 m", "1e300s", "3weeks"})
    CHECK(message_of([&] { parse_interval(wrong); }) ==
          "'" + std::string(wrong) + "' is not an interval\nwrite a time, steps or epochs: 5m, 90s, 500steps, 1epoch");
}

TEST_CASE("checkpointer: a failed write is reported, the run and later checkpoints continue") {
  FilesInMemory files;
  Checkpointer c("runs", parse_interval("1steps"), 2, files);
  const auto at = [](int64_t step) {
    return [step](TensorFile& file) {
      file = content_at(step);
      return state_at(step);
    };
  };
  c.start(at(1));
  c.wait();
  CHECK(c.last() == "runs/checkpoint-000001-step-1.safetensors");
  files.fail_at(3, Fault::Error, ENOSPC);
  c.start(at(2));
  c.wait();
  files.work();
  const auto notes = c.take_notes();
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].find("the checkpoint of step 2 was not written: cannot write "
                      "'runs/checkpoint-000002-step-2.safetensors': No space "
                      "left on device") == 0);
  CHECK(notes[0].find("; the last good one is runs/checkpoint-000001-step-1.safetensors") != std::string::npos);
  CHECK(c.due(0, 3, false, 0));
  c.start(at(3));
  c.wait();
  CHECK(c.last() == "runs/checkpoint-000002-step-3.safetensors");
  c.write(at(3));  // nothing new to write
  CHECK(c.folder().list().size() == 2);
}

TEST_CASE("record state: inconsistent epoch counts are refused") {
  const auto read = [](int64_t closed, int64_t stride) {
    TensorFile file = content_at(1);
    RunState s = state_at(1);
    s.record.closed_epochs = closed;
    s.record.epoch_stride = stride;
    write_state(s, file);
    return message_of([&] { take_state(file, "f"); });
  };
  CHECK(read(1, 1) == "no error");
  CHECK(read(5000, 8) == "no error");
  for (const auto& [closed, stride] :
       {std::pair<int64_t, int64_t>{0, 1}, {1, 0}, {1, 2}, {INT64_MAX, 1}, {INT64_MAX, INT64_MAX}})
    CHECK(read(closed, stride).find("'f': the metadata 'harmonics.run' is invalid: 1 of ") == 0);
}

TEST_CASE("record state: epochs, validation, figures and metrics are read back") {
  TensorFile file = content_at(1);
  const RunState s = take_state(file, "f");
  CHECK(file.tensors.size() == 2);  // the weight and its moment
  REQUIRE(s.record.by_epoch.size() == 1);
  const EpochReport& e = s.record.by_epoch[0];
  CHECK((e.step == 5 && e.accuracy_name == "o.accuracy" && e.figures == std::map<std::string, double>{{"f1", 0.3}}));
  REQUIRE((e.validation && e.validation->layers.size() == 1));
  CHECK((e.validation->samples == 7 && e.validation->loss == 0.1 && e.validation->accuracy == -1 &&
         e.validation->seconds == 0.5 && !e.validation->counts));
  REQUIRE(e.validation->left_over.size() == 1);
  const LeftOver& left = e.validation->left_over[0];
  CHECK((left.producer == "x" && left.samples == 3 && left.text == "3 samples left over"));
  const LayerFigures& layer = e.validation->layers[0];
  CHECK((layer.layer == "o" && layer.classes && layer.rows == 7 && layer.table.side == 2 &&
         layer.table.cells == std::vector<double>{1, 2, 3, 4}));
  REQUIRE(layer.figures.size() == 2);
  CHECK((layer.figures[0].value == 0.1 && std::isnan(layer.figures[1].value)));
  CHECK(s.record.held == std::map<std::string, double>{{"val.loss", 0.1}});
  CHECK(s.record.aside == 0.7);
  REQUIRE((s.record.measured_layers.size() == 1 && s.record.measured_layers[0].metrics.size() == 3));
  const LayerState& judged = s.record.measured_layers[0];
  CHECK((judged.layer == "o" && judged.rows == 9));
  CHECK((judged.metrics[0].metric == "f1{average = micro}" && judged.metrics[0].kept &&
         judged.metrics[0].bytes == std::vector<std::byte>{std::byte{1}, std::byte{0}, std::byte{255}}));
  CHECK((judged.metrics[1].metric == "mine" && !judged.metrics[1].kept));
  CHECK((judged.metrics[2].kept && judged.metrics[2].bytes.empty()));
  // The memory of one checkpoint is reused for the next, without the removed entries.
  TensorFile again = content_at(1);
  RunState less = state_at(2);
  less.record.measured_layers.clear();
  less.record.windows.clear();
  write_state(less, again);
  CHECK(again.tensors.count("run/metric/o/0") + again.tensors.count("run/window/loss") == 0);
}

TEST_CASE("checkpoint: version 1 is read without figures and validation") {
  const Checkpoint c =
      read_checkpoint(HARMONICS_SOURCE_DIR "/tests/engine/runtime/old/checkpoint-version-1.safetensors");
  CHECK((c.state.step == 7 && c.state.epoch == 1 && c.state.index == 8));
  REQUIRE(c.state.record.by_epoch.size() == 1);
  CHECK(c.state.record.by_epoch[0].loss > 0);
  CHECK(!c.state.record.by_epoch[0].validation);
  CHECK(c.state.record.measured_layers.empty());
  CHECK(c.state.record.windows.count("loss") == 1);
  CHECK(c.file.tensors.count("x.o.affine.weight") == 1);
}

TEST_CASE("checkpoint: plain weights and later versions are refused") {
  FilesInMemory files;
  prepare(files);
  TensorFile weights;
  weights.tensors["a"] = HTensor::from(Shape{1}, std::vector<float>{1});
  files.put("runs/w.safetensors", write_safetensors(weights));
  CHECK(message_of([&] { read_checkpoint("runs/w.safetensors", files); }) ==
        "'runs/w.safetensors' has no checksum: it is not a checkpoint\nuse --weights to load weights");
  files.put("runs/w.safetensors", write_sealed(weights));
  CHECK(message_of([&] { read_checkpoint("runs/w.safetensors", files); }) ==
        "'runs/w.safetensors' holds weights, but no run to resume\nuse --weights to load weights");
  TensorFile later = content_at(1);
  std::string& text = later.metadata["harmonics.run"];
  text.replace(text.find("\"version\":2"), 11, "\"version\":3");
  files.put("runs/w.safetensors", write_sealed(later));
  CHECK(message_of([&] { read_checkpoint("runs/w.safetensors", files); }) ==
        "'runs/w.safetensors' is a checkpoint of version 3, this program reads versions 1 to 2\nuse the program that "
        "wrote it, or a later one");
  CHECK(message_of([&] { read_checkpoint("runs/none.safetensors", files); }) ==
        "cannot read 'runs/none.safetensors': No such file or directory\nthere is no folder 'runs'");
}
