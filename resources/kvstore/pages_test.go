// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/resources/clustertest"
)

// KV-O10: a page of keys whose values are larger than a message may be is asked for with fewer keys, whatever the size of pages is.
func TestPagesOfLargeValues(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"", "0", "256"} {
		t.Run("etcd.limit="+limit, func(t *testing.T) {
			t.Parallel()
			e := clustertest.StartEtcd(t, 1)
			setups := []setup{to(e.Endpoints()[0]), func(p *connParams) { p.Timing.maxMessage = 64 << 10 }}
			if limit != "" {
				setups = append(setups, option("etcd.limit", limit))
			}
			etcd, r := directClient(t, e), newHarness(t, setups...).ready(t)
			value := strings.Repeat("x", 1<<10)
			for i := range 300 {
				must(etcd.Put(t.Context(), fmt.Sprintf("large/%03d", i), value))(t)
			}
			listing := must(r.List(t.Context(), "large/"))(t)
			if n := len(listing.Entries); n != 300 || listing.Entries[299].Key != "large/299" || string(listing.Entries[299].Value) != value {
				t.Errorf("%d entries", n)
			}
			v := watchView(t, r, "large/")
			eventually(t, "300 keys and Synced", func() bool { v.mu.Lock(); defer v.mu.Unlock(); return v.synced == 1 })
			if len(v.events) != 301 {
				t.Errorf("%d events", len(v.events))
			}
			v.complain(t)
		})
	}
}

// KV-O11: of keys and values that are larger than was asked for, a listing keeps what has a bounded size.
func TestListUpTo(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd, r := directClient(t, e), newHarness(t, to(e.Endpoints()[0])).ready(t)
	long := "some/" + strings.Repeat("k", 2000)
	for key, value := range map[string]string{"some/a": "12345", "some/b": "123456", long[:5+1024]: "1", long: "12"} {
		must(etcd.Put(t.Context(), key, value))(t)
	}
	var got []string
	for _, entry := range must(r.List(t.Context(), "some/", UpTo(5)))(t).Entries {
		got = append(got, fmt.Sprintf("%.6s of %d: %q %t", entry.Key, len(entry.Key), entry.Value, entry.IsLarge))
	}
	want := []string{`some/a of 6: "12345" false`, `some/b of 6: "" true`, `some/k of 1029: "1" false`, `some/k of 256: "12" true`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
