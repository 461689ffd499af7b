# The Metal backend's kernels. On macOS their sources are embedded and Apple's compiler takes them at run time. Elsewhere a
# clang of 17 or later compiles the same sources for the executor (docs/metal.md):
#
#   k.metal  --msl flatten-->  k.metal  --clang -E-->  k.i  --msl run-->  k.cpp  --clang-->  k.o
if(APPLE)
  enable_language(OBJCXX)
  set(CMAKE_OBJCXX_STANDARD 20)
  set(CMAKE_OBJCXX_STANDARD_REQUIRED ON)
endif()

set(LILY_METAL_EMULATED OFF)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$"
   AND NOT LILY_KERNELS_ONLY AND NOT LILY_SANITIZE)  # sanitizers lose their way where fibers switch stacks
  find_program(LILY_METAL_CLANG NAMES clang++-19 clang++-21 clang++-20 clang++-18 clang++-17 clang++)
  if(LILY_METAL_CLANG)
    execute_process(COMMAND ${LILY_METAL_CLANG} -dumpversion OUTPUT_VARIABLE metal_clang_version
      OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
  if(LILY_METAL_CLANG AND metal_clang_version VERSION_GREATER_EQUAL 17)
    set(LILY_METAL_EMULATED ON)
    message(STATUS "Metal kernels: compiled for the CPU (--backend metal-emulated) by ${LILY_METAL_CLANG}")
  else()
    message(WARNING "Metal kernels: no clang of 17 or later, so no --backend metal-emulated and no tests of them")
  endif()
else()
  message(STATUS "Metal kernels: not compiled for the CPU in this build (Linux on x86-64, without sanitizers)")
endif()

set(metal_emulator ${PROJECT_SOURCE_DIR}/src/backend/metal/emulator)
set(metal_includes -I${metal_emulator}/include -I${PROJECT_SOURCE_DIR}/src)
# What Metal does, said to clang: each half operation rounded, literals in single precision, contraction within an
# expression. Thread variables that nobody wrote are NaN.
set(metal_run_flags -std=c++20 -Wall -Wextra -Werror -Wno-unused-function -Wno-unused-const-variable
  -Wno-unused-parameter 
  -Xclang -ffloat16-excess-precision=none -Xclang -fbfloat16-excess-precision=none
  -Xclang -cl-single-precision-constant -Wdouble-promotion -ffp-contract=on -ftrivial-auto-var-init=pattern
  -mavx2 -mfma -mf16c -fPIC)
set(metal_plain_flags -O2)
# Every access becomes a call, which the race checker answers; a vectorizer would merge accesses.
set(metal_checked_flags -O1 -g1 -fno-vectorize -fno-slp-vectorize -fsanitize=thread
  -mllvm -tsan-instrument-func-entry-exit=0)

# lily_metal_source(out FILE): FILE with its headers, as Apple's compiler gets it.
function(lily_metal_source out file)
  cmake_path(GET file STEM stem)
  cmake_path(GET file PARENT_PATH folder)
  file(GLOB headers CONFIGURE_DEPENDS ${folder}/*.h)
  set(flat ${CMAKE_CURRENT_BINARY_DIR}/metal/${stem}.metal)
  file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${file})
  add_custom_command(OUTPUT ${flat}
    COMMAND msl flatten ${name} -o ${flat} -I src
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} DEPENDS msl ${file} ${headers} VERBATIM)
  set(${out} ${flat} PARENT_SCOPE)
endfunction()

# lily_metal_embedded(out FILE...): sources that a target adds to have these linked in, as embedded_metal_kernels().
function(lily_metal_embedded out)
  set(files "")
  set(paths "")
  foreach(file ${ARGN})
    lily_metal_source(flat ${file})
    cmake_path(GET file FILENAME name)
    list(APPEND files ${name}=${flat})
    list(APPEND paths ${flat})
  endforeach()
  lily_embed(metal_kernels embedded ${files})
  set(${out} ${embedded} ${paths} PARENT_SCOPE)
endfunction()

# lily_metal_preprocessed(out FILE): that, through the preprocessor, with system headers left as they are.
function(lily_metal_preprocessed out file)
  lily_metal_source(flat ${file})
  cmake_path(REPLACE_EXTENSION flat LAST_ONLY i OUTPUT_VARIABLE preprocessed)
  add_custom_command(OUTPUT ${preprocessed}
    COMMAND ${LILY_METAL_CLANG} -E -x c++ -std=c++20 -nostdinc -nostdinc++ -D__METAL_VERSION__=310
      -I${metal_emulator}/preprocess ${flat} -o ${preprocessed}
    DEPENDS ${flat} VERBATIM)
  set(${out} ${preprocessed} PARENT_SCOPE)
endfunction()

# lily_metal_kernels(out target plain|checked FILE...): sources and objects that the target adds to have these kernels
# linked in, as linked_kernels().
function(lily_metal_kernels out target flavour)
  file(GLOB shim CONFIGURE_DEPENDS ${metal_emulator}/*.h ${metal_emulator}/include/*)
  set(sources "")
  set(declarations "")
  set(entries "")
  foreach(file ${ARGN})
    cmake_path(GET file STEM stem)
    lily_metal_preprocessed(preprocessed ${file})
    set(table lily_metal_${stem})
    set(translated ${CMAKE_CURRENT_BINARY_DIR}/metal/${flavour}/${stem}.cpp)
    set(object ${CMAKE_CURRENT_BINARY_DIR}/metal/${flavour}/${stem}.o)
    add_custom_command(OUTPUT ${object}
      COMMAND msl run ${preprocessed} -o ${translated} --table ${table}
      COMMAND ${LILY_METAL_CLANG} ${metal_run_flags} ${metal_${flavour}_flags} ${metal_includes} -c ${translated} -o ${object}
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} DEPENDS msl ${preprocessed} ${shim} VERBATIM)
    list(APPEND sources ${object})
    string(APPEND declarations "extern const lily::metal::emu::KernelTable ${table};\n")
    string(APPEND entries "&${table}, ")
  endforeach()
  set_source_files_properties(${sources} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  set(tables ${CMAKE_CURRENT_BINARY_DIR}/metal/${target}_kernels.cpp)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/kernel_tables.cpp.in ${tables} @ONLY)
  set(${out} ${tables} ${sources} PARENT_SCOPE)
endfunction()
