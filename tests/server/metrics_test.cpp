#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lily {
namespace {

using ::testing::HasSubstr;

TEST(Histogram, CountsUpToAndIncludingEachBound) {
  Histogram histogram({1, 2.5});
  for (const double value : {0.5, 1.0, 2.0, 3.0}) histogram.observe(value);
  std::string out;
  histogram.write("x_seconds", "Help.", out);
  EXPECT_EQ(out,
            "# HELP x_seconds Help.\n# TYPE x_seconds histogram\n"
            "x_seconds_bucket{le=\"1\"} 2\nx_seconds_bucket{le=\"2.5\"} 3\nx_seconds_bucket{le=\"+Inf\"} 4\n"
            "x_seconds_sum 6.5\nx_seconds_count 4\n");
}

TEST(Metrics, TellsWhatRequestsTook) {
  Metrics metrics;
  metrics.record(FinishReason::kStop, {.prompt_tokens = 100,
                                       .cached_tokens = 64,
                                       .completion_tokens = 11,
                                       .queue_seconds = 0.2,
                                       .prefill_seconds = 0.2,
                                       .decode_seconds = 0.25});
  metrics.record(FinishReason::kCancelled, {.prompt_tokens = 9});
  const std::string text = metrics.text({.queued = 3, .refused = 2, .cache = {.bytes = 77, .hits = 5}});
  for (const auto* line :
       {"lily_requests_total{reason=\"stop\"} 1\n", "lily_requests_total{reason=\"cancelled\"} 1\n",
        "lily_requests_total{reason=\"error\"} 0\n",
        "lily_time_to_first_token_seconds_bucket{le=\"0.25\"} 0\n",
        "lily_time_to_first_token_seconds_bucket{le=\"0.5\"} 1\n",
        "lily_time_per_output_token_seconds_bucket{le=\"0.02\"} 0\n",
        "lily_time_per_output_token_seconds_bucket{le=\"0.03\"} 1\n", "lily_request_seconds_count 2\n",
        "lily_requests_queued 3\n", "lily_requests_refused_total 2\n", "lily_prefix_cache_bytes 77\n",
        "lily_prefix_cache_hits_total 5\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

}  // namespace
}  // namespace lily
