// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/clustertest"
)

// KV-Q5: the status screen of the leader has the number of keys of each kind.
func TestContents(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1)
	etcd := directClient(t, e)
	for _, key := range []string{
		"cilium/state/nodes/v1/c1/a", "cilium/state/nodes/v1/c1/b", "cilium/state/nodes/v1/c10/a", "cilium/state/nodes/v1x/c1/a",
		"cilium/state/identities/v1/id/7", "cilium/state/identities/v1/value/k8s:a=b;/192.0.2.1",
	} {
		must(etcd.Put(t.Context(), key, "v"))(t)
	}
	current := newCurrentConn()
	rows := newSection(current).Section.Rows
	if got := rows(); len(got) != 0 {
		t.Errorf("a standby shows %v", got)
	}
	r := newHarness(t, quick, to(e.Endpoints()[0])).ready(t)
	current.conn.Store(r.conn)
	numbers := func() (all []string) {
		for _, row := range rows() {
			all = append(all, fmt.Sprintf("%s %s", row[0], row[1]))
		}
		return all
	}
	want := []string{"cluster configurations 0", "services 0", "EndpointSlices 0", "service exports 0", "nodes 3", "identities 1", "users of identities 1", "identity locks 0"}
	eventually(t, "keys are counted", func() bool { return slices.Equal(numbers(), want) })
	must(etcd.Delete(t.Context(), "cilium/state/nodes/v1/c1/a"))(t)
	eventually(t, "a deleted key is not counted", func() bool { return slices.Contains(numbers(), "nodes 2") })
}

// KV-Q5: what the role in etcd does not allow to be read is unknown, the other kinds are counted.
func TestContentsWithoutPermission(t *testing.T) {
	t.Parallel()
	e := clustertest.StartEtcd(t, 1, clustertest.EtcdAuth())
	u := newUser(t, directClient(t, e), "operator", "cilium/.", "cilium/state/nodes/")
	current := newCurrentConn()
	r := newHarness(t, quick, u.file(t, e.Endpoints())).ready(t)
	current.conn.Store(r.conn)
	eventually(t, "nodes are counted, services are not", func() bool {
		text := fmt.Sprint(newSection(current).Section.Rows())
		return strings.Contains(text, "[services unknown ") && strings.Contains(text, "[nodes 0 ")
	})
}
