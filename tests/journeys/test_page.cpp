// The page of a running cycle, in a browser.
#include "tests/journeys/background.hpp"
#include "tests/journeys/browser.hpp"

using namespace journeys;

namespace {

// Returns the text that a run printed after `word`, to the end of the line or the next blank.
std::string word_after(const std::string& errors, const std::string& word) {
  const size_t at = errors.find(word);
  if (at == std::string::npos) return "";
  const size_t from = at + word.size();
  return errors.substr(from, errors.find_first_of(" \n", from) - from);
}

std::string page_of(Background& run) {
  REQUIRE(run.await([&] { return !word_after(run.errors(), "page: ").empty(); }));
  return word_after(run.errors(), "page: ");
}

const std::string kConnected = "document.documentElement.dataset.connection === 'open'";
std::string figure(const std::string& name) {
  return "[...document.querySelectorAll('#figure-list dt')].find((e) => e.textContent === '" + name +
         "').nextSibling.textContent";
}
std::string text_of(const std::string& id) { return "document.getElementById('" + id + "').textContent"; }
std::string says(const std::string& id, const std::string& words) { return text_of(id) + ".includes('" + words + "')"; }
std::string curve() { return "document.querySelector('#charts canvas')"; }

}  // namespace

TEST_CASE("page: shows a run, and pauses, steps, saves and resumes it") {
  if (!Browser::there()) return;
  Folder f;
  Background run(f, "run " + kLongRun + "--ui --checkpoint " + (f / "kept"));
  const std::string page = page_of(run), address = page.substr(0, page.find("/#"));
  REQUIRE(has(page, "/#token="));
  Browser browser(f);
  browser.resize(1280, 900);
  browser.open(page);
  REQUIRE(browser.await(kConnected));
  CHECK(browser.text("location.hash") == "");
  REQUIRE(browser.await(says("run-state", "running")));
  CHECK(browser.text(text_of("graph-name")) == "mnist_train_cycle");

  REQUIRE(browser.await(curve()));
  const std::string label = browser.text(curve() + ".getAttribute('aria-label')"),
                    drawn = browser.text(curve() + ".toDataURL()");
  CHECK(has(label, "Loss at step "));
  CHECK(browser.await(curve() + ".getAttribute('aria-label') !== '" + label + "'"));
  CHECK(browser.await(curve() + ".toDataURL() !== '" + drawn + "'"));
  CHECK(browser.evaluate("document.querySelectorAll('#flow .node').length") == boost::json::value(6));
  CHECK(browser.evaluate("document.querySelectorAll('#flow .edge').length") == boost::json::value(5));
  CHECK(
      browser.await("[...document.querySelectorAll('#flow .edge-now')].filter((e) => e.textContent).every((e) => "
                    "/[0-9][kM]?\\/s/.test(e.textContent))"));
  CHECK(browser.evaluate("document.querySelectorAll('#streams tbody tr').length") == boost::json::value(2));
  CHECK(browser.await("document.querySelectorAll('#layers .histogram path[d^=M]').length === 3"));

  browser.click("pause");
  REQUIRE(browser.await(says("run-state", "paused")));
  REQUIRE(browser.await("!document.getElementById('step').disabled"));
  const std::string step = browser.text(figure("Step"));
  browser.click("step");
  CHECK(browser.await(figure("Step") + " !== '" + step + "'"));
  CHECK(browser.await(says("said", "stepped")));
  browser.evaluate("document.getElementById('rate').value = '0.005'; document.getElementById('rate-set').click()");
  CHECK(browser.await(says("said", "learning rate 0.005")));
  CHECK(browser.await(figure("Learning rate") + " === '0.005 (set)'"));
  CHECK(browser.await(says("lines", "the run was paused")));
  CHECK(browser.await("!document.getElementById('rate-schedule').disabled"));
  browser.click("checkpoint");
  CHECK(browser.await(says("said", "checkpoint written")));
  CHECK(harmonics("ckpt verify " + (f / "kept")).code == 0);
  const std::string paused = browser.text(figure("Step"));
  browser.evaluate("document.body.dispatchEvent(new KeyboardEvent('keydown', {key: 'p', bubbles: true}))");
  REQUIRE(browser.await(says("run-state", "running")));
  CHECK(browser.await(figure("Step") + " !== '" + paused + "'"));
  CHECK(browser.await(says("lines", "the learning rate was set to 0.005")));
  // Arrow labels are complete, and no box covers them.
  const std::string labels =
      "(() => { const all = (of) => [...document.querySelectorAll(of)].map((e) => e.getBoundingClientRect());"
      " return all('#flow .edge-label').every((a) => all('#flow .box').every((b) => a.width === 0 || a.right <= b.left"
      " || a.left >= b.right || a.bottom <= b.top || a.top >= b.bottom)); })()";
  CHECK(browser.evaluate(labels) == boost::json::value(true));

  CHECK(browser.await("[...document.querySelectorAll('.card')].some((e) => e.textContent.includes('gradient norm '))"));

  browser.resize(360, 740);
  CHECK(browser.await("document.documentElement.scrollWidth <= 360"));
  CHECK(browser.await(
      "document.getElementById('flow').getBBox().height > document.getElementById('flow').getBBox().width"));
  CHECK(browser.evaluate(labels) == boost::json::value(true));
  CHECK(browser.await(
      "[...document.querySelectorAll('#streams td')].every((e) => e.textContent !== '–' || e.offsetWidth === 0)"));
  browser.click("theme");
  const std::string theme = browser.text("document.documentElement.dataset.theme");
  browser.click("theme");
  CHECK(browser.text("document.documentElement.dataset.theme") != theme);

  CHECK(browser.complaints == std::vector<std::string>{});
  for (const std::string& url : browser.requests) {
    INFO(url);
    CHECK((url.rfind(address, 0) == 0 || url.rfind("ws" + address.substr(4) + "/v1/events?", 0) == 0 ||
           url == "about:blank"));
  }
  // Neither the page nor its content may send requests elsewhere or be executed as code.
  CHECK(browser.text("fetch('http://127.0.0.1:1/').then(() => 'went', () => 'refused')") == "refused");
  CHECK(
      browser.text(
          "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'taken'; } catch { return 'refused'; } })()") ==
      "refused");
}

