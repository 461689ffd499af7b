// Which files hold a checkpoint's tensors: the shard index, or what stands in for it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/model_files.h"

namespace lily {

/// The shard files, and which tensor should lie in which.
struct ShardList {
  std::vector<std::string> files;                 ///< sorted, each a plain file name
  std::map<std::string, std::string> weight_map;  ///< tensor to file; empty when there is no index
};

/// From model.safetensors.index.json if there is one; else model.safetensors; else
/// model-0000i-of-0000n.safetensors, if all n are there. An index is not yet compared with the files: they
/// may be missing.
Result<ShardList> list_shards(ModelFiles& files);

/// model-0000i-of-0000n.safetensors, counted from 1.
[[nodiscard]] std::string shard_name(std::size_t index, std::size_t count);

}  // namespace lily
