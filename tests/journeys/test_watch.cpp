// A monitored run: validation, metrics, pictures, logs.
#include "tests/journeys/schema.hpp"
#include "tests/journeys/shell.hpp"

#include <cmath>
#include <cstring>

using namespace journeys;

namespace {

const std::string kMnist = "run " + kSamples + "mnist.hmx ";
std::string digits(const char* flag, int size, int seed) {
  const std::string at = "synth:digits?size=" + std::to_string(size) + "&seed=" + std::to_string(seed);
  return std::string(flag) + " '" + at + "' " + flag + " '" + at + "#label' ";
}
const std::string kWatchedDigits =
    digits("--producer", 2000, 1) + digits("--validate", 500, 2) + digits("--test", 500, 2);

const std::string kLine =
    "harmonic g {\n  producer x;\n  producer y 1/1 x;\n  layer o;\n  cycle { x -(affine)-> o; o <-(mse)- y; }\n}\n";

json::object object_of(const std::string& out) {
  const size_t last = out.rfind('\n', out.size() - 2);
  return json::parse(out.substr(last == std::string::npos ? 0 : last + 1)).as_object();
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::stringstream in(text);
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

}  // namespace

TEST_CASE("validation: after every epoch it equals a test on the same data") {
  const Result r = harmonics(kMnist + kWatchedDigits + "--metric 'topk(3)' --metric f1 --metric auc --epochs 2 --json");
  REQUIRE(r.code == 0);
  const json::object o = object_of(r.out);
  const json::object &validation = o.at("validation").as_object(), &test = o.at("test").as_object();
  for (const char* name : {"loss", "accuracy", "top3", "f1", "auc", "output.accuracy", "output.f1", "output.loss"}) {
    INFO(name);
    REQUIRE(validation.contains(name));
    CHECK(validation.at(name).to_number<double>() == test.at(name).to_number<double>());
    CHECK(o.at("metrics").at("val." + std::string(name)).to_number<double>() == test.at(name).to_number<double>());
  }
  CHECK(test.at("accuracy").to_number<double>() == number(r.out, "test_accuracy"));
  CHECK(test.at("accuracy").to_number<double>() > 0.6);
  CHECK(test.at("top3").to_number<double>() > test.at("accuracy").to_number<double>());
  CHECK(count(r.err, "· validation loss ") == 2);
  CHECK(has(r.err, "test on 500 samples: loss "));
  CHECK(has(r.err, ", f1 0."));
}

TEST_CASE("watch: validation and logs do not change the weights") {
  Folder f;
  const std::string common = kMnist + digits("--producer", 600, 1) + "--epochs 2 --quiet --save ";
  REQUIRE(harmonics(common + (f / "a")).code == 0);
  REQUIRE(harmonics(common + (f / "b") + " " + digits("--validate", 200, 3) + "--metric f1 --metric 'topk(2)' --log " +
                    (f / "l.csv") + " --log-every 3")
              .code == 0);
  CHECK(read(f / "a") == read(f / "b"));
}

TEST_CASE("watch: a run stops when validation reaches its bound") {
  const Result r = harmonics(kMnist + kWatchedDigits + "--until 'val.accuracy>=0.5' --epochs 50 --json --quiet");
  REQUIRE(r.code == 0);
  CHECK(has(r.out, "\"stopped_by\":\"until val.accuracy >= 0.5\""));
  CHECK(number(r.out, "epochs") < 50);
  CHECK(number(r.out, "test_accuracy") >= 0.5);
  Folder f;
  const std::string flow = f.write("g.hmx",
                                   "harmonic g { producer x; producer y 1/1 x; layer o; cycle (epochs 40, until "
                                   "val.rmse < 1000) { x -(affine)-> o; o <-(mse)- y; } }");
  const std::string x = f.write("x.csv", "1.5\n2.5\n3.5\n4.5\n"), y = f.write("y.csv", "2\n4\n6\n8\n");
  const std::string line = "run " + flow + " --producer " + x + " --producer " + y + " --json --quiet ";
  const Result in_file = harmonics(line + "--validate " + x + " --validate " + y);
  CHECK(has(in_file.out, "\"stopped_by\":\"until val.rmse < 1000\""));
  CHECK(number(in_file.out, "epochs") == 1);
  const Result without = harmonics(line);
  CHECK(without.code == 2);
  CHECK(has(without.err, "error: 'until val.rmse' can never hold: there is no validation data\n"));
  CHECK(has(without.err, "give it: --validate NAME=ADDRESS for every producer\n"));
}

TEST_CASE("metrics: regression is measured by regression metrics") {
  Folder f;
  const std::string flow = f.write("g.hmx", kLine), x = f.write("x.csv", "1.5\n2.5\n3.5\n4.5\n"),
                    y = f.write("y.csv", "2\n4\n6\n8\n");
  const std::string line =
      "run " + flow + " --producer " + x + " --producer " + y + " --test " + x + " --test " + y + " --epochs 0 --json ";
  const Result r = harmonics(line + "--metric r2");
  REQUIRE(r.code == 0);
  const json::object test = object_of(r.out).at("test").as_object();
  for (const char* name : {"mae", "rmse", "r2"}) CHECK(test.contains(name));
  CHECK(test.at("loss").to_number<double>() == Approx(std::pow(test.at("rmse").to_number<double>(), 2)).epsilon(1e-5));
  const Result wrong = harmonics(line + "--metric f1");
  CHECK(wrong.code == 2);
  CHECK(has(wrong.err, "error: metric 'f1' compares classes, but the target of 'o' holds numbers\n"));
}

TEST_CASE("metrics: a text model is measured by its perplexity") {
  Folder f;
  std::string verse;
  for (int i = 0; i < 40; ++i) verse += "the rain falls on the sea.\n";
  const std::string text = f.write("verse.txt", verse);
  const Result r = harmonics("run " + kSamples + "char_lstm.hmx --producer 'file:" + text +
                             "?window=16&shift=9' --validate 'file:" + text +
                             "?window=16&shift=9' --batch 16 --steps 6 --json --quiet");
  REQUIRE(r.code == 0);
  const json::object v = object_of(r.out).at("validation").as_object();
  // The loss is the mean over all positions except the last, and perplexity is its exponential.
  CHECK(v.at("perplexity").to_number<double>() == Approx(std::exp(v.at("loss").to_number<double>())).epsilon(1e-4));
}

TEST_CASE("watch: curve, confusion and page are drawn") {
  Folder f;
  const Result r = harmonics(kMnist + kWatchedDigits + "--epochs 3 --quiet --plot " + (f / "curve.svg") +
                             " --confusion " + (f / "confusion.svg") + " --report " + (f / "run.html"));
  REQUIRE(r.code == 0);
  const std::string curve = read(f / "curve.svg"), confusion = read(f / "confusion.svg"), page = read(f / "run.html");
  CHECK(curve.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  CHECK(curve.ends_with("</svg>\n"));
  for (const char* part : {">loss<", ">accuracy<", ">training<", ">validation<", ">steps<"}) CHECK(has(curve, part));
  CHECK(count(curve, "<circle") == 6);  // three epochs in two panels
  CHECK(has(confusion, "output · Test of 500 samples"));
  double counted = 0;
  for (size_t at = confusion.find("<text", confusion.find("<rect x=")); at != std::string::npos;
       at = confusion.find("<text", at + 1)) {
    const size_t open = confusion.find('>', at), cells = confusion.find("fill=\"none\"");
    if (at < cells) counted += std::strtod(confusion.c_str() + open + 1, nullptr);
  }
  CHECK(counted == 500);
  for (const char* part : {"Learning curve", "Figures", "Confusion matrix", "Sample predictions", "Settings", "Machine",
                           "The flow", "harmonics run ", "test accuracy"}) {
    INFO(part);
    CHECK(has(page, part));
  }
  CHECK(count(page, "<figure") > 30);  // the first samples and the worst
  CHECK(count(page, "<figure") <= 60);
  CHECK_FALSE(has(page, "http://www.w3.org/1999"));
  for (const char* outside : {"href=", "@import", "url("}) CHECK_FALSE(has(page, outside));  // self-contained
  CHECK(count(page, "src=") == count(page, "src=\"data:image/png;base64,"));
}

TEST_CASE("watch: long names of classes stand aslant above the confusion matrix, and the title has room") {
  Folder f;
  std::string rows;
  for (int i = 0; i < 30; ++i) rows += std::to_string(i) + (i % 2 ? ",Iris-versicolor\n" : ",Iris-virginica\n");
  const std::string flow = f.write("g.hmx",
                                   "harmonic g { producer x {1}; producer y; layer o {2}; cycle { x -> o; "
                                   "o <-(cross_entropy)- y; } }\n"),
                    table = f.write("t.csv", rows), of = " x=" + table + "#0 ", label = " y=" + table + "#1 ";
  REQUIRE(harmonics("run " + flow + " --producer" + of + "--producer" + label + "--test" + of + "--test" + label +
                    "--epochs 1 --quiet --confusion " + (f / "c.svg"))
              .code == 0);
  const std::string drawn = read(f / "c.svg");
  CHECK(count(drawn, "transform=\"rotate(-60") == 2);
  CHECK(has(drawn, ">Iris-versicolor</text>"));
  const double width = std::strtod(drawn.c_str() + drawn.find("viewBox=\"0 0 ") + 13, nullptr);
  const size_t title = drawn.find("font-weight=\"600\"");
  const double begin = std::strtod(drawn.c_str() + drawn.rfind("x=\"", title) + 3, nullptr);
  CHECK(width - begin > 7 * 20);  // "o · Test of 30 samples"
}

TEST_CASE("metrics: confusion is printed as a line and a table") {
  const Result r = harmonics(kMnist + kWatchedDigits + "--epochs 1 --metric confusion --json");
  REQUIRE(r.code == 0);
  const json::object o = object_of(r.out);
  const json::array& rows = o.at("confusion").as_object().at("output").as_array();
  REQUIRE(rows.size() == 10);
  double all = 0, right = 0, most = 0;
  for (size_t truth = 0; truth < 10; ++truth)
    for (size_t taken = 0; taken < 10; ++taken) {
      CHECK(rows[truth].as_array().at(taken).is_int64());  // a count
      const double n = rows[truth].as_array().at(taken).to_number<double>();
      all += n;
      if (truth == taken)
        right += n;
      else
        most = std::max(most, n);
    }
  CHECK(all == 500);
  CHECK(right / all == Approx(number(r.out, "test_accuracy")));
  const size_t at = r.err.find("confusion of 'output': most frequent errors: ");
  REQUIRE(at != std::string::npos);
  CHECK(has(r.err.substr(at, r.err.find('\n', at) - at), " (" + std::to_string(static_cast<int>(most)) + " of "));
  CHECK(has(harmonics(kMnist + kWatchedDigits + "--steps 1 --json --quiet").out, "\"confusion\":null"));
  const Result alone = harmonics(kMnist + digits("--producer", 100, 1) + "--metric confusion");
  CHECK(alone.code == 2);
  CHECK(alone.err ==
        "error: --metric confusion counts predictions on validation or test data, but there is none\nhelp: give it: "
        "--test "
        "NAME=ADDRESS or --validate NAME=ADDRESS\n");
}

TEST_CASE("watch: a page of a regression shows predictions beside their targets") {
  Folder f;
  const std::string flow = f.write("g.hmx", kLine), x = f.write("x.csv", "1.5\n2.5\n3.5\n4.5\n"),
                    y = f.write("y.csv", "2\n4\n6\n8\n");
  REQUIRE(harmonics("run " + flow + " --producer " + x + " --producer " + y + " --validate " + x + " --validate " + y +
                    " --epochs 2 --quiet --report " + (f / "r.html"))
              .code == 0);
  const std::string page = read(f / "r.html");
  CHECK(has(page, "<th>predicted</th><th>actual</th>"));
  CHECK(has(page, "<td>8</td><td>"));  // and its loss
  CHECK(has(page, ">mae<"));           // the second panel
}

TEST_CASE("watch: pictures that cannot be drawn are reported before the run") {
  Folder f;
  const Result r = harmonics(kMnist + digits("--producer", 100, 1) + "--confusion " + (f / "c.svg"));
  CHECK(r.code == 2);
  CHECK(r.err ==
        "error: --confusion draws predictions on validation or test data, but there is none\n"
        "help: give it: --test "
        "NAME=ADDRESS or --validate NAME=ADDRESS\n");
  const Result log = harmonics(kMnist + digits("--producer", 100, 1) + "--log metrics.txt");
  CHECK(log.code == 2);
  CHECK(log.err ==
        "error: the name of the log 'metrics.txt' must end in .csv or .jsonl\n"
        "help: the extension selects the format, e.g. --log metrics.csv\n");
  const Result nowhere = harmonics(kMnist + digits("--producer", 100, 1) + "--log /nowhere/metrics.csv --epochs 1");
  CHECK(nowhere.code == 73);
}

TEST_CASE("logs: metrics are written by epoch and by step, as CSV and JSON lines") {
  Folder f;
  REQUIRE(harmonics(kMnist + digits("--producer", 640, 1) + digits("--validate", 100, 2) +
                    "--epochs 2 --batch 64 --quiet --log-every 5 --log " + (f / "m.csv") + " --log " + (f / "m.jsonl"))
              .code == 0);
  const std::vector<std::string> csv = lines(read(f / "m.csv")), rows = lines(read(f / "m.jsonl"));
  REQUIRE(csv.size() == 1 + 4 + 2);
  CHECK(csv[0] ==
        "kind,epoch,step,samples,seconds,samples_per_second,learning_rate,loss,output.accuracy,output.loss,val.loss,"
        "val.output.loss,val.accuracy,val.output.accuracy");
  CHECK(csv[1].starts_with("step,1,5,320,"));
  CHECK(csv[2].starts_with("step,1,10,640,"));
  CHECK(csv[3].starts_with("epoch,1,10,640,"));
  CHECK(csv[1].ends_with(",,,,"));  // not validated yet
  CHECK(csv[6].starts_with("epoch,2,20,1280,"));
  REQUIRE(rows.size() == 6);
  const json::value schema = json::parse(read(std::string(HARMONICS_SOURCE_DIR) + "/docs/schema/log.json"));
  for (const std::string& row : rows) CHECK(SchemaCheck::run(schema, json::parse(row)) == std::vector<std::string>{});
  CHECK(json::parse(rows[2]).at("metrics").at("val.accuracy").to_number<double>() > 0);
  const auto loss = [&](size_t row) { return json::parse(rows[row]).at("metrics").at("loss").to_number<double>(); };
  CHECK((loss(0) + loss(1)) / 2 == Approx(loss(2)));  // a row has the means of its own steps
  CHECK((loss(3) + loss(4)) / 2 == Approx(loss(5)));
}

namespace {

// Returns the rows of a log without the time columns.
std::string untimed(const std::string& csv) {
  std::string all;
  for (const std::string& line : lines(csv)) {
    std::stringstream in(line);
    size_t column = 0;
    for (std::string cell; std::getline(in, cell, ','); ++column)
      if (column != 4 && column != 5) all += cell + ",";
    all += "\n";
  }
  return all;
}

}  // namespace

TEST_CASE("logs: a run stopped within an epoch reports the same as an undisturbed run") {
  Folder f;
  const auto command = [&](const std::string& name) {
    return kMnist + digits("--producer", 600, 1) + digits("--validate", 150, 2) +
           "--batch 50 --metric auc --metric 'f1(average=none)' --metric confusion --seed 3 --json --quiet --log-every "
           "4 --log " +
           (f / (name + ".csv")) + " --log " + (f / (name + ".jsonl")) + " --plot " + (f / (name + ".svg")) +
           " --confusion " + (f / (name + "-matrix.svg")) + " ";
  };
  const Result whole = harmonics(command("whole") + "--epochs 3");
  REQUIRE(whole.code == 0);
  const std::string parts = command("parts") + "--checkpoint " + (f / "runs") + " --resume --epochs 3 ";
  for (const char* steps : {"--steps 7", "--steps 12", "--steps 20", ""})
    REQUIRE(harmonics(parts + steps).code == 0);  // 12 steps per epoch
  const Result resumed = harmonics(parts);        // again, after the end
  json::object a = object_of(whole.out), b = object_of(resumed.out);
  for (const char* key : {"seconds", "samples_per_second", "resumed_at", "checkpoint", "kept", "waited_for_data",
                          "tokens_per_second", "peak_share", "memory"})
    a.erase(key), b.erase(key);
  CHECK(json::serialize(a) == json::serialize(b));
  CHECK(a.at("metrics").as_object().contains("val.f1.3"));
  CHECK(untimed(read(f / "whole.csv")) == untimed(read(f / "parts.csv")));
  size_t measured = 0;
  for (const std::string& line : lines(read(f / "parts.jsonl")))
    measured += json::parse(line).at("kind") != "event";  // checkpoints are events
  CHECK(measured == 9 + 3);
  CHECK(read(f / "whole.svg") == read(f / "parts.svg"));
  CHECK(read(f / "whole-matrix.svg") == read(f / "parts-matrix.svg"));
}

namespace {

uint32_t crc32c(const std::string& bytes) {
  uint32_t crc = 0xFFFFFFFFu;
  for (const char c : bytes) {
    crc ^= static_cast<uint8_t>(c);
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
  }
  return ~crc;
}
uint32_t masked(const std::string& bytes) {
  const uint32_t c = crc32c(bytes);
  return (c >> 15 | c << 17) + 0xa282ead8u;
}
template <typename T>
T little(const std::string& s, size_t at) {
  T v;
  REQUIRE(at + sizeof v <= s.size());
  std::memcpy(&v, s.data() + at, sizeof v);
  return v;
}

std::vector<std::string> records(const std::string& file) {
  std::vector<std::string> all;
  for (size_t at = 0; at < file.size();) {
    const auto size = little<uint64_t>(file, at);
    CHECK(little<uint32_t>(file, at + 8) == masked(file.substr(at, 8)));
    all.push_back(file.substr(at + 12, size));
    CHECK(little<uint32_t>(file, at + 12 + size) == masked(all.back()));
    at += 16 + size;
  }
  return all;
}

}  // namespace

TEST_CASE("logs: TensorBoard events have its framing and checksums") {
  CHECK(crc32c("123456789") == 0xE3069283u);
  Folder f;
  REQUIRE(harmonics(kMnist + digits("--producer", 320, 1) + digits("--validate", 100, 2) +
                    "--epochs 3 --quiet --tensorboard " + (f / "tb/run"))
              .code == 0);
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(f / "tb/run")) files.push_back(entry.path().string());
  REQUIRE(files.size() == 1);
  CHECK(has(files[0], "/events.out.tfevents."));
  const std::vector<std::string> all = records(read(files[0]));
  REQUIRE(all.size() == 4);
  CHECK(has(all[0], "brain.Event:2"));
  for (size_t i = 1; i < 4; ++i)
    for (const char* tag :
         {"training/loss", "training/output.accuracy", "validation/loss", "validation/accuracy", "rate/learning_rate"})
      CHECK(has(all[i], tag));
}

TEST_CASE("metrics: all are listed and explained") {
  const Result r = harmonics("list metrics");
  REQUIRE(r.code == 0);
  for (const char* name :
       {"accuracy", "topk", "precision", "recall", "f1", "auc", "perplexity", "confusion", "mae", "rmse", "r2"})
    CHECK(has(r.out, "  " + std::string(name) + " "));
  const Result one = harmonics("inspect topk");
  CHECK(has(one.out, "metric topk(k = 5)\n  fraction of samples with the correct class among the k most likely\n"));
  CHECK(has(one.out, "example\n  --metric topk\n"));
}
