#include "backend/backend.h"

namespace lily {

std::int64_t Batch::rows() const {
  std::int64_t total = 0;
  for (const Segment& segment : segments) total += segment.rows();
  return total;
}

std::int64_t Batch::logits_rows() const {
  std::int64_t total = 0;
  for (const Segment& segment : segments) {
    if (segment.logits == Logits::kAll) total += segment.rows();
    if (segment.logits == Logits::kLast && segment.rows() > 0) ++total;
  }
  return total;
}

}  // namespace lily
