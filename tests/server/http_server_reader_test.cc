#include "server/http_server_reader.h"

#include <gtest/gtest.h>

#include <random>

namespace minke {
namespace {

constexpr HttpReadLimits kReadLimits = {
    .header_bytes_max = 400, .headers_max = 6, .body_bytes_max = 40};

// What a reader makes of some bytes, as text that can be compared.
std::string Describe(HttpRequestReader& reader, std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    bytes.remove_prefix(reader.Read(bytes));
    if (reader.refused()) return text + "refused " + std::to_string(reader.refusal().status);
    if (!reader.done()) break;
    text += reader.keep_alive() ? "keep " : "close ";
    text += reader.http_1_1() ? "1.1 " : "1.0 ";
    if (reader.expects_continue()) text += "expects ";
    const HttpRequest request = reader.Take();
    text += request.method + " [" + request.path + "] [" + request.query + "]";
    for (const auto& header : request.headers) text += " " + header.first + "=" + header.second;
    text += " {" + request.body + "}\n";
  }
  return text + (reader.begun() ? "unfinished" : "");
}

std::string Read(std::string_view bytes) {
  HttpRequestReader reader(kReadLimits);
  return Describe(reader, bytes);
}

std::string ReadByteByByte(std::string_view bytes) {
  HttpRequestReader reader(kReadLimits);
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string part = Describe(reader, bytes.substr(i, 1));
    if (reader.refused()) return text + part;
    if (part == "unfinished") part.clear();
    text += part;
  }
  return text + (reader.begun() ? "unfinished" : "");
}

const std::vector<std::string>& GoodRequests() {
  static const std::vector<std::string> requests = {
      "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
      "\r\nGET /a%20b?c=%20d HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
      "POST /x HTTP/1.1\r\nContent-Length: 5\r\nX-Mixed-Case:  v w \r\n\r\nhello",
      "POST /x HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n"
      "3;name=\"value\"\r\nabc\r\n0A \r\n0123456789\r\n0\r\nTrailer: t\r\nOther: u\r\n\r\n",
      "POST /x HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
      "PUT /x HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\n!",
      "HEAD http://host.example/p?q HTTP/1.1\r\nHost: a\r\nConnection: x, close\r\n\r\n",
  };
  return requests;
}

TEST(HttpServerReader, ReadsWhatIsWellFormed) {
  const auto& good = GoodRequests();
  EXPECT_EQ(Read(good[0]), "keep 1.1 GET [/] [] host=a {}\n");
  EXPECT_EQ(Read(good[1]), "keep 1.0 GET [/a b] [c=%20d] connection=keep-alive {}\n");
  EXPECT_EQ(Read(good[2]), "keep 1.1 POST [/x] [] content-length=5 x-mixed-case=v w {hello}\n");
  EXPECT_EQ(Read(good[3]), "keep 1.1 POST [/x] [] transfer-encoding=Chunked {abc0123456789}\n");
  EXPECT_EQ(Read(good[4]), "keep 1.1 POST [/x] [] transfer-encoding=chunked {}\n");
  EXPECT_EQ(Read(good[5]),
            "keep 1.1 expects PUT [/x] [] expect=100-Continue content-length=1 {!}\n");
  EXPECT_EQ(Read(good[6]), "close 1.1 HEAD [/p] [q] host=a connection=x, close {}\n");
  EXPECT_EQ(Read("GET /x HTTP/1.0\r\n\r\n"), "close 1.0 GET [/x] [] {}\n");
  EXPECT_EQ(Read("OPTIONS http://host HTTP/1.1\r\n\r\n"), "keep 1.1 OPTIONS [/] [] {}\n");
  EXPECT_EQ(Read("GET HTTP://host?a/b HTTP/1.1\r\n\r\n"), "keep 1.1 GET [/] [a/b] {}\n");
  EXPECT_EQ(Read("GET /%e2%82%AC%25%2f?%00 HTTP/1.1\r\n\r\n"),
            "keep 1.1 GET [/\xE2\x82\xAC%/] [%00] {}\n");
}

