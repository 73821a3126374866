// Images: PNG and JPEG, single files, patterns, folders of classes.
#include "producers/file/open.hpp"
#include "tests/streams/under_test.hpp"
#include "tests/streams/written_files.hpp"

using namespace harmonics;
using namespace harmonics::engine;
using namespace harmonics::engine::testing;

namespace {

namespace fs = std::filesystem;
using Pixels = std::vector<uint8_t>;

// cat/0.png, cat/1.png, dog/0.png: grey images of 2 x 3 pixels, each of a single value.
class Animals {
 public:
  Animals() {
    fs::create_directory(folder_.path("cat"));
    fs::create_directory(folder_.path("dog"));
    folder_.write("cat/1.png", png_file(2, 3, Pixels(6, 1)));
    folder_.write("dog/0.png", png_file(2, 3, Pixels(6, 10)));
    folder_.write("cat/0.png", png_file(2, 3, Pixels(6, 0)));
    folder_.write("cat/.hidden.png", "nothing");
    folder_.write("cat/readme.txt", "nothing");
  }
  std::shared_ptr<Producer> open(const Options& options = {}) const { return open_file(folder_.path(""), options); }
  std::string refuse(const Options& options = {}) const {
    std::string what = refusal([&] {
      const auto p = open(options);
      while (p->next()) {
      }
    });
    const std::string path = folder_.path("");
    for (size_t at; (at = what.find(path)) != std::string::npos;) what.replace(at, path.size(), "FOLDER/");
    return what;
  }
  TemporaryFolder folder_;
};

std::string refuse(const std::string& path, const Options& options = {}) {
  std::string what = refusal([&] { open_file(path, options); });
  for (size_t at; (at = what.find(path)) != std::string::npos;) what.replace(at, path.size(), "FILE");
  return what;
}

}  // namespace

TEST_CASE("a folder with a sub-folder for each class") {
  const Animals animals;
  const auto pictures = animals.open(), labels = animals.open({{"#", "label"}});
  CHECK(pictures->describe()->dtype == DType::U8);
  CHECK(pictures->describe()->sample == Shape{2, 3});
  CHECK(drain<uint8_t>(*pictures) == std::vector<Pixels>{Pixels(6, 0), Pixels(6, 1), Pixels(6, 10)});
  CHECK(labels->describe()->symbols == std::vector<std::string>{"cat", "dog"});
  CHECK(labels->describe()->classes == 2);
  CHECK(drain<int64_t>(*labels) == std::vector<std::vector<int64_t>>{{0}, {0}, {1}});
  const auto other = animals.open({{"#", "label"}, {"symbols", "dog,cat,cow"}});
  CHECK(drain<int64_t>(*other) == std::vector<std::vector<int64_t>>{{1}, {1}, {0}});
  const uint64_t numbers[] = {2, 0};
  Pixels two(12);
  REQUIRE(pictures->read_at(numbers, 2, two.data()));
  CHECK((two[0] == 10 && two[11] == 0));
  REQUIRE(pictures->rewind());
  CHECK(pictures->read(5, Pixels(18).data()) == 3);
  // A part selects its share of each class.
  CHECK(drain<int64_t>(*animals.open({{"#", "label"}, {"part", "0.5-1"}})) ==
        std::vector<std::vector<int64_t>>{{0}, {1}});
  CHECK(drain<uint8_t>(*animals.open({{"part", "0.5-1"}})) == std::vector<Pixels>{Pixels(6, 1), Pixels(6, 10)});
  CHECK(animals.open({{"channels", "3"}})->describe()->sample == Shape{3, 2, 3});
  CHECK(animals.open({{"resize", "4x5"}})->describe()->sample == Shape{4, 5});
  CHECK(animals.refuse({{"#", "name"}}) ==
        "'FOLDER/' has no '#name'; leave it out for the pictures, or write '#label' for their classes");
  CHECK(animals.open({{"#", "label"}, {"learned", R"(["ape","cat","dog"])"}})->describe()->classes == 3);
  CHECK(animals.refuse({{"learned", R"(["cat","cow"])"}}) ==
        "'FOLDER/' has the sub-folder 'dog', a class that is unknown to the weights; they know cat, cow: correct it, "
        "omit its record, or train on data that contain it");
  CHECK(animals.refuse({{"symbols", "cat,cow"}}) ==
        "'FOLDER/' has the sub-folder 'dog', which symbols= does not list; the symbols are: cat, cow");
  CHECK(animals.refuse({{"resize", "4"}}) ==
        "resize=4 of 'FOLDER/' is not a size; write height and width up to 8192, such as resize=28x28");
  CHECK(animals.refuse({{"channels", "2"}}) ==
        "channels=2 of 'FOLDER/' is not offered; write channels=1 or channels=3");
  CHECK(animals.refuse({{"header", "true"}}) ==
        "the option header= has no effect for 'FOLDER/', which is image; leave it out");
}

