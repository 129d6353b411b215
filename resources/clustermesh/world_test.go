// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/kvstore/kvstoretest"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
)

// nowhere is an address at which nothing listens.
const nowhere = "http://127.0.0.1:1"

// world is an operator of the cluster "here" with ID 1, and the directory of its remote clusters.
type world struct {
	*operatortest.Operator
	t      *testing.T
	folder string
	pause  time.Duration // between sessions
	mesh   *Mesh

	mu      sync.Mutex
	changes []Change
}

// newWorld returns a world whose operator does not run.
func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{t: t, folder: t.TempDir(), pause: 20 * time.Millisecond}
}

func (w *world) start(args ...string) {
	w.t.Helper()
	w.startWith("", 0, append([]string{"--k8s-api-server=" + nowhere}, args...)...)
}

// startWith starts an operator whose clusters wait for the IDs of earlier terms.
func (w *world) startWith(kubeconfig string, record time.Duration, args ...string) {
	w.t.Helper()
	probe := cell.Module("test.probe", "Observes the remote clusters", cell.Invoke(func(m *Mesh) {
		w.mesh, m.timing = m, timing{scan: 20 * time.Millisecond, monitor: 20 * time.Millisecond, sessionPause: w.pause, refusedPause: 50 * time.Millisecond, record: record, relist: 100 * time.Millisecond}
		m.Services.Observe(func(c Change) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.changes = append(w.changes, c)
		})
	}))
	w.Operator = operatortest.Start(w.t, cell.Set(Cell, probe), kubeconfig, append([]string{
		"--cluster-name=here", "--cluster-id=1",
		"--clustermesh-config=" + w.folder, "--clustermesh-enable-endpoint-sync",
	}, args...)...)
}

// file writes the etcd client configuration of a cluster.
func (w *world) file(cluster, endpoint string) {
	w.t.Helper()
	w.write(cluster, "endpoints:\n- "+endpoint+"\n")
}

// write replaces a file of the directory as the kubelet does, at once.
func (w *world) write(name, content string) {
	w.t.Helper()
	next := filepath.Join(w.t.TempDir(), "next")
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if err := os.Rename(next, filepath.Join(w.folder, name)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(name string) {
	w.t.Helper()
	if err := os.Remove(filepath.Join(w.folder, name)); err != nil {
		w.t.Fatal(err)
	}
}

// eventually waits for a state.
func (w *world) eventually(what string, holds func() bool) {
	w.t.Helper()
	operatortest.Eventually(w.t, what, holds)
}

var web = slim.Key{Namespace: "shop", Name: "web"}

// backends are the IPs of a service in a cluster, or what is known of it.
func (w *world) backends(cluster string, key slim.Key) string {
	s, state := w.mesh.Services.Get(cluster, key)
	if state != Present {
		return map[State]string{Unknown: "unknown", Absent: "absent"}[state]
	}
	ips := make([]string, 0, len(s.Backends))
	for ip := range s.Backends {
		ips = append(ips, ip)
	}
	slices.Sort(ips)
	return strings.Join(ips, " ")
}

func (w *world) awaitBackends(cluster, want string) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%s in %s is %q", web, cluster, want), func() bool { return w.backends(cluster, web) == want })
}

// status is the state of a cluster as the API has it.
func (w *world) status(cluster string) RemoteCluster {
	c := &Current{}
	c.mesh.Store(w.mesh)
	for _, s := range c.Statuses() {
		if s.Name == cluster {
			return s
		}
	}
	return RemoteCluster{}
}

// peer is a remote cluster with an etcd of its own.
type peer struct {
	*kvstoretest.Etcd
	name string
	id   int
}

func newPeer(t *testing.T, name string, id int) *peer {
	t.Helper()
	return &peer{kvstoretest.Start(t, 1), name, id}
}

// publish publishes the configuration of the cluster; capabilities are JSON.
func (p *peer) publish(capabilities string) *peer {
	p.Put("cilium/.heartbeat", time.Now().Format(time.RFC3339), 0)
	p.Put("cilium/cluster-config/"+p.name, fmt.Sprintf(`{"id":%d,"capabilities":{%s}}`, p.id, capabilities), 0)
	return p
}

func (p *peer) serviceKey(tree string, key slim.Key) string {
	return "cilium/" + tree + "/services/v1/" + p.name + "/" + key.String()
}

// serve publishes a service with backends, below cilium/state or cilium/cache.
func (p *peer) serve(tree string, key slim.Key, ips ...string) {
	backends := make([]string, 0, len(ips))
	for _, ip := range ips {
		backends = append(backends, fmt.Sprintf(`%q:{"http":{"Protocol":"TCP","Port":8080}}`, ip))
	}
	p.Put(p.serviceKey(tree, key), fmt.Sprintf(
		`{"cluster":%q,"namespace":%q,"name":%q,"frontends":{},"backends":{%s},"hostnames":{},"labels":{},"selector":{},"includeExternal":true,"shared":true,"clusterID":%d}`,
		p.name, key.Namespace, key.Name, strings.Join(backends, ","), p.id), 0)
}

// mark marks a prefix as complete.
func (p *peer) mark(prefix string) {
	p.Put("cilium/synced/"+p.name+"/"+prefix, time.Now().UTC().Format(time.RFC3339), 0)
}

// snapshot is a file with what the etcd has.
func (p *peer) snapshot(t *testing.T) (file string) {
	t.Helper()
	data, err := p.Client.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	content, err := io.ReadAll(data)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "snapshot.db")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