TEST_CASE("page: curves of any length stay small, and flows of any kind are laid out") {
  if (!Browser::there()) return;
  Folder f;
  Background run(f, "run " + kLongRun + "--ui");
  Browser browser(f);
  browser.open(page_of(run));
  REQUIRE(browser.await(kConnected));
  CHECK(browser.text(R"(import('/curves.js').then(({Curves}) => {
    const curves = new Curves();
    for (let i = 1; i <= 50000; ++i) curves.add({step: i, metrics: {loss: 1 / i, ['m' + i % 1000]: i}});
    const steps = curves.points.map((p) => p.step);
    return [steps.length > 400 && steps.length <= 1024, steps[0], steps[steps.length - 1], curves.names.length,
      steps.every((s, i) => i === 0 || s > steps[i - 1])].join();
  }))") == "true,1,50000,64,true");
  // Skips, branches, a cycle, an arrow to itself: nodes of a rank do not overlap, and every path leads from its start
  // to its end.
  CHECK(browser.text(R"(import('/layout.js').then(({layout}) => {
    const ids = [...Array(120).keys()], nodes = ids.map((id) => ({id, along: 100, across: 40}));
    const edges = ids.slice(1).map((to) => ({from: to - 1 - to % 3, to})).filter((e) => e.from >= 0);
    edges.push({from: 90, to: 30}, {from: 7, to: 7}, {from: 0, to: 119});
    const plan = layout(nodes, edges), at = (id) => plan.at.get(id);
    const apart = ids.every((a) => ids.every((b) => a >= b || at(a)[0] !== at(b)[0] || Math.abs(at(a)[1] -
      at(b)[1]) >= 40));
    const forward = edges.filter((e) => e.from < e.to).every((e) => at(e.from)[0] < at(e.to)[0]);
    const ends = edges.every((e,
      i) => e.from === e.to || (plan.paths[i][0][1] === at(e.from)[1] &&
        plan.paths[i][plan.paths[i].length - 1][1] === at(e.to)[1]));
    const within = ids.every((id) => at(id)[1] >= 20 - 1e-6 && at(id)[1] <= plan.across - 20 + 1e-6 &&
      at(id)[0] <= plan.along);
    return [apart, forward, ends, within].join();
  }))") == "true,true,true,true");
}

