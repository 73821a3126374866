// Files named by a command: both read and written, loops of links, addresses of weights.
#include "tests/journeys/shell.hpp"

#include <unistd.h>

using namespace journeys;

namespace {

const char* const kPlane = "harmonic g { producer x; producer y; layer o; cycle { x -(affine)-> o; o <-(mse)- y; } }\n";

}  // namespace

TEST_CASE("named files: writing a file that is also read is refused, and both flags are named") {
  Folder f;
  const std::string flow = f.write("g.hmx", kPlane), data = f.write("x.csv", "1\n2\n3\n4\n"),
                    target = f.write("y.csv", "1\n2\n3\n4\n"), weights = f / "w.safetensors";
  fs::create_directory(f / "logs");
  f.write("logs/a.csv", "1\n2\n");
  REQUIRE(::symlink(data.c_str(), (f / "link.csv").c_str()) == 0);
  const std::string run =
      "run " + flow + " --epochs 1 --batch 2 --producer x=" + data + " --producer y=" + target + " ";
  const auto refused = [&](const std::string& use, const std::string& output, const std::string& input) {
    const std::string flow_before = read(flow), data_before = read(data);
    const Result r = harmonics(use);
    CHECK(r.code == 2);
    CHECK(has(r.err, "error: " + output + " would overwrite '"));
    CHECK(has(r.err, "which " + input + " reads\nhelp: write to another file\n"));
    CHECK(read(flow) == flow_before);
    CHECK(read(data) == data_before);
  };
  refused(run + "--log " + data, "--log", "--producer x=" + data);
  refused(run + "--log " + (f / "link.csv"), "--log", "--producer x=" + data);
  refused(run + "--report " + flow, "--report", "the flow");
  refused(run + "--save " + target, "--save", "--producer y=" + target);
  refused(run + "--plot " + target, "--plot", "--producer y=" + target);
  refused(run + "--test x=" + (f / "logs/a.csv") + " --test y=" + target + " --log " + (f / "logs/a.csv"), "--log",
          "--test x=" + (f / "logs/a.csv"));
  refused("infer " + flow + " --producer x=" + data + " --consumer file:" + data, "--consumer file:" + data,
          "--producer x=" + data);
  refused("receive " + data + " --to file:" + data, "--to file:" + data, "the address " + data);
  refused("send file:" + data + " --from " + data, "the address file:" + data, "--from " + data);
  refused("receive '" + (f / "logs/*.csv") + "' --to file:" + (f / "logs/a.csv"), "--to file:" + (f / "logs/a.csv"),
          "the address " + (f / "logs/*.csv"));
  refused("receive '" + (f / "logs/") + "' --to file:" + (f / "logs/a.csv"), "--to file:" + (f / "logs/a.csv"),
          "the address " + (f / "logs/"));
  const std::string book = f.write("book.txt", "a cat and a cat\n");
  refused("tokenize --train 300 --file " + book + " " + book, "--train", "--file");
  CHECK(read(book) == "a cat and a cat\n");
  REQUIRE(harmonics(run + "--quiet --save " + (f / "own.safetensors")).code == 0);
  const std::string own = read(f / "own.safetensors");
  refused("export " + (f / "own.safetensors") + " " + (f / "own.safetensors"), "OUTPUT", "MODEL");
  CHECK(read(f / "own.safetensors") == own);
  const Result folder = harmonics(run + "--save " + (f / "out") + " --checkpoint " + (f / "out"));
  CHECK(folder.code == 2);
  CHECK(has(folder.err, "error: --save and --checkpoint both write '" + (f / "out") + "'"));
  const Result twice = harmonics(run + "--save " + weights + " --report " + weights);
  CHECK(twice.code == 2);
  CHECK(has(twice.err, "error: --save and --report both write '" + weights + "'"));
  // Fine-tuning in place, devices, and other files of the folder are allowed.
  CHECK(harmonics(run + "--save " + weights).code == 0);
  CHECK(harmonics(run + "--weights " + weights + " --save " + weights + " --plot " + (f / "p.svg")).code == 0);
  CHECK(harmonics("receive '" + (f / "logs/") + "' --to file:" + (f / "out.csv")).code == 0);
}

TEST_CASE("named files: loops of links are reported as such") {
  Folder f;
  fs::create_directory(f / "data");
  fs::create_directory(f / "pictures");
  for (const char* name : {"data/a.csv", "pictures/a.png", "loop.so", "loop", "loop.hmx"})
    REQUIRE(::symlink(fs::path(name).filename().c_str(), (f / name).c_str()) == 0);
  const std::string loop = "Too many levels of symbolic links";
  for (const char* use : {"inspect file:$F/data", "inspect file:$F/pictures", "inspect file:$F/loop",
                          "validate $F/loop.hmx", "list --plugin $F/loop.so"}) {
    const Result r = harmonics_in("F='" + (f / "") + "';", use);
    CHECK(r.code == 66);
    CHECK(has(r.err, loop));
    CHECK_FALSE(has(r.err, "bug"));
  }
  for (const char* use : {"plugin doctor $F/loop.so", "plugin doctor $F/loop", "plugin check $F/loop.so"}) {
    const Result r = harmonics_in("F='" + (f / "") + "';", use);
    CHECK(r.code == 1);
    CHECK(has(r.out + r.err, loop));
  }
  const Result path = harmonics_in("HARMONICS_PLUGIN_PATH='" + (f / "loop") + "'", "plugin doctor");
  CHECK(has(path.out, loop));
  CHECK(path.code != 70);
  CHECK(harmonics_in("HARMONICS_PLUGIN_PATH='" + (f / "loop") + "'", "list metrics").code == 0);
}

TEST_CASE("named files: a GGUF file without its importer is a model that no importer reads, not a flow") {
  Folder f;
  const std::string bare = f / "harmonics", model = f.write("m.gguf", std::string("GGUF\3\0\0\0", 8));
  fs::copy_file(kProgram, bare);  // no plugins are installed beside it
  for (const char* verb : {"bench", "explain", "serve", "infer", "generate"}) {
    INFO(verb);
    const std::string out = f / "out";
    std::system(("cd '" + (f / "") + "'; HARMONICS_PLUGIN_PATH= HOME='" + (f / "") + "' timeout 20 '" + bare + "' " +
                 verb + " " + model + " >'" + out + "' 2>&1")
                    .c_str());
    CHECK(has(read(out), "no importer reads '" + model + "'"));
    CHECK(has(read(out), "load a plugin that reads it with --plugin PATH"));
  }
}

TEST_CASE("named files: inspect accepts weights and plugins as addresses too") {
  Folder f;
  const std::string flow = f.write("g.hmx", kPlane), data = f.write("x.csv", "1\n2\n"), weights = f / "w.safetensors";
  REQUIRE(harmonics("run " + flow + " --epochs 1 --batch 2 --producer x=" + data + " --producer y=" + data +
                    " --save " + weights)
              .code == 0);
  const Result bare = harmonics("inspect " + weights), address = harmonics("inspect file:" + weights);
  CHECK(bare.code == 0);
  CHECK(address.code == 0);
  CHECK(address.out == bare.out);
  CHECK(harmonics("inspect 'file:" + weights + "#o.affine.weight'").code != 66);
}