TEST_CASE("pictures of another size or colour type are refused, or resized") {
  const Animals animals;
  animals.folder_.write("dog/1.png", png_file(3, 3, Pixels(9, 7)));
  CHECK(animals.refuse() ==
        "'FOLDER/dog/1.png' is a picture of 3x3 pixels, 'FOLDER/cat/0.png' of 2x3; give resize=2x3, or another "
        "size for all");
  CHECK(drain<uint8_t>(*animals.open({{"resize", "2x3"}}))[3] == Pixels(6, 7));
  animals.folder_.write("dog/1.png", png_file(2, 3, Pixels(18, 7)));  // a colour image among grey ones
  CHECK(drain<uint8_t>(*animals.open())[3] == Pixels(6, 7));
  animals.folder_.write("dog/1.png", "GIF89a");
  CHECK(animals.refuse() ==
        "'FOLDER/dog/1.png' is neither PNG nor JPEG, by its first bytes; leave it out, or convert it");
  animals.folder_.write("x.png", png_file(2, 3, Pixels(6, 0)));
  CHECK(animals.refuse() ==
        "'FOLDER/' has pictures beside sub-folders of pictures, 'FOLDER/x.png' and 'FOLDER/cat/0.png'; put every "
        "picture into the sub-folder of its class");
}

TEST_CASE("single pictures and patterns of pictures are read") {
  const TemporaryFolder folder;
  const Pixels colours{1, 2, 3, 4, 5, 6};  // two pixels, channels last
  const std::string path = folder.write("b.png", png_file(1, 2, colours));
  folder.write("a.png", png_file(1, 2, Pixels{9, 9, 9, 9, 9, 9}));
  CHECK(open_file(path, Options{})->describe()->sample == Shape{3, 1, 2});
  CHECK(drain<uint8_t>(*open_file(path, Options{})) == std::vector<Pixels>{{1, 4, 2, 5, 3, 6}});
  CHECK(drain<uint8_t>(*open_file(folder.path("*.png"), Options{})) ==
        std::vector<Pixels>{Pixels(6, 9), {1, 4, 2, 5, 3, 6}});
  CHECK(drain<uint8_t>(*open_file(folder.path(""), Options{})).size() == 2);
  CHECK(refuse(path, {{"#", "label"}}) ==
        "'FILE' has no sub-folders to use as classes; put the pictures of each class into a sub-folder");
  Pixels smooth(64 * 64);
  for (size_t i = 0; i < smooth.size(); ++i) smooth[i] = static_cast<uint8_t>(i / 64 * 2 + i % 64);
  const auto jpeg = open_file(folder.write("c.jpg", jpeg_file(64, 64, smooth)), Options{});
  CHECK(jpeg->describe()->sample == Shape{64, 64});
  const Pixels read = drain<uint8_t>(*jpeg)[0];
  int worst = 0;
  for (size_t i = 0; i < read.size(); ++i) worst = std::max(worst, std::abs(int{read[i]} - int{smooth[i]}));
  CHECK(worst <= 3);
  // Halving keeps a ramp a ramp.
  const auto half = open_file(folder.write("d.png", png_file(64, 64, smooth)), Options{{"resize", "32x32"}});
  const Pixels small = drain<uint8_t>(*half)[0];
  for (size_t y = 1; y < 31; ++y)
    for (size_t x = 1; x < 31; ++x) REQUIRE(std::abs(small[y * 32 + x] - (4.0 * y + 1 + 2.0 * x + 0.5)) <= 1);
}

TEST_CASE("pictures of 16 bits keep their upper 8") {
  const TemporaryFolder folder;
  const auto deep = open_file(folder.write("x.png", deep_png_file({0, 257, 11745, 32896, 60000, 65535})), Options{});
  CHECK(drain<uint8_t>(*deep)[0] == Pixels{0, 1, 46, 128, 233, 255});  // rounded
}

TEST_CASE("pictures in other formats are named with the remedy") {
  const TemporaryFolder folder;
  CHECK(refuse(folder.write("x.jpg", jpeg_file(2, 2, Pixels(16, 9)))) ==
        "'FILE' is a JPEG with the four colours of printing (CMYK); convert it to RGB");
  CHECK(refuse(folder.write("x.gif", "GIF89a")) == "'FILE' is a GIF image; convert it to PNG or JPEG");
  CHECK(refuse(folder.write("x.tif", std::string("II*\0\b", 5))) ==
        "'FILE' is a TIFF image; convert it to PNG or JPEG");
  CHECK(refuse(folder.write("x.parquet", "PAR1")).find("'FILE' is a Parquet file; write it as CSV: ") == 0);
}

TEST_CASE("damaged pictures are refused in bounded memory") {
  const TemporaryFolder folder;
  Pixels noise(100 * 100);
  for (size_t i = 0; i < noise.size(); ++i) noise[i] = static_cast<uint8_t>(i * i >> 3);
  const std::string png = png_file(100, 100, noise), jpeg = jpeg_file(100, 100, noise);
  CHECK(refuse(folder.write("x.png", png.substr(0, png.size() / 2))).find("'FILE' is a damaged PNG: ") == 0);
  std::string flipped = png;
  flipped[60] = static_cast<char>(flipped[60] ^ 4);
  CHECK(refuse(folder.write("x.png", flipped)).find("'FILE' is a damaged PNG: ") == 0);
  CHECK(refuse(folder.write("x.jpg", jpeg.substr(0, jpeg.size() / 2))).find("'FILE' is a damaged JPEG: ") == 0);
  std::string huge = png_file(1, 1, Pixels{1});
  huge.replace(16, 8, std::string("\x00\x0F\x42\x40\x00\x0F\x42\x40", 8));  // a million by a million
  const uint32_t crc = static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(huge.data()) + 12, 17));
  for (int i = 0; i < 4; ++i) huge[29 + static_cast<size_t>(i)] = static_cast<char>(crc >> (24 - 8 * i));
  CHECK(refuse(folder.write("x.png", huge)).find("'FILE' is a") == 0);
}
