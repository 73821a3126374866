// Writing a plugin with its tools: new, check, doctor.
#include "tests/journeys/background.hpp"
#include "tests/journeys/replies.hpp"

using namespace journeys;

namespace {

const std::string kFixtures = std::string(HARMONICS_BINARY_DIR) + "/test_plugins/lib";

// Returns "outcome: text" of a check, or "" if it did not run.
std::string found(const json::object& report, const std::string& item, const std::string& check) {
  for (const json::value& thing : report.at("files").at(0).at("items").as_array())
    if (thing.at("name").as_string() == item)
      for (const json::value& c : thing.at("checks").as_array())
        if (c.at("check").as_string() == check)
          return std::string(c.at("outcome").as_string()) + ": " + std::string(c.at("text").as_string());
  return "";
}

}  // namespace

TEST_CASE("plugin check: names the violated rule, and survives a crash") {
  const Result r = harmonics("plugin check --json --calls 50000 " + kFixtures + "misbehaving.so");
  CHECK(r.code == 1);
  const json::object report = last_line(r.out);
  CHECK(found(report, "remembers", "depends on its input alone") ==
        "failed: the same numbers gave two different results");
  CHECK(has(found(report, "wrong_gradient", "gradient"),
            "failed: 12 of 12 derivatives are off; input 0, element 0: gradient "));
  CHECK(has(found(report, "no_gradient", "gradient"), "noted: it has none, so flows with it infer but do not train"));
  CHECK(found(report, "no_gradient", "treats samples independently") == "passed: ");
  CHECK(found(report, "neighbours", "treats samples independently") ==
        "failed: sample 0 alone gives other numbers than within a batch of 3");
  CHECK(has(found(report, "neighbours", "gradient"), "passed: 12 derivatives in double precision"));
  CHECK(has(found(report, "leaks", "many calls"), "memory in use grew by"));
  CHECK(has(found(report, "grows", "keeps shape and type"),
            "activation 'grows' of plugin 'misbehaving' returned f32[1, 2] for f32[1, 1]; an activation keeps shape "
            "and element type"));
  CHECK(report.at("files").at(0).at("error").as_string() ==
        "crashed with SIGSEGV in 'keeps shape and type' of activation zz_crashes");
  CHECK(has(harmonics("plugin check " + kFixtures + "misbehaving.so").err,
            "crashed with SIGSEGV in 'keeps shape and type' of activation zz_crashes"));
}

TEST_CASE("plugin check: names the violated rule of functionals and implementations") {
  const Result r = harmonics("plugin check --json --calls 50000 " + kFixtures + "misbehaving_kinds.so", 120);
  CHECK(r.code == 1);
  const json::object report = last_line(r.out);
  CHECK(report.at("files").at(0).at("error").is_null());
  const auto says = [&](const char* item, const char* check, const std::string& text) {
    INFO(item << ": " << check << ": " << found(report, item, check));
    CHECK(found(report, item, check).rfind(text, 0) == 0);
  };
  says("squares", "gradient", "passed: 7 derivatives in double precision");
  says("counting_squares", "depends on its inputs alone",
       "failed: two calls counting_squares(f32[7]) gave different results");
  says("reading_squares", "is recorded, and gives the same in a program",
       "failed: functional 'reading_squares' of plugin 'org.example.misbehaving' reads the values");
  says("uneven_squares", "has shapes that follow from shapes",
       "failed: uneven_squares(f32[7]) gives f32[7] for some numbers and f32[] for others");
  says("flat_squares", "gradient", "failed: 7 of 7 derivatives are off; input 0, element 0: gradient ");
  says("leaking_squares", "many calls", "failed: ");

  for (const char* check : {"reports the calls it serves, and why not others", "answers consistently",
                            "computes what squares means", "stays within its memory", "threads", "many calls"})
    says("squares.right", check, "passed: ");
  says("sqares.lost", "names an existing functional", "failed: there is no functional or primitive 'sqares'");
  says("squares.wordless", "reports the calls it serves, and why not others",
       "failed: it declines squares(f32[7]) -> f32[7] without a reason");
  says("squares.fickle", "answers consistently", "failed: a second call for ");
  says("squares.cubes", "computes what squares means", "failed: result 1 of squares(f32[7]) -> f32[7]: element 0 is ");
  says("squares.throws", "computes what squares means",
       "failed: implementation 'squares.throws' of plugin 'org.example.misbehaving': the moon is full, for "
       "squares(f32[7])");
  says("squares.too_far", "stays within its memory",
       "failed: its kernel for squares(f32[7]) -> f32[7] writes outside result 1");
  says("squares.slope_too_far", "stays within its memory",
       "failed: its gradient's kernel for squares(f32[7]) -> f32[7] writes outside result 1");
  says("squares.spoils", "stays within its memory",
       "failed: its kernel for squares(f32[7]) -> f32[7] writes into input 1");
  says("squares.adds", "stays within its memory",
       "failed: its kernel for squares(f32[7]) -> f32[7] gives other numbers as result 1 when its parts");
  says("squares.wrong_slope", "gradient",
       "failed: the gradient of input 1 of squares(f32[7]) -> f32[7]: element 0 is ");
  says("squares.fickle", "threads", "failed: it declines calls that it served on one thread");
  CHECK(has(found(report, "squares.leaks", "many calls"), "memory in use grew by"));
}

