lily_fuzz(fuzz_http_request SOURCES fuzz_http_request.cpp DEPENDS lily_server)
lily_fuzz(fuzz_chat_request SOURCES fuzz_chat_request.cpp DEPENDS lily_server nlohmann_json::nlohmann_json)
