#include "producers/file/images.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "producers/file/array.hpp"
#include "formats/utf8.hpp"
#include "producers/file/characters.hpp"
#include "producers/file/image.hpp"
#include "producers/file/part.hpp"
#include "producers/file/select.hpp"

namespace harmonics {
namespace {

namespace fs = std::filesystem;

// Returns the visible entries of a folder, sorted bytewise.
std::vector<fs::path> entries(const std::string& folder) {
  std::vector<fs::path> all;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->path().filename().string()[0] != '.') all.push_back(at->path());
  if (error) throw Error(ErrorKind::NoInput, "cannot read '" + folder + "': " + error.message());
  std::sort(all.begin(), all.end());
  return all;
}

// Returns the type of a link's target. A dangling link is neither file nor folder; a loop of links is an error.
fs::file_type type_of(const fs::path& entry) {
  std::error_code error;
  const fs::file_type type = fs::status(entry, error).type();
  if (type == fs::file_type::none)
    throw Error(ErrorKind::NoInput, "cannot read '" + entry.string() + "': " + error.message());
  return type;
}

struct Size {
  int64_t height = 0, width = 0;
};

Size read_size(const std::string& text, const std::string& name) {
  Size size;
  const char *at = text.data(), *end = at + text.size();
  auto [x, first] = std::from_chars(at, end, size.height);
  const bool good = first == std::errc() && x != end && *x == 'x';
  const auto [stop, second] =
      good ? std::from_chars(x + 1, end, size.width) : std::from_chars_result{end, std::errc::invalid_argument};
  if (!good || second != std::errc() || stop != end || size.height < 1 || size.width < 1 || size.height > 8192 ||
      size.width > 8192)
    throw Error(ErrorKind::Usage, "resize=" + text + " of '" + name +
                                      "' is not a size; write height and width up to 8192, such as resize=28x28");
  return size;
}

std::string size_text(const Image& image) { return std::to_string(image.height) + "x" + std::to_string(image.width); }

class ImageProducer final : public Producer {
 public:
  ImageProducer(std::vector<std::string> paths, const ImageOptions& options, const std::string& name)
      : paths_(std::move(paths)), channels_(static_cast<int64_t>(options.channels)), memory_(options.memory) {
    if (channels_ != 0 && channels_ != 1 && channels_ != 3)
      throw Error(ErrorKind::Usage, "channels=" + std::to_string(channels_) + " of '" + name +
                                        "' is not offered; write channels=1 or channels=3");
    if (!options.resize.empty()) size_ = read_size(options.resize, name);
    load(0);
    first_size_ = size_text(image());
    channels_ = image().channels;
    info_.dtype = DType::U8;
    if (channels_ == 3) info_.sample.push_back(3);
    info_.sample.push_back(image().height);
    info_.sample.push_back(image().width);
    info_.size = paths_.size();
  }

  HTensor next() override {
    if (at_ == paths_.size()) return {};
    load(at_++);
    HTensor sample(DType::U8, info_.sample);
    write_planes(image(), static_cast<uint8_t*>(sample.mutable_bytes()));
    return sample;
  }
  std::size_t size() const override { return paths_.size(); }
  bool rewind() override { return at_ = 0, true; }
  bool seek(uint64_t, uint64_t index) override { return index <= size() && (at_ = index, true); }
  std::optional<StreamInfo> describe() override { return info_; }
  int64_t read(uint64_t n, void* to) override {
    n = std::min<uint64_t>(n, paths_.size() - at_);
    for (uint64_t i = 0; i < n; ++i, ++at_) read_at(&at_, 1, static_cast<uint8_t*>(to) + i * info_.sample_bytes());
    return static_cast<int64_t>(n);
  }
  bool read_at(const uint64_t* numbers, uint64_t n, void* to) override {
    for (uint64_t i = 0; i < n; ++i) {
      load(numbers[i]);
      write_planes(image(), static_cast<uint8_t*>(to) + i * info_.sample_bytes());
    }
    return true;
  }

 private:
  const Image& image() const { return size_.height ? resized_ : decoded_; }

  void load(uint64_t i) {
    const FileBytesPtr file = FileBytes::open(paths_[i], file_budget(memory_));
    read_whole(*file, [&] { return decoder_.decode(*unpacked(file), channels_, decoded_), true; });
    if (size_.height)
      resize(decoded_, size_.height, size_.width, resized_);
    else if (!first_size_.empty() && size_text(decoded_) != first_size_)
      refuse_file(paths_[i],
                  "is a picture of " + size_text(decoded_) + " pixels, '" + paths_[0] + "' of " + first_size_,
                  "give resize=" + first_size_ + ", or another size for all");
  }

