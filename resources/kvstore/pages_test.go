// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"fmt"
	"strings"
	"testing"

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
