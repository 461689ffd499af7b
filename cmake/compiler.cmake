# Language level, warnings as errors, sanitizers, and what makes builds fast (ccache, mold) where it is found.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")

set(warnings -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror)
# GCC 12 reports these in the standard library's own inlined code at -O2 (gcc bugs 105562, 105329, 109842).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND warnings -Wno-maybe-uninitialized -Wno-restrict -Wno-array-bounds -Wno-stringop-overflow)
else()
  # libstdc++ 12's stable_sort and stable_partition call a function that it has declared deprecated itself.
  list(APPEND warnings -Wno-deprecated-declarations)
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${warnings}>")

if(LILY_SANITIZE)
  add_compile_options(-fsanitize=${LILY_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${LILY_SANITIZE})
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

# lily_library(name SOURCES ... DEPENDS ... PRIVATE ...): a static library of one src/ folder.
function(lily_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${arg_SOURCES})
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PUBLIC ${arg_DEPENDS} PRIVATE ${arg_PRIVATE})
endfunction()

set(test_seconds 600)
if(LILY_SANITIZE)
  set(test_seconds 3600)  # the models' tests, on cores that others use too
endif()

# lily_test(name SOURCES ... DEPENDS ...): a GoogleTest program of one tests/ folder, registered with ctest.
function(lily_test name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPENDS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE LILY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${arg_DEPENDS} GTest::gtest GTest::gmock GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${test_seconds})
endfunction()
