#include "server/chat_answer.h"

#include <algorithm>
#include <iterator>

namespace lily {

void ChatPiece::append(ChatPiece next) {
  reasoning += next.reasoning;
  content += next.content;
  for (ChatToolCall& call : next.calls) {
    if (calls.empty() || calls.back().index != call.index) {
      calls.push_back(std::move(call));
    } else {
      calls.back().arguments += call.arguments;
    }
  }
  std::ranges::move(next.logprobs, std::back_inserter(logprobs));
}

}  // namespace lily
