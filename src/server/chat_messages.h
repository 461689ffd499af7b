// A conversation as clients send it, made into what the chat template takes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "server/errors.h"

namespace lily {

/// `messages` is the request's field. Parts of content are joined with nothing between, null content is "",
/// roles "developer" become "system", `reasoning` stands in for an absent `reasoning_content`, tool-call
/// arguments are parsed. Roles and their order are the template's business. On failure `error` is set.
nlohmann::ordered_json normalize_messages(const nlohmann::ordered_json& messages,
                                          std::optional<ApiError>& error);

}  // namespace lily