TEST_CASE("page: a metric of the only layer that has it is one curve, and accuracies are percentages") {
  if (!Browser::there()) return;
  Folder f;
  Background run(f, "run " + kLongRun + "--ui");
  Browser browser(f);
  browser.open(page_of(run));
  REQUIRE(browser.await(kConnected));
  CHECK(browser.text("import('/curves.js').then(({distinct}) => distinct(['loss', 'o.loss', 'val.loss', 'val.o.loss', "
                     "'val.perplexity', 'val.next.perplexity', 'a.f1', 'b.f1', 'f1', 'val.o.accuracy']).join())") ==
        "loss,val.loss,val.perplexity,a.f1,b.f1,f1,val.o.accuracy");
  // A single peak does not flatten the rest of a curve of rates.
  CHECK(browser.text("import('/chart.js').then(({bulk}) => [bulk([15000, ...Array(40).fill(100)]), bulk([null, 1, 2, "
                     "3])].join())") == "150,3");
  CHECK(browser.text("import('/format.js').then(({figure}) => [figure('val.o.accuracy', 0.9231), figure('accuracy', "
                     "1), figure('o.loss', 0.5), figure('accuracy', null)].join())") == "92.31 %,100.00 %,0.5,–");
}

TEST_CASE("page: changes arguments of layers, takes changes back, and shows what a run refuses") {
  if (!Browser::there()) return;
  Folder f;
  std::string x, y;
  for (int i = 0; i < 64; ++i)
    x += std::to_string(i % 8) + "," + std::to_string(i / 8) + "\n", y += std::to_string(i % 8 - i / 8) + "\n";
  const std::string flow =
      f.write("g.hmx",
              "harmonic g {\n  producer x {2}; producer y {1};\n  layer h; layer o {1};\n  cycle { x -(affine(4), "
              "leaky_relu(0.1), dropout(0.25))-> h -> o; o <-(mse)- y; }\n}\n");
  Background run(f, "run " + flow + " --producer x=" + f.write("x.csv", x) + " --producer y=" + f.write("y.csv", y) +
                        " --epochs 1000000000 --for 100s --threads 1 --ui");
  Browser browser(f);
  browser.open(page_of(run));
  REQUIRE(browser.await(kConnected + " && " + says("run-state", "running")));
  REQUIRE(browser.await("!document.getElementById('layer-set').disabled"));
  CHECK(browser.text("[...document.querySelectorAll('#layer option')].map((e) => e.value).join()") == "h,o");
  const auto change = [&](const std::string& arguments) {
    browser.evaluate("document.getElementById('layer-arguments').value = '" + arguments +
                     "'; document.getElementById('layer-set').click()");
  };
  change("slope=0.5 rate=0.4");
  CHECK(browser.await(says("said", "h: slope = 0.5 (was 0.1), rate = 0.4 (was 0.25), step ")));
  CHECK(browser.await("document.getElementById('layer-arguments').value === ''"));
  change("rat=1");
  CHECK(browser.await(says("said", "did you mean")));
  CHECK(browser.text("document.getElementById('layer-arguments').value") == "rat=1");
  change("0.3");
  CHECK(browser.await(says("said", "is not ARGUMENT=VALUE")));
  browser.click("layer-undo");
  CHECK(browser.await(says("said", "h: slope = 0.1 (was 0.5), rate = 0.25 (was 0.4), step ")));
  browser.click("layer-undo");
  CHECK(browser.await(says("said", "there is no change to take back")));
  CHECK(browser.text("import('/changes.js').then(({arguments_of}) => JSON.stringify(arguments_of(' kernel=[3, 3]  "
                     "dropout.rate= bias=false ')))") == R"({"kernel":"[3, 3]","dropout.rate":"","bias":"false"})");
  CHECK(browser.text("import('/changes.js').then(({arguments_of}) => ['', 'a', 'a=1 a=2'].map((text) => { try { "
                     "return arguments_of(text); } catch (e) { return e.message; } }).join('|'))") ==
        "write ARGUMENT=VALUE, such as rate=0.3|'a' is not ARGUMENT=VALUE|'a' is given twice");
}

