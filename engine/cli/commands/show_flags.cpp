// Flags that select the parts that `explain` shows and the internal values that `infer` writes.
#include "engine/cli/commands/verb_flags.hpp"

namespace harmonics::engine::cli {

void explain_show_flags(Flags& f) {
  f.group("What to show");
  FlagRow& show = f.texts("show", "WHAT", " (default: summary, flow and widths)", &Options::show);
  show.choices = {"summary", "flow", "widths", "entries", "program", "kernels", "memory"};
  show.list = true;
  f.text("entry", "NAME",
         "show only this entry; for model files, also its program, kernels and memory (default: decode)",
         &Options::entry);
  f.whole("tokens", 1, 1 << 24, "number of tokens in one run of that entry", [](Options& o, int64_t v) {
     o.tokens = v;
   }).initial = "1";
  f.text("after", "PASS", "the program after a pass (trace, cse, fuse_elementwise, ...; 'all')", &Options::after);
  f.on("select", "the implementation selected for each call, with the reasons against the others", &Options::select);
  f.on("placement", "the steps on the device, and those on the host with copies", &Options::placement);
  f.on("dot", "the graph in Graphviz format: ... --dot | dot -Tsvg > graph.svg", &Options::dot);
  f.on("memory",
       "the results that a training step keeps for the backward pass, by name and shape, with and without the "
       "presets of --recompute; for a model, for --batch sequences of --tokens tokens",
       &Options::memory);
  f.text("html", "FILE.html",
         "write one self-contained page: blocks, shapes, parameters, FLOPs, and the figures of --numbers",
         &Options::html);
  f.text("numbers", "FILE.json", "the --json output of run, profile or bench, for --html", &Options::numbers);
  f.on("infer", "the inference program instead of the training step", &Options::inference);
}

void value_trace_flag(Flags& f) {
  f.text(
      "trace", "DIR",
      "write the results of each layer, block and operation to this folder: DIR/0.safetensors for the first batch, or "
      "for the text of --prompt, and so on",
      &Options::trace);
}

}  // namespace harmonics::engine::cli
