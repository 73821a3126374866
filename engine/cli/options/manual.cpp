#include "engine/cli/options/manual.hpp"

#include <string_view>

namespace harmonics::engine::cli {

namespace {

constexpr ManualRow kExits[] = {
    {"0", "success"},
    {"1", "failure: a plugin, a device, insufficient memory, or non-finite weights or losses"},
    {"2", "wrong usage"},
    {"65", "malformed data"},
    {"66", "a file that does not exist or cannot be read"},
    {"69", "a peer that does not answer or has disconnected, or an address in use"},
    {"70", "a bug in this program"},
    {"73", "a file, or standard output, that cannot be written"},
    {"74", "an input or output error of a disk or device"},
    {"75", "stopped by an error, but a checkpoint exists: the resume command was printed"},
    {"77", "not permitted: a plugin that other users can write to, an address that may not be opened"},
    {"78", "an invalid flow or configuration"},
    {"129, 130, 143", "stopped by SIGHUP, Ctrl-C or SIGTERM after the running step"},
    {"141", "standard output was closed by its reader (SIGPIPE)"},
};

constexpr ManualRow kVariables[] = {
    {"HARMONICS_FLAG", "value of a flag that is not given, e.g. HARMONICS_BATCH=128; several are separated by ;"},
    {"HARMONICS_PLUGIN_PATH", "directories searched for plugins, before the user's and the installed ones"},
    {"HARMONICS_PLUGIN_PATIENCE", "time limit in seconds for loading a plugin library (default 30)", false},
    {"HARMONICS_CUDA_DEVICE", "index of the CUDA device for --device cuda (default 0)", false},
    {"HARMONICS_OPENCL_DEVICE", "part of the name of the OpenCL device for --device opencl", false},
    {"HARMONICS_ISA", "baseline, avx2 or avx512: the instruction set of the device cpu, for comparison", false},
    {"HARMONICS_TILES", "off: attention over caches of q8_0 without tile registers (AMX), for comparison", false},
    {"HARMONICS_FETCH", "processor or program: who fetches the weights of a single row ahead, for comparison", false},
    {"HARMONICS_UPDATES", "between or after: steps of optimizers and the multiply-adds of a product, for comparison",
     false},
    {"HARMONICS_VNNI", "off: products of bytes without VNNI instructions, for comparison", false},
    {"HARMONICS_BF16", "emulated, dots or off: how --precision bf16 is computed, for checking", false},
    {"HARMONICS_FP16", "emulated or off: how --precision fp16 is computed, for checking", false},
    {"HARMONICS_TRACE_FILE", "the log that --device trace:cpu writes (default device-trace.jsonl)", false},
    {"NO_COLOR, CLICOLOR_FORCE", "colours off, on; --color always and --color never take precedence"},
};

constexpr ManualRow kAddresses[] = {
    {"file:train-images.idx.gz", "IDX; files may be compressed with gzip or zstd. A path without a scheme means file:"},
    {"'file:iris.csv#species', 'file:iris.csv#0-3'", "columns of a CSV or TSV file by name, number or range"},
    {"'file:log.jsonl#pixels'", "a field of JSON lines"},
    {"file:x.npy, 'file:x.npz#images', 'file:x.safetensors#w'", "arrays; the first axis counts the samples"},
    {"file:pictures/, 'file:pictures/#label'", "PNG and JPEG images, and their sub-folders as labels"},
    {"'file:book.txt?window=128&shift=64'", "windows of characters"},
    {"'file:corpus.bin?window=128&vocab=50257'", "windows of tokens"},
    {"'file:x.bin?dtype=f32&shape=28x28'", "raw little-endian numbers"},
    {"'file:logs/*.csv.gz'", "several files of one format, in order of their names"},
    {"'synth:digits?size=20000', 'synth:digits#label'", "synthetic digits, and their labels"},
    {"tcp:127.0.0.1:5555, unix:PATH, zmq+router://127.0.0.1:5556, stdin:", "live streams of other processes"},
    {"stdout:, file:out.csv, file:out.npy", "consumers of results"},
};

constexpr ManualRow kFiles[] = {
    {"./harmonics.toml, ~/.config/harmonics/config.toml, /etc/harmonics/config.toml",
     "values of flags that are set neither on the command line nor in the environment"},
    {"PREFIX/share/harmonics/samples, PREFIX/share/doc/harmonics",
     "sample flows, documentation; 'harmonics version' prints these folders"},
};

}  // namespace

const char* const kAddressNotes =
    "Options follow ? and are separated by &, a field follows #: SCHEME:PATH?option=value&option=value#field. Shells "
    "interpret ?, &, # and *, so quote the address. Every producer accepts take=N, skip=N, repeat=N, shuffle=N, "
    "where=value<5 and more: harmonics list producers.";

std::span<const ManualRow> exit_rows() { return kExits; }
std::span<const ManualRow> variable_rows() { return kVariables; }
std::span<const ManualRow> address_rows() { return kAddresses; }
std::span<const ManualRow> file_rows() { return kFiles; }

std::string language_text() {
  for (unsigned i = 0; i < kManualPageCount; ++i)
    if (std::string_view(kManualPages[i].name) == "hmx.md") return kManualPages[i].text;
  return "";
}

}  // namespace harmonics::engine::cli
