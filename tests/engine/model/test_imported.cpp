// Imported models: invalid descriptions by a faulty importer or a hostile file are rejected, all others are views of
// the file.
#include <catch2/catch.hpp>

#include <cstring>
#include <functional>

#include "engine/model/imported.hpp"
#include "tests/engine/model/fake_importer.hpp"
#include "tests/message_of.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

const std::string kBytes = std::string("HEAD") + std::string(28, '\x01');

// Imports kBytes through an importer that returns this description.
ImportedModel imported(const ModelDescription& description) {
  Registry registry;
  add_importer(registry, "fake", FakeImporter{HX_PROBE_LIKELY, description});
  const TemporaryFolder folder;
  return import_model(folder.write("model.fake", kBytes), registry);
}

std::string refused(const TensorInFile& tensor) {
  const std::string text = message_of([&] { imported({{}, {tensor}}); });
  const size_t at = text.find("importer 'fake' ");
  return at == std::string::npos ? text : text.substr(at + 16);
}

}  // namespace

TEST_CASE("imported models: tensors are views of the mapped file, metadata has types") {
  const std::vector<int64_t> ints{1, 2};
  const std::vector<double> floats{0.5};
  const ImportedModel model = imported({{{"general.architecture", std::string("llama")},
                                         {"llama.block_count", int64_t{2}},
                                         {"llama.rope.freq_base", 10000.0},
                                         {"some.flag", true},
                                         {"some.ints", ints},
                                         {"some.floats", floats}},
                                        {{"a", DType::U8, {2, 3}, 4, 6, 0},
                                         {"b", DType::I32, {2}, 8, 8, 0},
                                         {"same", DType::I32, {2}, 8, 8, 0},
                                         {"skew", DType::I32, {1}, 5, 4, 0},
                                         {"none", DType::F32, {0, 3}, 32, 0, 0},
                                         {"one", DType::U8, {}, 31, 1, 0}}});
  CHECK(model.architecture() == "llama");
  CHECK(model.importer->name == "fake");
  CHECK(model.metadata.integer("llama.block_count") == 2);
  CHECK(model.metadata.number("llama.block_count") == 2);
  CHECK(model.metadata.number("llama.rope.freq_base") == 10000);
  CHECK(model.metadata.integer("absent", 7) == 7);
  CHECK(model.metadata.text("absent", "x") == "x");
  CHECK(model.metadata.integer_within("llama.block_count", 1, 2) == 2);
  CHECK(std::get<bool>(*model.metadata.values().find("some.flag")));
  CHECK(model.metadata.values().integers("some.ints") == ints);
  CHECK(std::get<std::vector<double>>(*model.metadata.values().find("some.floats")) == floats);
  CHECK(model.parameters() == 6 + 2 + 2 + 1 + 0 + 1);
  const auto* begin = static_cast<const std::byte*>(model.file->data());
  CHECK(model.tensor("a").bytes() == begin + 4);
  CHECK(model.tensor("b").bytes() == begin + 8);
  CHECK(model.tensor("same").bytes() == begin + 8);
  CHECK(model.tensor("skew").bytes() != begin + 5);  // a copy: not aligned
  CHECK(*static_cast<const int32_t*>(model.tensor("skew").bytes()) == 0x01010101);
  CHECK(type_of(model.tensor("none", {DType::F32, {0, 3}})).bytes() == 0);
  CHECK(model.find("c") == nullptr);
  model.expect_whole();
}

TEST_CASE("imported models: tensors keep the file mapped") {
  HTensor kept;
  {
    const ImportedModel model = imported({{}, {{"b", DType::I32, {2}, 8, 8, 0}}});
    kept = model.tensor("b");
  }
  CHECK(static_cast<const int32_t*>(kept.bytes())[1] == 0x01010101);
}

