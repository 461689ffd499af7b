# The web chat: our files as they are, and three libraries from their Debian packages (docs/dependencies.md). Elsewhere say where
# they lie with -DLILY_MARKED_JS=..., -DLILY_PURIFY_JS=..., -DLILY_HIGHLIGHT_JS=..., or leave the page out with -DLILY_PAGE=OFF.
set(page_files "")
if(LILY_PAGE)
  file(GLOB page_files RELATIVE ${CMAKE_CURRENT_LIST_DIR} CONFIGURE_DEPENDS
    ${CMAKE_CURRENT_LIST_DIR}/*.html ${CMAKE_CURRENT_LIST_DIR}/*.css ${CMAKE_CURRENT_LIST_DIR}/*.js ${CMAKE_CURRENT_LIST_DIR}/*.svg)
  list(SORT page_files)
  list(TRANSFORM page_files REPLACE "^.+$" "\\0=${CMAKE_CURRENT_LIST_DIR}/\\0")
  find_file(LILY_MARKED_JS marked.umd.min.js PATHS /usr/share/javascript/marked NO_DEFAULT_PATH)
  find_file(LILY_PURIFY_JS purify.es.js PATHS /usr/share/nodejs/dompurify/dist NO_DEFAULT_PATH)
  find_file(LILY_HIGHLIGHT_JS highlight.min.js PATHS /usr/share/javascript/highlight.js NO_DEFAULT_PATH)
  foreach(library MARKED:libjs-marked PURIFY:node-dompurify HIGHLIGHT:libjs-highlight.js)
    string(REPLACE ":" ";" library ${library})
    list(GET library 0 name)
    list(GET library 1 package)
    if(NOT LILY_${name}_JS)
      message(FATAL_ERROR "web chat: no LILY_${name}_JS, expected the file from Debian's package ${package} "
        "(run `make setup`, or pass -DLILY_${name}_JS=PATH, or leave the page out with -DLILY_PAGE=OFF)")
    endif()
    string(TOLOWER ${name} file)
    list(APPEND page_files lib/${file}.js=${LILY_${name}_JS})
  endforeach()
endif()
lily_embed(page page_sources ${page_files})
