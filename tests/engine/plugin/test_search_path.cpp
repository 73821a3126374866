#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/plugin/discovery.hpp"
#include "engine/plugin/loader.hpp"
#include "tests/variable.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using harmonics::engine::testing::Variable;
namespace fs = std::filesystem;

namespace {

const std::string kActivations = HARMONICS_BINARY_DIR "/lib/harmonics/plugins/libharmonics_activations.so";

class Folder {
 public:
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "harmonics_plugin_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string str() const { return path_.string(); }

 private:
  fs::path path_;
};

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::string distrust(const std::string& path) {
  try {
    check_trust(path);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Denied);
    CHECK(e.notes() == std::vector<std::string>{
                           "move it to a folder where only you can write, e.g. ~/.local/share/harmonics/plugins"});
    return e.what();
  }
  return "trusted";
}

}  // namespace

TEST_CASE("search path: the user's setting, then the user's folder, then beside the program") {
  const Variable path("HARMONICS_PLUGIN_PATH", "/one::/two"), data("XDG_DATA_HOME", "/data"), home("HOME", "/home/me");
  const std::vector<std::string> found = plugin_search_path();
  REQUIRE(found.size() == 4);
  CHECK(found[0] == "/one");
  CHECK(found[1] == "/two");
  CHECK(found[2] == "/data/harmonics/plugins");
  CHECK(found[3] == fs::canonical(HARMONICS_BINARY_DIR "/lib/harmonics/plugins").string());
  const Variable no_data("XDG_DATA_HOME", nullptr);
  CHECK(plugin_search_path()[2] == "/home/me/.local/share/harmonics/plugins");
}

TEST_CASE("search path: manifests announce names without opening a library") {
  const Folder folder;
  fs::copy_file(kActivations, folder / "libx.so");
  write(folder / "libx.manifest", "# mine\nactivation swish\n\nloss focal\n");
  Registry registry;
  announce(discover_plugins({folder.str(), folder / "missing"}), registry);
  CHECK(registry.names(HX_ACTIVATION) == std::vector<std::string>{"swish"});
  CHECK(registry.names(HX_LOSS) == std::vector<std::string>{"focal"});
  fs::remove(folder / "libx.so");
  CHECK_THROWS_WITH(registry.find(HX_ACTIVATION, "swish"), "plugin '" + (folder / "libx.so") + "' does not exist");
}

TEST_CASE("search path: an unusable library is skipped, and errors about its names give the reason") {
  const Folder folder;
  const std::string library = folder / "libx.so";
  const auto trouble = [&] {
    const Discovery d = discover_plugins({folder.str()});
    REQUIRE(d.plugins.size() == 1);
    return d.plugins[0].trouble;
  };
  write(folder / "libx.manifest", "activation swish\n");
  CHECK(trouble() == "'" + library + "' has a manifest, but does not exist");
  write(library, "text");
  CHECK(trouble() == "'" + library + "' is not a Harmonics plugin: it is not an ELF file");
  fs::copy_file(kActivations, library, fs::copy_options::overwrite_existing);
  CHECK(trouble() == "");
  write(folder / "libx.manifest", "activation swish\nthing focal\n");
  CHECK(trouble() == (folder / "libx.manifest") + ":2: 'thing focal' is not a kind and a name");
  write(folder / "libx.manifest", "activation\n");
  CHECK(trouble() == (folder / "libx.manifest") + ":1: 'activation' is not a kind and a name");

  Registry registry;
  announce(discover_plugins({folder.str()}), registry);
  try {
    registry.need(HX_ACTIVATION, "swish");
    FAIL("found");
  } catch (const Error& e) {
    CHECK(e.notes().at(0) ==
          "note: a plugin was skipped: " + (folder / "libx.manifest") + ":1: 'activation' is not a kind and a name");
  }
}

