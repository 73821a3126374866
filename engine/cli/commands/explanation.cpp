#include "engine/cli/commands/explanation.hpp"

#include <algorithm>
#include <map>

#include <boost/json.hpp>
#include <fmt/core.h>

#include <harmonics/quantity.hpp>

#include "engine/cli/commands/graph_summary.hpp"
#include "engine/cli/terminal/output.hpp"
#include "engine/cli/terminal/terminal.hpp"
#include "engine/passes/pass.hpp"
#include "engine/program/print.hpp"
#include "engine/training/step_memory.hpp"

namespace harmonics::engine::cli {

namespace json = boost::json;

void Explanation::section(const char* key, const std::string& title, const std::string& text) {
  if (json_)
    add(key, json::object{{"title", title}, {"text", text}});
  else
    print("{}\n{}\n", title, text);
}

void Explanation::say(const std::string& text) const {
  if (!json_) print("{}", text);
}

void Explanation::add(const char* key, json::value entry) {
  if (!object_.contains(key)) object_[key] = json::array();
  object_[key].as_array().push_back(std::move(entry));
}

namespace {

// Returns whether a flag selects a part to show, of the compiled program or of the flow.
bool names_something(const Options& o) { return !o.show.empty() || !o.after.empty() || o.select || o.placement; }

}  // namespace

bool wants(const Options& o, const char* what) {
  if (!names_something(o) && !o.memory)
    return std::string(what) == "summary" || std::string(what) == "flow" || std::string(what) == "widths";
  return std::find(o.show.begin(), o.show.end(), what) != o.show.end();
}

bool wants_programs(const Options& o) {
  return wants(o, "program") || wants(o, "kernels") || wants(o, "memory") || o.memory || o.select || o.placement ||
         !o.after.empty();
}

void show_parameters(const ParameterStore& store, Explanation& e) {
  json::array rows;
  int64_t total = 0;
  e.say("weights\n");
  for (const auto& [name, t] : store.all()) {
    if (t.role == Role::moment) continue;
    total += t.type.shape.count();
    e.say(fmt::format("  {:<40} {}\n", name, t.type.str()));
    rows.push_back(json::object{{"name", name},
                                {"dtype", std::string(dtype_name(t.type.dtype))},
                                {"shape", json::value_from(t.type.shape.vector())}});
  }
  e.say(fmt::format("  {} numbers in all\n", thousands(total)));
  e.object()["weights"] = std::move(rows);
}

namespace {

// Returns the bytes of kept results by scope, largest first.
std::vector<std::pair<std::string, uint64_t>> kept_by_scope(const Program& program) {
  std::map<std::string, uint64_t> bytes;
  for (const KeptValue& value : kept_values(program)) bytes[value.scope] += value.bytes();
  std::vector<std::pair<std::string, uint64_t>> all(bytes.begin(), bytes.end());
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return all;
}

void show_memory(const Executable& executable, Explanation& e) {
  const MemoryReport& m = executable.memory();
  e.say(fmt::format(
      "memory\n  arena       {:>12}  what one step needs, buffers shared\n  unshared    {:>12}  the same without "
      "sharing\n  state       {:>12}  weights, moments, statistics\n  workspace   {:>12}  inside the arena\n",
      bytes_text(m.arena_bytes), bytes_text(m.unshared_bytes), bytes_text(m.state_bytes),
      bytes_text(m.workspace_bytes)));
  e.object()["memory"] = json::object{{"arena_bytes", m.arena_bytes},
                                      {"unshared_bytes", m.unshared_bytes},
                                      {"state_bytes", m.state_bytes},
                                      {"workspace_bytes", m.workspace_bytes}};
  const auto kept = kept_by_scope(executable.program());
  if (kept.empty()) return;
  constexpr size_t kMostLines = 24;
  uint64_t all = 0, rest = 0;
  json::array rows;
  for (const auto& [scope, bytes] : kept) {
    all += bytes;
    rows.push_back(json::object{{"scope", scope}, {"bytes", bytes}});
  }
  e.say(fmt::format("  kept        {:>12}  results of the forward pass until the backward pass, by scope:\n",
                    bytes_text(all)));
  for (size_t i = 0; i < kept.size(); ++i) {
    if (i >= kMostLines)
      rest += kept[i].second;
    else
      e.say(fmt::format("    {:>12}  {}\n", bytes_text(kept[i].second),
                        kept[i].first.empty() ? "(no scope)" : kept[i].first));
  }
  if (rest) e.say(fmt::format("    {:>12}  {} more scopes\n", bytes_text(rest), kept.size() - kMostLines));
  e.object()["memory"].as_object()["kept"] = std::move(rows);
}

// Shows the selected implementation of each call, then the rejected ones with the reason.
void show_selected(const Executable& executable, const std::vector<Selected>& opened, const std::string& of,
                   Explanation& e) {
  e.say("implementations" + of + "\n");
  if (!e.object().contains("implementations")) e.object()["implementations"] = json::array();
  std::vector<Selected> all = executable.selected();
  all.insert(all.end(), opened.begin(), opened.end());
  for (const Selected& s : all) {
    e.say(fmt::format("  {}\n    {}\n    {} ({})\n", s.scope.empty() ? "(no scope)" : s.scope, s.site, s.winner,
                      s.because));
    json::array declined;
    for (const auto& [name, why] : s.declined) {
      e.say(fmt::format("      not {}: {}\n", name, why));
      declined.push_back(json::object{{"name", name}, {"why", why}});
    }
    e.add("implementations", json::object{{"functional", s.op},
                                          {"site", s.site},
                                          {"scope", s.scope},
                                          {"winner", s.winner},
                                          {"because", s.because},
                                          {"declined", std::move(declined)}});
  }
}

// Shows the device of each part, and every step that runs on the host.
void show_placement(const Executable& executable, const std::string& device, const std::string& of, Explanation& e) {
  json::array hosted;
  std::string text;
  for (size_t i = 0; i < executable.steps().size(); ++i) {
    const PlanStep& s = executable.steps()[i];
    if (!s.on_host) continue;
    text += fmt::format("  step {}: {} by '{}'{}\n", i, s.what, s.kernel, s.scope.empty() ? "" : ", in " + s.scope);
    hosted.push_back(
        json::object{{"step", i}, {"what", s.what}, {"kernel", s.kernel}, {"scope", s.scope}, {"origin", s.origin}});
  }
  const size_t n = executable.steps().size() - hosted.size();
  e.say(fmt::format(
      "placement{}\n  {} on {}{}\n{}", of, quantity(n, "step"), device,
      hosted.empty() ? ", none on the host" : fmt::format(", {} on the host, with copies:", hosted.size()), text));
  e.add("placement", json::object{{"device", device}, {"steps", n}, {"hosted", std::move(hosted)}});
}

}  // namespace

void show_program(const Program& traced, const std::vector<Selected>& opened, const ShownProgram& shown,
                  const Options& options, Explanation& e) {
  const std::string& of = shown.of;
  std::vector<std::string> passes{"trace"};
  if (options.after == "trace" || options.after == "all")
    e.section("programs", "program" + of + " after trace", print(traced));
  CompileOptions c = shown.compile;
  c.observe = [&](const std::string& pass, const Program& program) {
    passes.push_back(pass);
    if (options.after == pass || options.after == "all")
      e.section("programs", fmt::format("program{} after {}", of, pass), print(program));
  };
  if (options.memory) show_step_memory(traced, shown, options, e);
  if (options.memory && !names_something(options)) return;
  const auto executable = compile(traced, &shown.binding, shown.executor, c);
  if (!options.after.empty() && options.after != "all" &&
      std::find(passes.begin(), passes.end(), options.after) == passes.end()) {
    std::string known;
    for (const std::string& p : passes) known += (known.empty() ? "" : ", ") + p;
    throw Error(ErrorKind::Usage, fmt::format("there is no pass '{}'", options.after), {},
                {"passes are " + known + ", or 'all'"});
  }
  if (wants(options, "program")) e.section("programs", "program" + of, print(executable->program()));
  if (wants(options, "kernels")) e.section("kernels", "kernels" + of, print_plan(*executable));
  if (wants(options, "memory")) show_memory(*executable, e);
  if (options.select) show_selected(*executable, opened, of, e);
  if (options.placement) show_placement(*executable, options.run.device, of, e);
}

}  // namespace harmonics::engine::cli