TEST_CASE("plugin check: names the violated rule of training and streams") {
  const Result r = harmonics("plugin check --json --calls 50000 " + kFixtures + "misbehaving_training.so", 120);
  CHECK(r.code == 1);
  const json::object report = last_line(r.out);
  CHECK(report.at("files").at(0).at("error").is_null());
  const auto says = [&](const char* item, const char* check, const std::string& text) {
    INFO(item << ": " << check << ": " << found(report, item, check));
    CHECK(found(report, item, check).rfind(text, 0) == 0);
  };
  const char *const down = "descends a quadratic bowl", *const ranges = "accepts the values that its ranges allow",
                    *const by_point = "depends on the point of the run alone",
                    *const answers = "answers, also before anything is measured";
  says("descent", down, "passed: ");
  says("ascent", down, "failed: 300 steps with lr 0.1 lead from ");
  says("signs", "stays finite", "failed: of 'bias', f32[5]: the parameter is -nan after step 2, with gradients of 0");
  says("counting_descent", "is recorded, and keeps shape and type",
       "failed: two recordings of a step of f32[5] are different programs");
  says("shrinking", "is recorded, and keeps shape and type",
       "failed: optimizer 'shrinking' of plugin 'org.example.misbehaving' returned f32[1] for the parameter of 'bias'");
  says("more_each_time", "keeps the same moments each time",
       "failed: for 'bias', f32[5], it keeps m f32[1], and at a second call m f32[2]");
  says("narrow", ranges, "failed: with {damping = 1.0, lr = 0.1}: the parameter is -inf after step 1");

  says("sinking", "gives factors that can be used", "failed: the factor -0.002");
  says("flat_zero", "gives factors that can be used", "noted: the factor is 0 at every step of a run of 1000 steps");
  says("counting", by_point, "failed: at step 0 of a run of one step it gives 0.");
  says("counting", "threads", "failed: another factor than on one thread");
  says("dividing", ranges,
       "failed: with {every = 0}: schedule 'dividing' of plugin 'org.example.misbehaving': a period of 0");

  says("every_other_call", "depends on the run alone", "failed: at step 39601 with metrics of 0 it answers ");
  says("needs_loss", answers,
       "failed: predicate 'needs_loss' of plugin 'org.example.misbehaving': there is no loss, at step 0 before "
       "anything is measured");
  says("loss_below_one", answers, "passed: yes at 600 of 1200 points; asks for loss");
  says("stays_yes", answers, "noted: yes at every one of 1200 points");
  says("two", answers, "failed: it answers 2 at step 0 before anything is measured");
  says("by_clock", "depends on the run alone", "passed: it declares that its answer depends on more than the run");

  says("counts", "gives the same sample for the same draw",
       "failed: sample 49 of f32[7] differs when it is read again");
  says("counts", "threads", "failed: sample 0 differs from that of one thread");
  says("forgets", "writes its result, and nothing else",
       "failed: for f32[7] the result depends on what its memory held before, from byte 27 on");
  says("spills", "writes its result, and nothing else", "failed: for f32[7] it writes outside the result");
  says("infinite", "stays finite", "failed: for f32[7] element 1 of sample 0 is inf");
  says("refuses", "takes samples", "failed: augmentation 'refuses' of plugin 'org.example.misbehaving': not this one");
}

