// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package outside

import (
	"fmt"
	"io"
	"net/http"
)

// MaxAnswer is the size of the largest answer that is read, in bytes. A page of a thousand interfaces has a few million.
const MaxAnswer = 32 << 20

// Bounded has the bodies of answers end with an error after MaxAnswer bytes: what a server sends, or one that answers in its place, does
// not take all memory.
func Bounded(next http.RoundTripper) http.RoundTripper { return bounded{next} }

type bounded struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err == nil {
		resp.Body = &boundedBody{resp.Body, req.URL.Host, MaxAnswer}
	}
	return resp, err
}

// CloseIdleConnections has clients close the connections of the transport.
func (b bounded) CloseIdleConnections() {
	if c, ok := b.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

type boundedBody struct {
	io.ReadCloser
	host string
	left int
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return 0, fmt.Errorf("the answer of %s has more than %d bytes: it is not read", b.host, MaxAnswer)
	}
	if len(p) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return n, fmt.Errorf("the answer of %s has more than %d bytes: it is not read", b.host, MaxAnswer)
	}
	return n, err
}

// What a list has at most: one that never ends is not read for ever.
const (
	maxPages = 10_000
	maxItems = 500_000
)

// CheckList returns an error for a list of which more pages or items were read than any true one has. Callers ask after each page.
func CheckList(operation string, pages, items int) error {
	if pages > maxPages || items > maxItems {
		return fmt.Errorf("%s has not ended after %d pages and %d items: it is not read on", operation, pages, items)
	}
	return nil
}
