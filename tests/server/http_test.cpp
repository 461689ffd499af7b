#include "server/http.h"

#include <gtest/gtest.h>

namespace lily {
namespace {

TEST(CanonicalPath, JoinsOfBaseUrlsMeanTheSame) {
  for (const auto* target : {"/v1/models", "/v1/models/", "/v1//models", "//v1/models", "/v1/models?x=1",
                             "/v1/models/?a=/b//", "/v1/models#top", "http://localhost:8080/v1/models"}) {
    EXPECT_EQ(canonical_path(target), "/v1/models") << target;
  }
  EXPECT_EQ(canonical_path("/"), "/");
  EXPECT_EQ(canonical_path("///"), "/");
  EXPECT_EQ(canonical_path("http://localhost"), "/");
  EXPECT_EQ(canonical_path("*"), "*");
  EXPECT_EQ(canonical_path("/V1/models"), "/V1/models");
}

TEST(HttpRequest, HeaderNamesIgnoreCase) {
  HttpRequest request;
  request.headers = {{"Content-Type", "a"}, {"content-type", "b"}};
  ASSERT_NE(request.header("CONTENT-TYPE"), nullptr);
  EXPECT_EQ(*request.header("CONTENT-TYPE"), "a");
  EXPECT_EQ(request.header("Content"), nullptr);
}

TEST(RandomId, IsPrefixedAndFresh) {
  const std::string id = random_id("req-");
  EXPECT_TRUE(id.starts_with("req-"));
  EXPECT_EQ(id.size(), 28U);
  EXPECT_NE(id, random_id("req-"));
}

}  // namespace
}  // namespace lily
