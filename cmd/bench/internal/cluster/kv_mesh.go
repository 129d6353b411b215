// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/skep-operator/skep/cmd/bench/internal/contest"
)

// The names of what is measured of remote clusters, at each number of them.
const (
	meshAll     = "start of the process → all EndpointSlices"
	meshCPU     = "CPU of the operator for each service"
	meshHeap    = "live heap afterwards"
	meshWrites  = "writes per EndpointSlice"
	meshChange  = "a remote service changes → its EndpointSlice has changed"
	meshAway    = "writes of EndpointSlices while a cluster is away, and when it is back"
	meshRestart = "writes of EndpointSlices by a restart"
)

var meshSlices = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")

func (b KVBench) meshContest() contest.Contest {
	c := contest.Contest{
		Name: "mesh", Title: fmt.Sprintf("%d global Services, which remote clusters have, too", b.MeshServices),
		Note: "Each remote cluster has an etcd of its own, and three backends of each Service. The last is killed for a while, and started again. " +
			"The API server needs most of the time until all EndpointSlices are there. Changes of one service are medians, from the put into the remote etcd on.",
		Contestants: []contest.Contestant{{Name: ours, Judged: true}},
	}
	for _, n := range b.meshCounts() {
		c.Measures = append(c.Measures,
			contest.Measure{Name: scaled(meshAll, n), Unit: "s"},
			contest.Measure{Name: scaled(meshCPU, n), Unit: "ms"},
			contest.Measure{Name: scaled(meshHeap, n), Unit: "MB"},
			contest.Measure{Name: scaled(meshWrites, n), Budget: contest.Budget{AtMost: 1}},
			contest.Measure{Name: scaled(meshChange, n), Unit: "ms"},
			contest.Measure{Name: scaled(meshAway, n), Budget: contest.Budget{Nothing: true}},
			contest.Measure{Name: scaled(meshRestart, n), Budget: contest.Budget{Nothing: true}},
		)
	}
	return c
}

// meshCounts are numbers of remote clusters: what grows with them shows.
func (b KVBench) meshCounts() []int { return slices.Compact([]int{1, b.Clusters}) }

func (b KVBench) mesh(ctx context.Context, r record) error {
	for _, n := range b.meshCounts() {
		err := b.onPlane(ctx, nil, func(ctx context.Context, p *plane) error {
			m := &remotes{KVBench: b, plane: p, dir: filepath.Join(p.dir, "mesh"), slices: newSightings[string](), record: func(f contest.Figures) { r(ours, f) }}
			defer m.stop()
			return m.measure(ctx, n)
		})
		if err != nil {
			return fmt.Errorf("%d remote clusters: %w", n, err)
		}
	}
	return nil
}

// remotes are remote clusters, and the EndpointSlices that are made of their services.
type remotes struct {
	KVBench
	plane  *plane
	dir    string // of their configurations
	stores []*store
	slices *sightings[string] // as sighting has them
	record func(contest.Figures)
}

func (m *remotes) stop() {
	for _, s := range m.stores {
		s.stop()
	}
}

func remoteName(i int) string  { return fmt.Sprint("remote-", i) }
func meshService(i int) string { return fmt.Sprint("service-", i) }

// backend is an address that a remote cluster has for a service. Each of five versions of a service has others.
func backend(cluster, service, version, k int) string {
	return fmt.Sprintf("10.%d.%d.%d", 10+cluster*20+service/1000*5+version, service%1000/4, service%4*40+k+1)
}

// sighting is an address of a service in a remote cluster.
func sighting(cluster, service, address string) string {
	return cluster + "/" + service + "/" + address
}

