// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/clustertest"
	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
)

// MESH-E7: each step is reported, and what fails is named.
func TestTroubleshoot(t *testing.T) {
	w := newWorld(t)
	good := newPeer(t, "good", 2).publish("")
	secured := &peer{kvstoretest.Start(t, 1, clustertest.EtcdTLS()), "secured", 1}
	secured.publish("")
	ca, cert, key := secured.Files()
	w.file("good", good.Endpoints()[0])
	w.file("away", nowhere)
	w.write("broken", "endpoints: [")
	w.write("secured", "endpoints: ["+secured.Endpoints()[0]+"]\ntrusted-ca-file: "+ca+"\ncert-file: "+cert+"\nkey-file: "+key+"\n")
	own := cluster.Config{ClusterName: "here", ClusterID: 1, MaxConnectedClusters: 255}
	for _, test := range []struct {
		names []string
		texts []string // in the output
		fails string   // "" for not at all
	}{
		{[]string{"good"}, []string{"ok      client configuration", "ok      endpoint " + good.Endpoints()[0], "ok      heartbeat", "ok      member", `ok      configuration of the cluster: {"id":2`}, ""},
		{[]string{"secured"}, []string{"ok      CA: subject", "ok      client certificate: subject", "ok      certificate of"}, "its ID 1 is that of this cluster"},
		{[]string{"away"}, []string{"FAILED  endpoint " + nowhere}, "connection refused"},
		{[]string{"broken"}, []string{"FAILED  client configuration"}, "etcd client configuration"},
		{[]string{"none"}, nil, "has no configuration of it"},
		{nil, []string{"has 4 remote clusters", "\ngood:", "\naway:"}, "remote cluster away"},
	} {
		var out bytes.Buffer
		limit := 20 * time.Second
		if test.names == nil || slices.Contains(test.names, "away") {
			limit = 2 * time.Second // it waits for an endpoint that never answers
		}
		err := troubleshoot(t.Context(), &out, own, w.folder, test.names, limit)
		if (err == nil) != (test.fails == "") || err != nil && !strings.Contains(err.Error(), test.fails) {
			t.Errorf("%v: %v", test.names, err)
		}
		for _, text := range test.texts {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%v: no %q in\n%s", test.names, text, &out)
			}
		}
	}
}

// MESH-14: the state of a cluster as the API and the command have it.
func TestWriteText(t *testing.T) {
	yes := true
	all := []RemoteCluster{
		{
			Name: "a", Connected: true, Ready: true, Status: "etcd: 1/1 connected", NumSharedServices: 7,
			Config: RemoteConfig{Required: true, Retrieved: true, ClusterID: 2, ServiceExportsEnabled: &yes},
			Synced: RemoteSynced{Nodes: true, Endpoints: true, Identities: true, Services: true},
		},
		{Name: "b", Status: "no etcd endpoint answers", NumFailures: 1, LastFailure: time.Unix(0, 0), Config: RemoteConfig{Required: true}, Synced: RemoteSynced{Nodes: true, Endpoints: true, Identities: true}},
	}
	const summary = "ClusterMesh:\t1/2 remote clusters ready, 7 global services\n"
	const a = `  a: ready, 7 services, 0 failures (last: never)
    etcd: 1/1 connected
    remote configuration: expected=true, retrieved=true, cluster-id=2, kvstoremesh=false, sync-canaries=false, service-exports=enabled
    synchronization status: nodes=true, endpoints=true, identities=true, services=true
`
	const b = `  b: unreachable, 0 services, 1 failures (last: 1970-01-01T00:00:00Z)
    no etcd endpoint answers
    remote configuration: expected=true, retrieved=false, cluster-id=0, kvstoremesh=false, sync-canaries=false, service-exports=unsupported
    synchronization status: nodes=true, endpoints=true, identities=true, services=false
`
	for verbose, want := range map[bool]string{false: summary + b, true: summary + a + b} {
		var out bytes.Buffer
		if err := WriteText(&out, all, verbose); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, out.String()); diff != "" {
			t.Error(diff)
		}
	}
	got, err := json.Marshal(all[1])
	if err != nil {
		t.Fatal(err)
	}
	var none *Current
	empty, err := json.Marshal(none.Statuses())
	if err != nil || string(empty) != "[]" {
		t.Errorf("%s, %v", empty, err)
	}
	const wantJSON = `{"name":"b","connected":false,"ready":false,"status":"no etcd endpoint answers","num-failures":1,"last-failure":"`
	if !strings.HasPrefix(string(got), wantJSON) {
		t.Errorf("%s", got)
	}
}
