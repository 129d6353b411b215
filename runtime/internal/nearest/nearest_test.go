// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nearest_test

import (
	"testing"

	"github.com/skep-operator/skep/runtime/internal/nearest"
)

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"abc", "abc", 0},
		{"abc", "abd", 1},
		{"abc", "ab", 1},
		{"ab", "abc", 1},
		{"abcd", "abdc", 1}, // neighbours swapped
		{"", "abc", 3},
		{"kitten", "sitting", 3},
		{"cluster-nmae", "cluster-name", 1},
	} {
		if got := nearest.Distance(c.a, c.b, 100); got != c.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
		if got := nearest.Distance(c.b, c.a, 100); got != c.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", c.b, c.a, got, c.want)
		}
	}
}

// naive is the definition, written down.
func naive(a, b string) int {
	switch {
	case a == "" || b == "":
		return len(a) + len(b)
	case a[0] == b[0]:
		return naive(a[1:], b[1:])
	}
	d := 1 + min(naive(a[1:], b), naive(a, b[1:]), naive(a[1:], b[1:]))
	if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
		d = min(d, 1+naive(a[2:], b[2:]))
	}
	return d
}

func FuzzDistance(f *testing.F) {
	f.Add("abcd", "badc", 3)
	f.Add("interval", "intreval", 2)
	f.Add("", "x", 1)
	f.Fuzz(func(t *testing.T, a, b string, limit int) {
		a, b = a[:min(len(a), 6)], b[:min(len(b), 6)]
		if limit < 0 {
			limit = -(limit + 1)
		}
		want := min(naive(a, b), limit)
		if got := nearest.Distance(a, b, limit); got != want {
			t.Errorf("Distance(%q, %q, %d) = %d, want %d", a, b, limit, got, want)
		}
	})
}

func TestTo(t *testing.T) {
	known := []string{"cluster-name", "cluster-id", "ipam", "debug"}
	for name, want := range map[string]string{
		"cluster-nam": "cluster-name",
		"cluster-di":  "cluster-id",
		"ipma":        "ipam",
		"cluster":     "", // three letters short of cluster-id is too far for seven
		"zzz":         "",
		"":            "",
	} {
		if got, ok := nearest.To(name, known); got != want || ok != (want != "") {
			t.Errorf("To(%q) = %q, %v, want %q", name, got, ok, want)
		}
	}
	if got, _ := nearest.To("abx", []string{"aby", "abz"}); got != "aby" {
		t.Errorf("of equals the first counts, got %q", got)
	}
}

func TestHint(t *testing.T) {
	if got := nearest.Hint("ipma", []string{"ipam"}, "no idea"); got != "did you mean ipam?" {
		t.Error(got)
	}
	if got := nearest.Hint("zzz", []string{"ipam"}, "no idea"); got != "no idea" {
		t.Error(got)
	}
}
