// A conversation as clients send it, made into what the chat template takes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "server/errors.h"
#include "server/field_reader.h"

namespace lily {

/// `messages` is the request's field. Parts of content are joined with nothing between, null content is "",
/// roles "developer" become "system", `reasoning` stands in for an absent `reasoning_content`, tool-call
/// arguments are parsed. Roles and their order are the template's business. On failure `error` is set.
nlohmann::ordered_json normalize_messages(const nlohmann::ordered_json& messages,
                                          std::optional<ApiError>& error);

/// The `arguments` of a call in a conversation, a JSON text in a string or the object itself, as an object.
/// What an earlier answer broke off must not cost the whole conversation: text that is no object becomes one
/// parameter of that name, for the model to see.
nlohmann::ordered_json normalize_arguments(const FieldReader& function, std::optional<ApiError>& error);

}  // namespace lily
