# make_docs writes man pages, completions and the schema into the build folder's docs/, from the table of options.
include(GNUInstallDirs)
add_executable(make_docs src/config/docs/make_docs.c)
target_link_libraries(make_docs PRIVATE cairn_config)
set(docs_folder ${CMAKE_BINARY_DIR}/docs)
file(MAKE_DIRECTORY ${docs_folder})
add_custom_command(OUTPUT ${docs_folder}/config.schema.json COMMAND make_docs ${docs_folder} DEPENDS make_docs
                   COMMENT "Writing man pages, completions and the schema of the configuration file")
add_custom_target(option_docs ALL DEPENDS ${docs_folder}/config.schema.json)

# A build of only some targets can be installed; OPTIONAL skips the missing files.
install(DIRECTORY ${docs_folder}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 FILES_MATCHING PATTERN "*.1")
install(FILES ${docs_folder}/cairn.bash OPTIONAL RENAME cairn
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${docs_folder}/_cairn OPTIONAL DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${docs_folder}/cairn.fish OPTIONAL DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(FILES ${docs_folder}/config.schema.json OPTIONAL DESTINATION ${CMAKE_INSTALL_DATADIR}/cairn)
install(FILES ${CMAKE_SOURCE_DIR}/packaging/modulefile RENAME ${PROJECT_VERSION}
        DESTINATION ${CMAKE_INSTALL_DATADIR}/modulefiles/cairn)