  std::vector<std::string> paths_;
  int64_t channels_;
  uint64_t memory_;
  Size size_;               // requested; 0: original
  std::string first_size_;  // size of the first image, which all must have if none is requested
  ImageDecoder decoder_;
  Image decoded_, resized_;
  StreamInfo info_;
  uint64_t at_ = 0;
};

// Maps folders to classes in the given order. Rejects a folder that is not among them.
std::vector<uint32_t> places(const ImageFolder& images, const std::vector<std::string>& symbols, bool learned,
                             const std::string& name) {
  std::vector<uint32_t> place;
  for (const std::string& c : images.classes) {
    const auto at = std::find(symbols.begin(), symbols.end(), c);
    if (at == symbols.end() && learned)
      refuse_file(name, "has the sub-folder '" + c + "', a class that is unknown to the weights",
                  learned_words(symbols));
    if (at == symbols.end())
      refuse_file(name, "has the sub-folder '" + c + "', which symbols= does not list",
                  "the symbols are: " + listed(symbols));
    place.push_back(static_cast<uint32_t>(at - symbols.begin()));
  }
  return place;
}

// Keeps the requested part of every class, in order.
void take_part(ImageFolder& images, const std::string& part, const std::string& name) {
  if (part.empty()) return;
  ImageFolder kept{{}, images.classes, {}};
  for (size_t begin = 0; begin < images.paths.size();) {
    size_t end = begin;
    if (images.labels.empty())
      end = images.paths.size();
    else
      while (end < images.labels.size() && images.labels[end] == images.labels[begin]) ++end;
    const auto [first, last] = part_of(part, end - begin, name);
    for (size_t i = begin + first; i < begin + last; ++i) {
      kept.paths.push_back(images.paths[i]);
      if (!images.labels.empty()) kept.labels.push_back(images.labels[i]);
    }
    begin = end;
  }
  images = std::move(kept);
}

std::shared_ptr<Producer> label_producer(const ImageFolder& images, const ImageOptions& options,
                                         const std::string& name) {
  const std::vector<std::string> symbols = options.symbols.empty() ? images.classes : options.symbols;
  for (const std::string& symbol : symbols)
    if (const auto bad = find_invalid_utf8(symbol))
      refuse_file(name,
                  "has the class '" + shown_bytes(symbol) + "', which is not UTF-8: its byte " + std::to_string(*bad) +
                      " does not begin a character",
                  "rename the sub-folder, for example with convmv -f LATIN1 -t UTF-8 --notest");
  const std::vector<uint32_t> place = places(images, symbols, options.learned, name);
  const auto bytes = FileBytes::reserve(name, images.labels.size() * sizeof(int64_t), file_budget());
  for (size_t i = 0; i < images.labels.size(); ++i) {
    const int64_t label = place[images.labels[i]];
    std::memcpy(bytes->writable() + i * sizeof label, &label, sizeof label);
  }
  ArrayLayout layout;
  layout.bytes = bytes;
  layout.dtype = DType::I64;
  layout.count = images.labels.size();
  layout.symbols = symbols;
  return std::make_shared<ArrayProducer>(std::move(layout));
}

}  // namespace

bool is_image_name(const std::string& path) {
  std::string ending = fs::path(path).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

ImageFolder find_images(const std::string& folder) {
  ImageFolder flat, classes;
  for (const fs::path& entry : entries(folder)) {
    const fs::file_type type = type_of(entry);
    if (type == fs::file_type::regular) {
      if (is_image_name(entry.string())) flat.paths.push_back(entry.string());
      continue;
    }
    if (type != fs::file_type::directory) continue;
    const size_t before = classes.paths.size();
    for (const fs::path& file : entries(entry.string()))
      if (type_of(file) == fs::file_type::regular && is_image_name(file.string()))
        classes.paths.push_back(file.string());
    if (classes.paths.size() == before) continue;
    classes.labels.resize(classes.paths.size(), static_cast<uint32_t>(classes.classes.size()));
    classes.classes.push_back(entry.filename().string());
  }
  if (!flat.paths.empty() && !classes.paths.empty())
    refuse_file(folder,
                "has pictures beside sub-folders of pictures, '" + flat.paths[0] + "' and '" + classes.paths[0] + "'",
                "put every picture into the sub-folder of its class");
  return classes.paths.empty() ? flat : classes;
}

std::shared_ptr<Producer> open_images(const std::string& name, ImageFolder images, const ImageOptions& options) {
  if (options.selection && *options.selection != "label")
    refuse_file(name, "has no '#" + *options.selection + "'",
                "leave it out for the pictures, or write '#label' for their classes");
  if (!options.symbols.empty()) places(images, options.symbols, options.learned, name);
  if (options.selection && images.labels.empty())
    refuse_file(name, "has no sub-folders to use as classes", "put the pictures of each class into a sub-folder");
  take_part(images, options.part, name);
  if (options.selection) return label_producer(images, options, name);
  return std::make_shared<ImageProducer>(std::move(images.paths), options, name);
}

}  // namespace harmonics