TEST(HttpServerReader, TheFirstOfEqualHeadersIsTheHeader) {
  HttpRequestReader reader(kReadLimits);
  reader.Read("GET / HTTP/1.1\r\nA: 1\r\na: 2\r\n\r\n");
  ASSERT_TRUE(reader.done());
  EXPECT_EQ(reader.request().Header("a"), "1");
  EXPECT_EQ(reader.request().Header("b"), "");
}

TEST(HttpServerReader, EverySplitReadsTheSame) {
  std::string all;
  for (const std::string& request : GoodRequests()) all += request;
  const std::string whole = Read(all);
  EXPECT_EQ(whole.find("unfinished"), std::string::npos) << whole;
  EXPECT_EQ(ReadByteByByte(all), whole);
  for (size_t split = 1; split < all.size(); ++split) {
    HttpRequestReader reader(kReadLimits);
    std::string text = Describe(reader, std::string_view(all).substr(0, split));
    if (text.size() >= 10 && text.substr(text.size() - 10) == "unfinished") {
      text.resize(text.size() - 10);
    }
    text += Describe(reader, std::string_view(all).substr(split));
    ASSERT_EQ(text, whole) << "split at " << split;
  }
}

// One mutated request may be anything, but never two things.
TEST(HttpServerReader, MutantsReadTheSameByteByByte) {
  constexpr uint32_t kSeed = 20261130;
  std::mt19937 random(kSeed);
  const std::vector<std::string> pieces = {"\r\n",
                                           "\n",
                                           "\r",
                                           " ",
                                           "\t",
                                           ":",
                                           "0",
                                           "1",
                                           "ffffffffffffffff",
                                           ";",
                                           "\0",
                                           "%00",
                                           "chunked",
                                           "Content-Length: 3\r\n",
                                           "Transfer-Encoding: chunked\r\n",
                                           "HTTP/1.0",
                                           "\xFF"};
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = GoodRequests()[random() % GoodRequests().size()] +
                        GoodRequests()[random() % GoodRequests().size()];
    for (uint32_t changes = random() % 4; changes > 0; --changes) {
      const size_t at = random() % bytes.size();
      const std::string& piece = pieces[random() % pieces.size()];
      bytes.replace(at, random() % 3, piece);
    }
    const std::string whole = Read(bytes);
    ASSERT_EQ(ReadByteByByte(bytes), whole) << "seed " << kSeed << ", mutant " << i;
    refused += whole.find("refused") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 19000);
}

struct RefusedRow {
  std::string bytes;
  int status;
};

std::string WithHeaders(const std::string& headers) {
  return "POST / HTTP/1.1\r\n" + headers + "\r\n";
}

std::string Chunked(const std::string& body) {
  return WithHeaders("Transfer-Encoding: chunked\r\n") + body;
}

void ExpectRefused(const std::vector<RefusedRow>& rows) {
  for (const RefusedRow& row : rows) {
    EXPECT_EQ(Read(row.bytes), "refused " + std::to_string(row.status)) << row.bytes;
    EXPECT_EQ(ReadByteByByte(row.bytes), Read(row.bytes)) << row.bytes;
  }
}

