# cmake --install: the program, its man page and completions (made by the program itself), units where they are, the texts that
# explain it. cpack -G DEB (or TGZ) packs the same.
include(GNUInstallDirs)
install(TARGETS lily RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

set(generated ${CMAKE_BINARY_DIR}/share)
file(MAKE_DIRECTORY ${generated})
set(generated_files "")
foreach(kind bash zsh fish man)
  add_custom_command(OUTPUT ${generated}/${kind}
    COMMAND lily completion ${kind} > ${generated}/${kind} DEPENDS lily VERBATIM)
  list(APPEND generated_files ${generated}/${kind})
endforeach()
add_custom_target(lily_share ALL DEPENDS ${generated_files})
install(FILES ${generated}/man DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 RENAME lily.1)
install(FILES ${generated}/bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME lily)
install(FILES ${generated}/zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions RENAME _lily)
install(FILES ${generated}/fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d RENAME lily.fish)

install(FILES README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES packaging/deb/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs FILES_MATCHING PATTERN "*.md" PATTERN "*.json")
install(FILES bench/prompts.jsonl DESTINATION ${CMAKE_INSTALL_DATADIR}/lily)

# Units of the init systems, where the sources have them.
if(APPLE)
  file(GLOB units ${PROJECT_SOURCE_DIR}/packaging/launchd/*.plist)
  install(FILES ${units} DESTINATION ${CMAKE_INSTALL_DATADIR}/lily/launchd)
else()
  file(GLOB units ${PROJECT_SOURCE_DIR}/packaging/systemd/*.service ${PROJECT_SOURCE_DIR}/packaging/systemd/*.socket)
  install(FILES ${units} DESTINATION lib/systemd/system)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME lily)
set(CPACK_PACKAGE_VENDOR "lily.cpp")
set(CPACK_PACKAGE_CONTACT "the lily.cpp authors <lily@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "runs and serves Qwen3.5 and Qwen3.6 models")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
  "One program for one model family, with kernels of its own: reads the published checkpoint in place and answers over\n OpenAI's and Anthropic's APIs. A small model is built in.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # what the binary is linked with says which packages it needs
include(CPack)
