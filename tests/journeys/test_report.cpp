// Output of a run: its curve, page and log, and its events.
#include "tests/journeys/background.hpp"
#include "tests/journeys/replies.hpp"
#include "tests/journeys/schema.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

using namespace journeys;

namespace {

// Trains y = 2 x in steps of all four samples.
struct Steep {
  Folder f;
  std::string flow = f.write("g.hmx",
                             "harmonic g { producer x; producer y; layer o; cycle (epochs 300, batch=4) { x "
                             "-(affine)-> o; o <-(mse)- y; } }\n");
  std::string x = f.write("x.csv", "1\n2\n3\n4\n"), y = f.write("y.csv", "2\n4\n6\n8\n");

  Result run(const std::string& more) const {
    return harmonics("run " + flow + " --producer " + x + " --producer " + y + " --quiet " + more);
  }
};

std::vector<json::value> rows_of(const std::string& path) {
  std::vector<json::value> rows;
  const std::string whole = read(path);
  std::stringstream text(whole.substr(0, whole.rfind('\n') + 1));  // a run may be writing the next line
  for (std::string line; std::getline(text, line);) rows.push_back(json::parse(line));
  return rows;
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

std::string section(const std::string& html, const std::string& title) {
  const size_t from = html.find("<h2>" + title + "</h2>");
  return from == std::string::npos ? "" : html.substr(from, html.find("<h2>", from + 4) - from);
}

// The start of a PNG as data: its signature, size, depth and colours.
const std::string kGrey28 = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAABwAAAAcCAAAAA";
const std::string kColour8x12 = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAwAAAAICAIAAA";

// Writes samples of this shape ("40, 3, 8, 12") as a NumPy array.
std::string array_file(const Folder& f, const std::string& name, const std::string& shape,
                       const std::vector<float>& values) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + shape + "), }";
  header.resize(117, ' ');
  header += '\n';
  std::string file("\x93NUMPY\x01\x00v\x00", 10);
  return f.write(
      name, file + header + std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
}

// Returns colours of 40 samples of 3 x 8 x 12 values in [0, 1].
std::vector<float> colours(float scale) {
  std::vector<float> values(40 * 3 * 8 * 12);
  for (size_t i = 0; i < values.size(); ++i) values[i] = scale * static_cast<float>(i * 37 % 101) / 100;
  return values;
}

// Decodes the PNG data that begins at `at`.
std::string png_in(const std::string& html, size_t at) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int held = 0;
  for (; digits.find(html[at]) != std::string::npos; ++at) {
    bits = bits << 6 | static_cast<uint32_t>(digits.find(html[at]));
    if ((held += 6) >= 8) bytes += static_cast<char>(bits >> (held -= 8) & 255);
  }
  return bytes;
}

// Returns the levels from 0 to 1 of the first picture whose alternative text is `what`.
std::vector<double> levels_in(const Folder& f, const std::string& html, const std::string& what) {
  const size_t alt = html.find("alt=\"" + what + "\"");
  REQUIRE(alt != std::string::npos);
  const std::string words = "base64,";
  f.write("drawn.png", png_in(html, html.rfind(words, alt) + words.size()));
  const std::string flow = f.write(
      "drawn.hmx", "harmonic d { producer x; consumer y; layer o; cycle { x -(flatten)-> o -(identity)-> y; } }\n");
  const Result r = harmonics("infer " + flow + " --producer file:" + (f / "drawn.png") +
                             " --consumer 'file:" + (f / "drawn.csv") + "' --quiet");
  REQUIRE(r.code == 0);
  std::vector<double> levels;
  std::string text = read(f / "drawn.csv");
  std::replace(text.begin(), text.end(), ',', ' ');
  std::istringstream numbers(text);
  for (double level = 0; numbers >> level;) levels.push_back(level);
  return levels;
}

// Returns forty grey images of 10 x 10: a shaded ball on a bright ground, or a stroke on an empty one.
std::vector<float> greys(bool photograph) {
  std::vector<float> values;
  for (int picture = 0; picture < 40; ++picture)
    for (int row = 0; row < 10; ++row)
      for (int column = 0; column < 10; ++column) {
        const double far = std::hypot(row - 4.5, column - 4.5);
        const bool stroke = column == 4 + picture % 3;
        values.push_back(static_cast<float>(!photograph ? stroke : far > 4 ? 0.8 : 0.1 + far / 10));
      }
  return values;
}

const std::string kLetters =
    "harmonic letters { producer text; layer x {*, 16}; layer next; cycle (epochs 1, batch=4) { text -(embed(16))-> "
    "x; x -(affine)-> next; next <-(next_token)- text; } }\n";

}  // namespace

