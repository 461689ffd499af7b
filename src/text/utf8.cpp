#include "text/utf8.h"

namespace lily::utf8 {
namespace {

// What a first byte asks for: continuation bytes, and the range of the first of them.
struct Lead {
  std::int8_t continuation = -1;  // -1: not a first byte
  std::uint8_t low = 0;
  std::uint8_t high = 0;
};

constexpr std::array<Lead, 256> kLeads = [] {
  std::array<Lead, 256> leads{};
  for (std::size_t byte = 0; byte < 0x80; ++byte) leads[byte].continuation = 0;
  for (const Form& form : kForms) {
    for (std::size_t byte = form.first_low; byte <= form.first_high; ++byte) {
      leads[byte] = {static_cast<std::int8_t>(form.more + 1), form.second_low, form.second_high};
    }
  }
  return leads;
}();

}  // namespace

Sequence decode(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const Lead lead = kLeads[first];
  if (lead.continuation == 0) return {Status::kValid, first, 1};
  if (lead.continuation < 0) return {Status::kInvalid, 0xFFFD, 1};
  char32_t code_point = first & (0x3FU >> lead.continuation);
  for (int i = 1; i <= lead.continuation; ++i) {
    const auto length = static_cast<std::size_t>(i);
    if (length == text.size()) return {Status::kIncomplete, 0xFFFD, length};
    const auto byte = static_cast<unsigned char>(text[length]);
    const unsigned char low = i == 1 ? lead.low : 0x80;
    const unsigned char high = i == 1 ? lead.high : 0xBF;
    if (byte < low || byte > high) return {Status::kInvalid, 0xFFFD, length};
    code_point = (code_point << 6) | (byte & 0x3FU);
  }
  return {Status::kValid, code_point, static_cast<std::size_t>(lead.continuation) + 1};
}

bool is_valid(std::string_view text) {
  while (!text.empty()) {
    const Sequence sequence = decode(text);
    if (sequence.status != Status::kValid) return false;
    text.remove_prefix(sequence.length);
  }
  return true;
}

std::string sanitize(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Sequence sequence = decode(text);
    out += sequence.status == Status::kValid ? text.substr(0, sequence.length) : kReplacement;
    text.remove_prefix(sequence.length);
  }
  return out;
}

std::string quoted(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out = "\"";
  while (!text.empty()) {
    const Sequence sequence = decode(text);
    const std::string_view part = text.substr(0, sequence.length);
    const bool plain = sequence.status == Status::kValid && static_cast<unsigned char>(part[0]) >= 0x20 &&
                       part != "\x7f" && part != "\"" && part != "\\";
    if (plain) {
      out += part;
    } else {
      for (const char byte : part) {
        const auto value = static_cast<unsigned char>(byte);
        out += {'\\', 'x', kDigits[value >> 4U], kDigits[value & 15U]};
      }
    }
    text.remove_prefix(sequence.length);
  }
  return out + "\"";
}

void append(char32_t code_point, std::string& out) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80U | ((code_point >> shift) & 0x3FU)); };
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xC0U | (code_point >> 6));
    tail(0);
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xE0U | (code_point >> 12));
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0U | (code_point >> 18));
    tail(12);
    tail(6);
    tail(0);
  }
}

void drain(std::string& pending, std::string& out) {
  std::string_view rest = pending;
  while (!rest.empty()) {
    const Sequence sequence = decode(rest);
    if (sequence.status == Status::kIncomplete) break;
    out += sequence.status == Status::kValid ? rest.substr(0, sequence.length) : kReplacement;
    rest.remove_prefix(sequence.length);
  }
  pending.erase(0, pending.size() - rest.size());
}

}  // namespace lily::utf8