TEST_CASE("page: is available while a run waits for its first sample, and continues with it") {
  if (!Browser::there()) return;
  Folder f;
  const std::string flow = f.write("g.hmx",
                                   "harmonic g {\n  producer image; producer label {10};\n  layer hidden {16}; layer "
                                   "o;\n  cycle { image -(relu)-> hidden -> o; o <-(cross_entropy)- label; }\n}\n");
  const std::string at = "unix:" + (f / "digits");
  Background run(f, "run " + flow + " --producer image=" + at + "#image --producer label=" + at +
                        "#label --threads 1 --for 100s --ui");
  Browser browser(f);
  browser.open(page_of(run));
  REQUIRE(browser.await(kConnected));
  REQUIRE(browser.await(says("run-state", "starting")));
  CHECK(browser.await("document.querySelectorAll('#flow .node').length === 5"));
  CHECK(browser.await(says("streams", "waiting")));
  const Folder own;
  Background sender(
      own, "send " + at +
               " --from 'image=synth:digits?size=100000' --from 'label=synth:digits?size=100000#label' --rate 2000");
  REQUIRE(browser.await(says("run-state", "running")));
  CHECK(browser.await(says("flow", "28 × 28")));
  CHECK(browser.await(says("streams", "receiving")));
  CHECK(browser.complaints == std::vector<std::string>{});
}

TEST_CASE("page: continues into the next cycle") {
  if (!Browser::there()) return;
  Folder f;
  Browser browser(f);
  std::string x, y;
  for (int i = 0; i < 64; ++i)
    x += std::to_string(i % 8) + "," + std::to_string(i / 8) + "\n", y += std::to_string(i % 8 - i / 8) + "\n";
  const std::string flow =
      f.write("g.hmx",
              "harmonic g {\n  producer x {2}; producer y {1};\n  layer h {4}; layer o {1}; layer p {1};\n  cycle "
              "(until loss < 0.05) { x -> h -> o; o <-(mse)- y; }\n  cycle { x -> h -> p; p <-(mae)- y; }\n}\n");
  Background run(f, "run " + flow + " --producer x=" + f.write("x.csv", x) + " --producer y=" + f.write("y.csv", y) +
                        " --lr 1e-20 --epochs 1000000000 --for 100s --threads 1 --ui --control " + (f / "control"));
  const auto names = [](const std::string& of) {
    return "[...document.querySelectorAll('" + of + "')].map((e) => e.textContent).join(' ')";
  };
  browser.open(page_of(run));
  REQUIRE(browser.await(names("#flow .name") + " === 'x y h o mse'"));
  REQUIRE(harmonics("ctl " + (f / "control") + " lr 0.05").code == 0);  // from now on it learns
  REQUIRE(browser.await(names("#flow .name") + " === 'x y h p mae'"));
  CHECK(browser.await(names("#layers h3") + " === 'h p'"));
  const std::string label = browser.text(curve() + ".getAttribute('aria-label')");
  CHECK(browser.await(curve() + ".getAttribute('aria-label') !== '" + label + "'"));
  CHECK(browser.complaints == std::vector<std::string>{});
}

TEST_CASE("page: asks for a token, and finds a run that was restarted") {
  if (!Browser::there()) return;
  Folder f;
  Browser browser(f);
  std::string page;
  {
    Background run(f, "run " + kLongRun + "--ui --token not-to-be-guessed");
    page = page_of(run);
    CHECK_FALSE(has(run.errors(), "not-to-be-guessed"));
    browser.open(page);
    REQUIRE(browser.await("document.documentElement.dataset.connection === 'locked'"));
    CHECK(browser.evaluate("document.getElementById('token-form').hidden") == boost::json::value(false));
    CHECK(browser.evaluate("document.getElementById('pause').disabled") == boost::json::value(true));
    CHECK(browser.evaluate("document.querySelectorAll('#figure-list dt').length") == boost::json::value(0));
    const auto give = [&](const std::string& token) {
      browser.evaluate("document.getElementById('token').value = '" + token +
                       "'; document.getElementById('token-form').requestSubmit()");
    };
    give("something-else");
    REQUIRE(browser.await("!document.getElementById('token-form').hidden"));
    give("not-to-be-guessed");
    REQUIRE(browser.await(kConnected));
    REQUIRE(browser.await(says("run-state", "running")));
  }
  REQUIRE(browser.await(says("connection", "no connection")));
  CHECK(browser.await("document.getElementById('main').classList.contains('stale')"));
  CHECK(browser.evaluate("document.getElementById('pause').disabled") == boost::json::value(true));
  Background again(
      f, "run " + kLongRun + "--ui --token not-to-be-guessed --serve " + page.substr(7, page.find('/', 7) - 7));
  CHECK(browser.await(kConnected + " && !document.getElementById('main').classList.contains('stale')"));
}

