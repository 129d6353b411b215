// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// nic is an interface of a cloud.
type nic struct {
	id, primary string
	addresses   []string
}

func (n nic) Key() (id, instance string) { return n.id, "i-1" }

func (n nic) Holds() (primary string, addresses, prefixes []string) {
	return n.primary, n.addresses, nil
}

func (n nic) With(addresses, _ []string) nic { return nic{n.id, n.primary, addresses} }

// What was created is there until the cloud shows it, in clouds whose interfaces have a primary address, and in those whose have none; and
// when its primary address is another's, it has been deleted.
func TestRecent(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, test := range []struct {
		what    string
		created []nic
		shown   []nic
		later   time.Duration
		want    string
	}{
		{"with primary addresses", []nic{{"a", "10.0.0.1", nil}, {"b", "10.0.0.2", nil}}, nil, 0, "a b"},
		{"without", []nic{{"a", "", []string{"10.0.0.1"}}, {"b", "", []string{"10.0.0.2"}}}, nil, 0, "a b"},
		{"without, beside one that is shown", []nic{{"a", "", []string{"10.0.0.1"}}}, []nic{{"b", "", []string{"10.0.0.2"}}}, 0, "a b"},
		{"without any address", []nic{{"a", "", nil}, {"b", "", nil}}, []nic{{"c", "", nil}}, 0, "a b c"},
		{"another one has the primary address", []nic{{"a", "10.0.0.1", nil}}, []nic{{"b", "", []string{"10.0.0.1"}}}, 0, "b"},
		{"too late", []nic{{"a", "", nil}}, nil, recentAge + time.Second, ""},
	} {
		var r Recent[nic]
		for _, n := range test.created {
			r.Created(n, now)
		}
		shown := map[string]map[string]nic{"i-1": {}}
		for _, n := range test.shown {
			shown["i-1"][n.id] = n
		}
		r.Complete(shown, now.Add(test.later))
		if got := strings.Join(slices.Sorted(maps.Keys(shown["i-1"])), " "); got != test.want {
			t.Errorf("%s: %q, want %q", test.what, got, test.want)
		}
	}
}