// add starts a remote cluster that has all services.
func (m *remotes) add(ctx context.Context, i int) error {
	s, err := startStore(ctx, 1)
	if err != nil {
		return err
	}
	m.stores = append(m.stores, s)
	go beat(ctx, s)
	if _, err := s.client.Put(ctx, "cilium/cluster-config/"+remoteName(i), fmt.Sprintf(`{"id":%d}`, i+2)); err != nil {
		return err
	}
	err = paced(ctx, 0, m.MeshServices, func(ctx context.Context, k int) error {
		key, value := remoteService(i, k, 0)
		_, err := s.client.Put(ctx, key, value)
		return err
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(m.dir, remoteName(i)), []byte("endpoints: ["+strings.Join(s.info.Etcd.Endpoints(), ", ")+"]\n"), 0o600)
}

// beat writes the heartbeat of a remote cluster as its operator does. While its etcd is away there is none.
func beat(ctx context.Context, s *store) {
	for ctx.Err() == nil {
		_, _ = s.client.Put(ctx, "cilium/.heartbeat", time.Now().Format(time.RFC3339))
		_ = sleep(ctx, time.Minute)
	}
}

// remoteService is the key and the value of a service in a remote cluster.
func remoteService(cluster, service, version int) (key, value string) {
	const backends = 3
	var texts []string
	for k := range backends {
		texts = append(texts, fmt.Sprintf(`%q:{"http":{"Protocol":"TCP","Port":80}}`, backend(cluster, service, version, k)))
	}
	key = "cilium/state/services/v1/" + remoteName(cluster) + "/" + benchSpace + "/" + meshService(service)
	return key, fmt.Sprintf(`{"cluster":%q,"namespace":%q,"name":%q,"frontends":{},"backends":{%s},"hostnames":{},"includeExternal":true,"shared":true,"clusterID":%d}`,
		remoteName(cluster), benchSpace, meshService(service), strings.Join(texts, ","), cluster+2)
}

// fill makes n remote clusters, and the Services of this one.
func (m *remotes) fill(ctx context.Context, n int) error {
	m.Progress(fmt.Sprintf("%d remote clusters with %d services each", n, m.MeshServices))
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		return err
	}
	for i := range n {
		if err := m.add(ctx, i); err != nil {
			return err
		}
	}
	core := m.plane.core.CoreV1()
	if _, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: benchSpace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	err := paced(ctx, 0, m.MeshServices, func(ctx context.Context, i int) error {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: meshService(i), Annotations: map[string]string{"service.cilium.io/global": "true"}}}
		s.Spec.ClusterIP, s.Spec.Ports = corev1.ClusterIPNone, []corev1.ServicePort{{Name: "http", Port: 80}}
		_, err := core.Services(benchSpace).Create(ctx, s, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return m.plane.followKind(ctx, meshSlices, m.handleSlice)
}

func (m *remotes) handleSlice(event watch.EventType, slice *unstructured.Unstructured) {
	at, labels := time.Now(), slice.GetLabels()
	cluster := labels["multicluster.kubernetes.io/source-cluster"]
	if cluster == "" || event == watch.Deleted {
		return
	}
	list, _, _ := unstructured.NestedSlice(slice.Object, "endpoints")
	for _, endpoint := range list {
		if of, ok := endpoint.(map[string]any); ok {
			addresses, _, _ := unstructured.NestedStringSlice(of, "addresses")
			for _, address := range addresses {
				m.slices.record(at, sighting(cluster, labels[discoveryv1.LabelServiceName], address))
			}
		}
	}
}

func (m *remotes) run(ctx context.Context, user string) (*operator, error) {
	o, err := m.KVBench.run(ctx, m.plane, user, slices.Concat(raised, []string{
		"--ipam=kubernetes", "--cluster-name=here", "--cluster-id=1", "--identity-allocation-mode=crd",
		"--clustermesh-enable-endpoint-sync", "--clustermesh-config=" + m.dir,
	}, m.Args)...)
	if err != nil {
		return nil, err
	}
	return o, o.waits(ctx, true)
}

func (m *remotes) measure(ctx context.Context, n int) error {
	if err := m.fill(ctx, n); err != nil {
		return err
	}
	m.Progress("the operator starts")
	o, err := m.run(ctx, "operator-0")
	if err != nil {
		return err
	}
	defer func() { o.end(syscall.SIGKILL) }()
	if err := m.sync(ctx, o, n); err != nil {
		return err
	}
	if err := m.changes(ctx, n); err != nil {
		return err
	}
	if err := m.outage(ctx, o, n); err != nil {
		return err
	}
	m.Progress("the operator starts again")
	o.end(syscall.SIGTERM)
	began := time.Now()
	if o, err = m.run(ctx, "operator-1"); err != nil {
		return err
	}
	if err := sleep(ctx, watched); err != nil {
		return err
	}
	written, err := m.written(o, began)
	m.record(contest.Figures{scaled(meshRestart, n): float64(written)})
	return err
}

// sync waits for all EndpointSlices.
func (m *remotes) sync(ctx context.Context, o *operator, n int) error {
	last, err := m.slices.count(ctx, n*m.MeshServices*3)
	if err != nil {
		return err
	}
	cpu, err := o.cpu()
	if err != nil {
		return err
	}
	heap, _, _, err := o.memory(ctx)
	if err != nil {
		return err
	}
	written, err := m.written(o, o.began)
	all := float64(n * m.MeshServices)
	m.record(contest.Figures{
		scaled(meshAll, n): last.Sub(o.began).Seconds(), scaled(meshCPU, n): 1000 * cpu / all, scaled(meshHeap, n): heap,
		scaled(meshWrites, n): float64(written) / all,
	})
	return err
}

// changes changes one service after the other.
func (m *remotes) changes(ctx context.Context, n int) error {
	m.Progress("remote services change, one after the other")
	for times := 1; times <= m.Rounds; times++ {
		cluster, service, version := times%n, times*7%m.MeshServices, 1+times%4
		key, value := remoteService(cluster, service, version)
		began := time.Now()
		if _, err := m.stores[cluster].client.Put(ctx, key, value); err != nil {
			return err
		}
		of := sighting(remoteName(cluster), meshService(service), backend(cluster, service, version, 0))
		seen, err := m.slices.wait(ctx, []string{of})
		if err != nil {
			return err
		}
		m.record(contest.Figures{scaled(meshChange, n): 1000 * seen[of].Sub(began).Seconds()})
	}
	return nil
}

// outage kills the etcd of the last cluster, and starts it again.
func (m *remotes) outage(ctx context.Context, o *operator, n int) error {
	m.Progress(fmt.Sprintf("%s is away for %s", remoteName(n-1), m.Down))
	began, last := time.Now(), m.stores[n-1]
	if err := last.kill(ctx); err != nil {
		return err
	}
	if err := sleep(ctx, m.Down); err != nil {
		return err
	}
	if err := last.startAgain(ctx); err != nil {
		return err
	}
	if err := sleep(ctx, watched); err != nil {
		return err
	}
	written, err := m.written(o, began)
	m.record(contest.Figures{scaled(meshAway, n): float64(written)})
	return err
}

// written is the number of writes of EndpointSlices since a time.
func (m *remotes) written(o *operator, since time.Time) (int, error) {
	requests, err := m.plane.requests(o.user, since)
	return mutating(requests, meshSlices), err
}