TEST_CASE("page: commands that change the run require a generated token") {
  if (!Browser::there()) return;
  Folder f;
  Background run(f, "run " + kLongRun + "--ui");
  const std::string page = page_of(run);
  Browser browser(f);
  browser.open(page.substr(0, page.find('#')));
  REQUIRE(browser.await(kConnected + " && " + says("run-state", "running")));
  browser.click("pause");
  REQUIRE(browser.await("!document.getElementById('token-form').hidden"));
  CHECK(browser.await(says("said", "token")));
  CHECK(browser.text(text_of("run-state")) == "running");
  browser.evaluate("document.getElementById('token').value = '" + page.substr(page.find("token=") + 6) +
                   "'; document.getElementById('token-form').requestSubmit()");
  REQUIRE(browser.await(kConnected + " && document.getElementById('token-form').hidden"));
  REQUIRE(browser.await("!document.getElementById('pause').disabled"));
  browser.click("pause");
  CHECK(browser.await(says("run-state", "paused")));
}

TEST_CASE("page: /docs lists the routes of a served model and tries them") {
  if (!Browser::there()) return;
  Folder f;
  const std::string flow =
      f.write("g.hmx", "harmonic g { producer x {3}; producer y {2}; layer o {2}; cycle { x -> o; o <-(mse)- y; } }");
  const std::string x = f.write("x.csv", "0.5,-1,2\n0.25,0,1\n"), y = f.write("y.csv", "1,2\n3,4\n");
  REQUIRE(harmonics("run " + flow + " --producer x=" + x + " --producer y=" + y + " --steps 20 --quiet --save " +
                    (f / "w.safetensors"))
              .code == 0);
  Background server(f, "serve " + flow + " --weights " + (f / "w.safetensors") + " --listen 127.0.0.1:0");
  REQUIRE(server.await([&] { return !word_after(server.errors(), "serving on ").empty(); }));
  const std::string address = word_after(server.errors(), "serving on ");
  Browser browser(f);
  browser.resize(1280, 900);
  browser.open(address + "/docs");
  REQUIRE(browser.await("document.documentElement.dataset.ready"));
  CHECK(
      browser.await("fetch('/openapi.json').then((r) => r.json()).then((d) => "
                    "Object.values(d.paths).map((p) => Object.keys(p).length).reduce((a, b) => a + b) === "
                    "document.querySelectorAll('section').length)"));
  const std::string section = "document.querySelector('section[aria-labelledby=post_v1_predict]')";
  CHECK(browser.await(section + ".querySelector('textarea').value === '{\"inputs\":{\"x\":[[0,0,0]]}}'"));
  const std::string curl = browser.text(section + ".querySelector('pre').textContent");
  CHECK(std::system(("timeout 60 " + curl + " -s -o " + (f / "reply.json")).c_str()) == 0);
  CHECK(has(read(f / "reply.json"), R"("version":{"cycle":1,"step":20})"));
  browser.evaluate(
      "[...document.querySelectorAll('section')].forEach((s) => "
      "[...s.querySelectorAll('button')].find((b) => b.textContent === 'Try it')?.click())");
  const auto answered = [&](const char* operation, const char* status) {
    return browser.await("document.querySelector('section[aria-labelledby=" + std::string(operation) +
                         "] [role=status]').textContent.startsWith('" + status + "')");
  };
  CHECK(answered("post_v1_predict", "200"));
  CHECK(answered("get_v1_status", "200"));
  CHECK(answered("get_healthz", "200"));
  CHECK(answered("get_openapijson", "200"));
  CHECK(answered("post_v1_control", "401"));
  browser.resize(390, 800);
  CHECK(browser.await("document.documentElement.scrollWidth <= 390"));
  for (const std::string& url : browser.requests) {
    INFO(url);
    CHECK((url.rfind(address, 0) == 0 || url == "about:blank"));
  }
}
