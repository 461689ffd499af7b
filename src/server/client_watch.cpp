#include "server/client_watch.h"

namespace lily {

bool ClientWatch::alive(std::string_view ping) {
  const Peer peer = writer_.peer();
  if (peer == Peer::kGone) return false;
  if (peer == Peer::kHalfClosed && !writer_.begun()) {
    writer_.begin(head_);
    return write(ping);
  }
  const auto patience = peer == Peer::kHalfClosed ? kProbe : kQuiet;
  if (!writer_.begun() || Clock::now() - last_write_ < patience) return true;
  return write(ping);
}

bool ClientWatch::write(std::string_view piece) {
  last_write_ = Clock::now();
  return writer_.write(piece);
}

}  // namespace lily
