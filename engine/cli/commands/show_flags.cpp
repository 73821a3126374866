// The flags that choose what `explain` shows and what `infer` writes of the inside of a model.
#include "engine/cli/commands/verb_flags.hpp"

namespace harmonics::engine::cli {

void explain_show_flags(Flags& f) {
  f.group("What to show");
  FlagRow& show = f.texts("show", "WHAT", " (default: summary, flow and widths)", &Options::show);
  show.choices = {"summary", "flow", "widths", "entries", "program", "kernels", "memory"};
  show.list = true;
  f.text("entry", "NAME",
         "show this entry only; of a model of another program, also its program, kernels and memory (default: decode)",
         &Options::entry);
  f.whole("tokens", 1, 1 << 24, "of one run of that entry", [](Options& o, int64_t v) { o.tokens = v; }).initial = "1";
  f.text("after", "PASS", "the program after a pass (trace, cse, fuse_elementwise, ...; 'all')", &Options::after);
  f.on("select", "the implementation selected for each call, and why the others are not", &Options::select);
  f.on("placement", "the steps on the device, and those on the host with copies", &Options::placement);
  f.on("dot", "the graph in Graphviz' language: ... --dot | dot -Tsvg > graph.svg", &Options::dot);
  f.on("memory",
       "what a training step keeps from the forward pass to the backward pass, by name and shape, and how much the "
       "presets of --recompute leave of it; of a model, for --batch sequences of --tokens tokens",
       &Options::memory);
  f.text("html", "FILE.html",
         "write one page that needs nothing else: blocks, shapes, parameters, FLOPs, and the numbers of --numbers",
         &Options::html);
  f.text("numbers", "FILE.json", "what --json of run, profile or bench printed, for --html", &Options::numbers);
  f.on("infer", "the inference program instead of the training step", &Options::inference);
}

void value_trace_flag(Flags& f) {
  f.text("trace", "DIR",
         "write the value of each layer, block and operation to this folder: DIR/0.safetensors for the first batch, or "
         "for the text of --prompt, and so on",
         &Options::trace);
}

}  // namespace harmonics::engine::cli