TEST_CASE("curve: begins where the run began, and marks values beyond its axis") {
  const Steep steep;
  const std::string svg = steep.f / "c.svg";
  REQUIRE(steep.run("--optimizer 'adam(lr=0.01)' --plot " + svg).code == 0);
  // The first point is the highest: 1/1.08 of the axis, which is 190 high and begins at 40.
  const std::string slow = read(svg);
  size_t curves = 0;
  for (size_t at = slow.find("points=\""); at != std::string::npos; at = slow.find("points=\"", at + 1), ++curves)
    CHECK(slow.compare(at, 17, "points=\"66.1,54.1") == 0);
  CHECK(curves == 2);
  CHECK_FALSE(has(slow, "class=\"beyond\""));

  REQUIRE(steep.run("--optimizer 'sgd(lr=0.1)' --plot " + svg).code == 0);
  const std::string fast = read(svg);
  CHECK(has(fast, "class=\"beyond\""));
  CHECK(has(fast, " at step 1</text>"));
}

TEST_CASE("pictures: a name with the ending of another format is refused") {
  const Steep steep;
  for (const char* flag : {"--plot", "--confusion", "--report"}) {
    const Result r =
        steep.run(std::string(flag) + " " + (steep.f / "c.png") + " --test " + steep.x + " --test " + steep.y);
    CHECK(r.code == 2);
    CHECK(has(r.err, "c.png' does not end in ."));
    CHECK_FALSE(fs::exists(steep.f / "c.png"));
  }
}

TEST_CASE("report: the command can be copied, the worst predictions come first, and weights are counted") {
  Folder f;
  const std::string page = f / "r.html";
  REQUIRE(
      harmonics("run " + kSamples +
                "mnist.hmx --producer 'synth:digits?size=400&seed=1' --producer 'synth:digits?size=400&seed=1#label' "
                "--test 'synth:digits?size=300&seed=2' --test 'synth:digits?size=300&seed=2#label' --epochs 1 --quiet "
                "--report " +
                page)
          .code == 0);
  const std::string html = read(page);
  CHECK(has(html, "'synth:digits?size=400&amp;seed=1'"));
  CHECK(has(html, "<th>weights trained</th><td>311,650</td>"));
  const size_t worst = html.find("The worst of the first 300"), first = html.find("The first ones");
  REQUIRE(worst != std::string::npos);
  REQUIRE(first != std::string::npos);
  CHECK(worst < first);
  CHECK(html.compare(html.find("<figure", worst), 22, "<figure class=\"wrong\">") == 0);
  CHECK(html.substr(worst, first - worst).find("class=\"right\"") == std::string::npos);
  CHECK(has(html.substr(first), "class=\"right\""));
}

TEST_CASE("report: an autoencoder's samples are pictures of input and output with their loss") {
  Folder f;
  const std::string page = f / "r.html";
  const bool flat = GENERATE(false, true);
  const char* loss = flat ? "mse" : "binary_cross_entropy";
  REQUIRE(harmonics("run " +
                    f.write("a.hmx", std::string("harmonic a { producer images; layer code {16}; layer out ") +
                                         (flat ? "{784}" : "{28, 28}") +
                                         "; cycle (epochs 1) { images -(affine, relu)-> code; code -(affine, "
                                         "sigmoid)-> out; out <-(" +
                                         loss + ")- images; } }\n") +
                    " --producer 'synth:digits?size=200&seed=1' --quiet --report " + page)
              .code == 0);
  const std::string samples = section(read(page), "Sample predictions");
  CHECK(count(samples, "<figure>") == 60);  // 30 of the worst, 30 of the first
  CHECK(count(samples, kGrey28) == 2 * 60);
  CHECK(count(samples, "<small>input</small>") == 60);
  CHECK(count(samples, "<small>output</small>") == 60);
  CHECK(count(samples, "<small>target</small>") == 0);
  CHECK_FALSE(has(samples, "<table"));
  std::vector<double> losses;
  for (size_t at = samples.find("<figcaption>loss "); at < samples.find("The first ones");
       at = samples.find("<figcaption>loss ", at + 1))
    losses.push_back(std::stod(samples.substr(at + 17)));
  REQUIRE(losses.size() == 30);
  CHECK(std::is_sorted(losses.rbegin(), losses.rend()));
  CHECK(losses.front() > losses.back());
}