TEST_CASE("imported models: missing metadata and tensors are named with the nearest") {
  const ImportedModel model = imported({{{"llama.block_count", int64_t{2}}, {"general.name", std::string("x")}},
                                        {{"a.weight", DType::U8, {2}, 4, 2, 0}}});
  CHECK(message_of([&] { model.metadata.integer("llama.block_cont"); }).find("has no metadata 'llama.block_cont'") !=
        std::string::npos);
  CHECK(message_of([&] { model.metadata.integer("general.name"); }).find("is not a whole number") != std::string::npos);
  CHECK(message_of([&] { model.metadata.number("general.name"); }).find("is not a number") != std::string::npos);
  CHECK(message_of([&] { model.metadata.text("llama.block_count"); }).find("is not a string") != std::string::npos);
  CHECK(message_of([&] { model.metadata.integer_within("llama.block_count", 3, 9); }).find("is 2; it must be 3 to 9") !=
        std::string::npos);
  CHECK(message_of([&] { model.tensor("a.weigth"); }).find("has no tensor 'a.weigth'") != std::string::npos);
  CHECK(message_of([&] {
          model.tensor("a.weight", {DType::U8, {3}});
        }).find("is u8[2]; the model needs u8[3]") != std::string::npos);
}

TEST_CASE("imported models: a tensor lies inside its file and has the bytes of its type") {
  constexpr uint64_t kHuge = ~uint64_t{0};
  CHECK(refused({"a", DType::U8, {4}, 29, 4, 0}) ==
        "places tensor 'a' at bytes 29 .. 29+4 of a file of 32 bytes\nthe file is truncated or damaged: copy it again");
  CHECK(refused({"a", DType::U8, {4}, kHuge - 1, 4, 0}).find("of a file of 32 bytes") != std::string::npos);
  CHECK(refused({"a", DType::U8, {4}, 4, kHuge, 0}).find("of a file of 32 bytes") != std::string::npos);
  CHECK(refused({"a", DType::F32, {4}, 4, 4, 0}) == "gives tensor 'a' 4 bytes; f32[4] takes 16");
  CHECK(refused({"a", DType::U8, {4}, 4, 3, 0}) == "gives tensor 'a' 3 bytes; u8[4] takes 4");
  CHECK(refused({"a", DType::F32, {int64_t{1} << 40, int64_t{1} << 40}, 4, 4, 0}).find("overflows") !=
        std::string::npos);
  CHECK(refused({"a", DType::F32, {-1}, 4, 4, 0}).find("negative dimension") != std::string::npos);
  CHECK(refused({"a", static_cast<DType>(99), {4}, 4, 4, 0}).find("unknown element type number 99") !=
        std::string::npos);
  CHECK(refused({"a", DType::U8, {4}, 4, 4, 1}) == "places tensor 'a' in file 1; it has opened 1");
  CHECK(refused({"", DType::U8, {4}, 4, 4, 0}) == "gives no string for the name of tensor 0");
  CHECK(refused({"a\xff", DType::U8, {4}, 4, 4, 0}) == "gives a string that is not UTF-8 for the name of tensor 0");
  CHECK(refused({std::string(5000, 'a'), DType::U8, {4}, 4, 4, 0}) ==
        "gives more than 4096 bytes for the name of tensor 0");
  CHECK(refused({"a", DType::Bool, {4}, 0, 4, 0}).find("is bool and has other bytes than 0 and 1") !=
        std::string::npos);
  CHECK(refused({"a", DType::Bool, {4}, 4, 4, 0}) == "no error");
  CHECK(message_of([] {
          imported({{}, {{"a", DType::U8, {4}, 4, 4, 0}, {"a", DType::U8, {4}, 4, 4, 0}}});
        }).find("gives two tensors the name 'a'") != std::string::npos);
}

TEST_CASE("imported models: the importer whose probe fits best reads the file") {
  const TemporaryFolder folder;
  const std::string file = folder.write("model.fake", kBytes);
  Registry registry;
  CHECK(message_of([&] { import_model(file, registry); }).find("(32 bytes, the first are 48 45 41 44 01 01 01 01)") !=
        std::string::npos);
  add_importer(registry, "never", FakeImporter{HX_PROBE_NO, {}});
  CHECK(message_of([&] { import_model(file, registry); }).find("no importer reads '") == 0);
  CHECK(!is_importable(file, kBytes, registry));
  add_importer(registry, "maybe", FakeImporter{HX_PROBE_POSSIBLE, {}});
  CHECK(is_importable(file, kBytes, registry));
  CHECK(import_model(file, registry).importer->name == "maybe");
  add_importer(registry, "surely", FakeImporter{HX_PROBE_CERTAIN, {}});
  CHECK(import_model(file, registry).importer->name == "surely");
  CHECK(import_model(file, registry, {"maybe", {}}).importer->name == "maybe");
  CHECK(message_of([&] { import_model(file, registry, {"none", {}}); }).find("unknown importer 'none'") == 0);
  add_importer(registry, "also", FakeImporter{HX_PROBE_CERTAIN, {}});
  CHECK(message_of([&] { import_model(file, registry); }).find("equally well: also, surely") != std::string::npos);
}

