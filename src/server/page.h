// The web chat: files linked into the binary (src/server/page and its libraries), served at / and below
// /page/.
#pragma once

#include <vector>

#include "server/http_server.h"

namespace lily {

/// `GET /` and a route for each file. They come with an ETag, answered by 304 where the client has it
/// already, and with headers that keep the page from loading or running anything but itself. A build without
/// the page (LILY_PAGE=OFF) answers `/` with a line of text.
[[nodiscard]] std::vector<HttpRoute> page_routes();

}  // namespace lily