TEST_CASE("plugin check: names the violated rule of devices") {
  const Result r = harmonics("plugin check --json --calls 50000 " + kFixtures + "misbehaving_devices.so", 240);
  CHECK(r.code == 1);
  const json::object report = last_line(r.out);
  CHECK(report.at("files").at(0).at("error").is_null());
  const auto says = [&](const char* item, const char* check, const std::string& text) {
    INFO(item << ": " << check << ": " << found(report, item, check));
    CHECK(found(report, item, check).rfind(text, 0) == 0);
  };
  const char *const serves = "reports the calls it serves", *const alike = "answers consistently",
                    *const memory = "stays within its memory", *const means = "computes calls correctly",
                    *const threads = "threads", *const many = "many calls";
  for (const char* check : {serves, alike, memory, means, threads, many}) says("right", check, "passed: ");
  const std::string answer = found(report, "right", serves);
  CHECK(has(answer, " calls: neg "));
  CHECK(has(answer, "; declines, 'computes f32 only': neg; declines, 'negates only': abs, "));
  CHECK(has(answer, ", fused_elementwise, "));
  CHECK(has(answer, ", softmax, "));

  const auto breaks = [&](const char* item, const char* check, const std::string& text) {
    says(item, check, "failed: ");
    INFO(item << ": " << check << ": " << found(report, item, check));
    CHECK(has(found(report, item, check), text));
  };
  breaks("many_parts", memory, ": its kernel has 4294967297 parts");
  breaks("no_function", serves,
         "device 'no_function' gave a kernel without function, name, phases or parts for neg(f32[");
  breaks("throws_finding", serves, "device 'throws_finding' failed ('no more memory') for abs(f32[");
  breaks("fickle", alike, ": a second call gives a kernel with other phases, parts, workspace or in_place");
  breaks("too_far", memory, ": its kernel writes outside result 1; ");
  breaks("spoils", memory, ": its kernel writes into input 1; ");
  breaks("adds", memory,
         ": its kernel gives other numbers as result 1 when its parts run from the last to the first in memory that is "
         "not zero");
  breaks("throws_running", memory, ": its kernel throws 'out of memory of its own'; ");
  breaks("clears_first", memory,
         ": its kernel gives other numbers as result 1 when it is written over the input it may replace");
  breaks("keeps_sign", means, ": result 1: element 0 is ");
  breaks("alone", threads,
         ": its kernel gives other numbers as result 1 when its parts run on several threads at once");
  breaks("alone_in_one_part", threads,
         ": while other kernels run, its kernel gives other numbers as result 1 than before");
  breaks("tires", many, ": its kernel, found again, gives other numbers as result 1 than before");
  breaks("leaking", many, "memory in use grew by");
  says("wordless", "describes itself", "failed: it returns nothing");
  says("wordless", serves, "noted: serves 0 of ");
  CHECK(has(found(report, "wordless", serves), " calls; declines, without a reason: abs, "));
  CHECK(found(report, "wordless", memory).empty());
}