TEST_CASE("search path: results are cached until a file changes") {
  const Folder folder;
  const std::string cache = folder / "cache/plugins", place = folder / "p";
  fs::create_directories(place);
  for (const char* name : {"a", "b"}) {
    fs::copy_file(kActivations, place + "/lib" + name + ".so");
    write(place + "/lib" + name + ".manifest", std::string("activation ") + name + "\n");
  }
  fs::copy_file(kActivations, place + "/libwithout.so");
  write(place + "/libtext.so", "no library");
  const auto find = [&] { return discover_plugins({place}, cache); };
  const auto same = [](const Discovery& a, const Discovery& b) {
    if (a.plugins.size() != b.plugins.size()) return false;
    for (size_t i = 0; i < a.plugins.size(); ++i) {
      const FoundPlugin &p = a.plugins[i], &q = b.plugins[i];
      if (p.library != q.library || p.id != q.id || p.version != q.version || p.provides != q.provides ||
          p.trouble != q.trouble || p.has_manifest != q.has_manifest)
        return false;
    }
    return true;
  };
  const Discovery first = find(), second = find();
  CHECK(first.looked_into == 4);
  CHECK(second.looked_into == 0);
  CHECK(same(first, second));
  CHECK(first.plugins[0].id == "harmonics.activations");
  CHECK(first.plugins[2].trouble != "");

  write(place + "/libb.manifest", "activation b\nactivation b2\n");
  const Discovery changed = find();
  CHECK(changed.looked_into == 1);
  CHECK(changed.plugins[1].provides.size() == 2);
  fs::remove(place + "/liba.so"), fs::remove(place + "/liba.manifest");
  CHECK(find().plugins.size() == 3);
  CHECK(find().looked_into == 0);

  const Discovery expected = find();
  for (const std::string& damaged :
       {std::string("rubbish"), std::string(), std::string("harmonics plugins 1, contract 99.0\n"),
        std::string(100, '\n'), std::string("\0\t", 2)}) {
    write(cache, damaged);
    const Discovery again = find();
    CHECK(again.looked_into == 3);
    CHECK(same(again, expected));
  }
  std::ifstream in(cache);
  const std::string good{std::istreambuf_iterator<char>(in), {}};
  for (size_t cut = 0; cut < good.size(); cut += 7) {
    write(cache, good.substr(0, cut));
    CHECK(same(find(), expected));
  }
  for (size_t at = 0; at < good.size(); at += 5) {
    std::string flipped = good;
    flipped[at] ^= 1;
    write(cache, flipped);
    CHECK(same(find(), expected));
  }
  fs::permissions(cache, fs::perms::others_write, fs::perm_options::add);
  CHECK(find().looked_into == 3);
  if (geteuid() != 0) return;  // only root can give a file to any group
  find();
  REQUIRE(chown(cache.c_str(), 0, 12345) == 0);
  chmod(cache.c_str(), 0640);
  CHECK(find().looked_into == 0);
  chmod(cache.c_str(), 0660);
  CHECK(find().looked_into == 3);
}

TEST_CASE("search path: a library with fewer items than its manifest is refused") {
  const Folder folder;
  fs::copy_file(kActivations, folder / "liby.so");
  write(folder / "liby.manifest", "activation relu\nactivation rleu\n");
  Registry registry;
  announce(discover_plugins({folder.str()}), registry);
  CHECK(registry.need(HX_ACTIVATION, "relu")->plugin == "harmonics.activations");
  CHECK(registry.find(HX_ACTIVATION, "gelu") != nullptr);  // registered together
  CHECK_THROWS_WITH(
      registry.need(HX_ACTIVATION, "rleu"),
      "the manifest of plugin '" + (folder / "liby.so") + "' promises activation 'rleu', the library does not have it");
}

TEST_CASE("search path: files that others can write are not loaded") {
  const Folder folder;
  const std::string file = folder / "libx.so";
  write(file, "x");
  chmod(file.c_str(), 0644);
  CHECK(distrust(file) == "trusted");
  chmod(file.c_str(), 0666);
  CHECK(distrust(file) == "plugin '" + file + "' is not loaded: its file '" + file + "' is writable by all users");
  chmod(file.c_str(), 0644);
  chmod(folder.str().c_str(), 0777);
  CHECK(distrust(file) ==
        "plugin '" + file + "' is not loaded: its folder '" + folder.str() + "' is writable by all users");
  chmod(folder.str().c_str(), 0755);
  if (geteuid() != 0) return;  // only root can change a file's owner
  REQUIRE(chown(file.c_str(), 12345, 0) == 0);
  CHECK(distrust(file) ==
        "plugin '" + file + "' is not loaded: its file '" + file + "' belongs to another user (number 12345)");
  REQUIRE(chown(file.c_str(), 0, 12345) == 0);
  chmod(file.c_str(), 0664);
  CHECK(distrust(file) == "plugin '" + file + "' is not loaded: its file '" + file + "' is writable by its group");
}

TEST_CASE("search path: the folder of a link is checked like the folder of the file") {
  const Folder open, closed;
  write(closed / "libx.so", "x");
  fs::create_symlink(closed / "libx.so", open / "libx.so");
  CHECK(distrust(open / "libx.so") == "trusted");
  chmod(open.str().c_str(), 0777);
  CHECK(distrust(open / "libx.so") == "plugin '" + (open / "libx.so") + "' is not loaded: the folder of the link '" +
                                          open.str() + "' is writable by all users");
}
