// NFC as the reference tokenizer does it, in time linear in the text (up to a logarithm inside a run of
// marks).
#pragma once

#include <string>
#include <string_view>

namespace lily {

/// NFC of valid UTF-8. Returns `text` itself where nothing can change, else a view into `storage`.
[[nodiscard]] std::string_view nfc(std::string_view text, std::string& storage);

}  // namespace lily