TEST_CASE("plugin check: names the violated rule of device clocks") {
  const Result r = harmonics("plugin check --json --calls 50000 " + kFixtures + "misbehaving_clocks.so", 120);
  CHECK(r.code == 1);
  const json::object report = last_line(r.out);
  const auto says = [&](const char* item, const std::string& outcome, const std::string& text) {
    const std::string said = found(report, item, "keeps times");
    INFO(item << ": " << said);
    CHECK(said.rfind(outcome, 0) == 0);
    CHECK(has(said, text));
  };
  says("in_time", "passed: for ", " copies of 1 MiB, which took 0.");
  says("in_milliseconds", "failed: for 8 copies of 1 MiB", ": more than elapsed");
  says("in_days", "failed: for ", ": far too little");
  says("stands_still", "failed: for ", "it reports 0.000000 s: far too little");
  says("goes_back", "failed: device 'goes_back' reports -", " seconds between two events of its queue");
  says("by_turns", "failed: it reports ", " s from the first to the third");
  says("without_times", "passed: ", "none: steps are timed by the host's clock");
}

TEST_CASE("plugin check: shows why a device declines a call") {
  Folder f;
  const std::string flow = f.write("g.hmx",
                                   "harmonic g { producer a; producer b 1/1 a; layer i; layer h {8}; layer o; cycle { "
                                   "a -> i -(relu)-> h -> o; o <-(cross_entropy)- b; } }");
  const Result r =
      harmonics("explain " + flow + " --select --device right --plugin " + kFixtures +
                "misbehaving_devices.so --producer 'synth:digits?size=9' --producer 'synth:digits?size=9#label'");
  CHECK(r.code == 0);
  CHECK(has(r.out, "portable (body)\n      not right: has no kernel for it: negates only\n"));
}

TEST_CASE("plugin check: the CPU device passes") {
  const Result r = harmonics("plugin check --json --calls 50000 " + std::string(HARMONICS_BINARY_DIR) +
                                 "/lib/harmonics/plugins/libharmonics_cpu.so",
                             300);
  if (r.code != 0) WARN(r.out);
  CHECK(r.code == 0);
  const json::object report = last_line(r.out);
  for (const char* check : {"describes itself", "reports the calls it serves", "answers consistently",
                            "stays within its memory", "computes calls correctly", "threads", "many calls"})
    CHECK(found(report, "cpu", check).rfind("passed: ", 0) == 0);
}

TEST_CASE("plugin check: all shipped plugins pass") {
  for (const char* name : {"activations", "losses", "layers", "metrics", "synth"}) {
    const Result r = harmonics("plugin check --json --calls 50000 " + std::string(HARMONICS_BINARY_DIR) +
                                   "/lib/harmonics/plugins/libharmonics_" + name + ".so --address synth:digits?size=40",
                               300);
    if (r.code != 0 && std::string(name) != "synth") WARN(r.out);
    CHECK(r.code == 0);
    CHECK(last_line(r.out).at("failed").as_int64() == 0);
  }
}

TEST_CASE("plugin doctor: names the reason why a library does not load, and the remedy") {
  const auto said = [](const std::string& name) { return harmonics("plugin doctor " + kFixtures + name + ".so"); };
  const auto trouble = [&](const std::string& name, const std::string& text, const std::string& remedy) {
    const Result r = said(name);
    CHECK(r.code == 1);
    CHECK(has(r.out, text));
    CHECK(has(r.out, remedy));
    CHECK(has(r.out, "1 library, 1 with problems"));
  };
  trouble("other_contract", "is built for contract 7.3",
          "build it again with this program's headers, or get the release made for it");
  trouble("missing_symbol", "cannot be loaded: undefined symbol: a_function_nobody_has",
          "link it with the library that has the symbol");
  trouble("no_descriptor", "it has no descriptor", "include <harmonics/plugin.hpp> in one of its sources");
  trouble("throws_registering", "failed while registering: the licence has run out",
          "correct harmonics_register, or leave the plugin out");
  trouble("leaves_at_load", "ended the process while it was loaded", "run it under a debugger");
  trouble("crashes_at_load", "crashed with SIGABRT while it was loaded", "run it under a debugger");
  CHECK(said("functions").code == 0);
}

