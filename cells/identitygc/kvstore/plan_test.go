// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// listing returns the keys of a map, at revision 100.
func listing(prefix string, all map[string]string) kvstore.Listing {
	l := kvstore.Listing{Revision: 100}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		l.Entries = append(l.Entries, kvstore.Entry{Key: prefix + name, Value: []byte(all[name]), ModRevision: 7})
	}
	return l
}

func found(s scanResult) []string {
	all := []string{}
	for _, c := range s.Candidates {
		text := c.Key.number.String()
		if c.Object.namesake {
			text += " unless others come"
		}
		all = append(all, text)
	}
	return all
}

// IDKV-3: numbers of other clusters; IDKV-E5 and IDKV-E6.
func TestRanges(t *testing.T) {
	all := listing(ids, map[string]string{"255": "k8s:a=1;", "256": "k8s:a=2;", "40000": "k8s:a=3;", "65536": "k8s:a=4;", "70000": "k8s:a=5;", "16777215": "k8s:a=6;"})
	for _, c := range []struct {
		cluster, most uint32
		want          []string
	}{
		{0, 255, []string{"256", "40000"}},
		{1, 255, []string{"65536", "70000"}},
		{255, 255, []string{"16777215"}},
		{0, 511, []string{"256"}},
		{1, 511, []string{"40000"}},
		{2, 511, []string{"65536", "70000"}},
		{10, 255, []string{}},
	} {
		s := scan(identity.RangeOf(c.cluster, c.most), all, kvstore.Listing{}, nil)
		if got := found(s); !slices.Equal(got, c.want) || s.Total != len(c.want) || s.foreign != 6-len(c.want) || s.count != 6 {
			t.Errorf("cluster %d of %d: unused are %v, want %v; %d foreign", c.cluster, c.most, got, c.want, s.foreign)
		}
	}
}

// IDKV-4 to IDKV-7, IDKV-E8, IDKV-E9 and IDKV-E16 to IDKV-E21.
func TestUsers(t *testing.T) {
	for name, c := range map[string]struct {
		identities, users map[string]string
		want              []string
	}{
		"E8: labels that begin alike":     {map[string]string{"300": "k8s:a=b;"}, map[string]string{"k8s:a=b;k8s:c=d;/10.0.0.1": "301"}, []string{"300"}},
		"E9: a slash":                     {map[string]string{"300": "k8s:a/n=x;"}, map[string]string{"k8s:a/n=x;/10.0.0.1": "300"}, nil},
		"E16: empty":                      {map[string]string{"300": ""}, map[string]string{"k8s:a=b;/10.0.0.1": "301"}, []string{"300"}},
		"E17: broken, its number is used": {map[string]string{"300": "k8s:a"}, map[string]string{"k8s:a=b;/10.0.0.1": "300"}, nil},
		"E18: a user without a number":    {map[string]string{"300": "k8s:a=b;"}, map[string]string{"k8s:a=b;/10.0.0.1": "x"}, nil},
		"E18: a user of no identity":      {map[string]string{"300": "k8s:a=b;"}, map[string]string{"k8s:a=b;/10.0.0.1": "302"}, nil},
		"E18: a user of other labels":     {map[string]string{"300": "k8s:a=b;", "302": "k8s:c=d;"}, map[string]string{"k8s:a=b;/10.0.0.1": "302"}, nil},
		"E19: two of the same labels":     {map[string]string{"300": "k8s:a=b;", "301": "k8s:a=b;"}, map[string]string{"k8s:a=b;/10.0.0.1": "300"}, []string{"301 unless others come"}},
		"E19: and both have users":        {map[string]string{"300": "k8s:a=b;", "301": "k8s:a=b;"}, map[string]string{"k8s:a=b;/10.0.0.1": "300", "k8s:a=b;/10.0.0.2": "301"}, nil},
		"E20: two slashes":                {map[string]string{"300": "k8s:a//b=c;"}, map[string]string{"k8s:a/b=c;/10.0.0.1": "300"}, nil},
		"E20: two slashes, both forms":    {map[string]string{"300": "k8s:a//b=c;"}, map[string]string{"k8s:a//b=c;/10.0.0.1": "x"}, nil},
		"E20: users outside":              {map[string]string{"300": "k8s:/../../x=y;"}, nil, nil},
		"a user of IPv6":                  {map[string]string{"300": "k8s:a=b;"}, map[string]string{"k8s:a=b;/fd00::1": "300"}, nil},
	} {
		s := scan(identity.RangeOf(0, 255), listing(ids, c.identities), listing(values, c.users), nil)
		if got := found(s); !slices.Equal(got, append([]string{}, c.want...)) {
			t.Errorf("%s: unused are %v, want %v", name, got, c.want)
		}
	}
}