TEST_CASE("report: the loss of each shown sample is that of the flow, weights of its terms included") {
  Folder f;
  const std::string page = f / "r.html";
  const std::string flow = f.write("g.hmx",
                                   "harmonic g { producer x; producer y; layer o; cycle (steps 1, batch=4) { x "
                                   "-(affine)-> o; o <-(mse(weight=2), mae)- y; } }\n");
  REQUIRE(harmonics("run " + flow + " --producer " + f.write("x.csv", "1\n2\n3\n4\n") + " --producer " +
                    f.write("y.csv", "20\n40\n60\n80\n") + " --optimizer 'sgd(lr=0)' --quiet --report " + page)
              .code == 0);
  const std::string samples = section(read(page), "Sample predictions"),
                    first = samples.substr(samples.find("The first ones"));
  for (int i = 0; i < 4; ++i) {
    INFO("sample " << i);
    const std::string row = "<td>" + std::to_string(i) + "</td><td>";
    REQUIRE(has(first, row));
    double prediction = 0, target = 0, loss = 0;
    REQUIRE(std::sscanf(first.c_str() + first.find(row) + row.size(), "%lf</td><td>%lf</td><td>%lf</td>", &prediction,
                        &target, &loss) == 3);
    CHECK(target == 20 * (i + 1));
    const double d = std::abs(prediction - target);
    CHECK(loss == Approx(2 * d * d + d).epsilon(1e-3));  // as printed: four digits
  }
}

TEST_CASE("report: pictures in colours, with input, target and output where input and target differ") {
  Folder f;
  const std::string page = f / "r.html", clean = array_file(f, "clean.npy", "40, 3, 8, 12", colours(1)),
                    dark = array_file(f, "dark.npy", "40, 3, 8, 12", colours(0.5f)),
                    last = array_file(f, "last.npy", "40, 8, 12, 3", colours(1));
  const auto report = [&](const std::string& x, const std::string& y) {
    REQUIRE(harmonics("run " +
                      f.write("c.hmx",
                              "harmonic c { producer x; producer y; layer code {16}; layer out; cycle (epochs 1, "
                              "batch=8) { x -(affine, relu)-> code; code -(affine)-> out; out <-(mse)- y; } }\n") +
                      " --producer x=" + x + " --producer y=" + y + " --quiet --report " + page)
                .code == 0);
    return section(read(page), "Sample predictions");
  };
  const std::string differs = report(dark, clean);
  CHECK(count(differs, kColour8x12) == 3 * 60);
  for (const char* what : {"input", "target", "output"})
    CHECK(count(differs, std::string("<small>") + what + "</small>") == 60);
  const std::string same = report(last, last);
  CHECK(count(same, kColour8x12) == 2 * 60);
  CHECK_FALSE(has(same, "<small>target</small>"));
}

TEST_CASE("report: photographs are drawn as they are, strokes on an empty ground dark on light") {
  const bool photograph = GENERATE(true, false), encodes = GENERATE(true, false);
  Folder f;
  const std::string page = f / "r.html", x = array_file(f, "x.npy", "40, 10, 10", greys(photograph));
  std::string labels;
  for (int i = 0; i < 40; ++i) labels += std::to_string(i % 3) + "\n";
  const std::string flow =
      f.write("g.hmx",
              encodes ? "harmonic g { producer x; layer code {4}; layer out; cycle (epochs 1, batch=8) { x -(affine)-> "
                        "code; code -(affine)-> out; out <-(mse)- x; } }\n"
                      : "harmonic g { producer x; producer y {3}; layer out; cycle (epochs 1, batch=8) { x -(affine)-> "
                        "out; out <-(cross_entropy)- y; } }\n");
  REQUIRE(harmonics("run " + flow + " --producer 'x=" + x + "?shuffle=0'" +
                    (encodes ? "" : " --producer y=" + f.write("y.csv", labels)) + " --quiet --report " + page)
              .code == 0);
  const std::string html = read(page);
  const size_t first = html.find("The first ones");
  REQUIRE(first != std::string::npos);
  const std::vector<double> levels = levels_in(f, html.substr(first), encodes ? "input" : "sample 0");
  const std::vector<float> values = greys(photograph);
  REQUIRE(levels.size() == 100);
  for (size_t i = 0; i < levels.size(); ++i) {
    const double level = values[i] / (photograph ? 0.8 : 1);  // relative to the scale, which ends at the largest value
    CHECK(levels[i] == Approx(photograph ? level : 1 - level).margin(0.01));
  }
}

