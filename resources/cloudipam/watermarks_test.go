// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"math/rand/v2"
	"testing"

	v2 "github.com/skep-operator/skep/resources/api/v2"
)

// CIPAM-5.
func TestNeeded(t *testing.T) {
	for _, test := range []struct{ minimum, pre, limit, available, used, want int }{
		{0, 8, 0, 0, 0, 8},
		{0, 8, 0, 8, 4, 4},
		{10, 8, 0, 0, 0, 10},
		{10, 8, 0, 10, 3, 1},
		{10, 8, 12, 10, 8, 2},
		{0, 1, 0, 5, 5, 1},
		{0, 16, 14, 14, 14, 0},
		{0, 8, 4, 9, 9, 0},  // above the limit already
		{12, 8, 4, 0, 0, 4}, // the limit wins
	} {
		w := watermarks{available: test.available, used: test.used, preAllocate: test.pre, minAllocate: test.minimum, maxAllocate: test.limit}
		if got := w.needed(); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}

// CIPAM-6.
func TestExcess(t *testing.T) {
	for _, test := range []struct{ minimum, pre, above, available, used, want int }{
		{0, 16, 0, 16, 0, 0},
		{0, 16, 0, 20, 4, 0},
		{0, 16, 0, 40, 4, 20},
		{10, 8, 0, 10, 2, 0},
		{16, 8, 4, 16, 1, 0},
		{16, 8, 4, 24, 1, 4},
		{0, 8, 8, 24, 4, 4},
	} {
		w := watermarks{available: test.available, used: test.used, preAllocate: test.pre, minAllocate: test.minimum, maxAboveMark: test.above}
		if got := w.excess(); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}

// CIPAM-16, CIPAM-E3, CIPAM-E4 and CIPAM-E12.
func TestRequest(t *testing.T) {
	for _, test := range []struct{ limit, above, available, used, pending, want int }{
		{0, 2, 8, 7, 0, 9},
		{0, 0, 0, 0, 20, 20},
		{12, 0, 10, 8, 0, 2},
		{12, 5, 10, 8, 30, 2}, // neither above the watermark nor for pods
	} {
		w := watermarks{available: test.available, used: test.used, preAllocate: 8, maxAllocate: test.limit, maxAboveMark: test.above}
		if got := w.request(test.pending); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}

// A node never lacks addresses that it would release, and what is asked for is within the limit.
func TestWatermarksAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		spec := &v2.IPAMSpec{PreAllocate: r.IntN(20), MinAllocate: r.IntN(20), MaxAllocate: r.IntN(40), MaxAboveWatermark: r.IntN(10)}
		w := newWatermarks(spec, Limits{Addresses: r.IntN(40)})
		w.available = r.IntN(60)
		w.used = r.IntN(w.available + 1)
		needed, excess, request := w.needed(), w.excess(), w.request(r.IntN(30))
		after := w
		after.available += request
		released := w
		released.available -= excess
		switch {
		case needed < 0 || excess < 0 || request < needed:
			t.Fatalf("%+v: needed %d, excess %d, request %d", w, needed, excess, request)
		case needed > 0 && excess > 0:
			t.Fatalf("%+v: needed %d and excess %d", w, needed, excess)
		case request > 0 && w.maxAllocate > 0 && after.available > w.maxAllocate:
			t.Fatalf("%+v: asks for %d", w, request)
		case excess > 0 && released.needed() > 0:
			t.Fatalf("%+v: after %d are released, %d are needed", w, excess, released.needed())
		case needed > 0 && request > 0 && after.needed() > 0:
			t.Fatalf("%+v: after %d are assigned, %d are needed", w, request, after.needed())
		case released.available < w.used:
			t.Fatalf("%+v: %d of %d used addresses are released", w, w.used-released.available, w.used)
		}
	}
}
