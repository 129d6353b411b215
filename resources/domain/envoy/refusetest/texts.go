// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package refusetest

import (
	"math/rand/v2"
	"strings"
)

// Source makes texts of which Envoy refuses many in one place or another.
type Source struct{ *rand.Rand }

func (s Source) pick(all ...string) string { return all[s.IntN(len(all))] }

// some is some of the texts, one after the other, and mostly a single one.
func (s Source) some(all ...string) string {
	text := s.pick(all...)
	for s.IntN(4) == 0 {
		text += s.pick(all...)
	}
	return text
}

// Name is the name of a header.
func (s Source) Name() string {
	return s.some("x-a", "X-B", "x-c", "host", "Host", "HOST", ":path", ":authority", ":method", "hosts", "x:y", "te", "connection", "content-length", "x-envoy-retry-on", "a b", "a%b", "x\ny", "x\x00y", "", "é", "\xff", "!#$%&'*+-.^_`|~", strings.Repeat("n", 20_000))
}

// Value is the value of a header.
func (s Source) Value() string {
	return s.some("v", "", "%", "%%", "100%", "%REQ(X-A)%", "%REQ(X-A?:path):20%", "%REQ(X-A?Y?Z)%", "%REQ()%", "%REQ(X-A):0%", "%REQ(X-A):x%", "%REQ(X-A", "%REQ(X-A)", "%RESP(X)%", "%TRAILER(X)%",
		"%PROTOCOL%", "%PROTOCOL()%", "%PROTOCOL%%", "%START_TIME%", "%START_TIME(%s)%", "%START_TIME(%E4n%)%", "%HOSTNAME%", "%HOSTNAME(1)%", "%ENVIRONMENT(PATH)%", "%DOWNSTREAM_REMOTE_ADDRESS%", "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
		"%DOWNSTREAM_PEER_SUBJECT%", "%DOWNSTREAM_PEER_SUBJECT:1%", "%DOWNSTREAM_FOO%", "%UPSTREAM_METADATA([\"a\",\"b\"])%", "%DYNAMIC_METADATA(a:b)%", "%PER_REQUEST_STATE(a)%", "%FILTER_STATE(a:PLAIN)%", "%CEL(request.path)%", "%FILE_CONTENT(/etc/passwd)%",
		"%20", "a\nb", "a\rb", "a\x00b", "a\tb", "é", "\xff", "%protocol%", "%RESPONSE_CODE_DETAILS(X)%", "%VIRTUAL_CLUSTER_NAME%", "%UNKNOWN%", strings.Repeat("%", 8_200), strings.Repeat("v", 17_000))
}

// Path is a path, or what replaces one.
func (s Source) Path() string {
	return s.some("/", "/a", "/a/", "/a/b", "", "//", "/a//b", "/a?b", "/a#b", "/a%2fb", `/x\1`, `/x\0`, `/x\9`, `/x\`, `\\`, "/a\nb", "/a\x00b", "/é", "/\xff", "/$1", "/(a", "/a*", "/[", "a", "/a;b", "/"+strings.Repeat("p", 17_000))
}

// Expression is a regular expression, or none.
func (s Source) Expression() string {
	return s.some("/a", ".*", "/[0-9]+", "(", ")", "[", "*", "a{1000}", "a{1001}", `\pL{1000}`, `/\pL{1000}`, `\C`, `\1`, `\8`, `(?=a)`, `(?<n>a)`, `(?P<n>a)`, "(?i)", "(?i)abc", `\Q`, `\x{110000}`, `\p{Nope}`, "(a|b)", "|", "", "^/$", "é", "\xff", "a\nb", "[a-\\d]", "[z-a]", ".{1000}")
}

// Host is a host name.
func (s Source) Host() string {
	return s.some("a.example.com", "*.example.com", "example.com", "a_b", "A.Example.com", "a.example.com:80", "*", "*.*", "a*b", "", "a b", "a\nb", "é", "2001:db8::1", "[::1]", "%", "%REQ(X)%", strings.Repeat("h", 17_000), "*."+strings.Repeat("l", 60)+"."+strings.Repeat("m", 60))
}

// Origin is an origin of CORS.
func (s Source) Origin() string {
	return s.some("*", "https://a.example.com", "https://*.example.com", "http://a:80", "https://*", "*://a", "", "https://(", "https://[::1]", "https://a\nb", "null", "é", "https://a.*.b.*")
}