TEST_CASE("report: few numbers that are not a picture stay numbers") {
  Folder f;
  const std::string page = f / "r.html", rows = array_file(f, "x.npy", "40, 16", std::vector<float>(40 * 16, 0.5f));
  REQUIRE(harmonics("run " +
                    f.write("a.hmx",
                            "harmonic a { producer x; layer code {4}; layer out; cycle (epochs 1) { x -(affine)-> "
                            "code; code -(affine)-> out; out <-(mse)- x; } }\n") +
                    " --producer " + rows + " --quiet --report " + page)
              .code == 0);
  const std::string samples = section(read(page), "Sample predictions");
  CHECK(has(samples, "<table class=\"rows\">"));
  CHECK_FALSE(has(samples, "<img"));
}

TEST_CASE("report: a language model shows text, its predictions by position, and what it writes") {
  Folder f;
  const std::string page = f / "r.html";
  std::string text;
  for (int i = 0; i < 40; ++i) text += "<i>&amp;\x01 \"the rain\"\n\tfalls</i> on it, and the sea.\n";
  REQUIRE(harmonics("run " + f.write("letters.hmx", kLetters) + " --producer 'file:" + f.write("t.txt", text) +
                    "?window=64' --quiet --report " + page)
              .code == 0);
  const std::string samples = section(read(page), "Sample predictions");
  CHECK(has(samples, "The worst of the first "));
  CHECK(count(samples, "<div class=\"text\">") == 12);  // six of the worst, six of the first
  CHECK(count(samples, "<span class=\"ok\">") + count(samples, "<span class=\"no\">") == 12 * 48);
  CHECK(count(samples, "<span class=\"no\">") > 0);
  // The first window: the text before the last 48 of its 63 predicted positions, then the first two of these.
  const std::string first = samples.substr(samples.find("The first ones"));
  CHECK(has(first, "<p>sample 0: "));
  CHECK(has(first, " of 63 right</p>"));
  CHECK(has(first, "<pre>&lt;i&gt;&amp;amp;\\x01 &quot;the r</pre>"));
  CHECK(has(first, "<p class=\"tokens\"><span class=\""));
  CHECK(has(first, "<i>a</i><b>"));
  CHECK(has(first, "<i>↵</i><b>"));
  CHECK(has(first, "<i>⇥</i><b>"));
  CHECK(has(first, "<i>␣</i><b>"));
  const size_t written = samples.find("<h3>A text written by the model</h3>");
  REQUIRE(written != std::string::npos);
  const std::string tail = samples.substr(written);
  CHECK(has(tail, "at temperature 0.8 with seed 0"));
  CHECK(has(tail, "<pre class=\"written\"><b>&lt;i&gt;&amp;amp;\\x01 &quot;the rain&quot;↵\n⇥falls&lt;/"));
  CHECK_FALSE(has(samples, "\x01"));
  CHECK_FALSE(has(samples, "<i>&amp;amp;\\x01"));
}

TEST_CASE("report: classes at the positions of a text are shown below the text") {
  Folder f;
  const std::string page = f / "r.html";
  const std::string text = f.write("t.txt", std::string(400, 'a') + std::string(240, 'b'));
  const std::string tags = f.write("tags.txt", std::string(400, 'X') + std::string(240, 'Y'));
  REQUIRE(harmonics("run " +
                    f.write("tags.hmx",
                            "harmonic tags { producer text; producer tags; layer x {*, 8}; layer tag; cycle (epochs "
                            "30, batch=4) { text -(embed(8))-> x; x -(affine, softmax)-> tag; tag "
                            "<-(cross_entropy)- tags; } }\n") +
                    " --producer 'text=file:" + text + "?window=64' --producer 'tags=file:" + tags +
                    "?window=64' --optimizer 'adam(lr=0.1)' --quiet --report " + page)
              .code == 0);
  const std::string samples = section(read(page), "Sample predictions");
  CHECK(has(samples, "<span class=\"ok\"><u>a</u><i>X</i><b>X</b></span>"));
  CHECK_FALSE(has(samples, "written by the model"));
}

