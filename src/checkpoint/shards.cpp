#include "checkpoint/shards.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "checkpoint/json.h"
#include "checkpoint/report.h"

namespace lily {
namespace {

using nlohmann::json;

constexpr auto kIndexName = "model.safetensors.index.json";
constexpr auto kSingleName = "model.safetensors";
constexpr std::string_view kExtension = ".safetensors";
constexpr std::size_t kMostShards = 99'999;  // what five digits can count

bool is_shard_name(std::string_view name) {
  return name.ends_with(kExtension) && name.find_first_of("/\\") == std::string_view::npos &&
         name == printable(name);
}

Result<ShardList> read_index(std::string_view text) {
  LILY_TRY(const json index, parse_json(text, {.bytes = 64U << 20U}));
  if (!index.is_object() || !index.contains("weight_map") || !index["weight_map"].is_object()) {
    return fail(ErrorCode::kCorrupt, "weight_map: expected an object of tensor name to file name");
  }
  ShardList shards;
  std::set<std::string> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    if (!file.is_string() || !is_shard_name(file.get_ref<const std::string&>())) {
      return fail(ErrorCode::kCorrupt,
                  "weight_map: {}: expected the name of a {} file in the same folder, found {}",
                  printable(tensor), kExtension, printable(file.dump(-1, ' ', true)));
    }
    files.insert(file.get<std::string>());
    shards.weight_map.emplace(tensor, file.get<std::string>());
  }
  if (files.empty()) return fail(ErrorCode::kCorrupt, "weight_map: names no tensor");
  shards.files.assign(files.begin(), files.end());
  return shards;
}

// n of model-0000i-of-0000n.safetensors.
std::optional<std::size_t> count_in_name(std::string_view name) {
  constexpr std::string_view kOf = "-of-";
  const auto of = name.find(kOf);
  if (!name.starts_with("model-") || !name.ends_with(kExtension) || of == std::string_view::npos) return {};
  const std::string_view digits =
      name.substr(of + kOf.size(), name.size() - of - kOf.size() - kExtension.size());
  std::size_t count = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  if (error != std::errc{} || end != digits.data() + digits.size() || count < 1 || count > kMostShards)
    return {};
  return count;
}

Result<ShardList> numbered_set(const ModelFiles& files) {
  std::set<std::size_t> counts;
  for (const std::string& name : files.names()) {
    if (const auto count = count_in_name(name)) counts.insert(*count);
  }
  if (counts.empty()) {
    return fail(ErrorCode::kNotFound, "has none of {}, {} and {}", kIndexName, kSingleName, shard_name(1, 2));
  }
  if (counts.size() > 1) {
    return fail(ErrorCode::kCorrupt, "has no {}, and shards of several numbered sets", kIndexName);
  }
  ShardList shards;
  std::vector<std::string> missing;
  for (std::size_t i = 1; i <= *counts.begin(); ++i) {
    shards.files.push_back(shard_name(i, *counts.begin()));
    if (!files.contains(shards.files.back())) missing.push_back(shards.files.back());
  }
  if (!missing.empty()) {
    return fail(ErrorCode::kNotFound, "has no {}, and its numbered set of shards is not complete: missing {}",
                kIndexName, list_names(missing));
  }
  return shards;
}

}  // namespace

Result<ShardList> list_shards(ModelFiles& files) {
  if (files.contains(kIndexName)) {
    LILY_TRY(const std::string_view text, files.text(kIndexName));
    auto shards = read_index(text);
    if (!shards.ok()) return std::move(shards).error().in(kIndexName);
    return shards;
  }
  if (files.contains(kSingleName)) return ShardList{.files = {kSingleName}, .weight_map = {}};
  return numbered_set(files);
}

std::string shard_name(std::size_t index, std::size_t count) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", index, count);
}

}  // namespace lily