TEST_CASE("plugin doctor: compares libraries with their manifests") {
  Folder f;
  fs::copy_file(kFixtures + "plain_a.so", f / "libplain_a.so");
  const std::string place = f / "";
  Result r = harmonics("plugin doctor " + place);
  CHECK(r.code == 1);
  CHECK(has(r.out, "libplain_a.so: has no manifest, so only --plugin finds it"));
  f.write("libplain_a.manifest", "activation something_else\n");
  r = harmonics("plugin doctor " + place);
  CHECK(has(r.out, "registers other items than its manifest lists"));
  CHECK(has(r.out, "remove 'activation something_else' from"));
  f.write("libgone.manifest", "loss nowhere\n");
  r = harmonics("plugin doctor --json " + place);
  CHECK(r.code == 1);
  CHECK(last_line(r.out).at("libraries").as_array().size() == 2);
  CHECK(has(r.out, "there is no such file"));
  CHECK(has(r.out, "a manifest without its library"));
  const Result none = harmonics("plugin doctor " + (f / "none.so"));
  CHECK(none.code == 1);
  CHECK(has(none.out, "give a plugin library, or a folder with plugin libraries"));
}

TEST_CASE("plugin new: refuses invalid names and kinds, and lists the valid ones") {
  Folder f;
  CHECK(has(harmonics("plugin new my_act --kind activatoin").err,
            "there is no kind of plugin 'activatoin'\nhelp: did you mean 'activation'?"));
  CHECK(has(harmonics("plugin new my-act --kind loss").err, "'my-act' is not a plugin name"));
  CHECK(has(harmonics("plugin new my_act").err, "which kind of plugin?"));
  CHECK(has(harmonics("plugin new test --kind loss").err, "'test' is a target of CMake's"));
  CHECK(has(harmonics("plugin new layer --kind loss").err, "'layer' is a reserved word of flows"));
  const std::string tensor = f / "tensor";
  REQUIRE(harmonics("plugin new h_tensor --kind activation --directory " + tensor).code == 0);
  CHECK(has(read(tensor + "/h_tensor.cpp"), "class HTensorPlugin : "));
  const std::string folder = f / "mine";
  REQUIRE(harmonics("plugin new mine --kind metric --directory " + folder).code == 0);
  const Result again = harmonics("plugin new mine --kind metric --directory " + folder);
  CHECK(again.code == 73);
  CHECK(has(again.err, "is already there"));
}

TEST_CASE("plugin new: names the registered items, quoted where shells and CMake need it") {
  Folder f;
  const auto written = [&](const std::string& kind, const char* file) {
    const std::string folder = f / kind;
    if (!fs::exists(folder)) CHECK(harmonics("plugin new mine --kind " + kind + " --directory " + folder).code == 0);
    return read(folder + "/" + file);
  };
  CHECK(has(written("implementation", "CMakeLists.txt"), " PROVIDES implementation:silu.mine "));
  CHECK(has(written("implementation", "README.md"), "harmonics inspect silu.mine --plugin"));
  CHECK(has(written("augmentation", "README.md"), " --producer 'image=synth:digits?size=2000&augment=mine(0.2)' "));
  CHECK(has(written("augmentation", "CMakeLists.txt"),
            " --producer \"image=synth:digits?size=2000&augment=mine(0.2)\" --producer "
            "\"digit=synth:digits?size=2000#label\")"));
  CHECK(has(written("schedule", "README.md"), " --schedule 'mine(every=8)'\n"));
  CHECK(has(written("device", "README.md"), " --device mine\n"));
  CHECK(has(written("predicate", "sample.hmx"), "if mine("));
  CHECK(has(written("importer", "README.md"), "harmonics inspect sample.letters --plugin build/libmine.so\n"));
  CHECK(has(written("tokenizer", "sample.words"), "mine\n?\nthe\n"));
  for (const char* kind : {"functional", "optimizer", "layer", "device", "importer", "exporter"})
    CHECK(!has(written(kind, "mine.cpp"), "@"));
}

