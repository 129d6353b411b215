// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package outside

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// CIPAM-43; number 5.6 of the contract's tenants.md: an answer that is too large is an error, and is not read to its end.
func TestBounded(t *testing.T) {
	for size, want := range map[int]bool{0: true, 100: true, MaxAnswer: true, MaxAnswer + 1: false, 1 << 40: false} {
		next := RoundTripperFunc(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(io.LimitReader(endless{}, int64(size)))}, nil
		})
		resp, err := Bounded(next).RoundTrip(httptest.NewRequest(http.MethodGet, "https://cloud.test/x", nil))
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "cloud.test") || n > MaxAnswer+1 {
			t.Errorf("%d bytes: %d are read, %v", size, n, err)
		}
	}
}

// RoundTripperFunc is a function as a transport.
type RoundTripperFunc func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f RoundTripperFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// A list that never ends is not read for ever.
func TestCheckList(t *testing.T) {
	if err := CheckList("DescribeX", maxPages, maxItems); err != nil {
		t.Error(err)
	}
	for _, err := range []error{CheckList("DescribeX", maxPages+1, 1), CheckList("DescribeX", 1, maxItems+1)} {
		if err == nil || !strings.Contains(err.Error(), "DescribeX") {
			t.Error(err)
		}
	}
}
