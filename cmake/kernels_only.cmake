# The backends and their tests alone, for another architecture's compiler: libraries as headers of this machine
# (those that have no machine code), GoogleTest from its sources.
function(lily_headers name)
  add_library(${name} INTERFACE IMPORTED)
  # After the compiler's own, so that its C library is not hidden by this machine's.
  target_compile_options(${name} INTERFACE -idirafter /usr/include)
  target_compile_definitions(${name} INTERFACE ${ARGN})
endfunction()
lily_headers(fmt::fmt FMT_HEADER_ONLY)
lily_headers(spdlog::spdlog SPDLOG_FMT_EXTERNAL)
lily_headers(nlohmann_json::nlohmann_json)

find_package(Threads REQUIRED)
set(INSTALL_GTEST OFF)
add_subdirectory(/usr/src/googletest ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
foreach(target gtest gtest_main gmock gmock_main)
  target_compile_options(${target} PRIVATE -w)
endforeach()

include(cmake/metal.cmake)
foreach(module base checkpoint model backend)
  add_subdirectory(src/${module})
endforeach()
enable_testing()
add_subdirectory(tests/backend)
