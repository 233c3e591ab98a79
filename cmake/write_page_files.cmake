# cmake -D PAGE_DIR=... -D OUTPUT=... -P write_page_files.cmake
# Writes the C++ source that defines FindPageFile() of src/server/server_impl.h.
cmake_minimum_required(VERSION 3.25)

# A text of this length is one literal; the standard asks compilers for 65,536 characters, and both
# of ours take more.
set(PAGE_FILE_BYTES_MAX 262144)
set(TYPE_html "text/html; charset=utf-8")
set(TYPE_css "text/css; charset=utf-8")
set(TYPE_js "text/javascript; charset=utf-8")
set(TYPE_svg "image/svg+xml")

file(GLOB_RECURSE paths RELATIVE ${PAGE_DIR}
  ${PAGE_DIR}/*.html ${PAGE_DIR}/*.css ${PAGE_DIR}/*.js ${PAGE_DIR}/*.svg)
list(SORT paths)
set(rows "")
foreach(path IN LISTS paths)
  file(SIZE ${PAGE_DIR}/${path} bytes)
  if(bytes GREATER PAGE_FILE_BYTES_MAX)
    message(FATAL_ERROR
      "${path} of the web page has ${bytes} bytes, at most ${PAGE_FILE_BYTES_MAX} "
      "are compiled in; split it, or raise PAGE_FILE_BYTES_MAX.")
  endif()
  file(READ ${PAGE_DIR}/${path} text)
  string(FIND "${text}" ")MINKE_PAGE\"" end)
  if(NOT end EQUAL -1)
    message(FATAL_ERROR
      "${path} of the web page holds the mark that ends a literal, )MINKE_PAGE\".")
  endif()
  cmake_path(GET path EXTENSION LAST_ONLY extension)
  string(SUBSTRING ${extension} 1 -1 extension)
  string(APPEND rows "    {\"/${path}\", \"${TYPE_${extension}}\",\n"
    "     R\"MINKE_PAGE(${text})MINKE_PAGE\"sv},\n")
endforeach()

file(WRITE ${OUTPUT} "// Written by cmake/write_page_files.cmake from src/server/web.
#include <string_view>

#include \"server/server_impl.h\"

namespace minke {
namespace {

using std::literals::operator\"\"sv;

constexpr PageFile kPageFiles[] = {
${rows}};

}  // namespace

const PageFile* FindPageFile(std::string_view path) {
  if (path == \"/\") path = \"/index.html\";
  for (const PageFile& file : kPageFiles) {
    if (file.path == path) return &file;
  }
  return nullptr;
}

}  // namespace minke
")