TEST(HttpServerReader, RefusesMalformedRequestLines) {
  using std::string_literals::operator""s;
  const std::vector<RefusedRow> rows = {
      {"GET / HTTP/2.0\r\n\r\n", 505},
      {"PRI * HTTP/2.0\r\n\r\n", 505},
      {"GET / HTTP/1.2\r\n\r\n", 505},
      {"GET / HTTP/0.9\r\n\r\n", 505},
      {"GET /\r\n\r\n", 400},
      {"GET / HTTP/11\r\n\r\n", 400},
      {"GET / http/1.1\r\n\r\n", 400},
      {"GET  / HTTP/1.1\r\n\r\n", 400},
      {" GET / HTTP/1.1\r\n\r\n", 400},
      {"G(T / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1 \r\n\r\n", 400},
      {"\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n", 400},
      {"\x16\x03\x01\x02\x00\x01\x00\x01"s, 400},  // a client that speaks TLS
      {"GET x HTTP/1.1\r\n\r\n", 400},
      {"GET * HTTP/1.1\r\n\r\n", 400},
      {"CONNECT host:1 HTTP/1.1\r\n\r\n", 400},
      {"GET ftp://host/ HTTP/1.1\r\n\r\n", 400},
      {"GET /a#b HTTP/1.1\r\n\r\n", 400},
      {"GET /% HTTP/1.1\r\n\r\n", 400},
      {"GET /%4 HTTP/1.1\r\n\r\n", 400},
      {"GET /%4g HTTP/1.1\r\n\r\n", 400},
      {"GET /%00 HTTP/1.1\r\n\r\n", 400},
      {"GET /%0a HTTP/1.1\r\n\r\n", 400},
      {"GET /%7F HTTP/1.1\r\n\r\n", 400},
      {"GET /\x01 HTTP/1.1\r\n\r\n", 400},
      {"GET /\0 HTTP/1.1\r\n\r\n"s, 400},
  };
  ExpectRefused(rows);
}

