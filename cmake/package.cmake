# `cmake --install build/release --prefix DIR`: the program, the libraries with a CMake package
# (find_package(Minke), target Minke::engine), the one public header and the mini model.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(MINKE_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Minke)

install(TARGETS minke_core minke_kernels minke_checkpoint minke_text minke_model
  minke_prefix_cache minke_engine
  EXPORT MinkeTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS minke RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# engine.h includes core/result.h by a path relative to itself.
install(FILES src/engine/engine.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/minke)
install(FILES src/core/result.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/minke/core)
install(DIRECTORY models DESTINATION ${CMAKE_INSTALL_DATADIR}/minke)
install(FILES LICENSE THIRD_PARTY_NOTICES.md README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT MinkeTargets NAMESPACE Minke:: DESTINATION ${MINKE_PACKAGE_DIR})
configure_package_config_file(cmake/MinkeConfig.cmake.in ${CMAKE_BINARY_DIR}/MinkeConfig.cmake
  INSTALL_DESTINATION ${MINKE_PACKAGE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/MinkeConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/MinkeConfig.cmake ${CMAKE_BINARY_DIR}/MinkeConfigVersion.cmake
  DESTINATION ${MINKE_PACKAGE_DIR})