TEST_CASE("imported models: a GGUF file is no flow if its importer is missing") {
  const TemporaryFolder folder;
  const std::string file = folder.write("model.bin", "GGUF" + std::string(kBytes).substr(4));
  Registry registry;
  add_importer(registry, "never", FakeImporter{HX_PROBE_NO, {}});
  CHECK(message_of([&] { is_model(file, registry); }).find("no importer reads '") == 0);
  CHECK_FALSE(is_model(folder.write("model.fake", kBytes), registry));
  add_importer(registry, "surely", FakeImporter{HX_PROBE_CERTAIN, {}});
  CHECK(is_model(file, registry));
}

TEST_CASE("imported models: a probe that fails leaves the file to others, and is named if there are none") {
  FakeImporter failing{HX_PROBE_CERTAIN, {}};
  failing.probed = [](const FileStart&) { throw Error(ErrorKind::Plugin, "cannot look"); };
  Registry registry;
  add_importer(registry, "failing", failing);
  const TemporaryFolder folder;
  const std::string file = folder.write("model.fake", kBytes);
  CHECK(!is_importable(file, kBytes, registry));
  CHECK(message_of([&] { import_model(file, registry); }).find("\nimporter 'failing': cannot look") !=
        std::string::npos);
  add_importer(registry, "maybe", FakeImporter{HX_PROBE_POSSIBLE, {}});
  CHECK(import_model(file, registry).importer->name == "maybe");
}

TEST_CASE("imported models: a probe sees the name, the size and the first bytes") {
  FileStart seen;
  std::string first;
  FakeImporter importer{HX_PROBE_LIKELY, {}};
  importer.probed = [&](const FileStart& start) {
    seen = start;
    first = start.first;
  };
  Registry registry;
  add_importer(registry, "fake", importer);
  const TemporaryFolder folder;
  import_model(folder.write("big.fake", std::string(1 << 17, 'x')), registry);
  CHECK(seen.name == "big.fake");
  CHECK(seen.size == 1 << 17);
  CHECK(first == std::string(1 << 16, 'x'));
}

TEST_CASE("imported models: errors of an importer keep their kind and name it") {
  Registry registry;
  FakeImporter importer{HX_PROBE_LIKELY, {}};
  importer.opened = [](const ImportSource&, const Arguments&) {
    throw Error(ErrorKind::Weights, "byte 4 is 7; it must be 8").note("write 8");
  };
  add_importer(registry, "fake", importer);
  const TemporaryFolder folder;
  const std::string file = folder.write("model.fake", kBytes);
  try {
    import_model(file, registry);
    FAIL("accepted");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::Weights);
    CHECK(std::string(e.what()) == "importer 'fake': byte 4 is 7; it must be 8");
    CHECK(e.notes() == std::vector<std::string>{"write 8"});
  }
  CHECK(message_of([&] { import_model(file + ".missing", registry); }).find("missing") != std::string::npos);
}

TEST_CASE("imported models: options follow the importer's arguments") {
  double base = 0;
  FakeImporter importer{HX_PROBE_LIKELY, {}};
  importer.opened = [&](const ImportSource&, const Arguments& options) { base = options.number("base"); };
  Registry registry;
  add_importer(registry, "fake", importer, {Argument::number("base", "100", "a base").in("0<..")});
  const TemporaryFolder folder;
  const std::string file = folder.write("model.fake", kBytes);
  import_model(file, registry);
  CHECK(base == 100);
  import_model(file, registry, {"", {{"base", "7"}}});
  CHECK(base == 7);
  CHECK(message_of([&] { import_model(file, registry, {"", {{"base", "-1"}}}); }).find("-1") != std::string::npos);
  CHECK(message_of([&] { import_model(file, registry, {"", {{"other", "1"}}}); }).find("other") != std::string::npos);
}