// IDKV-6; IDKV-E4.
func TestRewritten(t *testing.T) {
	own, all := identity.RangeOf(0, 255), listing(ids, map[string]string{"300": "k8s:a=b;"})
	first := scan(own, all, kvstore.Listing{}, nil)
	all.Entries[0].ModRevision++
	second := scan(own, all, kvstore.Listing{}, first.remembered)
	third := scan(own, all, kvstore.Listing{}, second.remembered)
	if len(first.Candidates) != 1 || len(second.Candidates) != 0 || len(second.remembered) != 0 || len(third.Candidates) != 1 {
		t.Errorf("candidates of the scans: %d, %d, %d", len(first.Candidates), len(second.Candidates), len(third.Candidates))
	}
}

func TestWellFormed(t *testing.T) {
	for labels, want := range map[string]bool{
		"k8s:a=b;": true, "k8s:a=;": true, "k8s:a=b;k8s:c.d/e=f;": true, "reserved:host=;": true,
		"": false, ";": false, "k8s:a=b": false, "a=b;": false, "k8s:=b;": false, "k8s:a;": false, "k8s:a=b;;": false, ":a=b;": false,
	} {
		if wellFormed(labels) != want {
			t.Errorf("%q: %t", labels, !want)
		}
	}
}

// Whatever the labels, no identity is unused that a node uses by its number, or by its labels in either form, and all
// others are.
func TestNoneInUseIsFound(t *testing.T) {
	seed := seedtest.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	parts := []string{"k8s:a", "=b;", "/", "//", "..", ";", "k8s:c=d;", ""}
	for range 3000 {
		identities, used := map[string]string{}, map[string]string{}
		inUse := map[string]bool{}
		for n := range 6 {
			labels := fmt.Sprintf("k8s:n%d=;", n)
			for range random.IntN(5) {
				labels += parts[random.IntN(len(parts))]
			}
			number := fmt.Sprint(300 + n)
			identities[number] = labels
			written, known := clean(labels)
			if random.IntN(2) == 0 || !known {
				written = labels
			}
			if random.IntN(2) == 0 {
				used[written+"/10.0.0.1"] = number
				inUse[number] = true
			}
		}
		s := scan(identity.RangeOf(0, 255), listing(ids, identities), listing(values, used), nil)
		for _, c := range s.Candidates {
			if inUse[c.Key.number.String()] {
				t.Fatalf("seed %d: %s of %v is found, users are %v", seed, c.Key.number, identities, used)
			}
		}
		for number, labels := range identities {
			if !strings.Contains(labels, "..") && !inUse[number] && !slices.Contains(found(s), number) {
				t.Fatalf("seed %d: %s of %v is not found, users are %v", seed, number, identities, used)
			}
		}
	}
}

// IDKV-5: a user uses its number, also where its key is not known as a whole, and all with its labels where its value is not; an identity whose labels are not
// known is used.
func TestLargeKeysAndValues(t *testing.T) {
	identities := listing(ids, map[string]string{"256": "k8s:a=1;", "257": "k8s:a=2;", "258": "", "259": "k8s:a=3;"})
	identities.Entries[2].IsLarge = true
	users := listing(kvstore.Folder(kvstore.IdentityValuesPrefix), map[string]string{"k8s:a=2;k8s:b=1": "257", "k8s:a=1;/n": ""})
	for i := range users.Entries {
		users.Entries[i].IsLarge = true
	}
	s := scan(identity.RangeOf(0, 255), identities, users, nil)
	if got := found(s); !slices.Equal(got, []string{"259"}) || s.Total != 4 || len(s.unclean) != 1 || len(s.badUsers) != 1 {
		t.Errorf("unused: %v; %d in all, label strings %q, users %q", got, s.Total, s.unclean, s.badUsers)
	}
}
