#include "text/tokenizer_file.h"
#include "text/utf8.h"

#include <nlohmann/json.hpp>

namespace lily {
namespace {

using nlohmann::json;

// No embedding of this family comes near; bounds what a damaged id may allocate.
constexpr std::uint64_t kMaxTokenId = (1U << 21) - 1;
constexpr std::size_t kMaxDepth = 32;

// Reads the file in one pass. The vocabulary and the merges (half a million strings) go straight into `file`;
// the rest, some hundred values, becomes a small document. A whole document would cost a second of every
// start.
class Reader final : public nlohmann::json_sax<json> {
 public:
  explicit Reader(TokenizerFile& file) : file_(file) {}

  [[nodiscard]] const json& document() const { return document_; }
  [[nodiscard]] const std::string& problem() const { return problem_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t& /*spelling*/) override { return add(value); }
  bool binary(binary_t& /*value*/) override { return reject("binary value"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (part_ != Part::kVocab) return add(value);
    if (value > kMaxTokenId) return reject(fmt::format("model.vocab: id {} is over {}", value, kMaxTokenId));
    file_.vocab.emplace_back(token_, static_cast<TokenId>(value));
    return true;
  }

  bool string(string_t& value) override {
    if (part_ == Part::kMerges) return merge_line(value);
    if (part_ == Part::kMergePair) return merge_half(value);
    return add(std::move(value));
  }

  bool key(string_t& value) override {
    if (part_ == Part::kVocab) {
      token_ = keep(value);
    } else {
      key_ = value;
    }
    return true;
  }

  bool start_object(std::size_t /*elements*/) override {
    if (part_ == Part::kDocument && at("vocab")) {
      part_ = Part::kVocab;
      return true;
    }
    return open(json::object());
  }

  bool end_object() override {
    if (part_ == Part::kVocab) {
      part_ = Part::kDocument;
    } else {
      open_.pop_back();
      names_.pop_back();
    }
    return true;
  }

  bool start_array(std::size_t /*elements*/) override {
    if (part_ == Part::kDocument && at("merges")) {
      part_ = Part::kMerges;
      return true;
    }
    if (part_ == Part::kMerges) {
      part_ = Part::kMergePair;
      halves_.clear();
      return true;
    }
    return open(json::array());
  }

  bool end_array() override {
    if (part_ == Part::kMergePair) {
      if (halves_.size() != 2)
        return reject(fmt::format("model.merges: a pair of {} strings", halves_.size()));
      file_.merges.emplace_back(halves_[0], halves_[1]);
      part_ = Part::kMerges;
    } else if (part_ == Part::kMerges) {
      part_ = Part::kDocument;
    } else {
      open_.pop_back();
      names_.pop_back();
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    return reject(fmt::format("not JSON at byte {}: {}", position, error.what()));
  }

 private:
  enum class Part { kDocument, kVocab, kMerges, kMergePair };

  // Whether the value that begins now is model.<name>.
  [[nodiscard]] bool at(std::string_view name) const {
    return open_.size() == 2 && names_.back() == "model" && key_ == name;
  }

  bool reject(std::string message) {
    if (problem_.empty()) problem_ = std::move(message);
    return false;
  }

  // `file_.text` was reserved for the whole input, so it never moves and the view stays good.
  std::string_view keep(const std::string& value) {
    const std::size_t start = file_.text.size();
    file_.text += value;
    return std::string_view(file_.text).substr(start);
  }

  bool merge_line(const std::string& line) {
    const std::size_t space = line.find(' ');
    if (space == std::string::npos || line.find(' ', space + 1) != std::string::npos) {
      return reject(
          fmt::format("model.merges: expected two tokens and one space, found {}", utf8::quoted(line)));
    }
    const std::string_view kept = keep(line);
    file_.merges.emplace_back(kept.substr(0, space), kept.substr(space + 1));
    return true;
  }

  bool merge_half(const std::string& half) {
    if (halves_.size() == 2) return reject("model.merges: a pair of more than 2 strings");
    halves_.push_back(keep(half));
    return true;
  }

  json* place(json value) {
    if (open_.empty()) {
      document_ = std::move(value);
      return &document_;
    }
    json& parent = *open_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }

  bool add(json value) {
    if (part_ == Part::kVocab)
      return reject(fmt::format("model.vocab: id of {} is not a whole number", utf8::quoted(token_)));
    if (part_ != Part::kDocument)
      return reject("model.merges: an entry is neither a string nor a pair of strings");
    place(std::move(value));
    return true;
  }

  bool open(json container) {
    if (part_ == Part::kVocab)
      return reject(fmt::format("model.vocab: id of {} is not a whole number", utf8::quoted(token_)));
    if (part_ != Part::kDocument)
      return reject("model.merges: an entry is neither a string nor a pair of strings");
    if (open_.size() == kMaxDepth) return reject(fmt::format("nested deeper than {} levels", kMaxDepth));
    names_.push_back(key_);
    open_.push_back(place(std::move(container)));
    return true;
  }

  TokenizerFile& file_;
  Part part_ = Part::kDocument;
  json document_;
  std::vector<json*> open_;         // containers around the next value
  std::vector<std::string> names_;  // and the keys they stand under
  std::string key_;
  std::string_view token_;
  std::vector<std::string_view> halves_;
  std::string problem_;
};

// The values of one object of the file, named in messages. Absent and null are the same thing.
class Section {
 public:
  Section(const json& object, std::string name) : object_(object), name_(std::move(name)) {}

  static Result<Section> of(const json& parent, const std::string& key) {
    const json* object = find(parent, key);
    if (object == nullptr) return fail(ErrorCode::kCorrupt, "{}: missing", key);
    if (!object->is_object()) {
      return fail(ErrorCode::kCorrupt, "{}: expected an object, found {}", key, object->type_name());
    }
    return Section(*object, key);
  }

  static const json* find(const json& object, const std::string& key) {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }

  [[nodiscard]] const json* get(const std::string& key) const { return find(object_, key); }

  // "" where there is none.
  [[nodiscard]] Result<std::string> text(const std::string& key) const {
    const json* value = get(key);
    if (value == nullptr) return std::string();
    if (!value->is_string()) return mismatch(key, "a string", *value);
    return value->get<std::string>();
  }

  [[nodiscard]] Result<bool> flag(const std::string& key, bool absent) const {
    const json* value = get(key);
    if (value == nullptr) return absent;
    if (!value->is_boolean()) return mismatch(key, "true or false", *value);
    return value->get<bool>();
  }

  // Errors unless `key` is `wanted` (or absent, where that means the same).
  [[nodiscard]] Result<void> require(const std::string& key, const json& wanted,
                                     bool absent_is_fine = true) const {
    const json* value = get(key);
    if (value == nullptr && absent_is_fine) return {};
    if (value != nullptr && *value == wanted) return {};
    return fail(ErrorCode::kUnsupported, "{}.{}: expected {}, found {}", name_, key, print(wanted),
                value == nullptr ? "nothing" : print(*value));
  }

  [[nodiscard]] Error mismatch(const std::string& key, std::string_view expected, const json& found) const {
    return fail(ErrorCode::kCorrupt, "{}.{}: expected {}, found {}", name_, key, expected, print(found));
  }

  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  static std::string print(const json& value) {
    return value.dump(-1, ' ', false, json::error_handler_t::replace).substr(0, 200);
  }

  const json& object_;
  std::string name_;
};

Result<AddedToken> read_added_token(const json& value, std::size_t index) {
  const Section section(value, fmt::format("added_tokens[{}]", index));
  if (!value.is_object()) return fail(ErrorCode::kCorrupt, "{}: expected an object", section.name());
  AddedToken token;
  LILY_TRY(token.content, section.text("content"));
  if (token.content.empty()) return fail(ErrorCode::kCorrupt, "{}.content: missing or empty", section.name());
  const json* id = section.get("id");
  if (id == nullptr || !id->is_number_unsigned() || id->get<std::uint64_t>() > kMaxTokenId) {
    return section.mismatch("id", fmt::format("0..{}", kMaxTokenId), id == nullptr ? json() : *id);
  }
  token.id = id->get<TokenId>();
  LILY_TRY_VOID(section.require("single_word", false));
  LILY_TRY(token.lstrip, section.flag("lstrip", false));
  LILY_TRY(token.rstrip, section.flag("rstrip", false));
  LILY_TRY(token.special, section.flag("special", false));
  LILY_TRY(token.normalized, section.flag("normalized", !token.special));
  return token;
}

Result<void> read_added_tokens(const json& document, TokenizerFile& file) {
  const json* list = Section::find(document, "added_tokens");
  if (list == nullptr) return {};
  if (!list->is_array()) return fail(ErrorCode::kCorrupt, "added_tokens: expected an array");
  for (std::size_t i = 0; i < list->size(); ++i) {
    LILY_TRY(AddedToken token, read_added_token((*list)[i], i));
    file.added_tokens.push_back(std::move(token));
  }
  return {};
}

// null, NFC, or a Sequence of those.
Result<void> read_normalizer(const json& document, TokenizerFile& file) {
  if (Section::find(document, "normalizer") == nullptr) return {};
  LILY_TRY(const Section section, Section::of(document, "normalizer"));
  LILY_TRY(const std::string type, section.text("type"));
  const json* parts = section.get("normalizers");
  if (type == "Sequence" && parts != nullptr && parts->is_array()) {
    for (const json& part : *parts) {
      if (!part.is_object()) return section.mismatch("normalizers", "objects", part);
      LILY_TRY_VOID(Section(part, "normalizer.normalizers[]").require("type", "NFC", false));
      file.nfc = true;
    }
    return {};
  }
  LILY_TRY_VOID(section.require("type", "NFC", false));
  file.nfc = true;
  return {};
}

Result<void> check_byte_level(const Section& section) {
  LILY_TRY_VOID(section.require("type", "ByteLevel", false));
  LILY_TRY_VOID(section.require("add_prefix_space", false, false));
  return section.require("use_regex", false, false);
}

// Sequence [Split by a pattern into isolated pieces, ByteLevel].
Result<void> read_pre_tokenizer(const json& document, TokenizerFile& file) {
  LILY_TRY(const Section section, Section::of(document, "pre_tokenizer"));
  LILY_TRY_VOID(section.require("type", "Sequence", false));
  const json* parts = section.get("pretokenizers");
  if (parts == nullptr || !parts->is_array() || parts->size() != 2 || !(*parts)[0].is_object() ||
      !(*parts)[1].is_object()) {
    return section.mismatch("pretokenizers", "[Split, ByteLevel]", parts == nullptr ? json() : *parts);
  }
  const Section split((*parts)[0], "pre_tokenizer.pretokenizers[0]");
  LILY_TRY_VOID(split.require("type", "Split", false));
  LILY_TRY_VOID(split.require("behavior", "Isolated", false));
  LILY_TRY_VOID(split.require("invert", false));
  const json* pattern = split.get("pattern");
  if (pattern == nullptr || !pattern->is_object()) {
    return split.mismatch("pattern", "{\"Regex\": …}", pattern == nullptr ? json() : *pattern);
  }
  LILY_TRY(file.split_pattern, Section(*pattern, split.name() + ".pattern").text("Regex"));
  if (file.split_pattern.empty()) return split.mismatch("pattern", "{\"Regex\": …}", *pattern);
  return check_byte_level(Section((*parts)[1], "pre_tokenizer.pretokenizers[1]"));
}

Result<void> read_model(const json& document, TokenizerFile& file) {
  LILY_TRY(const Section model, Section::of(document, "model"));
  LILY_TRY_VOID(model.require("type", "BPE"));
  for (const char* key :
       {"vocab", "merges"}) {  // those of the right type did not become part of the document
    if (const json* value = model.get(key); value != nullptr) {
      return model.mismatch(key, "an object of ids or an array of merges", *value);
    }
  }
  LILY_TRY_VOID(model.require("dropout", 0.0));
  LILY_TRY_VOID(model.require("continuing_subword_prefix", ""));
  LILY_TRY_VOID(model.require("end_of_word_suffix", ""));
  LILY_TRY_VOID(model.require("byte_fallback", false));
  LILY_TRY(file.ignore_merges, model.flag("ignore_merges", false));
  return {};
}

}  // namespace

// `truncation` and `padding` are left alone: they are settings of a training run, which the reference also
// resets.
Result<void> read_tokenizer_file(std::string_view text, TokenizerFile& file) {
  file.text.reserve(text.size());
  Reader reader(file);
  if (!json::sax_parse(text, &reader)) return fail(ErrorCode::kCorrupt, "{}", reader.problem());
  const json& document = reader.document();
  if (!document.is_object()) {
    return fail(ErrorCode::kCorrupt, "expected a JSON object, found {}", document.type_name());
  }
  LILY_TRY_VOID(read_model(document, file));
  LILY_TRY_VOID(read_added_tokens(document, file));
  LILY_TRY_VOID(read_normalizer(document, file));
  LILY_TRY_VOID(read_pre_tokenizer(document, file));
  if (Section::find(document, "post_processor") !=
      nullptr) {  // ByteLevel only moves offsets; others add tokens
    LILY_TRY(const Section section, Section::of(document, "post_processor"));
    LILY_TRY_VOID(section.require("type", "ByteLevel", false));
  }
  LILY_TRY(const Section decoder, Section::of(document, "decoder"));
  return decoder.require("type", "ByteLevel", false);
}

}  // namespace lily