TEST_CASE("plugin reload: a run continues with the new build, and a broken build changes nothing") {
  Folder f;
  const std::string library = f / "libnumbered.so", gone = f / "gone.txt", log = f / "log.csv";
  const auto put = [&](const char* build) {  // like a linker: a new file under the name
    fs::copy_file(kFixtures + build + ".so", f / "new.so", fs::copy_options::overwrite_existing);
    fs::rename(f / "new.so", library);
  };
  put("build_one");
  const std::string flow = f.write("g.hmx",
                                   "harmonic g { producer a; producer b 1/1 a; layer i; layer h {32}; layer o; cycle { "
                                   "a -> i -(numbered)-> h -> o; o <-(cross_entropy)- b; } }");
  ::setenv("HARMONICS_FIXTURE_LOG", gone.c_str(), 1);
  Background run(f, "run " + flow + " --plugin " + library +
                        " --producer 'synth:digits?size=500' --producer 'synth:digits?size=500#label' --validate "
                        "'synth:digits?size=64&seed=2' --validate "
                        "'synth:digits?size=64&seed=2#label' --epochs 1000000 --batch 50 --log " +
                        log + " --log-every 10");
  ::unsetenv("HARMONICS_FIXTURE_LOG");
  REQUIRE(run.await([&] { return fs::exists(log) && fs::file_size(log) > 300; }));

  CHECK(harmonics("plugin reload " + std::to_string(run.process())).code == 0);
  CHECK(run.await([&] { return has(run.errors(), "no plugin has changed"); }));
  put("build_two");
  run.signal(SIGUSR1);
  CHECK(run.await([&] { return has(run.errors(), "plugin '" + library + "' was reloaded after step "); }));
  CHECK(run.await([&] { return has(read(gone), "build 1 is gone\n"); }));  // its last user was the step in progress
  put("build_three");
  run.signal(SIGUSR1);
  CHECK(run.await([&] {
    return has(run.errors(), "plugin '" + library + "' is unchanged: plugin '" + library +
                                 "' failed while registering: build 3 is broken");
  }));
  const auto rows = fs::file_size(log);
  CHECK(run.await([&] { return fs::file_size(log) > rows + 300; }));  // the run continues
  run.signal(SIGINT);
  const Result r = run.end();
  CHECK(r.code == 130);
  CHECK(!has(read(gone), "build 2 is gone\nbuild 2 is gone"));
  for (const auto& entry : fs::directory_iterator(f / "")) CHECK(!has(entry.path().string(), ".harmonics-"));
}

TEST_CASE("plugin reload: training uses the new build from then on") {
  Folder f;
  const std::string library = f / "libnumbered.so",
                    flow = f.write("g.hmx", "harmonic g { producer a; layer o {1}; cycle { a -(numbered)-> o; } }");
  f.write("a.csv", "1\n2\n");
  fs::copy_file(kFixtures + "build_two.so", library);
  const Result two = harmonics("run " + flow + " --plugin " + library + " --producer " + (f / "a.csv") + " --quiet");
  fs::copy_file(kFixtures + "build_one.so", library, fs::copy_options::overwrite_existing);
  const Result one = harmonics("run " + flow + " --plugin " + library + " --producer " + (f / "a.csv") + " --quiet");
  REQUIRE(one.code == 0);
  CHECK(std::abs(std::stod(one.out) - 2 * std::stod(two.out)) < 1e-6);
}

TEST_CASE("plugin reload: signals only processes of this program") {
  CHECK(has(harmonics("plugin reload 999999999").err, "there is no process '999999999'"));
  CHECK(has(harmonics("plugin reload me").err, "there is no process 'me'"));
  CHECK(has(harmonics("plugin reload " + std::to_string(::getpid())).err, "is 'test_journeys', not harmonics"));
  CHECK(harmonics("plugin reload").code == 2);
}
