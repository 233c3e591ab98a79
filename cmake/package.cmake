# `cmake --install build/release --prefix DIR`: the program, the libraries with a CMake package
# (find_package(Minke), target Minke::engine), the one public header and the models.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(MINKE_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/Minke)

# Two components: what a user of the program needs, which is the Debian package, and what a program
# around the engine needs. `cmake --install` takes both.
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME development)
install(TARGETS minke_core minke_kernels minke_checkpoint minke_text minke_model
  minke_prefix_cache minke_engine
  EXPORT MinkeTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS minke RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT minke)
# engine.h includes core/result.h by a path relative to itself.
install(FILES src/engine/engine.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/minke)
install(FILES src/core/result.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/minke/core)
# A model without weights is a recipe, and of no use to a server.
file(GLOB MINKE_MODEL_WEIGHTS CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/models/*/*.safetensors)
foreach(weights ${MINKE_MODEL_WEIGHTS})
  cmake_path(GET weights PARENT_PATH folder)
  install(DIRECTORY ${folder} DESTINATION ${CMAKE_INSTALL_DATADIR}/minke/models COMPONENT minke)
endforeach()
install(FILES LICENSE THIRD_PARTY_NOTICES.md README.md DESTINATION ${CMAKE_INSTALL_DOCDIR}
  COMPONENT minke)

install(EXPORT MinkeTargets NAMESPACE Minke:: DESTINATION ${MINKE_PACKAGE_DIR})
configure_package_config_file(cmake/MinkeConfig.cmake.in ${CMAKE_BINARY_DIR}/MinkeConfig.cmake
  INSTALL_DESTINATION ${MINKE_PACKAGE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/MinkeConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/MinkeConfig.cmake ${CMAKE_BINARY_DIR}/MinkeConfigVersion.cmake
  DESTINATION ${MINKE_PACKAGE_DIR})

# The rest of the Debian package, which only it has: the unit names /usr/bin and /etc.
install(FILES contrib/systemd/minke.service DESTINATION lib/systemd/system
  COMPONENT service EXCLUDE_FROM_ALL)
install(FILES contrib/systemd/minke.env DESTINATION /etc/minke COMPONENT service EXCLUDE_FROM_ALL)
install(FILES contrib/grafana/minke.json DESTINATION ${CMAKE_INSTALL_DATADIR}/minke/grafana
  COMPONENT service EXCLUDE_FROM_ALL)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT service EXCLUDE_FROM_ALL
  PATTERN decisions EXCLUDE)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright
  COMPONENT service EXCLUDE_FROM_ALL)

# `cpack -G DEB` in the build folder: minke_VERSION_amd64.deb (docs/deployment.md).
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME minke)
set(CPACK_PACKAGE_VENDOR "The Minke authors")
set(CPACK_PACKAGE_CONTACT "The Minke authors <minke@invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "engine and server for DeepSeek-V4.1-Flash")
set(CPACK_PACKAGE_DESCRIPTION "Runs checkpoints in the released format of DeepSeek-V4.1-Flash on
x86-64 processors with AVX2, as a program and as a server with the interfaces that agents use, and
keeps conversations in memory and on disk.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL minke service)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION net)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS init-system-helpers)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/contrib/debian/conffiles
  ${CMAKE_SOURCE_DIR}/contrib/debian/postinst ${CMAKE_SOURCE_DIR}/contrib/debian/prerm
  ${CMAKE_SOURCE_DIR}/contrib/debian/postrm)
include(CPack)
