// A run observed from another terminal: top and tap.
#include "tests/journeys/background.hpp"
#include "tests/journeys/on_terminal.hpp"
#include "tests/journeys/replies.hpp"
#include "tests/journeys/schema.hpp"

using namespace journeys;

TEST_CASE("top, tap: top --once shows the state of a run, tap prints samples") {
  Folder f;
  const std::string socket = f / "run.sock";
  Background run(f, "run " + kLongRun + "--control " + socket);
  REQUIRE(run.await([&] { return has(harmonics("top " + socket).out, "logarithmic"); }));

  const Result once = harmonics("top " + socket + " --once");
  CHECK(once.code == 0);
  CHECK(has(once.out, "mnist_train_cycle  running"));
  for (const char* part : {"\nstep ", "\nloss ", "mnist_label_data", "samples/s", "\nhidden ", "logarithmic"}) {
    INFO(part << " in\n" << once.out);
    CHECK(has(once.out, part));
  }
  CHECK_FALSE(has(once.out, "\x1b"));
  const Result object = harmonics("top " + socket + " --json");
  CHECK(SchemaCheck::run(schema("top"), json::parse(object.out)) == std::vector<std::string>{});
  CHECK(SchemaCheck::run(schema("status"), json::parse(object.out).at("status")) == std::vector<std::string>{});

  const Result tapped = harmonics("tap " + socket + " hidden --count 3");
  const std::vector<std::string> lines = lines_of(tapped.out);
  REQUIRE(lines.size() == 3);
  int64_t before = 0;
  for (const std::string& line : lines) {
    const json::value v = json::parse(line);
    CHECK(SchemaCheck::run(schema("tap"), v) == std::vector<std::string>{});
    CHECK(v.at("values").as_array().size() == 392);
    CHECK(v.at("batch").to_number<int64_t>() > before);
    before = v.at("batch").to_number<int64_t>();
  }
  const json::value picture = json::parse(harmonics("tap " + socket + " mnist_training_data --count 1").out);
  CHECK(picture.at("kind") == "producer");
  CHECK(picture.at("values").as_array().size() == 784);
  const Result wrong = harmonics("tap " + socket + " hiden --count 1");
  CHECK(wrong.code == 2);
  CHECK(has(wrong.err, "did you mean 'hidden'?"));

  // A tap exits successfully with the run.
  CHECK(harmonics("ctl " + socket + " pause").code == 0);
  CHECK(harmonics_in("", "tap " + socket + " hidden --count 9", 2).code == 124);
  CHECK(harmonics("ctl " + socket + " resume").code == 0);
  CHECK(harmonics("ctl " + socket + " stop").code == 0);
  CHECK(run.end().code == 0);
  CHECK(harmonics("tap " + socket + " hidden").code == 69);
  CHECK(harmonics("top " + socket).code == 69);
}

TEST_CASE("top, tap: work over an address, with the token of the page") {
  Folder f;
  Background run(f, "run " + kLongRun + "--ui");
  REQUIRE(run.await([&] { return has(run.errors(), "page: http://127.0.0.1:"); }));
  const std::string errors = run.errors();
  const size_t at = errors.find("page: ") + 6;
  const std::string page = errors.substr(at, errors.find('\n', at) - at), address = page.substr(0, page.find("/#"));
  REQUIRE(run.await([&] { return has(harmonics("top '" + page + "'").out, "running"); }));
  CHECK(has(harmonics("top " + address).out, "running"));
  CHECK(json::parse(harmonics("tap '" + page + "' output --count 1").out).at("shape").as_array().size() == 1);
  CHECK(harmonics("ctl '" + page + "' pause").code == 0);
  CHECK(has(harmonics("top " + address).out, "paused"));
  CHECK(harmonics("tap http://127.0.0.1:1 output").code == 69);
  CHECK(harmonics("tap nothing:8080 output").code == 2);

  Folder g;
  Background closed(g, "run " + kLongRun + "--serve 127.0.0.1:0 --token not-to-be-guessed");
  REQUIRE(run.await([&] { return has(closed.errors(), "serving on http://127.0.0.1:"); }));
  const std::string other = closed.errors().substr(closed.errors().find("http://"));
  const std::string guarded = other.substr(0, other.find_first_not_of("0123456789", 17));
  CHECK(harmonics("top " + guarded).code == 77);
  CHECK(harmonics_in("HARMONICS_TOKEN=not-to-be-guessed", "top " + guarded).code == 0);
}

TEST_CASE("top: on a terminal it draws, takes keys, and restores the screen") {
  Folder f;
  const std::string socket = f / "run.sock";
  Background run(f, "run " + kLongRun + "--control " + socket + " --checkpoint " + (f / "kept"));
  REQUIRE(run.await([&] { return has(harmonics("ctl " + socket + " status").out, "running"); }));
  OnTerminal top("top " + socket, 90, 30);
  REQUIRE(top.await("q quits"));
  CHECK(has(top.screen, "\x1b[?1049h"));
  CHECK(has(top.screen, "mnist_train_cycle"));
  top.type('p');
  REQUIRE(top.await("pause done"));
  CHECK(has(harmonics("ctl " + socket + " status").out, "paused"));
  top.type('s');
  CHECK(top.await("step done"));
  top.type('c');
  CHECK(top.await("checkpoint done"));
  CHECK(harmonics("ckpt verify " + (f / "kept")).code == 0);
  top.type('p');
  REQUIRE(top.await("resume done"));
  CHECK(has(harmonics("ctl " + socket + " status").out, "running"));
  run.signal(SIGKILL);
  CHECK(top.await("silent for"));
  top.type('q');
  CHECK(top.end() == 0);
  CHECK(top.screen.substr(top.screen.size() - 8) == "\x1b[?1049l");
}
