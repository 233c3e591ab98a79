# The web page of `minke serve` is compiled into the program, so that it works without any file
# beside it: page_files.cc is written at build time from what lies in src/server/web.
set(MINKE_PAGE_DIR ${CMAKE_CURRENT_SOURCE_DIR}/src/server/web)
set(MINKE_PAGE_SOURCE ${CMAKE_CURRENT_BINARY_DIR}/page_files.cc)
file(GLOB_RECURSE MINKE_PAGE_FILES CONFIGURE_DEPENDS
  ${MINKE_PAGE_DIR}/*.html ${MINKE_PAGE_DIR}/*.css ${MINKE_PAGE_DIR}/*.js ${MINKE_PAGE_DIR}/*.svg)
add_custom_command(OUTPUT ${MINKE_PAGE_SOURCE}
  COMMAND ${CMAKE_COMMAND} -D PAGE_DIR=${MINKE_PAGE_DIR} -D OUTPUT=${MINKE_PAGE_SOURCE}
    -P ${CMAKE_CURRENT_SOURCE_DIR}/cmake/write_page_files.cmake
  DEPENDS ${MINKE_PAGE_FILES} ${CMAKE_CURRENT_SOURCE_DIR}/cmake/write_page_files.cmake
  COMMENT "Compiling in the web page" VERBATIM)
target_sources(minke_server PRIVATE ${MINKE_PAGE_SOURCE})
# Literals of 50 KiB are no neighbours for other code.
set_source_files_properties(${MINKE_PAGE_SOURCE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
