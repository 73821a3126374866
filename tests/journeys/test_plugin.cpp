// Writing a plugin with the tools that are there for it: new, check, doctor.
#include <boost/json.hpp>

#include "tests/journeys/background.hpp"
#include "tests/journeys/shell.hpp"

using namespace journeys;
namespace json = boost::json;

namespace {

const std::string kFixtures = std::string(HARMONICS_BINARY_DIR) + "/test_plugins/lib";

json::object last_line(const std::string& out) {
  const size_t last = out.rfind('\n', out.size() - 2);
  return json::parse(out.substr(last == std::string::npos ? 0 : last + 1)).as_object();
}

// "outcome: text" of a check; "" when it was not made.
std::string found(const json::object& report, const std::string& item, const std::string& check) {
  for (const json::value& thing : report.at("files").at(0).at("items").as_array())
    if (thing.at("name").as_string() == item)
      for (const json::value& c : thing.at("checks").as_array())
        if (c.at("check").as_string() == check) return std::string(c.at("outcome").as_string()) + ": " + std::string(c.at("text").as_string());
  return "";
}

}  // namespace

TEST_CASE("plugin check says which law is broken, and survives a crash") {
  const Result r = harmonics("plugin check --json " + kFixtures + "misbehaving.so");
  CHECK(r.code == 1);
  const json::object report = last_line(r.out);
  CHECK(found(report, "remembers", "depends on its input alone") == "failed: the same numbers gave two different results");
  CHECK(has(found(report, "wrong_gradient", "gradient"), "failed: 12 of 12 derivatives are off; input 0, element 0: gradient "));
  CHECK(has(found(report, "no_gradient", "gradient"), "noted: it has none, so flows with it infer but do not train"));
  CHECK(found(report, "no_gradient", "takes each sample by itself") == "passed: ");
  CHECK(found(report, "neighbours", "takes each sample by itself") == "failed: sample 0 alone gives other numbers than within a batch of 3");
  CHECK(has(found(report, "neighbours", "gradient"), "passed: 12 derivatives in double precision"));
  CHECK(has(found(report, "leaks", "many calls"), "memory in use grew by"));
  CHECK(has(found(report, "grows", "keeps shape and type"), "activation 'grows' of plugin 'misbehaving' returned f32[1, 2] for f32[1, 1]; an activation keeps shape and element type"));
  CHECK(report.at("files").at(0).at("error").as_string() == "crashed with SIGSEGV in 'keeps shape and type' of activation zz_crashes");
  CHECK(has(harmonics("plugin check " + kFixtures + "misbehaving.so").err, "crashed with SIGSEGV in 'keeps shape and type' of activation zz_crashes"));
}

TEST_CASE("plugin check passes what is shipped") {
  for (const char* name : {"activations", "losses", "layers", "metrics", "synth"}) {
    const Result r = harmonics("plugin check --json " + std::string(HARMONICS_BINARY_DIR) + "/lib/harmonics/plugins/libharmonics_" + name + ".so --address synth:digits?size=40", 300);
    if (r.code != 0 && std::string(name) != "synth") WARN(r.out);
    CHECK(r.code == 0);
    CHECK(last_line(r.out).at("failed").as_int64() == 0);
  }
}

TEST_CASE("doctor names what keeps a library from loading, and what to do") {
  const auto said = [](const std::string& name) { return harmonics("plugin doctor " + kFixtures + name + ".so"); };
  const auto trouble = [&](const std::string& name, const std::string& text, const std::string& remedy) {
    const Result r = said(name);
    CHECK(r.code == 1);
    CHECK(has(r.out, text));
    CHECK(has(r.out, remedy));
    CHECK(has(r.out, "1 library, 1 in trouble"));
  };
  trouble("other_contract", "is built for contract 7.3", "build it again with this program's headers, or get the release made for it");
  trouble("missing_symbol", "cannot be loaded: undefined symbol: a_function_nobody_has", "link it with the library that has the symbol");
  trouble("no_descriptor", "it has no descriptor", "");
  trouble("throws_registering", "failed while registering: the licence has run out", "");
  trouble("leaves_at_load", "ended the process while it was loaded", "run it under a debugger");
  trouble("crashes_at_load", "crashed with SIGABRT while it was loaded", "run it under a debugger");
  CHECK(said("functions").code == 0);
}

TEST_CASE("doctor compares libraries with their manifests") {
  Folder f;
  fs::copy_file(kFixtures + "plain_a.so", f / "libplain_a.so");
  const std::string place = f / "";
  Result r = harmonics("plugin doctor " + place);
  CHECK(r.code == 1);
  CHECK(has(r.out, "libplain_a.so: has no manifest, so only --plugin finds it"));
  f.write("libplain_a.manifest", "activation something_else\n");
  r = harmonics("plugin doctor " + place);
  CHECK(has(r.out, "registers something else than its manifest says"));
  CHECK(has(r.out, "take 'activation something_else' out of"));
  f.write("libgone.manifest", "loss nowhere\n");
  r = harmonics("plugin doctor --json " + place);
  CHECK(r.code == 1);
  CHECK(last_line(r.out).at("libraries").as_array().size() == 2);
  CHECK(has(r.out, "there is no such file"));
}

