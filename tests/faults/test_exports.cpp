// Model folders that `export` replaces: complete after every fault, or reported as incomplete.
#include "tests/faults/faulted.hpp"

#include <map>

using namespace faults;

namespace {

using Contents = std::map<std::string, std::string>;  // by name; without temporary files of a killed process

Contents contents_of(const std::string& folder) {
  Contents all;
  for (const std::string& name : names_in(folder))
    if (!name.ends_with(".tmp")) all[name] = read(folder + "/" + name);
  return all;
}

void write_all(const std::string& folder, const Contents& contents) {
  fs::remove_all(folder);
  fs::create_directory(folder);
  for (const auto& [name, bytes] : contents) std::ofstream(folder + "/" + name, std::ios::binary) << bytes;
}

// Returns the command that exports a model of a few kilobytes.
std::string exporting(const std::string& to, int width, const std::string& more) {
  return "export GPT2 " + to + "/ --quiet --set num_layers=1 --set num_query_heads=2 --set vocab_size=64 --set " +
         "max_position_embeddings=16 --set hidden_size=" + std::to_string(width) + " " + more;
}

size_t shards_in(const Contents& contents) {
  return static_cast<size_t>(
      std::count_if(contents.begin(), contents.end(), [](const auto& file) { return has(file.first, "-of-"); }));
}

}  // namespace

TEST_CASE("export: a folder is the former model or the new one after every fault, or lacks config.json") {
  Folder f;
  const std::string out = f / "out";
  REQUIRE(journeys::harmonics(exporting(out, 16, "--shard-size 4K")).code == 0);
  const Contents former = contents_of(out);
  REQUIRE(shards_in(former) > 2);
  const std::string command = exporting(out, 32, "--shard-size 16K");
  REQUIRE(journeys::harmonics(command).code == 0);
  const Contents whole = contents_of(out);
  REQUIRE(shards_in(whole) > 1);
  REQUIRE(whole.at("config.json") != former.at("config.json"));
  const Fault kind = GENERATE(Fault{"kill", 0, "", false, ""}, Fault{"EIO", 0, "", false, ""},
                              Fault{"ENOSPC", 0, "", true, "open,write,sync,rename"});
  Fault fault = kind;
  fault.paths = out + "/*";
  std::set<std::string> seen;
  const size_t calls = at_every_call(fault, [&](const Fault& at) {
    write_all(out, former);
    const Result r = harmonics_in(variables(f, at), command);
    const Struck struck = struck_in(f);
    if (struck.number == 0) return false;
    Contents now = contents_of(out);
    const std::string kept = fs::path(struck.path).filename().string();
    if (!kills(at.what) && struck.call == "remove" && kept.find("-of-") != std::string::npos) {
      CHECK(now.erase(kept) == 1);  // an old file that could not be removed is in no index
      CHECK(now == whole);
      return true;
    }
    if (kills(at.what)) {
      CHECK(r.code == kKilled);
    } else {
      CHECK((r.code != 0 || now == whole));
      if (struck.call != "remove") CHECK(unfinished_in(out) == 0);
    }
    if (now == former || now == whole) {
      seen.insert(now == former ? "former" : "whole");
      return true;
    }
    seen.insert("incomplete");
    CHECK_FALSE(now.count("config.json"));
    if (!kills(at.what)) CHECK(has(r.err, "incomplete; write them again"));
    const Result opened = journeys::harmonics("explain " + out);
    CHECK(opened.code == 66);
    CHECK(has(opened.err, "has no config.json, and so no model"));
    CHECK(journeys::harmonics(command).code == 0);  // the next export repairs it
    CHECK(contents_of(out).at("config.json") == whole.at("config.json"));
    CHECK(journeys::harmonics("explain " + out).code == 0);
    return true;
  });
  CHECK(calls > 20);
  CHECK(seen.count("former"));
}

TEST_CASE("export: a full disk leaves no part of a new folder that could be taken for a model") {
  Folder f;
  const std::string out = f / "out", command = exporting(out, 32, "");
  const size_t calls = at_every_call({"ENOSPC", 0, out + "/*", true, "write"}, [&](const Fault& fault) {
    fs::remove_all(out);
    const Result r = harmonics_in(variables(f, fault), command);
    if (struck_in(f).number == 0) return false;
    CHECK(r.code == 73);
    CHECK(has(r.err, "No space left on device"));
    CHECK(names_in(out).empty());
    return true;
  });
  CHECK(calls >= 3);
}

TEST_CASE("export: files of weights that the former index names are removed, and no others") {
  Folder f;
  const std::string out = f / "out";
  REQUIRE(journeys::harmonics(exporting(out, 16, "--shard-size 4K")).code == 0);
  CHECK(shards_in(contents_of(out)) > 2);
  f.write("out/notes.txt", "mine");
  f.write("out/model-00001-of-00099.safetensors", "mine too");
  REQUIRE(journeys::harmonics(exporting(out, 16, "")).code == 0);
  const std::set<std::string> one = names_in(out);
  CHECK(one == std::set<std::string>{"config.json", "model-00001-of-00099.safetensors", "model.ndsl",
                                     "model.safetensors", "notes.txt"});
  REQUIRE(journeys::harmonics(exporting(out, 16, "--shard-size 16K")).code == 0);
  const Contents two = contents_of(out);
  CHECK_FALSE(two.count("model.safetensors"));
  CHECK(two.count("model.safetensors.index.json"));
  CHECK(two.count("notes.txt"));
  const size_t shards = shards_in(two);
  REQUIRE(journeys::harmonics(exporting(out, 16, "--shard-size 4K")).code == 0);
  CHECK(shards_in(contents_of(out)) > shards);
  REQUIRE(journeys::harmonics(exporting(out, 16, "--shard-size 16K")).code == 0);
  CHECK(contents_of(out) == two);
  // An invalid index names no files.
  f.write("out/model.safetensors.index.json", "{\"weight_map\": {\"a\": \"../notes.txt\", \"b\": 3}}");
  REQUIRE(journeys::harmonics(exporting(out, 16, "")).code == 0);
  CHECK(names_in(out).count("notes.txt"));
}

TEST_CASE("quantize: a fault leaves the former file or the new one") {
  Folder f;
  REQUIRE(journeys::harmonics(exporting(f / "model", 32, "")).code == 0);
  fs::create_directory(f / "out");
  const std::string to = f / "out/q.gguf", command = "quantize " + (f / "model") + "/ " + to + " --quiet --type q8_0";
  REQUIRE(journeys::harmonics(command).code == 0);
  const std::string whole = read(to), former = "what was there before";
  const std::string what = GENERATE("kill", "EIO", "ENOSPC");
  const size_t calls = at_every_call({what, 0, f / "out/*"}, [&](const Fault& fault) {
    f.write("out/q.gguf", former);
    const Result r = harmonics_in(variables(f, fault), command);
    const Struck struck = struck_in(f);
    if (struck.number == 0) return false;
    CHECK((read(to) == former || read(to) == whole));
    if (struck.call != "remove") CHECK(r.code != 0);
    for (const std::string& name : names_in(f / "out"))
      if (name != "q.gguf") fs::remove(f / ("out/" + name));
    return true;
  });
  CHECK(calls > 5);
}