TEST_CASE("report: lists size, date and checksum of data files, and the host") {
  const Steep steep;
  const std::string page = steep.f / "r.html";
  REQUIRE(steep.run("--test " + steep.x + " --test " + steep.y + " --report " + page).code == 0);
  const std::string html = read(page), data = section(html, "Data");
  CHECK(count(data, "<th>training</th>") == 2);
  CHECK(count(data, "<th>test</th>") == 2);
  CHECK(has(data, steep.x + " · 8 bytes, changed 2"));
  CHECK(count(data, "CRC-32 3fc1a5b3") == 2);  // of "1\n2\n3\n4\n", by another program
  char host[256]{};
  REQUIRE(::gethostname(host, sizeof host - 1) == 0);
  CHECK(has(section(html, "Machine"), std::string("<tr><th>host</th><td>") + host + "</td></tr>"));
  CHECK(has(html, "all epochs done"));
}

TEST_CASE("events: changes by control are in the log and on the page") {
  Folder f;
  const std::string socket = f / "run.sock", log = f / "l.jsonl", page = f / "r.html", runs = f / "runs";
  Background run(f, "run " + kLongRun + "--control " + socket + " --log " + log + " --log " + (f / "l.csv") +
                        " --checkpoint " + runs + " --report " + page);
  const auto state = [&] { return harmonics("ctl " + socket + " status").out; };
  REQUIRE(run.await([&] { return has(state(), "running"); }));
  // A command takes effect between two steps, so the next one is sent when the log shows the effect of this one.
  for (const auto& [command, effect] : {std::pair("lr 0.0005", "was set to 0.0005"),
                                        {"pause", "the run was paused"},
                                        {"resume", "the run went on"},
                                        {"checkpoint", "\"checkpoint\""},
                                        {"lr schedule", "follows the schedule again"}}) {
    INFO(command);
    REQUIRE(harmonics("ctl " + socket + " " + command).code == 0);
    REQUIRE(run.await([&, effect = effect] { return has(read(log), effect); }));
  }
  const auto kinds = [&] {
    std::set<std::string> all;
    for (const json::value& row : rows_of(log))
      if (const json::value* event = row.as_object().if_contains("event")) all.insert(std::string(event->as_string()));
    return all;
  };
  run.signal(SIGTERM);
  const Result r = run.end();
  CHECK(r.code == 143);
  CHECK(kinds() == std::set<std::string>{"checkpoint", "learning_rate", "pause", "resume"});
  for (const json::value& row : rows_of(log))
    for (const std::string& wrong : SchemaCheck::run(schema("log"), row)) FAIL_CHECK(wrong);
  for (const json::value& row : rows_of(log)) {
    if (!row.as_object().contains("event")) continue;
    INFO(json::serialize(row));
    CHECK((row.at("samples").as_int64() > 0) == (row.at("step").as_int64() > 0));
    if (has(std::string(row.at("text").as_string()), "was set to 0.0005"))
      CHECK(row.at("learning_rate").as_double() == 0.0005);
  }
  CHECK_FALSE(has(read(log), "E0,"));  // without exponents
  CHECK_FALSE(has(read(f / "l.csv"), "event"));
  const std::string html = read(page);
  for (const char* text : {"<h2>Events</h2>", "the learning rate was set to 0.0005",
                           "the learning rate follows the schedule again", "the run was paused", "the run went on"})
    CHECK(has(html, text));
  CHECK(has(html, "checkpoint " + runs));
}

TEST_CASE("prompts: a character unknown to the model is printed whole in the error, after no other output") {
  Folder f;
  std::string verse;
  for (int i = 0; i < 20; ++i) verse += "the rain falls on the sea and the sea falls on the shore.\n";
  const std::string weights = f / "w.safetensors";
  REQUIRE(harmonics("run " + kSamples + "char_lstm.hmx --producer 'file:" + f.write("verse.txt", verse) +
                    "?window=32&shift=7' --quiet --batch 16 --steps 1 --save " + weights)
              .code == 0);
  const Result r = harmonics("infer " + kSamples + "char_lstm.hmx --weights " + weights + " --prompt 'Ünïcode'");
  CHECK(r.code == 2);
  CHECK(r.out.empty());
  CHECK(has(r.err, "the prompt has 'Ü' at byte 0"));
}