TEST_CASE("imported models: a model in several files, all of one folder") {
  FakeImporter importer{HX_PROBE_LIKELY, {}};
  std::vector<std::string> refusals;
  const TemporaryFolder folder;
  folder.write("other.fake", "abcdefgh");
  importer.opened = [&](const ImportSource& source, const Arguments&) {
    for (const char* name : {"", ".", "..", "../other.fake", "/etc/passwd"})
      refusals.push_back(message_of([&] { source.beside(name); }));
    const ImportSource::File beside = source.beside("other.fake");
    CHECK(beside.index == 1);
    CHECK(beside.bytes == "abcdefgh");
  };
  importer.description = {{}, {{"far", DType::U8, {3}, 2, 3, 1}}};
  Registry registry;
  add_importer(registry, "fake", importer);
  const std::string file = folder.write("model.fake", kBytes);
  const ImportedModel model = import_model(file, registry);
  CHECK(std::memcmp(model.tensor("far").bytes(), "cde", 3) == 0);
  CHECK(model.others.size() == 1);
  for (const std::string& refusal : refusals) CHECK(refusal.find("is not a name in its folder") != std::string::npos);
}

TEST_CASE("imported models: descriptions of other versions and broken tables") {
  Registry registry;
  const TemporaryFolder folder;
  const std::string file = folder.write("model.fake", kBytes);
  static hx_imported_tensor tensor;
  static hx_attribute attribute;
  static hx_imported_model model;
  static int closed;
  const auto said = [&](const std::function<void()>& change) {
    const char* const kText = "x";
    tensor = {sizeof tensor, 0, "a", {HX_U8, 1, {4}}, 4, 4, nullptr};
    attribute = {};
    attribute.name = "key";
    attribute.kind = HX_ATTR_STRING;
    attribute.as.s = kText;
    model = {sizeof model, 1, &tensor, {&attribute, 1}};
    closed = 0;
    change();
    const std::string text = message_of([&] { import_model(file, registry); });
    CHECK(closed == 1);
    const size_t at = text.find("importer 'raw' ");
    return at == std::string::npos ? text : text.substr(at + 15);
  };
  static const hx_importer_vt table = {
      sizeof table, [](void*, const hx_file_start*, uint32_t* score) { return *score = HX_PROBE_LIKELY, HX_OK; },
      [](void*, const hx_import_source*, const hx_attributes*, const hx_imported_model** out) {
        return *out = &model, HX_OK;
      },
      [](void*, const hx_imported_model*) { ++closed; }, nullptr};
  add_item(registry, HX_IMPORTER, "raw", &table, nullptr, HX_IMPORTER_EXTENSION);
  CHECK(said([] {}) == "no error");
  CHECK(said([] { model.struct_size = 8; }) == "gives a size of 8 bytes for its description");
  for (const uint32_t size : {8u, static_cast<uint32_t>(sizeof tensor) + 1})
    CHECK(said([size] { tensor.struct_size = size; }) ==
          "gives a size of " + std::to_string(size) + " bytes for the entry of tensor 0");
  CHECK(said([] { model.tensors = nullptr; }) == "gives no table of tensors");
  CHECK(said([] { model.n_tensors = 0xffffffff; }) == "gives 4294967295 tensors; the limit is 1048576");
  CHECK(said([] { model.metadata.items = nullptr; }) == "gives no table of metadata");
  CHECK(said([] { model.metadata.count = 0xffffffff; }) == "gives 4294967295 keys; the limit is 1048576");
  CHECK(said([] { attribute.name = nullptr; }) == "gives no string for the key of metadata 0");
  CHECK(said([] { attribute.kind = HX_ATTR_VALUE; }) == "gives the metadata 'key' the unknown kind 7");
  CHECK(said([] { attribute.as.s = nullptr; }) == "gives no string for the metadata 'key'");
  CHECK(said([] { attribute.kind = HX_ATTR_INTS, attribute.count = 2, attribute.as.ints = nullptr; }) ==
        "gives no numbers for the metadata 'key'");
  CHECK(said([] { attribute.kind = HX_ATTR_INTS, attribute.count = 0xffffffff; }) ==
        "gives 4294967295 numbers for the metadata 'key'; the limit is 16777216");
}