TEST(HttpServerReader, RefusesMalformedHeaders) {
  const std::vector<RefusedRow> rows = {
      {"GET / HTTP/1.1\nHost: a\n\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", 400},
      {WithHeaders("A: b\r\n c\r\n"), 400},
      {WithHeaders("A: b\r\n\tc\r\n"), 400},
      {"GET / HTTP/1.1\r\n A: b\r\n\r\n", 400},
      {WithHeaders("A : b\r\n"), 400},
      {WithHeaders(": b\r\n"), 400},
      {WithHeaders("A\r\n"), 400},
      {WithHeaders("A: \x01\r\n"), 400},
      {WithHeaders("A: \x7F\r\n"), 400},
      {WithHeaders("\xC3\xA4: b\r\n"), 400},
      {WithHeaders("Host: a\r\nHost: a\r\n"), 400},
      {WithHeaders("Content-Length: 1\r\nContent-Length: 1\r\n"), 400},
      {WithHeaders("Content-Length: 1\r\nContent-Length: 2\r\n"), 400},
      {WithHeaders("Content-Length: 1, 1\r\n"), 400},
      {WithHeaders("Content-Length: +1\r\n"), 400},
      {WithHeaders("Content-Length: -1\r\n"), 400},
      {WithHeaders("Content-Length: 0x1\r\n"), 400},
      {WithHeaders("Content-Length:\r\n"), 400},
      {WithHeaders("Content-Length: 99999999999999999999999999\r\n"), 400},
      {WithHeaders("Content-Length: 9999999999\r\n"), 413},
      {WithHeaders("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"), 400},
      {WithHeaders("Transfer-Encoding: chunked\r\nContent-Length: 1\r\n"), 400},
      {WithHeaders("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
      {WithHeaders("Transfer-Encoding: chunked, chunked\r\n"), 501},
      {WithHeaders("Transfer-Encoding: gzip, chunked\r\n"), 501},
      {WithHeaders("Transfer-Encoding: identity\r\n"), 501},
      {WithHeaders("Transfer-Encoding: xchunked\r\n"), 501},
      {WithHeaders("Transfer-Encoding: \x0b"
                   "chunked\r\n"),
       400},
      {WithHeaders("Transfer-Encoding:\r\n"), 501},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {WithHeaders("Expect: the unexpected\r\n"), 417},
  };
  ExpectRefused(rows);
}

TEST(HttpServerReader, RefusesMalformedChunks) {
  using std::string_literals::operator""s;
  const std::vector<RefusedRow> rows = {
      {Chunked("\r\n"), 400},
      {Chunked(";x\r\n"), 400},
      {Chunked("g\r\n"), 400},
      {Chunked("0x1\r\n"), 400},
      {Chunked("-1\r\n"), 400},
      {Chunked("1\nx"), 400},
      {Chunked("1\rx"), 400},
      {Chunked("1\r\nxy\r\n"), 400},
      {Chunked("1\r\nx\n"), 400},
      {Chunked("1\r\nx\r\r"), 400},
      {Chunked("1;\n"), 400},
      {Chunked("1;\0\r\n"s), 400},
      {Chunked("0000000000000001\r\n"), 400},
      {Chunked("ffffffffffffffff\r\n"), 400},
      {Chunked("fffffffffffffff\r\n"), 413},
      {Chunked("0\r\nA: b\n\r\n"), 400},
      {Chunked("0\r\nA: b\r\r\n"), 400},
      {Chunked("0\r\nA\0: b\r\n\r\n"s), 400},
      {Chunked("1;" + std::string(5000, 'x') + "\r\n"), 400},
  };
  ExpectRefused(rows);
}

TEST(HttpServerReader, HeaderBytesAtTheLimitAndAbove) {
  const std::string start = "GET / HTTP/1.1\r\nA: ";
  const std::string end = "\r\n\r\n";
  const size_t most = static_cast<size_t>(kReadLimits.header_bytes_max) - start.size() - end.size();
  EXPECT_EQ(Read(start + std::string(most, 'x') + end).substr(0, 5), "keep ");
  EXPECT_EQ(Read(start + std::string(most + 1, 'x') + end), "refused 431");
  EXPECT_EQ(Read("GET /" + std::string(500, 'x')), "refused 431");
}

TEST(HttpServerReader, HeaderCountAtTheLimitAndAbove) {
  std::string headers;
  for (int i = 0; i < kReadLimits.headers_max; ++i) headers += "A: b\r\n";
  EXPECT_EQ(Read(WithHeaders(headers)).substr(0, 5), "keep ");
  EXPECT_EQ(Read(WithHeaders(headers + "A: b\r\n")), "refused 431");
}

TEST(HttpServerReader, BodyBytesAtTheLimitAndAbove) {
  const std::string most(static_cast<size_t>(kReadLimits.body_bytes_max), 'x');
  EXPECT_NE(Read(WithHeaders("Content-Length: 40\r\n") + most).find("{" + most + "}"),
            std::string::npos);
  EXPECT_EQ(Read(WithHeaders("Content-Length: 41\r\n")), "refused 413");
  EXPECT_NE(Read(Chunked("28\r\n" + most + "\r\n0\r\n\r\n")).find("{" + most + "}"),
            std::string::npos);
  EXPECT_EQ(Read(Chunked("29\r\n")), "refused 413");
  EXPECT_EQ(Read(Chunked("27\r\n" + most.substr(1) + "\r\n2\r\n")), "refused 413");
}

TEST(HttpServerReader, TrailerBytesAtTheLimitAndAbove) {
  const size_t most = static_cast<size_t>(kReadLimits.header_bytes_max) - 4 - 3;
  EXPECT_EQ(Read(Chunked("0\r\nA: " + std::string(most, 'x') + "\r\n\r\n")).substr(0, 5), "keep ");
  EXPECT_EQ(Read(Chunked("0\r\nA: " + std::string(most + 1, 'x') + "\r\n\r\n")), "refused 431");
}

TEST(HttpServerReader, TrailersDoNotBecomeHeaders) {
  EXPECT_EQ(Read(Chunked("0\r\nAuthorization: forged\r\nContent-Length: 7\r\n\r\n")),
            "keep 1.1 POST [/] [] transfer-encoding=chunked {}\n");
}

TEST(HttpServerReader, APromisedBodyCostsNoMemory) {
  HttpRequestReader reader(
      {.header_bytes_max = 400, .headers_max = 6, .body_bytes_max = int64_t{1} << 40});
  reader.Read(WithHeaders("Content-Length: 1099511627776\r\n") + "x");
  ASSERT_TRUE(reader.head_done());
  EXPECT_LT(reader.request().body.capacity(), size_t{1} << 20);
}

}  // namespace
}  // namespace minke