TEST_CASE("plugin new refuses what it cannot write, and says what it can") {
  Folder f;
  CHECK(has(harmonics("plugin new my_act --kind activatoin").err, "there is no template for a 'activatoin'\nhelp: did you mean 'activation'?"));
  CHECK(has(harmonics("plugin new my-act --kind loss").err, "'my-act' is no name of a plugin"));
  CHECK(has(harmonics("plugin new my_act").err, "which kind of plugin?"));
  const std::string folder = f / "mine";
  REQUIRE(harmonics("plugin new mine --kind metric --directory " + folder).code == 0);
  const Result again = harmonics("plugin new mine --kind metric --directory " + folder);
  CHECK(again.code == 73);
  CHECK(has(again.err, "is already there"));
}

TEST_CASE("a run goes on with the build of a plugin that is there now; one that is broken changes nothing") {
  Folder f;
  const std::string library = f / "libnumbered.so", gone = f / "gone.txt", log = f / "log.csv";
  const auto put = [&](const char* build) {  // as a linker does: another file under the name
    fs::copy_file(kFixtures + build + ".so", f / "new.so", fs::copy_options::overwrite_existing);
    fs::rename(f / "new.so", library);
  };
  put("build_one");
  const std::string flow = f.write("g.hmx", "harmonic g { producer a; producer b 1/1 a; layer i; layer h {32}; layer o; cycle { a -> i -(numbered)-> h -> o; o <-(cross_entropy)- b; } }");
  ::setenv("HARMONICS_FIXTURE_LOG", gone.c_str(), 1);
  Background run(f, "run " + flow + " --plugin " + library + " --producer 'synth:digits?size=500' --producer 'synth:digits?size=500#label' --validate 'synth:digits?size=64&seed=2' --validate "
                    "'synth:digits?size=64&seed=2#label' --epochs 1000000 --batch 50 --log " + log + " --log-every 10");
  ::unsetenv("HARMONICS_FIXTURE_LOG");
  REQUIRE(run.await([&] { return fs::exists(log) && fs::file_size(log) > 300; }));

  CHECK(harmonics("plugin reload " + std::to_string(run.process())).code == 0);
  CHECK(run.await([&] { return has(run.errors(), "no plugin has changed"); }));
  put("build_two");
  run.signal(SIGUSR1);
  CHECK(run.await([&] { return has(run.errors(), "plugin '" + library + "' was reloaded after step "); }));
  CHECK(run.await([&] { return has(read(gone), "build 1 is gone\n"); }));  // its last user was the step it was in
  put("build_three");
  run.signal(SIGUSR1);
  CHECK(run.await([&] { return has(run.errors(), "plugin '" + library + "' stays as it was: plugin '" + library + "' failed while registering: build 3 is broken"); }));
  const auto rows = fs::file_size(log);
  CHECK(run.await([&] { return fs::file_size(log) > rows + 300; }));  // it goes on
  run.signal(SIGINT);
  const Result r = run.end();
  CHECK(r.code == 130);
  CHECK(!has(read(gone), "build 2 is gone\nbuild 2 is gone"));
  for (const auto& entry : fs::directory_iterator(f / "")) CHECK(!has(entry.path().string(), ".harmonics-"));
}

TEST_CASE("what the new build computes is what is trained from then on") {
  Folder f;
  const std::string library = f / "libnumbered.so", flow = f.write("g.hmx", "harmonic g { producer a; layer o {1}; cycle { a -(numbered)-> o; } }");
  f.write("a.csv", "1\n2\n");
  fs::copy_file(kFixtures + "build_two.so", library);
  const Result two = harmonics("run " + flow + " --plugin " + library + " --producer " + (f / "a.csv") + " --quiet");
  fs::copy_file(kFixtures + "build_one.so", library, fs::copy_options::overwrite_existing);
  const Result one = harmonics("run " + flow + " --plugin " + library + " --producer " + (f / "a.csv") + " --quiet");
  REQUIRE(one.code == 0);
  CHECK(std::abs(std::stod(one.out) - 2 * std::stod(two.out)) < 1e-6);
}

TEST_CASE("plugin reload tells only processes of this program") {
  CHECK(has(harmonics("plugin reload 999999999").err, "there is no process '999999999'"));
  CHECK(has(harmonics("plugin reload me").err, "there is no process 'me'"));
  CHECK(has(harmonics("plugin reload " + std::to_string(::getpid())).err, "is 'test_journeys', not harmonics"));
  CHECK(harmonics("plugin reload").code == 2);
}
